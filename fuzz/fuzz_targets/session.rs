//! Any bytes and any order of packets from several clients at once, in process: no panic, nobody hangs, all that the
//! gateway sends is sound, and others are served.
//!
//! The input is read as a list of steps (see `step.rs`). Each input gets a gateway and a runtime of its own, so it
//! does the same again as far as threads allow: the clients and their connections share one, the dispatchers have theirs.
#![no_main]

#[path = "../../tests/common"]
#[allow(dead_code)]
mod common {
    pub mod decode;
    pub mod packet;
    pub mod property;
}
#[path = "session/peer.rs"]
mod peer;
#[path = "session/step.rs"]
mod step;
#[path = "session/verdicts.rs"]
mod verdicts;

use std::time::Duration;

use common::decode::Packet;
use common::packet::{Connect, Encode, Publish, Subscribe, Version};
use libfuzzer_sys::fuzz_target;
use tidegate::config::Settings;
use tidegate::gateway::Gateway;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use peer::Peer;
use step::{Input, SLOTS, Step};

/// Steps of one input, and milliseconds that it may sleep: a case must be short.
const STEPS: usize = 200;
const SLEEPS: u64 = 60;
/// For what must happen.
const PATIENCE: Duration = Duration::from_secs(15);

fuzz_target!(|bytes: &[u8]| {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(run(Input::new(bytes)));
});

async fn run(mut input: Input<'_>) {
    let gateway = Gateway::builder(settings()).plugin(Box::new(verdicts::ByTopic)).build().unwrap();
    let mut peers: [Option<Peer>; SLOTS] = Default::default();
    let mut sleeps = 0;
    for _ in 0..STEPS {
        let Some((slot, step)) = input.step() else { break };
        match step {
            Step::Open(buffer) => peers[slot] = Some(Peer::open(&gateway, buffer)),
            Step::Vanish => peers[slot] = None,
            Step::Sleep(millis) if sleeps + millis <= SLEEPS => {
                sleeps += millis;
                sleep(Duration::from_millis(millis)).await;
            }
            Step::Sleep(_) => {}
            step => peers[slot].get_or_insert_with(|| Peer::open(&gateway, 65_536)).perform(step),
        }
        // connections whose turn it is have it
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    peers.iter_mut().flatten().for_each(Peer::read);
    serve_others(&gateway).await;
    drop(peers);
    timeout(PATIENCE, all_gone(&gateway)).await.expect("connections never ended");
}

/// Small limits, so that a few steps reach them.
fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.session.receive_maximum = 4;
    settings.session.topic_alias_maximum = 3;
    settings.session.max_packet_size = 2_000;
    settings.session.max_subscriptions = 6;
    settings.session.max_offline_sessions = 2;
    settings.session.max_client_id = 20;
    settings.session.sys_interval = 0;
    settings.listen.max_buffer = 300;
    settings.queue.max_messages = 8;
    settings.queue.max_bytes = 4_000;
    settings.queue.offline_messages = 5;
    settings.queue.progress_timeout = 1;
    settings.queue.max_retained = 3;
    settings
}

/// Whatever the others did, a client with nothing to hide is served.
async fn serve_others(gateway: &Gateway) {
    let mut other = Peer::open(gateway, 65_536);
    other.perform(Step::Connect(Connect::v5("other")));
    other.send_packet(&Subscribe::new(1, &[("other", 1)]));
    other.send_packet(&Publish::new("other", "served").qos(1).id(2));
    let mut due = 4;
    let serving = async {
        while due > 0 {
            other.push();
            match other.next().await.expect("closed for no reason") {
                Packet::Connack(connack) => assert_eq!(connack.code, 0),
                Packet::Suback(suback) => assert_eq!(suback.codes, [1]),
                Packet::Ack(ack) => assert_eq!((ack.id, ack.code), (2, 0)),
                Packet::Publish(publish) => assert_eq!(publish.payload, b"served"),
                packet => panic!("{packet:?} was not due"),
            }
            due -= 1;
        }
    };
    timeout(PATIENCE, serving).await.expect("others are not served");
    other.send_packet(&[0xE0, 0].encode(Version::V5));
    other.push();
}

async fn all_gone(gateway: &Gateway) {
    while gateway.connected() != 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

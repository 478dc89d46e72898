//! What happens while the spine is full: the dispatchers are kept from the topic tree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// the lock keeps the dispatchers busy while the test goes on; nothing that it awaits needs it
#![allow(clippy::await_holding_lock)]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::*;
use crate::chain::Chain;
use crate::config::Settings;

/// How long to wait for what must happen, and for what must not.
const PATIENCE: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(300);

fn start() -> (Runtime, Arc<Broker>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut settings = Settings::default();
    // the spine holds little
    settings.queue.max_bytes = 128 * 1024;
    let inside = runtime.enter();
    let broker = Broker::start(settings, Chain::default()).unwrap();
    drop(inside);
    (runtime, broker)
}

/// A 3.1.1 client with a session that stays.
struct Client(DuplexStream);

impl Client {
    async fn connect(runtime: &Runtime, broker: &Arc<Broker>, id: u8) -> Self {
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let stream = Stream::other(theirs, SocketAddr::from(([127, 0, 0, 1], 1)));
        runtime.spawn(serve(Arc::clone(broker), stream));
        let mut client = Self(ours);
        client.send(&packet(0x10, &[b"\0\x04MQTT\x04\0\0\0\0\x01", &[id][..]].concat())).await;
        assert_eq!(client.read(4).await[0], 0x20);
        client
    }

    async fn send(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.0.write_all(bytes)).await.unwrap().unwrap();
    }

    async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        timeout(PATIENCE, self.0.read_exact(&mut bytes)).await.expect("an answer").unwrap();
        bytes
    }

    /// Publishes at QoS 2 until the spine has no room; the identifier of what waits.
    async fn fill(&mut self) -> u16 {
        for id in 1.. {
            self.send(&publish(4, id, &[b'x'; 40_000])).await;
            let mut answer = [0; 4];
            match timeout(MOMENT, self.0.read_exact(&mut answer)).await {
                Ok(read) => assert_eq!((read.unwrap(), answer[0]), (4, 0x50)),
                Err(_) => return id,
            }
        }
        unreachable!("identifiers end")
    }

    /// The payload of the next message, at QoS 0.
    async fn receive(&mut self) -> Vec<u8> {
        let mut length = 0;
        let first = self.read(1).await[0];
        assert_eq!(first & 0xF6, 0x30, "a PUBLISH of QoS 0, not {first:02x}");
        for shift in (0..).step_by(7) {
            let byte = self.read(1).await[0];
            length |= usize::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                break;
            }
        }
        self.read(length).await.split_off(3)
    }
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut length = body.len();
    let mut bytes = vec![first];
    while length > 127 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    [&bytes, body].concat()
}

/// A PUBLISH to `t`.
fn publish(flags: u8, id: u16, payload: &[u8]) -> Vec<u8> {
    let id = id.to_be_bytes();
    let id = if flags & 6 == 0 { &[][..] } else { &id };
    packet(0x30 | flags, &[b"\0\x01t", id, payload].concat())
}

async fn subscriber(runtime: &Runtime, broker: &Arc<Broker>) -> Client {
    let mut subscriber = Client::connect(runtime, broker, b's').await;
    subscriber.send(&packet(0x82, b"\0\x01\0\x01t\0")).await;
    subscriber.read(5).await;
    subscriber
}

/// A QoS 2 message that the spine had no room for is not known when its client sends it again.
#[test]
fn qos_2_that_was_not_accepted_is_taken_when_it_comes_again() {
    let (runtime, broker) = start();
    let test = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    test.block_on(async {
        let mut subscriber = subscriber(&runtime, &broker).await;
        let mut publisher = Client::connect(&runtime, &broker, b'p').await;
        let tree = broker.tree.write();
        let waiting = publisher.fill().await;
        let mut again = Client::connect(&runtime, &broker, b'p').await;
        again.send(&publish(4 | 8, waiting, b"again")).await;
        tokio::time::sleep(MOMENT).await;
        drop(tree);
        assert_eq!(again.read(4).await, [0x50, 2, 0, waiting as u8]);
        for _ in 1..waiting {
            assert_eq!(subscriber.receive().await.len(), 40_000);
        }
        assert_eq!(subscriber.receive().await, b"again");
    });
}

/// What a client published before its DISCONNECT is delivered though the spine had no room.
#[test]
fn publish_and_goodbye() {
    let (runtime, broker) = start();
    let test = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    test.block_on(async {
        let mut subscriber = subscriber(&runtime, &broker).await;
        let tree = broker.tree.write();
        let mut fillers = Vec::new();
        // sessions take turns with the shards of the spine
        for id in 0..std::thread::available_parallelism().unwrap().get().min(16) {
            let mut filler = Client::connect(&runtime, &broker, b'A' + id as u8).await;
            filler.fill().await;
            fillers.push(filler);
        }
        let mut leaving = Client::connect(&runtime, &broker, b'l').await;
        leaving.send(&[publish(0, 0, b"goodbye"), vec![0xE0, 0]].concat()).await;
        tokio::time::sleep(MOMENT).await;
        drop(tree);
        while subscriber.receive().await != b"goodbye" {}
    });
}

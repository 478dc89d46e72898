//! How well a proxy knows what waits in the broker behind it: the test knows the truth.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::PATIENCE;
use common::client::Client;
use common::packet::*;
use common::server::{Server, Setup, Target};
use serde_json::Value as Json;

/// What Mosquitto keeps for one consumer: 300 waiting and 20 in flight.
const LIMIT: u64 = 320;

fn start(name: &str, limit: u64) -> Server {
    let settings = vec![
        ("plugins", r#"["access","overload"]"#.to_owned()),
        ("proxy.queue_limit", limit.to_string()),
        // only to measure: nobody is held back
        ("queue.never_hold", r#"[{client = "*"}]"#.into()),
        ("overload.target_delay_ms", "600000".into()),
    ];
    let mosquitto = "max_queued_messages 300\nmax_inflight_messages 20\n";
    Server::start(name, &Setup { settings, mosquitto, target: Some(Target::Proxy), ..Setup::default() })
}

/// What the proxy says of the consumer's queue: messages that wait, in flight, and lost ones so far.
fn told(server: &Server) -> Option<(u64, u64, u64)> {
    let answer = server.get("/api/v1/queues");
    let line = answer.lines().find(|line| line.starts_with('['))?;
    let queues: Json = serde_json::from_str(line).expect("JSON");
    let queue = queues.as_array()?.iter().find(|queue| queue["queue"] == "slow:d/#")?;
    Some((queue["depth"].as_u64()?, queue["in_flight"].as_u64()?, queue["lost"].as_u64()?))
}

/// The proxy comes to say what is true, within 2%.
fn expect(server: &Server, what: &str, depth: u64) {
    let deadline = Instant::now() + PATIENCE;
    let near = |told: u64| told.abs_diff(depth) * 50 <= depth.max(1);
    let mut last = None;
    while Instant::now() < deadline {
        last = told(server).or(last);
        if last.is_some_and(|(waiting, in_flight, _)| near(waiting + in_flight)) {
            // it stays so
            std::thread::sleep(Duration::from_millis(400));
            last = told(server).or(last);
            if last.is_some_and(|(waiting, in_flight, _)| near(waiting + in_flight)) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: {depth} messages are there, the proxy says {last:?}");
}

fn publish(publisher: &mut Client, count: usize) {
    for _ in 0..count {
        assert_eq!(publisher.publish(Publish::new("d/1", "x").qos(1)), 0);
    }
}

fn take(consumer: &mut Client, count: usize) {
    for _ in 0..count {
        consumer.receive();
    }
}

/// Bursts, a consumer that comes and goes, drops by Mosquitto's queue limit.
#[test]
fn the_depth_is_known() {
    let server = start("depth", LIMIT);
    let persistent = Connect::persistent(Version::V311, "slow");
    let mut consumer = server.connect(&persistent);
    consumer.subscribe("d/#", 1);
    let mut publisher = server.client(Version::V311);
    publish(&mut publisher, 100);
    expect(&server, "a burst", 100);
    take(&mut consumer, 60);
    expect(&server, "the consumer took some", 40);
    consumer.vanish();
    publish(&mut publisher, 110);
    expect(&server, "a burst while it is away", 150);
    let mut consumer = server.connect(&persistent.clone().resume());
    assert!(consumer.connack.session_present);
    expect(&server, "it is back and slow", 150);
    publish(&mut publisher, 400);
    // those of the first ones that were never acknowledged come again
    expect(&server, "Mosquitto throws away what is over its limit", LIMIT);
    take(&mut consumer, 100);
    expect(&server, "it works again", LIMIT - 100);
    publish(&mut publisher, 30);
    expect(&server, "and more comes", LIMIT - 70);
    take(&mut consumer, (LIMIT - 70) as usize);
    consumer.expect_silence();
    expect(&server, "all is done", 0);
}

/// Without a word about the limit, what is lost upstream is seen once the consumer has nothing to do.
#[test]
fn losses_are_seen_when_there_is_room() {
    let server = start("losses", 0);
    let mut consumer = server.connect(&Connect::v311("slow"));
    consumer.subscribe("d/#", 1);
    let mut publisher = server.client(Version::V311);
    publish(&mut publisher, 500);
    take(&mut consumer, LIMIT as usize);
    consumer.expect_silence();
    expect(&server, "nothing comes any more", 0);
    publish(&mut publisher, 50);
    take(&mut consumer, 20);
    expect(&server, "and it goes on from there", 30);
}

/// The proxy is new, the session is old: its subscription is learned from what is delivered.
#[test]
fn an_old_session_is_learned() {
    let server = start("learned", 0);
    let upstream = server.upstream.as_ref().expect("a broker");
    let persistent = Connect::persistent(Version::V311, "old");
    let mut direct = upstream.connect(&persistent);
    direct.subscribe("d/#", 1);
    direct.disconnect();
    let mut consumer = server.connect(&persistent.clone().resume());
    assert!(consumer.connack.session_present);
    let mut publisher = server.client(Version::V311);
    publish(&mut publisher, 1);
    take(&mut consumer, 1);
    publish(&mut publisher, 60);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = server.get("/api/v1/queues");
        if answer.contains(r#""queue":"old:d/1""#) && answer.contains(r#""in_flight":20"#) {
            break;
        }
        assert!(Instant::now() < deadline, "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

//! Clients that mean harm, or are broken: the server's memory stays bounded, and it serves the others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use common::client::{Client, End};
use common::flood::flood;
use common::packet::Version::{V5, V311};
use common::packet::*;
use common::server::{Server, Setup};
use common::{PATIENCE, unique};

/// More resident memory than this is growth without bound: queues hold at most 16 MB each.
const MEMORY_KB: u64 = 150 * 1024;

fn start(name: &str, settings: &[(&'static str, &str)]) -> Server {
    let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    Server::start(name, &Setup { settings, ..Setup::default() })
}

/// A well-behaved pair is served, and the server has not grown without bound.
fn assert_well(server: &Server) {
    for version in [V311, V5] {
        let topic = unique("well/");
        let (mut publisher, mut subscriber) = (server.client(version), server.client(version));
        subscriber.subscribe(&topic, 2);
        for qos in 0..=2 {
            publisher.publish(Publish::new(&topic, "well").qos(qos));
            assert_eq!(subscriber.receive().text(), "well");
        }
    }
    assert_memory(server);
}

fn assert_memory(server: &Server) {
    let resident = server.resident_kb();
    assert!(resident < MEMORY_KB, "{resident} kB are resident");
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.next() as usize % most + 1;
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// CONNECT byte by byte, so slowly that it would never end: closed when the connect time-out is over, however
/// busily bytes come.
#[test]
fn slow_loris() {
    let server = start("slow-loris", &[("listen.connect_timeout", "1")]);
    let connect = Connect::v5(&"x".repeat(250)).encode(V5);
    let mut slow: Vec<Client> = (0..50).map(|_| server.open(V5)).collect();
    let mut silent: Vec<Client> = (0..50).map(|_| server.open(V5)).collect();
    let deadline = Instant::now() + PATIENCE;
    for byte in &connect[..connect.len() - 1] {
        slow.retain_mut(|client| {
            let _ = client.try_send(&[*byte]);
            match client.recv_within(Duration::from_millis(1)) {
                Ok(packet) => panic!("an answer to half a CONNECT: {packet:?}"),
                Err(end) => end == End::Timeout,
            }
        });
        if slow.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{} slow connections are still open", slow.len());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(slow.is_empty(), "{} connections outlived their connect time-out", slow.len());
    for client in &mut silent {
        assert_eq!(client.recv_within(PATIENCE), Err(End::Closed), "a silent connection");
    }
    assert_well(&server);
}

/// Subscribers that stop reading while messages flow to them: the flow goes on for others, memory is bounded.
#[test]
fn subscriber_that_never_reads() {
    let server = start("never-reads", &[]);
    let mut stuck: Vec<Client> = (0..4).map(|_| server.client(V311)).collect();
    for (n, client) in stuck.iter_mut().enumerate() {
        client.subscribe("flow/#", (n % 2) as u8);
    }
    let mut good = server.client(V311);
    good.subscribe("flow/good", 1);
    let mut publisher = server.client(V311);
    let payload = vec![7; 1_000];
    flood(&mut publisher, (0..60_000).map(|_| Publish::new("flow/bad", payload.clone())), 1, |_| {});
    publisher.publish(Publish::new("flow/good", "still here").qos(1));
    assert_eq!(good.receive().text(), "still here");
    assert_well(&server);
    drop(stuck);
    assert_well(&server);
}

/// A client that asks and never reads the answers: the server does not collect them without bound.
#[test]
fn client_that_never_reads_its_answers() {
    let server = start("never-reads-answers", &[]);
    let mut publisher = server.client(V5);
    publisher.publish(Publish::new("big/retained", vec![7; 500_000]).qos(1).retain());
    for (name, question) in
        [("ping", PINGREQ.to_vec()), ("retained", Subscribe::new(1, &[("big/retained", 1)]).encode(V5))]
    {
        let client = server.client(V5);
        let mut stream = client.stream();
        stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a time-out");
        let questions = question.repeat(1_000);
        for _ in 0..500 {
            match stream.write(&questions) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(_) => break,
            }
        }
        assert!(server.resident_kb() < MEMORY_KB, "{name}: {} kB are resident", server.resident_kb());
        assert_well(&server);
    }
}

/// A header that announces 256 MB: refused at once (0x95), before the bytes come and before CONNECT too.
#[test]
fn length_of_256_megabytes() {
    let server = start("length", &[]);
    for first in [0x30, 0x32, 0x82, 0xA2] {
        let mut five = server.client(V5);
        five.send(&[first, 0xFF, 0xFF, 0xFF, 0x7F]);
        five.expect_closed(&[0x95]);
        let mut three = server.client(V311);
        three.send(&[first, 0xFF, 0xFF, 0xFF, 0x7F]);
        three.expect_closed(&[]);
    }
    let mut stranger = server.open(V5);
    stranger.send(&[0x10, 0xFF, 0xFF, 0xFF, 0x7F]);
    assert_eq!(stranger.recv_within(PATIENCE), Err(End::Closed));
    assert_well(&server);
}

/// Many connections that each announce the largest packet allowed, send a part of it and wait.
#[test]
fn many_half_packets() {
    let server = start("half-packets", &[]);
    let mut clients: Vec<Client> = (0..500).map(|_| server.client(V311)).collect();
    for client in &mut clients {
        // Two million bytes are announced, a thousand are sent.
        client.send(&[0x30, 0x80, 0x89, 0x7A, 0, 4, b'h', b'a', b'l', b'f']);
        client.send(&vec![0; 1_000]);
    }
    assert_well(&server);
    drop(clients);
    assert_well(&server);
}

/// 10,000 subscriptions from one client work, more are refused, and they end with the client.
#[test]
fn ten_thousand_subscriptions() {
    let server = start("subscriptions", &[]);
    let mut client = server.client(V5);
    for batch in 0..100 {
        let filters: Vec<String> = (0..100).map(|n| format!("many/{batch}/+/{n}/#")).collect();
        let filters: Vec<(&str, u8)> = filters.iter().map(|filter| (filter.as_str(), 1)).collect();
        let id = client.packet_id();
        assert_eq!(client.subscribe_with(&Subscribe::new(id, &filters)).codes, vec![1; 100]);
    }
    let codes = client.try_subscribe("one/too/many", 1);
    assert_eq!(codes, [0x97], "over session.max_subscriptions");
    let mut publisher = server.client(V5);
    for topic in ["many/0/x/0", "many/99/x/99/y", "many/50/x/50/y/z"] {
        publisher.publish(Publish::new(topic, topic).qos(1));
        assert_eq!(client.receive().text(), topic);
    }
    assert_well(&server);
    client.vanish();
    assert_well(&server);
}

/// 50,000 retained messages at once, for several subscribers, while others are served.
#[test]
fn storm_of_retained_messages() {
    const COUNT: usize = 50_000;
    let server = start("retained-storm", &[]);
    let mut publisher = server.client(V311);
    let topic = |n: usize| format!("storm/{}/{n}", n % 100);
    flood(&mut publisher, (0..COUNT).map(|n| Publish::new(&topic(n), "x").qos(1).retain()), 500, |_| {});
    let mut stuck = server.client(V311);
    stuck.send(&Subscribe::new(1, &[("#", 0)]));
    for (version, qos) in [(V311, 0), (V5, 1)] {
        let mut subscriber = server.client(version);
        let id = subscriber.packet_id();
        subscriber.send(&Subscribe::new(id, &[("storm/#", qos)]));
        assert_well(&server);
        let mut seen = vec![false; COUNT];
        for _ in 0..COUNT {
            let publish = subscriber.receive();
            assert!(publish.retain);
            let n: usize = publish.topic.rsplit('/').next().expect("a number").parse().expect("a number");
            assert!(!seen[n], "{} came twice", publish.topic);
            seen[n] = true;
        }
        subscriber.ping();
    }
    assert_well(&server);
}

/// Random bytes, before and after CONNECT.
#[test]
fn random_bytes() {
    let server = start("random", &[]);
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    for round in 0..300 {
        let mut client = match round % 3 {
            0 => server.open(V5),
            1 => server.client(V5),
            _ => server.client(V311),
        };
        let _ = client.try_send(&random.bytes(2_000));
        drop(client);
    }
    assert_well(&server);
}

/// Packets with some bytes changed: most are malformed, some mean something else.
#[test]
fn mutated_packets() {
    let server = start("mutated", &[]);
    let mut random = Random(0xFEDC_BA98_7654_3211);
    for round in 0..400 {
        let version = if round % 2 == 0 { V5 } else { V311 };
        let mut bytes = session_of_packets(version);
        for _ in 0..random.next() % 6 + 1 {
            let index = random.next() as usize % bytes.len();
            bytes[index] = random.next() as u8;
        }
        let mut client = server.open(version);
        let _ = client.try_send(&bytes);
        drop(client);
    }
    assert_well(&server);
}

/// A whole session in bytes.
fn session_of_packets(version: Version) -> Vec<u8> {
    let will = Will::new("mutated/will", "w").qos(1);
    let mut bytes = Connect::persistent(version, "mutated").will(will).encode(version);
    bytes.extend(Subscribe::new(1, &[("mutated/#", 2), ("$share/g/mutated/+", 1)]).encode(version));
    for qos in 0..=2 {
        bytes.extend(Publish::new("mutated/topic", "payload").qos(qos).id(7).retain().encode(version));
    }
    bytes.extend(Ack::new(Kind::Pubrel, 7).encode(version));
    bytes.extend(Unsubscribe::new(2, &["mutated/#"]).encode(version));
    bytes.extend(PINGREQ);
    bytes.extend(Disconnect::default().encode(version));
    bytes
}

/// Text that is not UTF-8, wherever text may stand.
#[test]
fn text_that_is_not_utf8() {
    let server = start("utf8", &[]);
    let bad: [&[u8]; 8] = [
        b"\xFF",
        b"\xC3\x28",
        b"\xA0\xA1",
        b"\xE2\x28\xA1",
        b"\xF0\x28\x8C\xBC",
        b"\xED\xA0\x80",
        b"\xF8\xA1\xA1\xA1\xA1",
        b"\xC0\x80",
    ];
    for text in bad {
        for (first, before, after) in
            [(0x30, &b""[..], &b"\0x"[..]), (0x82, b"\0\x01\0", b"\0"), (0xA2, b"\0\x01\0", b"")]
        {
            let mut body = before.to_vec();
            field(&mut body, text);
            body.extend_from_slice(after);
            let mut client = server.client(V5);
            client.send(&frame(first, &body));
            client.expect_closed(&[0x81, 0x82, 0x90]);
        }
    }
    assert_well(&server);
}

/// Thousands of connections that come and go, with and without CONNECT.
#[test]
fn flood_of_connections() {
    let server = start("connections", &[]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..500 {
                    match n % 3 {
                        0 => drop(server.open(V5)),
                        1 => drop(server.client(V311)),
                        _ => server.client(V5).disconnect(),
                    }
                }
            });
        }
    });
    let crowd: Vec<Client> = (0..1_000).map(|_| server.client(V311)).collect();
    assert_well(&server);
    drop(crowd);
    assert_well(&server);
}

/// Sessions that subscribe and vanish leave nothing behind.
#[test]
fn sessions_that_vanish() {
    let server = start("vanish", &[]);
    let round = || {
        for n in 0..500 {
            let mut client = server.client(if n % 2 == 0 { V5 } else { V311 });
            client.subscribe(&unique("vanish/"), 1);
            drop(client);
        }
        assert_well(&server);
        server.resident_kb()
    };
    let first = round();
    let mut last = first;
    for _ in 0..4 {
        last = round();
    }
    assert!(last < first + 10 * 1024, "{first} kB after 500 sessions, {last} kB after 2,500");
}

/// Messages to very many topics leave nothing behind.
#[test]
fn very_many_topics() {
    let server = start("topics", &[]);
    let mut publisher = server.client(V311);
    let mut publish = |from: usize| {
        let messages = (from..from + 20_000).map(|n| Publish::new(&format!("topic/{n}/of/many"), "x").qos(1));
        flood(&mut publisher, messages, 500, |_| {});
        server.resident_kb()
    };
    let first = publish(0);
    publish(20_000);
    let last = publish(40_000);
    assert!(last < first + 10 * 1024, "{first} kB after 20,000 topics, {last} kB after 60,000");
    assert_well(&server);
}

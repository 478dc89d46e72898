//! Proxy mode before an upstream that the test itself is: what it is sent, byte by byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::decode::{Packet, packet_length};
use common::packet::*;
use common::property::*;
use common::server::{Server, Setup, Target, free_address};
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// A broker that lets everybody in, answers pings, and keeps what else it is sent.
struct Raw {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// What clients sent after CONNECT, by client identifier.
    sent: Mutex<HashMap<String, Vec<u8>>>,
    pings: Mutex<HashMap<String, usize>>,
    /// Nothing is read after CONNECT.
    stuck: AtomicBool,
    maximum_packet_size: u32,
}

impl Raw {
    fn start(maximum_packet_size: u32) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("the address");
        let (sent, pings) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { sent, pings, stuck: AtomicBool::new(false), maximum_packet_size });
        let raw = Self { address, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        raw
    }

    /// A proxy before these.
    fn proxy(name: &str, all: &[&Self], settings: &[(&'static str, &str)]) -> Server {
        let upstream: Vec<_> = all.iter().map(|raw| raw.address.to_string()).collect();
        let mut all = vec![("mode", "proxy".to_owned()), ("proxy.upstream", upstream.join(", "))];
        all.extend(settings.iter().map(|(key, value)| (*key, value.to_string())));
        Server::start(name, &Setup { settings: all, target: Some(Target::ProxyAlone), ..Setup::default() })
    }

    fn clients(&self) -> usize {
        self.shared.sent.lock().len()
    }

    fn received(&self, client: &str) -> usize {
        self.shared.sent.lock().get(client).map_or(0, Vec::len)
    }

    /// Takes so many bytes of what a client sent, once they are there.
    fn take(&self, client: &str, count: usize) -> Vec<u8> {
        eventually("the bytes", || self.received(client) >= count);
        self.shared.sent.lock().get_mut(client).expect("a client").drain(..count).collect()
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let (mut input, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
        let mut client = None;
        loop {
            while let Some(length) = packet_length(&input) {
                let packet: Vec<u8> = input.drain(..length).collect();
                let answer = match (&client, packet[0] >> 4) {
                    (None, 1) => {
                        let (id, connack) = self.welcome(&packet);
                        self.sent.lock().insert(id.clone(), Vec::new());
                        client = Some(id);
                        connack
                    }
                    (Some(id), 12) => {
                        *self.pings.lock().entry(id.clone()).or_default() += 1;
                        vec![0xD0, 0]
                    }
                    (Some(id), _) => {
                        self.sent.lock().get_mut(id).expect("a client").extend(packet);
                        continue;
                    }
                    (None, _) => return,
                };
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
            while client.is_some() && self.stuck.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            match stream.read(&mut chunk) {
                Ok(count) if count > 0 => input.extend_from_slice(&chunk[..count]),
                _ => return,
            }
        }
    }

    /// The identifier in a CONNECT without properties, and its CONNACK.
    fn welcome(&self, connect: &[u8]) -> (String, Vec<u8>) {
        let body = if connect[1] < 0x80 { &connect[2..] } else { &connect[3..] };
        let v5 = body[6] == 5;
        let at = if v5 { 11 } else { 10 };
        let end = at + 2 + usize::from(body[at]) * 256 + usize::from(body[at + 1]);
        let id = String::from_utf8_lossy(&body[at + 2..end]).into_owned();
        let mut connack = vec![0, 0];
        let version = if v5 { Version::V5 } else { Version::V311 };
        if v5 {
            properties(&mut connack, version, &vec![int(MAXIMUM_PACKET_SIZE, self.maximum_packet_size)]);
        }
        (id, frame(0x20, &connack))
    }
}

fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().expect("a number")
}

/// Any message that a client may send; the identifier is the test's business.
fn message(version: Version) -> impl Strategy<Value = Publish> {
    let text = "[a-zA-Z0-9 ]{0,40}";
    let property = prop_oneof![
        (text, text).prop_map(|(name, value)| user(&name, &value)),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|data| bytes(CORRELATION_DATA, &data)),
        "[a-z/]{1,30}".prop_map(|topic| common::property::text(RESPONSE_TOPIC, &topic)),
        text.prop_map(|kind| common::property::text(CONTENT_TYPE, &kind)),
        any::<u32>().prop_map(|seconds| int(MESSAGE_EXPIRY, seconds)),
        Just(byte(PAYLOAD_FORMAT, 0)),
    ];
    let most = if version == Version::V5 { 6 } else { 0 };
    let size = prop_oneof![0..300_usize, 0..70_000_usize];
    let payload = size.prop_flat_map(|size| prop::collection::vec(any::<u8>(), size));
    let properties = prop::collection::vec(property, 0..=most);
    (0..3_u8, any::<bool>(), "[a-z]{1,8}(/[a-z]{0,8}){0,5}", properties, payload).prop_map(
        |(qos, retain, topic, mut properties, payload)| {
            // only user properties may come more than once
            let mut seen = Vec::new();
            properties.retain(|(id, _)| {
                let new = *id == USER_PROPERTY || !seen.contains(id);
                seen.push(*id);
                new
            });
            Publish { dup: false, qos, retain, topic, id: 0, properties, payload }
        },
    )
}

/// PUBLISH that no plugin changes is forwarded as the bytes that came in.
#[test]
fn messages_pass_as_the_bytes_that_came_in() {
    let raw = Raw::start(1_000_000);
    let server = Raw::proxy("bytes", &[&raw], &[]);
    for (version, name) in [(Version::V311, "old"), (Version::V5, "new")] {
        let mut client = server.connect(&Connect::new(version, name));
        let mut random = TestRunner::deterministic();
        for id in 1..=100 {
            let publish = message(version).new_tree(&mut random).expect("a message").current().id(id);
            let mut bytes = publish.encode(version);
            if id % 7 == 0 {
                // two packets in one write
                bytes.extend(publish.clone().id(id + 1_000).encode(version));
            }
            client.send(&bytes);
            let passed = raw.take(name, bytes.len());
            assert!(passed == bytes, "{publish:?} became {passed:02x?}");
        }
    }
    assert_eq!(metric(&server, "tidegate_proxy_packets_changed_total"), 0.0);
}

/// What a plugin adds is left out where the upstream would not take the packet with it.
#[test]
fn what_is_added_makes_no_packet_too_large() {
    let raw = Raw::start(1_000);
    let server = Raw::proxy("added", &[&raw], &[("plugins", r#"["check"]"#)]);
    let mut client = server.connect(&Connect::v5("c"));
    let small = Publish::new("room/1", "x").qos(1).id(1).encode(Version::V5);
    client.send(&small);
    let added = small.len() + 5 + "tide-seq".len() + "1".len();
    let passed = raw.take("c", added);
    assert!(String::from_utf8_lossy(&passed).contains("tide-seq"), "{passed:02x?}");
    let whole = Publish::new("room/1", vec![b'x'; 984]).qos(2).id(2).encode(Version::V5);
    assert_eq!(whole.len(), 998);
    client.send(&whole);
    assert!(raw.take("c", whole.len()) == whole, "it came with something");
}

/// A client whose messages are all answered here is not silent to the upstream.
#[test]
fn who_is_answered_here_keeps_its_upstream() {
    let raw = Raw::start(1_000_000);
    let server = Raw::proxy("speaks", &[&raw], &[]);
    let mut client = server.connect(&Connect::v5("c").keep_alive(1));
    eventually("a PINGREQ", || {
        assert_eq!(client.publish(Publish::new("$tide/v1/rate", "forged").qos(1)), 0x87);
        raw.shared.pings.lock().contains_key("c")
    });
    assert!(metric(&server, "tidegate_proxy_pings_total") >= 1.0);
    // its own ping is answered once, and ours are not answered to it
    client.expect_silence();
    assert_eq!(raw.received("c"), 0);
    // one without a keep-alive is not spoken for
    let mut quiet = server.connect(&Connect::v5("quiet").keep_alive(0));
    assert_eq!(quiet.publish(Publish::new("$tide/v1/rate", "forged").qos(1)), 0x87);
    assert!(!raw.shared.pings.lock().contains_key("quiet"));
}

/// An upstream that takes nothing slows its clients down; the proxy does not grow, and nothing is lost.
#[test]
fn a_slow_upstream_slows_its_clients() {
    const MESSAGES: usize = 600;
    let raw = Raw::start(1_000_000);
    let server = Raw::proxy("slow-upstream", &[&raw], &[]);
    let mut client = server.connect(&Connect::v311("c"));
    let before = server.resident_kb();
    raw.shared.stuck.store(true, SeqCst);
    let publish = Publish::new("big", vec![b'x'; 100_000]);
    let size = publish.encode(Version::V311).len();
    let sent = Mutex::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..MESSAGES {
                client.send(&publish);
                *sent.lock() += 1;
            }
        });
        let mut last = -1.0;
        eventually("the client waits", || {
            std::thread::sleep(Duration::from_millis(200));
            let read = metric(&server, "tidegate_bytes_received_total");
            std::mem::replace(&mut last, read) == read && read > size as f64
        });
        let (sent, grown) = (*sent.lock(), server.resident_kb().saturating_sub(before));
        assert!(sent < MESSAGES, "the client was never slowed down");
        assert!(grown < 20_000, "{grown} kB for an upstream that reads nothing");
        raw.shared.stuck.store(false, SeqCst);
    });
    eventually("all comes", || raw.received("c") == MESSAGES * size);
}

/// Clients use the first address, or all of them in turn.
#[test]
fn clients_are_spread_over_the_addresses() {
    for (spread, expected) in [("false", [6, 0, 0]), ("true", [2, 2, 2])] {
        let all = [Raw::start(1_000_000), Raw::start(1_000_000), Raw::start(1_000_000)];
        let name = format!("spread-{spread}");
        let server = Raw::proxy(&name, &all.each_ref(), &[("proxy.spread", spread)]);
        let _clients: Vec<_> = (0..6).map(|n| server.connect(&Connect::v5(&format!("c{n}")))).collect();
        assert_eq!(all.each_ref().map(Raw::clients), expected, "spread = {spread}");
    }
}

/// Questions that the upstream does not answer are bounded.
#[test]
fn what_waits_for_an_answer_is_bounded() {
    let raw = Raw::start(1_000_000);
    let server = Raw::proxy("unanswered", &[&raw], &[]);
    let filters: Vec<String> = (0..20_000).map(|number| format!("a/{number:06}")).collect();
    let mut client = server.connect(&Connect::v5("c"));
    // a single one may be as large as a packet
    let mut id = 0;
    while id < 100 && client.try_send(&Unsubscribe { id: id + 1, filters: filters.clone() }).is_ok() {
        id += 1;
    }
    assert!(matches!(client.recv(), Packet::Disconnect(told) if told.code == 0x97));
    assert!(id < 100, "all were taken");
    assert!(raw.received("c") < 2_000_000, "{} bytes", raw.received("c"));
}

/// A client has as many subscriptions as it may, whoever keeps them; one large SUBSCRIBE holds nobody else up.
#[test]
fn subscriptions_are_bounded() {
    let setup = Setup { target: Some(Target::Proxy), ..Setup::default() };
    let server = Server::start("many", &setup);
    for (version, refused) in [(Version::V311, 0x80), (Version::V5, 0x97)] {
        let mut client = server.client(version);
        client.subscribe("a/000000", 1);
        let filters: Vec<(String, u8)> = (0..150_000).map(|number| (format!("a/{number:06}"), 1)).collect();
        let id = client.packet_id();
        let codes = client.subscribe_with(&Subscribe { id, filters, properties: Vec::new() }).codes;
        let granted = codes.iter().take_while(|code| **code == 1).count();
        assert_eq!((granted, codes.len()), (10_000, 150_000), "one was there already");
        assert!(codes[granted..].iter().all(|code| *code == refused));
        // what it has it may have again, and a place that it gives up is free
        assert_eq!(client.try_subscribe("a/000007", 0), [0]);
        assert_eq!(client.try_subscribe("b", 1), [refused]);
        client.unsubscribe(&["a/000007"]);
        client.subscribe("b", 1);
        server.client(version).publish(Publish::new("a/000008", "here").qos(1));
        assert_eq!(client.receive().text(), "here");
    }
}

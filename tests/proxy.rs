//! Proxy mode with a real Mosquitto behind it: control topics, plugins, and an upstream that fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::client::{Client, End};
use common::decode::Packet;
use common::packet::*;
use common::property::*;
use common::server::{Server, Setup, Target, free_address};

fn proxy(name: &str, settings: &[(&'static str, &str)]) -> Server {
    let settings = settings.iter().map(|(key, value)| (*key, value.to_string())).collect();
    Server::start(name, &Setup { settings, target: Some(Target::Proxy), ..Setup::default() })
}

/// A proxy before whatever listens there.
fn proxy_before(name: &str, upstream: &str) -> Server {
    let settings = vec![
        ("mode", "proxy".to_owned()),
        ("proxy.upstream", upstream.to_owned()),
        ("proxy.retry_ms", "50".into()),
        ("proxy.max_retry_ms", "200".into()),
        ("proxy.timeout_ms", "1000".into()),
    ];
    Server::start(name, &Setup { settings, target: Some(Target::ProxyAlone), ..Setup::default() })
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().expect("a number")
}

fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn log_says(server: &Server, text: &str) {
    eventually(text, || std::fs::read_to_string(&server.log).unwrap_or_default().contains(text));
}

/// Control topics are answered here, a SUBSCRIBE with others is split, and the answers are put together.
#[test]
fn control_topics_never_reach_the_upstream() {
    let server = proxy("control", &[("plugins", r#"["access","overload"]"#)]);
    let upstream = server.upstream.as_ref().expect("a broker");
    let mut spy = upstream.client(Version::V5);
    spy.subscribe("$tide/#", 0);
    for version in [Version::V311, Version::V5] {
        let mut client = server.client(version);
        let id = client.packet_id();
        let mixed = Subscribe::new(id, &[("a/b", 1), ("$tide/v1/rate", 1), ("bad/#/x", 0), ("c", 2)]);
        let bad = if version == Version::V5 { 0x8F } else { 0x80 };
        assert_eq!(client.subscribe_with(&mixed).codes, [1, 0, bad, 2]);
        assert_eq!(client.try_subscribe("$tide/v1/load", 0), [0]);
        client.publish(Publish::new("a/b", "hello").qos(1));
        assert_eq!(client.receive().text(), "hello");
        let code = client.publish(Publish::new("$tide/v1/rate", "forged").qos(1));
        assert_eq!(code, if version == Version::V5 { 0x87 } else { 0 }, "nobody may publish there");
        let code = client.publish(Publish::new("$tide/v1/rate", "forged").qos(2));
        assert_eq!(code, if version == Version::V5 { 0x87 } else { 0 });
        let ended = client.unsubscribe(&["a/b", "$tide/v1/rate"]);
        if version == Version::V5 {
            assert_eq!(ended.codes, [0, 0]);
        }
        client.expect_nothing();
    }
    spy.expect_nothing();
}

/// A check is answered by the plugin, on a topic that the upstream never sees.
#[test]
fn checks_are_answered_here() {
    let server = proxy("checks", &[("plugins", r#"["access","check"]"#)]);
    let mut client = server.connect(&Connect::v5("asker"));
    client.subscribe("room/+/temp", 0);
    client.subscribe("$tide/v1/update/asker", 0);
    server.client(Version::V5).publish(Publish::new("room/1/temp", "21").qos(1));
    assert_eq!(client.receive().text(), "21");
    let check = r#"{"v":1,"id":17,"filters":[{"filter":"room/+/temp","since":{"room/1/temp":0}}],"max":10}"#;
    let data = (CORRELATION_DATA, Value::Bytes(vec![0, 255, 7]));
    let asked = Publish { properties: vec![data.clone()], ..Publish::new("$tide/v1/check/asker", check) };
    assert_eq!(client.publish(asked.qos(1)), 0);
    let answer = client.receive();
    assert_eq!((&*answer.topic, &answer.properties), ("$tide/v1/update/asker", &vec![data]));
    assert!(answer.text().contains(r#""id":17"#), "{}", answer.text());
    assert_eq!(client.publish(Publish::new("$tide/v1/check/another", check).qos(1)), 0x87);
    let data = bytes(CORRELATION_DATA, &[0, 255, 7]);
    client.publish(Publish::new("$tide/v1/check/asker", check).qos(1).with(data.clone()));
    assert_eq!(client.receive().properties, [data], "it comes back with the answer");
}

/// Who comes back before its old connection has ended still hears what it subscribed to, and so it does the next time.
#[test]
fn control_topics_outlive_a_takeover() {
    let server = proxy("takeover", &[("plugins", r#"["access","check"]"#)]);
    let connect = Connect::persistent(Version::V5, "asker");
    let mut old = server.connect(&connect);
    old.subscribe("$tide/v1/update/asker", 0);
    old.subscribe("big", 0);
    // it reads nothing more, so that the end of its connection is not seen behind what waits for it
    let mut publisher = server.client(Version::V311);
    (0..200).for_each(|_| publisher.send(&Publish::new("big", vec![b'x'; 100_000])));
    publisher.ping();
    let ask = |client: &mut Client, id: u32| {
        let check = format!(r#"{{"v":1,"id":{id},"filters":[{{"filter":"a"}}]}}"#);
        client.send(&Publish::new("$tide/v1/check/asker", check));
        client.wait_for("an answer", |packet| match packet {
            Packet::Publish(publish) => publish.text().contains(&format!(r#""id":{id}"#)).then_some(()),
            _ => None,
        });
    };
    let mut new = server.connect(&connect.clone().resume());
    assert_eq!(metric(&server, "tidegate_clients_connected"), 3.0, "the old connection is still there");
    ask(&mut new, 1);
    drop(old);
    eventually("it has ended", || metric(&server, "tidegate_clients_connected") == 2.0);
    new.vanish();
    eventually("it has ended", || metric(&server, "tidegate_clients_connected") == 1.0);
    let mut again = server.connect(&connect.clone().resume());
    ask(&mut again, 2);
    again.disconnect();
    // a clean session knows nothing of it
    let mut clean = server.connect(&Connect::v5("asker"));
    clean
        .publish(Publish::new("$tide/v1/check/asker", r#"{"v":1,"id":3,"filters":[{"filter":"a"}]}"#).qos(1));
    clean.expect_nothing();
}

/// What waits for a client is not sent behind the DISCONNECT that it gets.
#[test]
fn nothing_follows_a_disconnect() {
    let server = proxy("last", &[("plugins", r#"["access","check"]"#)]);
    let mut client = server.connect(&Connect::v5("asker"));
    client.subscribe("$tide/v1/update/asker", 0);
    client.subscribe("big", 0);
    // more than its socket takes, so that the end of what it is sent waits
    let mut publisher = server.client(Version::V311);
    (0..200).for_each(|_| publisher.send(&Publish::new("big", vec![b'x'; 100_000])));
    publisher.ping();
    // answered at once, and what is behind it ends the connection
    let mut bytes = Publish::new("$tide/v1/check/asker", "nonsense").encode(Version::V5);
    bytes.extend([0x36, 3, 0, 1, b't']);
    client.send(&bytes);
    log_says(&server, "closed for a protocol error");
    while let Packet::Publish(publish) = client.recv_within(PATIENCE).expect("DISCONNECT") {
        assert_eq!(publish.topic, "big");
    }
    assert_eq!(client.recv_within(PATIENCE), Err(End::Closed));
}

/// The number of a message, before the properties of its publisher.
fn number(publish: &Publish) -> Option<u64> {
    match publish.properties.first() {
        Some((_, Value::Pair(key, value))) if key == "tide-seq" => value.parse().ok(),
        _ => None,
    }
}

#[test]
fn messages_are_numbered_under_any_prefix() {
    let server = proxy("numbers", &[("plugins", r#"["check"]"#), ("overload.prefix", "$tide/fleet")]);
    let mut consumer = server.connect(&Connect::v5("asker"));
    consumer.subscribe("room/#", 1);
    consumer.subscribe("$tide/fleet/update/asker", 0);
    let mut source = server.connect(&Connect::v5("source"));
    let forged = (USER_PROPERTY, Value::Pair("tide-seq".into(), "999".into()));
    for (qos, expected) in [(0, 1), (1, 2), (2, 3)] {
        source.publish(Publish::new("room/1", "x".repeat(200)).qos(qos).with(forged.clone()));
        let message = consumer.receive();
        assert_eq!((number(&message), message.payload.len()), (Some(expected), 200));
        assert!(message.properties.contains(&forged), "what the publisher says is still there");
    }
    let mut old = server.connect(&Connect::v311("old"));
    old.publish(Publish::new("room/1", "old").qos(1));
    assert_eq!(number(&consumer.receive()), None, "there is no place for it");
    let check = r#"{"v":1,"id":17,"filters":[{"filter":"room/#","since":{"room/1":2}}]}"#;
    assert_eq!(consumer.publish(Publish::new("$tide/fleet/check/asker", check).qos(1)), 0);
    let answer = consumer.receive();
    assert_eq!(answer.topic, "$tide/fleet/update/asker");
    assert!(answer.text().contains(r#""room/1":4"#), "{}", answer.text());
}

/// A message that is sent again since its acknowledgement was lost is no other message.
#[test]
fn what_is_sent_again_with_qos_2_is_numbered_once() {
    let server = proxy("again", &[("plugins", r#"["check"]"#)]);
    let mut consumer = server.connect(&Connect::v5("asker"));
    consumer.subscribe("room/#", 1);
    let mut source = server.connect(&Connect::persistent(Version::V5, "source"));
    let message = Publish::new("room/1", "first").qos(2).id(7);
    source.send(&message);
    source.expect_ack(Kind::Pubrec, 7);
    source.vanish();
    let mut source = server.connect(&Connect::persistent(Version::V5, "source").resume());
    source.send(&message.dup());
    source.expect_ack(Kind::Pubrec, 7);
    source.send(&Ack::new(Kind::Pubrel, 7));
    source.expect_ack(Kind::Pubcomp, 7);
    for text in ["second", "third"] {
        source.send(&Publish::new("room/1", text).qos(2).id(7));
        source.expect_ack(Kind::Pubrec, 7);
        source.send(&Ack::new(Kind::Pubrel, 7));
        source.expect_ack(Kind::Pubcomp, 7);
    }
    let seen: Vec<_> =
        (0..3).map(|_| consumer.receive()).map(|one| (one.text().to_owned(), number(&one))).collect();
    let expected = [("first", 1), ("second", 2), ("third", 3)].map(|(text, n)| (text.to_owned(), Some(n)));
    assert_eq!(seen, expected);
}

/// Rules hold in the proxy, whatever the upstream would allow.
#[test]
fn rules_hold_before_the_upstream() {
    let rules = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("proxy.rules");
    std::fs::write(&rules, "deny everyone any secret/#\neveryone any #\n").expect("a file");
    let server = proxy("rules", &[("access.rules", &rules.display().to_string())]);
    let mut client = server.client(Version::V5);
    let id = client.packet_id();
    let subscribe = Subscribe::new(id, &[("secret/x", 1), ("open/x", 1)]);
    let codes = client.subscribe_with(&subscribe).codes;
    assert!(codes[0] >= 0x80 && codes[1] == 1, "{codes:02x?}");
    assert!(client.publish(Publish::new("secret/x", "no").qos(1)) >= 0x80);
    assert_eq!(client.publish(Publish::new("open/x", "yes").qos(2)), 0);
    assert_eq!(client.receive().text(), "yes");
    // an alias that was introduced by a message that went nowhere still works
    client.send(&Publish::new("secret/y", "no").with(short(0x23, 1)));
    client.send(&Publish::new("open/x", "named").with(short(0x23, 2)));
    client.send(&Publish::new("", "by number").with(short(0x23, 2)));
    assert_eq!([client.receive().text(), client.receive().text()], ["named", "by number"]);
    let refused = server.attempt(&Connect::v5("w").will(Will::new("secret/w", "gone")));
    assert!(refused.connack.code >= 0x80);
}

/// What a client sends is malformed: it is told why, and the upstream publishes its will.
#[test]
fn a_malformed_packet_closes_that_client() {
    let server = proxy("malformed", &[]);
    let mut witness = server.client(Version::V5);
    witness.subscribe("last/words", 1);
    let mut client = server.connect(&Connect::v5("bad").will(Will::new("last/words", "gone").qos(1)));
    client.send(&Publish::new("t", "fine").qos(1).id(1));
    client.expect_ack(Kind::Puback, 1);
    client.send(&[0x36, 3, 0, 1, b't'][..]);
    client.expect_closed(&[0x81]);
    assert_eq!(witness.receive().text(), "gone");
    assert!(metric(&server, "tidegate_protocol_errors_total") >= 1.0);
}

/// A client that is not told its identifier by itself gets one, and it is the same here and upstream.
#[test]
fn a_client_without_an_identifier_gets_one() {
    let server = proxy("nameless", &[]);
    let client = server.connect(&Connect::v5(""));
    let assigned =
        client.connack.properties.iter().find(|(id, _)| *id == 0x12).expect("an identifier").1.clone();
    assert!(format!("{assigned:?}").contains("tide-"), "{assigned:?}");
}

/// The upstream is not there: clients are told so, and served as soon as it is.
#[test]
fn an_upstream_that_comes_late() {
    let address = free_address();
    let server = proxy_before("late", &address.to_string());
    for (version, code) in [(Version::V311, 3), (Version::V5, 0x88)] {
        let refused = server.attempt(&Connect::new(version, "early"));
        assert_eq!(refused.connack.code, code);
    }
    log_says(&server, "the upstream cannot be used");
    assert!(metric(&server, "tidegate_upstream_unavailable_total") >= 2.0);
    assert_eq!(metric(&server, "tidegate_upstreams_usable"), 0.0);
    let _broker = Scripted::start(address, vec![], Then::Serve);
    eventually("clients are let in", || server.attempt(&Connect::v311("late")).connack.code == 0);
    log_says(&server, "the upstream can be used again");
    assert_eq!(metric(&server, "tidegate_upstreams_usable"), 1.0);
}

/// The upstream closes, in the middle of a packet or not, or sends nonsense: both sides are closed, counted and logged.
#[test]
fn an_upstream_that_misbehaves() {
    for (name, bytes, said, counted) in [
        ("cut", &[0x30, 9, 0, 1][..], "in_a_packet=true", "tidegate_upstream_lost_total"),
        ("garbage", b"HTTP/1.1 400 Bad Request\r\n", "what is not MQTT", "tidegate_upstream_nonsense_total"),
        ("huge", &[0x90, 0xFF, 0xFF, 0xFF, 0x7F], "what is not MQTT", "tidegate_upstream_nonsense_total"),
        ("second", &[0x20, 3, 0, 0, 0], "what is not MQTT", "tidegate_upstream_nonsense_total"),
    ] {
        let address = free_address();
        let broker = Scripted::start(address, bytes.to_vec(), Then::Close);
        let server = proxy_before(name, &address.to_string());
        let mut client = server.connect(&Connect::v5("c"));
        match client.recv() {
            Packet::Disconnect(told) => assert_eq!(told.code, 0x89, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        client.expect_end();
        server.connect(&Connect::v311("old")).expect_end();
        log_says(&server, said);
        assert_eq!(metric(&server, counted), 2.0, "{name}");
        broker.behave();
        eventually("clients are served again", || {
            let client = server.attempt(&Connect::v311("d"));
            client.connack.code == 0
        });
    }
}

/// An alias that the client did not allow, and none that is a number.
#[test]
fn an_upstream_with_aliases_of_its_own() {
    for (name, alias, allowed) in [("alias-0", 0, 9), ("alias-10", 10, 9), ("alias-none", 1, 0)] {
        let address = free_address();
        let message = Publish::new("t", "x").with(short(TOPIC_ALIAS, alias)).encode(Version::V5);
        let _broker = Scripted::start(address, message, Then::Close);
        let server = proxy_before(name, &address.to_string());
        let mut client = server.connect(&Connect::v5("c").with(short(TOPIC_ALIAS_MAXIMUM, allowed)));
        client.expect_closed(&[0x89]);
        log_says(&server, "a topic alias that the client did not allow");
        assert_eq!(metric(&server, "tidegate_upstream_nonsense_total"), 1.0, "{name}");
    }
}

/// A message that is larger than what the gateway keeps, from a publisher without gateway, locks nobody out.
#[test]
fn a_message_that_is_too_large_to_be_kept() {
    let broker =
        Server::start("large-broker", &Setup { target: Some(Target::Mosquitto), ..Setup::default() });
    let settings = vec![
        ("mode", "proxy".to_owned()),
        ("proxy.upstream", broker.mqtt.to_string()),
        ("session.max_packet_size", "100000".into()),
    ];
    let setup = Setup { settings, target: Some(Target::ProxyAlone), ..Setup::default() };
    let server = Server::start("large", &setup);
    let mut publisher = broker.client(Version::V311);
    for (version, id) in [(Version::V311, "old"), (Version::V5, "new")] {
        let connect = Connect::persistent(version, id);
        let mut consumer = server.connect(&connect);
        consumer.subscribe("t", 1);
        consumer.vanish();
        for size in [10, 1_500_000, 20] {
            publisher.publish(Publish::new("t", vec![b'x'; size]).qos(1));
        }
        let mut consumer = server.connect(&connect.resume());
        // what is answered here does not come in the middle of it
        consumer.subscribe(&format!("$tide/v1/update/{id}"), 0);
        consumer.ping();
        assert_eq!(consumer.receive().payload.len(), 10);
        assert!(consumer.receive().payload == vec![b'x'; 1_500_000]);
        assert_eq!(consumer.receive().payload.len(), 20);
        consumer.expect_nothing();
    }
    assert_eq!(metric(&server, "tidegate_upstream_nonsense_total"), 0.0);
}

/// The upstream lets nobody in, or answers CONNECT with nonsense: clients are told, it is logged and counted, and they are
/// let in as soon as it behaves.
#[test]
fn an_upstream_that_refuses() {
    let refusals = (&[0x20, 2, 0, 5][..], &[0x20, 3, 0, 0x87, 0][..]);
    let babble = (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]);
    for (name, (old, new), codes, said, counted) in [
        (
            "refuses",
            refusals,
            [5, 0x87],
            "the upstream refused the client",
            "tidegate_upstream_refused_total",
        ),
        (
            "babbles",
            babble,
            [3, 0x88],
            "its answer to CONNECT is not MQTT",
            "tidegate_upstream_nonsense_total",
        ),
    ] {
        let address = free_address();
        let broker = Scripted::refusing(address, (old.to_vec(), new.to_vec()));
        let server = proxy_before(name, &address.to_string());
        for (version, code) in [Version::V311, Version::V5].into_iter().zip(codes) {
            assert_eq!(server.attempt(&Connect::new(version, "c")).connack.code, code, "{name}");
        }
        log_says(&server, said);
        assert!(metric(&server, counted) >= 1.0, "{name}");
        assert!(metric(&server, "tidegate_connects_refused_total") >= 2.0, "{name}");
        broker.behave();
        eventually("clients are let in", || server.attempt(&Connect::v5("d")).connack.code == 0);
    }
}

/// The upstream is gone for good: MQTT 5 clients are told that the server shuts down.
#[test]
fn an_upstream_that_goes_away() {
    let mut server = proxy("gone", &[("proxy.retry_ms", "50"), ("proxy.max_retry_ms", "200")]);
    let mut clients: Vec<_> = (0..40).map(|_| server.client(Version::V5)).collect();
    let mut old = server.client(Version::V311);
    drop(server.upstream.take());
    for client in &mut clients {
        client.expect_closed(&[0x8B]);
    }
    old.expect_end();
    let refused = server.attempt(&Connect::v5("c"));
    assert_eq!(refused.connack.code, 0x88);
    assert!(metric(&server, "tidegate_upstream_lost_total") >= 41.0);
}

/// An upstream that answers nothing is given up after a while, and the next address is used.
#[test]
fn the_next_address_is_used() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let (closed, good) = (free_address(), free_address());
    let _broker = Scripted::start(good, vec![], Then::Serve);
    let all = format!("{closed}, {}, {good}", silent.local_addr().expect("an address"));
    let server = proxy_before("next", &all);
    let client = server.connect(&Connect::v5("c"));
    drop(client);
    log_says(&server, "no answer in time");
    assert!(metric(&server, "tidegate_upstream_failures_total") >= 2.0);
}

/// The gateway stops: clients are told, and it ends.
#[test]
fn draining_tells_the_clients() {
    let server = proxy("drain", &[]);
    let mut new = server.client(Version::V5);
    let mut old = server.client(Version::V311);
    server.signal("TERM");
    new.expect_closed(&[0x8B]);
    old.expect_end();
    eventually("it ends", || !server.runs());
}

/// A slow consumer makes neither the proxy nor its publisher's connection grow.
#[test]
fn a_slow_client_does_not_make_the_proxy_grow() {
    let server = proxy("slow", &[]);
    let mut consumer = server.client(Version::V311);
    consumer.subscribe("big", 0);
    let before = server.resident_kb();
    let mut publisher = server.client(Version::V311);
    let payload = vec![b'x'; 100_000];
    for _ in 0..400 {
        publisher.send(&Publish::new("big", payload.clone()));
    }
    publisher.ping();
    let grown = server.resident_kb().saturating_sub(before);
    assert!(grown < 20_000, "{grown} kB for a consumer that reads nothing");
}

/// What a scripted broker does after its CONNACK.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Close,
    Serve,
}

/// A broker that accepts everybody, sends these bytes, and closes or answers pings. It may be told to behave.
struct Scripted {
    behaves: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Scripted {
    fn start(address: SocketAddr, bytes: Vec<u8>, then: Then) -> Self {
        let after = |connack: &[u8]| [connack, &bytes].concat();
        let answers = (after(&ACCEPTED.0), after(&ACCEPTED.1));
        let broker = Self::refusing(address, answers);
        if then == Then::Serve {
            broker.behave();
        }
        broker
    }

    /// One that answers CONNECT of either version so, and closes.
    fn refusing(address: SocketAddr, answers: (Vec<u8>, Vec<u8>)) -> Self {
        let listener = TcpListener::bind(address).expect("the address");
        let behaves = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let shared = behaves.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answers, behaves) = (answers.clone(), shared.clone());
                std::thread::spawn(move || serve(stream, &answers, &behaves));
            }
        });
        Self { behaves }
    }

    fn behave(&self) {
        self.behaves.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// CONNACK that lets a client in, of 3.1.1 and 5.
const ACCEPTED: ([u8; 4], [u8; 5]) = ([0x20, 2, 0, 0], [0x20, 3, 0, 0, 0]);

fn serve(mut stream: TcpStream, answers: &(Vec<u8>, Vec<u8>), behaves: &std::sync::atomic::AtomicBool) {
    let mut connect = [0; 1024];
    let Ok(count) = stream.read(&mut connect) else { return };
    if count < 9 {
        return;
    }
    let v5 = connect[8] == 5;
    if !behaves.load(std::sync::atomic::Ordering::SeqCst) {
        let _ = stream.write_all(if v5 { &answers.1 } else { &answers.0 });
        return;
    }
    let accepted: &[u8] = if v5 { &ACCEPTED.1 } else { &ACCEPTED.0 };
    if stream.write_all(accepted).is_err() {
        return;
    }
    while stream.read(&mut connect).is_ok_and(|count| count > 0) {}
}

/// A raw look at what a client gets: nothing but whole packets.
#[test]
fn packets_stay_whole() {
    let server = proxy("whole", &[]);
    let mut consumer = server.client(Version::V5);
    consumer.subscribe("t", 1);
    let mut publisher = server.client(Version::V5);
    for size in [0, 1, 120, 16_000, 70_000, 300_000] {
        publisher.publish(Publish::new("t", vec![b'y'; size]).qos(1));
        let Packet::Publish(publish) = consumer.recv() else { panic!("a message") };
        assert_eq!(publish.payload.len(), size);
        consumer.acknowledge(&publish);
    }
    let _: &Client = &consumer;
}

/// Publishers that do not listen are held to what the consumer can take: nothing is lost, and nothing waits for long.
#[test]
fn a_flood_is_held_before_the_upstream() {
    let server = proxy("flood", &[("plugins", r#"["access","overload","gate"]"#), ("gate.grace_ms", "200")]);
    let mut consumer = server.connect(&Connect::v5("worker"));
    consumer.subscribe("work/#", 1);
    let over = std::sync::atomic::AtomicBool::new(false);
    let accepted = std::sync::atomic::AtomicU64::new(0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for index in 0..4 {
            let mut publisher = server.connect(&Connect::v311(&format!("deaf-{index}")));
            let (over, accepted) = (&over, &accepted);
            scope.spawn(move || {
                while !over.load(relaxed) {
                    publisher.publish(Publish::new(&format!("work/{index}"), "load").qos(1));
                    accepted.fetch_add(1, relaxed);
                }
            });
        }
        let deadline = Instant::now() + PATIENCE;
        let (mut taken, mut waiting) = (0, u64::MAX);
        // 200 messages a second, until the queue is short while the flood goes on
        while Instant::now() < deadline && !(taken > 1_000 && waiting < 100) {
            consumer.receive();
            taken += 1;
            std::thread::sleep(Duration::from_millis(5));
            waiting = accepted.load(relaxed) - taken;
        }
        over.store(true, relaxed);
        // nobody is held for a consumer that is gone, so that the publishers can end
        drop(consumer);
        assert!(waiting < 100, "{waiting} messages wait after {taken}");
        assert!(metric(&server, "tidegate_messages_published_total") > 1_000.0);
    });
}

/// What a held publisher sent before it left waits for its turn, and not for ever; its goodbye counts all the same.
#[test]
fn who_left_does_not_wait_for_ever() {
    let server = proxy("left", &[("queue.max_messages", "10"), ("queue.left_timeout", "1")]);
    let mut witness = server.client(Version::V5);
    witness.subscribe("last/words", 1);
    let mut consumer = server.connect(&Connect::v5("worker"));
    consumer.subscribe("work", 1);
    let mut publisher = server.connect(&Connect::v5("hasty").will(Will::new("last/words", "gone").qos(1)));
    for id in 1..=200 {
        publisher.send(&Publish::new("work", "load").qos(1).id(id));
    }
    // it takes nothing more, so that who feeds it is held
    publisher.disconnect();
    eventually("it is given up", || {
        metric(&server, "tidegate_messages_dropped_publisher_left_total") >= 1.0
            && metric(&server, "tidegate_clients_connected") == 2.0
    });
    witness.expect_nothing();
}

/// What a held publisher sent with QoS 0 is counted as lost, whatever ends its connection.
#[test]
fn what_held_publishers_lose_is_counted() {
    let dropped = |server: &Server| metric(server, "tidegate_messages_dropped_publisher_left_total");
    let mut server = proxy("dropped", &[("queue.max_messages", "10"), ("queue.left_timeout", "600")]);
    let mut consumer = server.connect(&Connect::v5("worker"));
    consumer.subscribe("work", 1);
    let mut publisher = server.connect(&Connect::v5("wrong"));
    for id in 1..=100 {
        publisher.send(&Publish::new("work", "load").qos(1).id(id));
    }
    eventually("it is held", || metric(&server, "tidegate_holds_total") >= 1.0);
    // nobody has heard of this alias, which is found out when its turn comes
    publisher.send(&Publish::new("", "wrong").with(short(TOPIC_ALIAS, 3)));
    (0..5).for_each(|_| publisher.send(&Publish::new("work", "load")));
    publisher.ping();
    assert_eq!(dropped(&server), 0.0);
    (0..100).for_each(|_| drop(consumer.receive()));
    eventually("what was behind it is counted", || dropped(&server) == 5.0);
    // one that has left, and then its upstream is gone
    let mut publisher = server.connect(&Connect::v5("hasty"));
    for id in 1..=100 {
        publisher.send(&Publish::new("work", "load").qos(1).id(id));
    }
    publisher.ping();
    drop(publisher);
    drop(server.upstream.take());
    eventually("what it left behind is counted", || dropped(&server) > 5.0);
}

/// Nobody is told a rate for a consumer that never holds publishers, whether it is named by client, user or filter.
#[test]
fn consumers_that_never_hold_are_not_protected() {
    let rules = r#"[{ client = "watch-*" }, { user = "debug" }, { filter = "$share/watchers/*" }]"#;
    let server = proxy("never", &[("queue.never_hold", rules)]);
    let mut consumers = [
        server.connect(&Connect::v5("worker")),
        server.connect(&Connect::v5("watch-1")),
        server.connect(&Connect { user: Some("debug".into()), ..Connect::v5("other") }),
        server.connect(&Connect::v5("member")),
    ];
    for (index, consumer) in consumers.iter_mut().enumerate() {
        consumer.subscribe(if index == 3 { "$share/watchers/work" } else { "work" }, 1);
    }
    let mut publisher = server.client(Version::V5);
    eventually("the worker is protected", || {
        publisher.publish(Publish::new("work", "load").qos(1));
        consumers.iter_mut().for_each(|consumer| drop(consumer.receive()));
        server.get("/api/v1/queues").contains("worker:work")
    });
    let queues = server.get("/api/v1/queues");
    for name in ["watch-1:work", "other:work", "watchers:work"] {
        assert!(!queues.contains(name), "{queues}");
    }
}

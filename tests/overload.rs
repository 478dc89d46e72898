//! Overload control with the real binary and real clients: rates are announced, followed, and taken back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::client::{Client, End};
use common::decode::Packet;
use common::packet::*;
use common::property::*;
use common::server::{Server, Setup};
use serde_json::Value as Json;

/// A consumer that works this long on each message can take 200 a second.
const WORK: Duration = Duration::from_millis(5);

fn start(name: &str) -> Server {
    start_with(name, vec![("plugins", r#"["access","overload"]"#.to_owned())])
}

fn start_with(name: &str, settings: Vec<(&'static str, String)>) -> Server {
    Server::start(name, &Setup { settings, ..Setup::default() })
}

fn get(server: &Server, path: &str) -> String {
    let mut stream = TcpStream::connect(server.admin).expect("the admin endpoint");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

fn json(server: &Server, path: &str) -> Json {
    let answer = get(server, path);
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    // the body may come in chunks, of which the JSON is one line
    let line =
        body.lines().find(|line| line.starts_with(['{', '['])).unwrap_or_else(|| panic!("no JSON: {answer}"));
    serde_json::from_str(line).expect("JSON")
}

/// Everything that runs beside the test until it is over.
struct Scene {
    over: AtomicBool,
    sending: AtomicBool,
    accepted: AtomicU64,
    delivered: AtomicU64,
    /// The lowest rate that a publisher was told with an acknowledgement, in thousandths.
    lowest_told: AtomicU64,
}

impl Scene {
    fn new() -> Self {
        Self {
            over: AtomicBool::new(false),
            sending: AtomicBool::new(true),
            accepted: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            lowest_told: AtomicU64::new(u64::MAX),
        }
    }

    /// Takes messages one after the other, with work in between.
    fn consume(&self, mut client: Client) {
        while !self.over.load(SeqCst) {
            match client.recv_within(Duration::from_millis(200)) {
                Ok(Packet::Publish(publish)) => {
                    std::thread::sleep(WORK);
                    client.acknowledge(&publish);
                    self.delivered.fetch_add(1, SeqCst);
                }
                Ok(_) | Err(End::Timeout) => {}
                Err(End::Closed) => panic!("the consumer was closed"),
            }
        }
    }

    /// Publishes as fast as acknowledgements come, or at the rate that they tell.
    fn publish(&self, mut client: Client, topic: &str) {
        let mut interval = Duration::ZERO;
        while self.sending.load(SeqCst) {
            let id = client.packet_id();
            client.send(&Publish::new(topic, "reading").qos(1).id(id));
            let ack = client.expect_ack(Kind::Puback, id);
            assert_eq!(ack.code, 0);
            self.accepted.fetch_add(1, SeqCst);
            if let Some(rate) = told_rate(&ack) {
                let rate: f64 = rate.parse().unwrap_or(f64::INFINITY);
                assert!(rate > 0.0);
                interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or_default();
                self.lowest_told.fetch_min((rate * 1e3) as u64, SeqCst);
            }
            std::thread::sleep(interval);
        }
    }
}

/// Publishers of the default chain of plugins, with what of theirs was acknowledged.
#[derive(Default)]
struct Pair {
    follows: AtomicU64,
    ignores: AtomicU64,
}

impl Pair {
    /// Wants to send faster than the consumer takes, and keeps to the rate that acknowledgements tell.
    fn follow(&self, scene: &Scene, mut client: Client) {
        let mut interval = Duration::from_millis(1);
        let mut next = Instant::now();
        while scene.sending.load(SeqCst) {
            let id = client.packet_id();
            client.send(&Publish::new("sensors/follows", "reading").qos(1).id(id));
            let ack = client.expect_ack(Kind::Puback, id);
            assert_eq!(ack.code, 0);
            self.follows.fetch_add(1, SeqCst);
            if let Some(rate) = told_rate(&ack).and_then(|rate| rate.parse::<f64>().ok()) {
                interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or_default();
                scene.lowest_told.fetch_min((rate * 1e3) as u64, SeqCst);
            }
            // what is late is made up for by one message, as the gate allows
            next = (next + interval).max(Instant::now() - interval);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Keeps a window of messages unacknowledged at all times, and knows nothing of rates.
    fn ignore(&self, scene: &Scene, mut client: Client) {
        let mut open = 0;
        while open > 0 || scene.sending.load(SeqCst) {
            if open < 50 && scene.sending.load(SeqCst) {
                let id = client.packet_id();
                client.send(&Publish::new("sensors/ignores", "reading").qos(1).id(id));
                open += 1;
                continue;
            }
            client.wait_for("PUBACK", |packet| matches!(packet, Packet::Ack(_)).then_some(()));
            self.ignores.fetch_add(1, SeqCst);
            open -= 1;
        }
    }

    fn accepted(&self) -> [u64; 2] {
        [self.follows.load(SeqCst), self.ignores.load(SeqCst)]
    }
}

/// Waits for something that must happen.
fn until(what: &str, server: &Server, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + 3 * PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "not {what}: {}", json(server, "/api/v1/queues"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a scene, also when the test fails: else its threads would never be joined.
struct EndScene<'a>(&'a Scene);

impl Drop for EndScene<'_> {
    fn drop(&mut self) {
        self.0.sending.store(false, SeqCst);
        self.0.over.store(true, SeqCst);
    }
}

fn told_rate(ack: &Ack) -> Option<&str> {
    ack.properties.iter().find_map(|(_, value)| match value {
        Value::Pair(name, value) if name == "tide-rate" => Some(value.as_str()),
        _ => None,
    })
}

/// The next announcement on a topic that is wanted.
fn announced(watcher: &mut Client, topic: &str, wanted: impl Fn(&Json) -> bool) -> Json {
    let deadline = Instant::now() + 3 * PATIENCE;
    while Instant::now() < deadline {
        if let Ok(Packet::Publish(publish)) = watcher.recv_within(PATIENCE)
            && publish.topic == topic
        {
            let value: Json = serde_json::from_str(publish.text()).expect("JSON");
            if wanted(&value) {
                return value;
            }
        }
    }
    panic!("nothing of the kind on {topic}");
}

/// What is retained on a topic.
fn retained(server: &Server, topic: &str) -> Json {
    let mut client = server.client(Version::V5);
    client.subscribe(topic, 0);
    let publish = client.receive();
    assert!(publish.retain, "{publish:?}");
    serde_json::from_str(publish.text()).expect("JSON")
}

#[test]
fn publishers_are_told_their_rate_until_it_is_over() {
    let server = start("overload");
    let mut watcher = server.client(Version::V5);
    watcher.subscribe("$tide/v1/#", 0);
    let mut consumer = server.connect(&Connect::v5("worker").with(short(RECEIVE_MAXIMUM, 10)));
    consumer.subscribe("sensors/#", 1);
    let scene = &Scene::new();
    std::thread::scope(|scope| {
        let _end = EndScene(scene);
        scope.spawn(|| scene.consume(consumer));
        for n in 0..4 {
            let client = server.connect(&Connect::v5(&format!("sensor-{n}")));
            scope.spawn(move || scene.publish(client, &format!("sensors/{n}")));
        }
        let told = announced(&mut watcher, "$tide/v1/rate", |value| value["rate"].is_number());
        assert_eq!((&told["v"], &told["queue"]), (&Json::from(1), &Json::from("client/worker:sensors/#")));
        assert_eq!(told["phase"], "protect");
        for field in ["seq", "at_ms", "interval_ms", "burst", "ttl_ms"] {
            assert!(told[field].is_u64(), "{field} in {told}");
        }
        let load = announced(&mut watcher, "$tide/v1/load", |value| value["phase"] == "protect");
        assert!(load["processing_rate"].is_number() && load["response_ms"].is_u64(), "{load}");
        // Who comes later hears of it too.
        assert!(retained(&server, "$tide/v1/rate")["rate"].is_number());
        // It settles near a quarter of what the consumer takes, whatever that is on this machine.
        let settled = |server: &Server| {
            let queues = json(server, "/api/v1/queues");
            let queue = &queues[0];
            assert_eq!(queue["queue"], "client/worker:sensors/#", "{queues}");
            let rate = queue["processing_rate"].as_f64()?;
            let each = queue["rates"][0]["rate"].as_f64()?;
            (queue["publishers"] == 4 && (0.1..0.4).contains(&(each / rate))).then_some(())
        };
        let deadline = Instant::now() + PATIENCE;
        while settled(&server).is_none() {
            assert!(Instant::now() < deadline, "{}", json(&server, "/api/v1/queues"));
            std::thread::sleep(Duration::from_millis(50));
        }
        let publishers = json(&server, "/api/v1/publishers?queue=client%2Fworker%3Asensors%2F%23");
        assert_eq!(publishers["total"], 4, "{publishers}");
        let metrics = get(&server, "/metrics");
        for name in ["depth", "phase", "announced_rate", "delay_seconds_count", "arrived_total"] {
            let line = format!("tidegate_queue_{name}{{queue=\"client/worker:sensors/#\"}}");
            assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
        }
        // Acknowledgements say it as well, as soon as a publisher that is held gets one.
        let deadline = Instant::now() + PATIENCE;
        while scene.lowest_told.load(SeqCst) >= 1_000_000 {
            assert!(Instant::now() < deadline, "no acknowledgement told a rate");
            std::thread::sleep(Duration::from_millis(50));
        }
        forge(&server);
        scene.sending.store(false, SeqCst);
        let over = announced(&mut watcher, "$tide/v1/rate", |value| value["rate"].is_null());
        assert!(over["seq"].as_u64() > told["seq"].as_u64());
        assert!(retained(&server, "$tide/v1/rate")["rate"].is_null());
        let deadline = Instant::now() + PATIENCE;
        while scene.delivered.load(SeqCst) < scene.accepted.load(SeqCst) {
            assert!(Instant::now() < deadline, "what was acknowledged was not delivered");
            std::thread::sleep(Duration::from_millis(50));
        }
        scene.over.store(true, SeqCst);
    });
    assert_eq!(scene.delivered.load(SeqCst), scene.accepted.load(SeqCst));
}

/// The plugins that are on by default, together: a client that follows and one that knows of nothing get about the same
/// of a slow consumer, nothing is lost, and when it is over nobody has a limit.
#[test]
fn who_follows_and_who_does_not_get_the_same() {
    let server = Server::start("default-chain", &Setup::default());
    let mut watcher = server.client(Version::V5);
    watcher.subscribe("$tide/v1/rate", 0);
    let mut consumer = server.connect(&Connect::v5("worker").with(short(RECEIVE_MAXIMUM, 10)));
    consumer.subscribe("sensors/#", 1);
    let (scene, pair) = (&Scene::new(), &Pair::default());
    std::thread::scope(|scope| {
        let _end = EndScene(scene);
        let follows = server.connect(&Connect::v5("follows"));
        let ignores = server.connect(&Connect::v311("ignores"));
        scope.spawn(|| scene.consume(consumer));
        scope.spawn(|| pair.follow(scene, follows));
        scope.spawn(|| pair.ignore(scene, ignores));
        announced(&mut watcher, "$tide/v1/rate", |value| value["rate"].is_number());
        until("told with an acknowledgement", &server, || scene.lowest_told.load(SeqCst) < u64::MAX);
        // one waits at the gate because of this queue, and both have a rate
        until("held", &server, || json(&server, "/api/v1/queues")[0]["gate_held"] == 1);
        until("limited", &server, || {
            let publishers = json(&server, "/api/v1/publishers?queue=client%2Fworker%3Asensors%2F%23");
            let limited = |publisher: &Json| publisher["rate"].is_number();
            let publishers = publishers["publishers"].as_array().cloned().unwrap_or_default();
            publishers.len() == 2 && publishers.iter().all(limited)
        });
        // the first seconds are those before anybody was told
        let delivered = |more: u64| {
            let goal = scene.delivered.load(SeqCst) + more;
            until("delivered", &server, || scene.delivered.load(SeqCst) >= goal);
        };
        delivered(400);
        let before = pair.accepted();
        delivered(800);
        let after = pair.accepted();
        let [follows, ignores] = [0, 1].map(|n| (after[n] - before[n]) as f64);
        let share = follows / (follows + ignores);
        assert!((0.3..=0.7).contains(&share), "{follows} of who follows, {ignores} of who does not");
        let metrics = get(&server, "/metrics");
        dashboard_finds_its_metrics(&metrics);
        let delayed =
            metrics.lines().find_map(|line| line.strip_prefix("tidegate_gate_delayed_messages_total "));
        assert!(delayed.expect("a count").parse::<u64>().expect("a number") > 0);
        scene.sending.store(false, SeqCst);
        announced(&mut watcher, "$tide/v1/rate", |value| value["rate"].is_null());
        assert!(retained(&server, "$tide/v1/rate")["rate"].is_null());
        until("all delivered", &server, || {
            scene.delivered.load(SeqCst) == pair.accepted().iter().sum::<u64>()
        });
        scene.over.store(true, SeqCst);
    });
    assert_eq!(scene.delivered.load(SeqCst), pair.accepted().iter().sum::<u64>());
}

/// Every metric in the dashboard is one that the gateway shows.
fn dashboard_finds_its_metrics(metrics: &str) {
    let text = include_str!("../config/grafana/tidegate.json");
    let dashboard: Json = serde_json::from_str(text).expect("JSON");
    assert!(dashboard["panels"].as_array().expect("panels").len() > 5);
    let mut names = 0;
    for (at, _) in text.match_indices("tidegate_") {
        let name: String = text[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        let shown = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        assert!(metrics.lines().any(shown), "{name} is not shown in\n{metrics}");
        names += 1;
    }
    assert!(names > 15, "{names}");
    // and the other way round: what is said of each queue has a place there
    for name in tidegate_overload::METRICS.iter().filter(|name| name.starts_with("tidegate_queue_")) {
        assert!(text.contains(*name), "{name} is not in the dashboard");
    }
}

/// Nobody but the gateway announces.
fn forge(server: &Server) {
    let mut forger = server.client(Version::V5);
    for topic in ["$tide/v1/rate", "$tide/v1/rate/client/sensor-1", "$tide/v1/load", "$tide/v1/check/other"] {
        let code = forger.publish(Publish::new(topic, r#"{"v":1,"rate":0.001}"#).qos(1).retain());
        assert_eq!(code, 0x87, "{topic}");
    }
    assert_ne!(retained(server, "$tide/v1/rate")["rate"], 0.001);
}

/// Reading control topics is subject to the rules, like any other reading: before and in an overload.
#[test]
fn who_may_not_read_rates_is_not_told() {
    let rules = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("rates.rules");
    std::fs::write(&rules, "deny client outsider subscribe $tide/#\neveryone any #\neveryone any $tide/#\n")
        .expect("a file");
    let plugins = ("plugins", r#"["access","overload"]"#.to_owned());
    let server = start_with("outsider", vec![plugins, ("access.rules", rules.display().to_string())]);
    for version in [Version::V311, Version::V5] {
        let mut outsider = server.connect(&Connect::new(version, "outsider"));
        let mut insider = server.connect(&Connect::new(version, "insider"));
        for filter in ["$tide/v1/rate", "$tide/v1/rate/client/other", "$tide/v1/#", "$tide/v1/load"] {
            let wanted = Subscribe::new(7, &[(filter, 1)]);
            assert!(outsider.subscribe_with(&wanted).codes[0] >= 0x80, "{filter}");
            assert!(insider.subscribe_with(&wanted).codes[0] <= 2, "{filter}");
        }
    }
}

/// Publishers that send no more than the consumer takes are not told anything.
#[test]
fn without_an_overload_nothing_is_announced() {
    let server = start("no-overload");
    let mut watcher = server.client(Version::V5);
    watcher.subscribe("$tide/v1/#", 0);
    let mut consumer = server.client(Version::V5);
    consumer.subscribe("calm/#", 1);
    let mut publisher = server.client(Version::V5);
    for n in 0..300 {
        assert_eq!(publisher.publish(Publish::new("calm/x", n.to_string()).qos(1)), 0);
        assert_eq!(consumer.receive().text(), n.to_string());
        std::thread::sleep(Duration::from_millis(5));
    }
    watcher.expect_silence();
    let queues = json(&server, "/api/v1/queues");
    assert_eq!(queues[0]["phase"], "idle", "{queues}");
}

/// More queues than are protected (10,000), fed by one publisher that names another topic with every message, with all that is on
/// by default: everything comes through, and what is shown of the queues stays small.
#[test]
fn ten_thousand_queues_and_topics() {
    const QUEUES: usize = 10_500;
    const EACH: usize = QUEUES / 2;
    let server = start_with("ten-thousand", vec![]);
    let mut consumers: Vec<Client> = (0..2).map(|_| server.client(Version::V5)).collect();
    for from in (0..QUEUES).step_by(250) {
        let filters: Vec<String> = (from..from + 250).map(|n| format!("$share/g{n}/many/{n}")).collect();
        let wanted: Vec<(&str, u8)> = filters.iter().map(|filter| (&**filter, 1)).collect();
        let suback = consumers[from / EACH].subscribe_with(&Subscribe::new((from / 250) as u16 + 1, &wanted));
        assert!(suback.codes.iter().all(|code| *code == 1), "{:?}", suback.codes);
    }
    let mut publisher = server.client(Version::V5);
    let mut seen = vec![false; QUEUES];
    for from in (0..QUEUES).step_by(50) {
        for n in from..from + 50 {
            let topic = format!("many/{n}");
            publisher.send(&Publish::new(&topic, n.to_string()).qos(1).id((n % 50) as u16 + 1));
        }
        for _ in 0..50 {
            let n: usize = consumers[from / EACH].receive().text().parse().expect("a number");
            assert!(!std::mem::replace(&mut seen[n], true), "{n} came twice");
        }
        for n in from..from + 50 {
            assert_eq!(publisher.expect_ack(Kind::Puback, (n % 50) as u16 + 1).code, 0);
        }
    }
    assert!(seen.iter().all(|seen| *seen));
    let metrics = get(&server, "/metrics");
    let shown = metrics.lines().filter(|line| line.starts_with("tidegate_queue_depth{")).count();
    assert!((1..=201).contains(&shown), "{shown} queues in the metrics");
    for consumer in &mut consumers {
        consumer.ping();
    }
}

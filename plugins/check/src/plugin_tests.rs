#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::Value;
use tidegate_plugin::Publisher;

use super::*;

/// A gateway that hands on what a plugin publishes.
struct Post {
    sender: Mutex<Sender<(String, Value, Vec<u8>)>>,
    /// Whether too many messages wait.
    crowded: AtomicBool,
}

impl Host for Post {
    fn publish(&self, topic: &str, _: &[u8], _: bool) {
        panic!("{topic}: an answer that might be left out");
    }

    fn respond(&self, topic: &str, payload: &[u8], correlation: Option<&[u8]>) -> bool {
        if self.crowded.load(Ordering::Relaxed) {
            return false;
        }
        let correlation = correlation.unwrap_or_default().to_vec();
        let _ =
            self.sender.lock().send((topic.into(), serde_json::from_slice(payload).unwrap(), correlation));
        true
    }

    fn subscribers(&self, _topic: &str) -> usize {
        0
    }

    fn publisher(&self, _number: u64) -> Option<Arc<Publisher>> {
        None
    }
}

struct Rig {
    plugin: CheckPlugin,
    host: Arc<Post>,
    post: Receiver<(String, Value, Vec<u8>)>,
}

impl Rig {
    fn new(config: CheckConfig) -> Self {
        let (sender, post) = channel();
        let host = Arc::new(Post { sender: Mutex::new(sender), crowded: AtomicBool::new(false) });
        let plugin = CheckPlugin::new(config).unwrap();
        let seen: Arc<dyn Host> = Arc::clone(&host) as _;
        plugin.start(&Arc::downgrade(&seen));
        Self { plugin, host, post }
    }

    fn client(&self, id: &str) -> Box<dyn Hook> {
        let publisher = Arc::new(Publisher::new(id.into(), None, 60, 5));
        let peer = SocketAddr::from(([127, 0, 0, 1], 5));
        let client =
            Client { id, user: None, password: None, peer, certificate: None, publisher: &publisher };
        self.plugin.connect(&client).unwrap().unwrap()
    }

    fn answer(&self) -> (String, Value) {
        let (topic, value, correlation) = self.reply();
        assert!(correlation.is_empty());
        (topic, value)
    }

    fn reply(&self) -> (String, Value, Vec<u8>) {
        self.post.recv_timeout(Duration::from_secs(20)).expect("an answer")
    }

    /// A message that all plugins let pass; the property that it gets.
    fn accept(&self, topic: &str, payload: &str) -> Option<String> {
        let mut added = Vec::new();
        let add = &mut |key: &str, value: &str| added.push(format!("{key}={value}"));
        self.plugin.on_accept(&message(topic, payload), add);
        assert!(added.len() <= 1);
        added.pop()
    }
}

fn message<'a>(topic: &'a str, payload: &'a str) -> Publish<'a> {
    let (now, waited) = (Moment::START, Duration::ZERO);
    Publish { topic, payload: payload.as_bytes(), qos: 1, retain: false, now, waited }
}

/// A check as the gateway hands it over.
fn check(hook: &mut dyn Hook, payload: &str) {
    assert!(hook.on_check(&CheckRequest {
        payload: payload.as_bytes(),
        response_topic: None,
        correlation_data: None
    }));
}

fn subscribe(hook: &mut dyn Hook, filter: &str) {
    hook.on_subscribed(&Subscribe { filter, group: None, qos: 1 });
}

#[test]
fn a_consumer_gets_what_it_missed() {
    let rig = Rig::new(CheckConfig::default());
    let mut consumer = rig.client("dashboard");
    subscribe(&mut *consumer, "room/+/temp");
    let mut asks = |since: &str| {
        let text = format!(r#"{{"v":1,"id":3,"filters":[{{"filter":"room/+/temp"{since}}}],"max":10}}"#);
        check(&mut *consumer, &text);
        rig.answer()
    };
    for (temperature, number) in [("20", 1), ("21", 2), ("22", 3)] {
        assert_eq!(rig.accept("room/1/temp", temperature), Some(format!("tide-seq={number}")));
    }
    assert_eq!(rig.accept("$SYS/x", "1"), None);
    let (topic, answer) = asks("");
    assert_eq!(topic, "$tide/v1/update/dashboard");
    assert_eq!(
        (answer["heads"]["room/1/temp"].as_u64(), answer["updates"].as_array().map(Vec::len)),
        (Some(3), Some(0))
    );
    let (_, answer) = asks(r#","since":{"room/1/temp":1}"#);
    assert_eq!((answer["id"].as_u64(), answer["missed"].as_u64()), (Some(3), Some(2)));
    assert_eq!(answer["updates"][1]["payload_b64"], "MjI=");
}

/// What others refuse is not numbered, wherever the plugin stands: only acceptance counts.
#[test]
fn what_is_only_asked_about_is_not_numbered() {
    let rig = Rig::new(CheckConfig::default());
    let mut source = rig.client("source");
    assert_eq!(source.on_publish(&message("t", "refused by another plugin")), Verdict::Continue);
    assert_eq!(rig.accept("t", "accepted"), Some("tide-seq=1".into()));
}

#[test]
fn what_may_not_be_subscribed_to_may_not_be_asked_for() {
    let rig = Rig::new(CheckConfig::default());
    let mut consumer = rig.client("dashboard");
    rig.accept("secret/1", "x");
    let text = r#"{"v":1,"id":3,"filters":[{"filter":"secret/#","since":{}}]}"#;
    let refused = |consumer: &mut dyn Hook| {
        check(consumer, text);
        let (_, answer) = rig.answer();
        assert!(answer["error"].as_str().is_some_and(|why| why.contains("secret/#")), "{answer}");
        assert_eq!(answer.get("updates"), None);
    };
    refused(&mut *consumer);
    // Asked for, and perhaps refused by a plugin behind this one; a member of a group gets a part only.
    assert_eq!(
        consumer.on_subscribe(&Subscribe { filter: "secret/#", group: None, qos: 1 }),
        Verdict::Continue
    );
    consumer.on_subscribed(&Subscribe { filter: "secret/#", group: Some("workers"), qos: 1 });
    refused(&mut *consumer);
    subscribe(&mut *consumer, "secret/#");
    check(&mut *consumer, text);
    assert_eq!(rig.answer().1["missed"], 1);
    consumer.on_unsubscribe("secret/#");
    refused(&mut *consumer);
}

#[test]
fn nobody_asks_in_the_name_of_another() {
    let rig = Rig::new(CheckConfig::default());
    let mut consumer = rig.client("mallory");
    let verdict = consumer.on_publish(&message("$tide/v1/check/alice", "{}"));
    assert!(matches!(verdict, Verdict::Refuse(refusal) if refusal.code == 0x87));
    assert_eq!(consumer.on_publish(&message("$tide/v1/check/mallory", "{}")), Verdict::Continue);
    check(&mut *consumer, "rubbish");
    assert_eq!(
        rig.answer(),
        (
            "$tide/v1/update/mallory".into(),
            rig.plugin.desk.answer(0, None).refused("not JSON").parse().unwrap()
        )
    );
    check(&mut *consumer, &" ".repeat(100_000));
    assert!(rig.answer().1["error"].as_str().unwrap().contains("longer than"));
}

/// An MQTT 5 client says where it wants the answer, and by what it will know it; never where others would be written to.
#[test]
fn the_answer_goes_where_it_is_asked_for() {
    let rig = Rig::new(CheckConfig::default());
    let mut consumer = rig.client("dashboard");
    subscribe(&mut *consumer, "t");
    let mut ask = |response_topic: Option<&str>, correlation: &[u8]| {
        let payload = br#"{"id":1,"filters":[{"filter":"t"}]}"#;
        assert!(consumer.on_check(&CheckRequest {
            payload,
            response_topic,
            correlation_data: Some(correlation)
        }));
        let (topic, answer, correlation) = rig.reply();
        (topic, answer.get("error").is_some(), correlation)
    };
    let usual = "$tide/v1/update/dashboard";
    assert_eq!(ask(None, b"7"), (usual.into(), false, b"7".to_vec()));
    assert_eq!(ask(Some(usual), b"7"), (usual.into(), false, b"7".to_vec()));
    let below = "$tide/v1/update/dashboard/temperatures";
    assert_eq!(ask(Some(below), b"\0\xff"), (below.into(), false, b"\0\xff".to_vec()));
    for foreign in ["alarm", "$tide/v1/rate", "$tide/v1/update/dashboard-2", "$tide/v1/update"] {
        assert_eq!(ask(Some(foreign), b"7"), (usual.into(), true, vec![]), "{foreign}");
    }
    assert_eq!(ask(None, &[7; MOST_REPLY + 1]), (usual.into(), true, vec![]));
}

/// Below the update topic of `a` only `a` reads, and may have its answers sent there.
#[test]
fn no_client_has_its_topics_below_those_of_another() {
    let rig = Rig::new(CheckConfig::default());
    rig.accept("t", "secret");
    let ask = |id: &str| {
        let mut consumer = rig.client(id);
        subscribe(&mut *consumer, "t");
        check(&mut *consumer, r#"{"id":7,"filters":[{"filter":"t","since":{}}]}"#);
        let (topic, answer) = rig.answer();
        assert_eq!((topic, answer["id"].as_u64()), (format!("$tide/v1/update/{id}"), Some(7)));
        answer["error"].is_string()
    };
    assert!(ask("a/b") && ask("a/") && !ask("a"));
}

#[test]
fn whoever_is_refused_learns_which_check_it_was() {
    let rig = Rig::new(CheckConfig { max_looks: 9, ..CheckConfig::default() });
    let mut consumer = rig.client("dashboard");
    let filters: Vec<String> = (0..10).map(|n| format!("t/+/{n}")).collect();
    filters.iter().for_each(|filter| subscribe(&mut *consumer, filter));
    rig.accept("t/1/1", "x");
    let refused = |consumer: &mut dyn Hook, text: &str| {
        check(consumer, text);
        let (_, answer) = rig.answer();
        assert!(answer["error"].is_string(), "{answer}");
        answer["id"].as_u64()
    };
    let long = format!(r#"{{"filters":[{{"filter":"{}"}}],"id":17}}"#, "x".repeat(70_000));
    assert_eq!(refused(&mut *consumer, &long), Some(17));
    assert_eq!(refused(&mut *consumer, r#"{"filters":[{"filter":7}],"id":18}"#), Some(18));
    let wild: Vec<String> = filters.iter().map(|filter| format!(r#"{{"filter":"{filter}"}}"#)).collect();
    let wild = |count: usize| format!(r#"{{"filters":[{}],"id":19}}"#, wild[..count].join(","));
    assert_eq!(refused(&mut *consumer, &wild(10)), Some(19));
    check(&mut *consumer, &wild(4));
    assert_eq!(rig.answer().1["heads"], serde_json::json!({ "t/1/1": 1 }));
}

/// A thousand that ask the same at the same moment: each answer costs, so that most are told a later time.
#[test]
fn those_who_ask_the_same_are_limited_too() {
    let rig = Rig::new(CheckConfig { max_rate: 10.0, max_waiting: 5, ..CheckConfig::default() });
    for n in 0..1_000 {
        let mut consumer = rig.client(&format!("c{n}"));
        subscribe(&mut *consumer, "t");
        check(&mut *consumer, &format!(r#"{{"id":{n},"filters":[{{"filter":"t","since":{{}}}}]}}"#));
    }
    let later = (0..1_000).filter(|_| rig.answer().1.get("retry_ms").is_some()).count();
    assert!(later > 500, "{later}");
    assert_eq!(rig.plugin.desk.counts.deferred.load(Ordering::Relaxed), later as u64);
}

#[test]
fn any_number_has_its_digits() {
    for number in [0, 7, 10, 1_044, u64::MAX] {
        assert_eq!(Digits::of(number).text(), number.to_string());
    }
}

/// A thousand at the same moment: each is answered, some with a later time, none with silence.
#[test]
fn over_the_limit_there_is_a_later_time_and_no_silence() {
    let rig = Rig::new(CheckConfig {
        max_rate: 10.0,
        max_wait: Duration::from_millis(200),
        ..CheckConfig::default()
    });
    for n in 0..1_000 {
        let id = format!("c{n}");
        let mut consumer = rig.client(&id);
        subscribe(&mut *consumer, &format!("t/{n}"));
        check(&mut *consumer, &format!(r#"{{"id":{n},"filters":[{{"filter":"t/{n}","since":{{}}}}]}}"#));
    }
    let (mut later, mut answered) = (0, 0);
    for _ in 0..1_000 {
        let (_, answer) = rig.answer();
        if answer.get("retry_ms").is_some() { later += 1 } else { answered += 1 }
    }
    assert!(answered >= 1 && later > 500, "{answered} answered, {later} later");
}

/// The gateway has no room for messages of its own: answers wait for it, the short ones too.
#[test]
fn without_room_for_answers_they_come_later() {
    const CHECKS: usize = 200;
    let rig = Rig::new(CheckConfig { max_rate: 10.0, ..CheckConfig::default() });
    rig.host.crowded.store(true, Ordering::Relaxed);
    for n in 0..CHECKS {
        let mut consumer = rig.client(&format!("c{n}"));
        if n % 2 == 0 {
            subscribe(&mut *consumer, &format!("t/{n}"));
        }
        check(&mut *consumer, &format!(r#"{{"id":{n},"filters":[{{"filter":"t/{n}","since":{{}}}}]}}"#));
    }
    assert!(rig.post.recv_timeout(Duration::from_millis(100)).is_err(), "there is no room");
    rig.host.crowded.store(false, Ordering::Relaxed);
    let mut seen = HashSet::new();
    let (mut refused, mut later, mut found) = (0, 0, 0);
    while seen.len() < CHECKS {
        let (topic, answer) = rig.answer();
        assert!(seen.insert(topic), "{answer}");
        refused += usize::from(answer.get("error").is_some());
        later += usize::from(answer.get("retry_ms").is_some());
        found += usize::from(answer.get("heads").is_some());
    }
    assert!(
        refused == CHECKS / 2 && later > 0 && found > 0,
        "{refused} refused, {later} later, {found} found"
    );
    assert_eq!(rig.plugin.desk.counts.unanswered.load(Ordering::Relaxed), 0);
}

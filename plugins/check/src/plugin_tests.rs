#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::Value;
use tidegate_plugin::Publisher;

use super::*;

/// A gateway that hands on what a plugin publishes.
struct Post(Mutex<Sender<(String, Value)>>);

impl Host for Post {
    fn publish(&self, topic: &str, payload: &[u8], retain: bool) {
        assert!(!retain);
        let _ = self.0.lock().send((topic.into(), serde_json::from_slice(payload).unwrap()));
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
    _host: Arc<dyn Host>,
    post: Receiver<(String, Value)>,
}

impl Rig {
    fn new(config: CheckConfig) -> Self {
        let (sender, post) = channel();
        let host: Arc<dyn Host> = Arc::new(Post(Mutex::new(sender)));
        let plugin = CheckPlugin::new(config).unwrap();
        plugin.start(&Arc::downgrade(&host));
        Self { plugin, _host: host, post }
    }

    fn client(&self, id: &str) -> Box<dyn Hook> {
        let publisher = Arc::new(Publisher::new(id.into(), None, 60, 5));
        let peer = SocketAddr::from(([127, 0, 0, 1], 5));
        let client =
            Client { id, user: None, password: None, peer, certificate: None, publisher: &publisher };
        self.plugin.connect(&client).unwrap().unwrap()
    }

    fn answer(&self) -> (String, Value) {
        self.post.recv_timeout(Duration::from_secs(20)).expect("an answer")
    }
}

fn publish(hook: &mut dyn Hook, topic: &str, payload: &str) -> Verdict {
    let (now, waited) = (Moment::START, Duration::ZERO);
    hook.on_publish(&Publish { topic, payload: payload.as_bytes(), qos: 1, retain: false, now, waited })
}

fn subscribe(hook: &mut dyn Hook, filter: &str) {
    assert_eq!(hook.on_subscribe(&Subscribe { filter, group: None, qos: 1 }), Verdict::Continue);
}

#[test]
fn a_consumer_gets_what_it_missed() {
    let rig = Rig::new(CheckConfig::default());
    let (mut source, mut consumer) = (rig.client("source"), rig.client("dashboard"));
    subscribe(&mut *consumer, "room/+/temp");
    let check = |consumer: &mut dyn Hook, since: &str| {
        let text = format!(r#"{{"v":1,"id":3,"filters":[{{"filter":"room/+/temp"{since}}}],"max":10}}"#);
        assert_eq!(publish(consumer, "$tide/v1/check/dashboard", &text), Verdict::Drop);
        rig.answer()
    };
    for temperature in ["20", "21", "22"] {
        assert_eq!(publish(&mut *source, "room/1/temp", temperature), Verdict::Continue);
    }
    let (topic, answer) = check(&mut *consumer, "");
    assert_eq!(topic, "$tide/v1/update/dashboard");
    assert_eq!(
        (answer["heads"]["room/1/temp"].as_u64(), answer["updates"].as_array().map(Vec::len)),
        (Some(3), Some(0))
    );
    let (_, answer) = check(&mut *consumer, r#","since":{"room/1/temp":1}"#);
    assert_eq!((answer["id"].as_u64(), answer["missed"].as_u64()), (Some(3), Some(2)));
    assert_eq!(answer["updates"][1]["payload_b64"], "MjI=");
}

#[test]
fn what_may_not_be_subscribed_to_may_not_be_asked_for() {
    let rig = Rig::new(CheckConfig::default());
    let mut consumer = rig.client("dashboard");
    publish(&mut *consumer, "secret/1", "x");
    let check = r#"{"v":1,"id":3,"filters":[{"filter":"secret/#","since":{}}]}"#;
    publish(&mut *consumer, "$tide/v1/check/dashboard", check);
    let (_, answer) = rig.answer();
    assert!(answer["error"].as_str().is_some_and(|why| why.contains("secret/#")), "{answer}");
    assert_eq!(answer.get("updates"), None);
    subscribe(&mut *consumer, "secret/#");
    publish(&mut *consumer, "$tide/v1/check/dashboard", check);
    assert_eq!(rig.answer().1["missed"], 1);
    consumer.on_unsubscribe("secret/#");
    publish(&mut *consumer, "$tide/v1/check/dashboard", check);
    assert!(rig.answer().1.get("error").is_some());
}

#[test]
fn nobody_asks_in_the_name_of_another() {
    let rig = Rig::new(CheckConfig::default());
    let mut consumer = rig.client("mallory");
    let verdict = publish(&mut *consumer, "$tide/v1/check/alice", "{}");
    assert!(matches!(verdict, Verdict::Refuse(refusal) if refusal.code == 0x87));
    publish(&mut *consumer, "$tide/v1/check/mallory", "rubbish");
    assert_eq!(
        rig.answer(),
        (
            "$tide/v1/update/mallory".into(),
            rig.plugin.desk.answer(0, None).refused("not JSON").parse().unwrap()
        )
    );
    publish(&mut *consumer, "$tide/v1/check/mallory", &" ".repeat(100_000));
    assert!(rig.answer().1["error"].as_str().unwrap().contains("too long"));
}

/// A thousand at the same moment: each is answered, some with a later time, none with silence.
#[test]
fn over_the_limit_there_is_a_later_time_and_no_silence() {
    let rig = Rig::new(CheckConfig {
        max_rate: 100.0,
        max_wait: Duration::from_millis(50),
        ..CheckConfig::default()
    });
    for n in 0..1_000 {
        let id = format!("c{n}");
        let mut consumer = rig.client(&id);
        subscribe(&mut *consumer, &format!("t/{n}"));
        let check = format!(r#"{{"id":{n},"filters":[{{"filter":"t/{n}","since":{{}}}}]}}"#);
        publish(&mut *consumer, &format!("$tide/v1/check/{id}"), &check);
    }
    let (mut later, mut answered) = (0, 0);
    for _ in 0..1_000 {
        let (_, answer) = rig.answer();
        if answer.get("retry_ms").is_some() { later += 1 } else { answered += 1 }
    }
    assert!(answered >= 1 && later > 500, "{answered} answered, {later} later");
}

//! A subscriber against a scripted gateway that numbers its updates, loses some of them and answers checks.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubRel, Publish, PublishProperties};
use serde_json::{Value, json};
use tidegate_client::control::active::ConstantConfig;
use tidegate_client::control::time::Span;
use tidegate_client::{Publisher, Qos, Reconnect, Subscriber, Update, Version, Via};

use crate::gateway::Gateway;
use crate::publishing::connection;
use crate::scripted::{Answer, Scripted, resumed, usual};
use crate::{PLAYED, soon, until};

/// What the scripted gateway does: an update for each PINGREQ would be too slow, so one for each message that a
/// "source" publishes; those whose text starts with `lose` are not delivered.
#[derive(Default)]
struct World {
    updates: Vec<Vec<u8>>,
    checks: Vec<Value>,
    /// Answers with a later time first.
    delays: u32,
}

fn message(topic: &str, payload: impl Into<Vec<u8>>, seq: Option<u64>) -> Packet {
    let properties = seq.map(|seq| PublishProperties {
        user_properties: vec![("tide-seq".into(), seq.to_string())],
        ..PublishProperties::default()
    });
    Packet::Publish(Publish::new(topic, QoS::AtMostOnce, payload.into(), properties))
}

impl World {
    /// An update is published under `t`; what the subscriber is sent.
    fn publish(&mut self, text: &str) -> Vec<Packet> {
        self.updates.push(text.into());
        let seq = self.updates.len() as u64;
        if text.starts_with("lose") { vec![] } else { vec![message("t", text, Some(seq))] }
    }

    fn check(&mut self, payload: &[u8]) -> Packet {
        let check: Value = serde_json::from_slice(payload).unwrap();
        self.checks.push(check.clone());
        let answer = if self.delays > 0 {
            self.delays -= 1;
            json!({ "v": 1, "id": check["id"], "retry_ms": 100 })
        } else {
            self.answer(&check)
        };
        message(&format!("{PLAYED}/update/dashboard"), answer.to_string(), None)
    }

    fn answer(&self, check: &Value) -> Value {
        let head = self.updates.len() as u64;
        let updates: Vec<Value> = match check["filters"][0].get("since") {
            None => vec![],
            Some(since) => {
                let since = since["t"].as_u64().unwrap_or(0);
                let text = |seq: u64| STANDARD.encode(&self.updates[seq as usize - 1]);
                (since + 1..=head)
                    .map(|seq| json!({ "topic": "t", "seq": seq, "payload_b64": text(seq) }))
                    .collect()
            }
        };
        json!({ "v": 1, "id": check["id"], "heads": { "t": head }, "missed": updates.len(), "updates": updates,
            "truncated": false, "server_ms": 1 })
    }
}

/// A broker for one subscriber, with the world behind it. The first subscription starts a series of updates.
async fn gateway(series: &'static [&'static str], delays: u32) -> (Scripted, Arc<Mutex<World>>) {
    let world = Arc::new(Mutex::new(World { delays, ..World::default() }));
    let shared = world.clone();
    let mut begun = false;
    let broker = Scripted::start(move |packet| {
        let mut world = shared.lock();
        match packet {
            Packet::Publish(publish) if publish.topic == format!("{PLAYED}/check/dashboard") => {
                let delayed = world.delays > 0;
                let mut packets = vec![world.check(&publish.payload)];
                // The first answer says where things stand; then things happen.
                if !delayed && !std::mem::replace(&mut begun, true) {
                    packets.extend(series.iter().flat_map(|text| world.publish(text)));
                }
                Some(Answer::send(packets))
            }
            other => Some(usual(other)),
        }
    })
    .await;
    (broker, world)
}

fn dashboard(url: &str, version: Version) -> Subscriber {
    let often = ConstantConfig { interval: Span::from_millis(300) }.build().unwrap();
    Subscriber::builder(connection(url, "dashboard").version(version))
        .filter("t")
        .strategy(often)
        .most_checks(5.0)
        .start()
        .unwrap()
}

async fn take(subscriber: &mut Subscriber, count: usize) -> Vec<(String, Via, u64)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let Update { payload, via, lost_before, .. } = soon("an update", subscriber.next()).await.unwrap();
        all.push((String::from_utf8_lossy(&payload).into_owned(), via, lost_before));
    }
    all
}

#[tokio::test]
async fn what_went_missing_is_fetched_in_order_and_once() {
    let (broker, world) = gateway(&["a", "lose b", "c", "lose d", "lose e"], 0).await;
    let mut subscriber = dashboard(&broker.url(), Version::V5);
    let expected = [
        ("a", Via::Passive),
        ("lose b", Via::Active),
        ("c", Via::Passive),
        ("lose d", Via::Active),
        ("lose e", Via::Active),
    ];
    let expected: Vec<_> = expected.iter().map(|(text, via)| ((*text).to_owned(), *via, 0)).collect();
    assert_eq!(take(&mut subscriber, 5).await, expected);
    until("a redundant check", || subscriber.stats().redundant_checks > 1).await;
    let stats = subscriber.stats();
    assert_eq!((stats.passive, stats.active, stats.lost), (2, 3, 0), "{stats:?}");
    assert_eq!(stats.interval, Duration::from_millis(300));
    assert!(stats.response > Duration::ZERO);
    let checks = world.lock().checks.clone();
    assert_eq!(checks[0]["filters"][0].get("since"), None, "the first asks where things stand");
    assert_eq!(checks.last().unwrap()["filters"][0]["since"]["t"], 5);
}

#[tokio::test]
async fn a_later_time_is_waited_for() {
    let (broker, _world) = gateway(&["lose a", "b"], 2).await;
    let mut subscriber = dashboard(&broker.url(), Version::V5);
    let texts: Vec<String> = take(&mut subscriber, 2).await.into_iter().map(|(text, ..)| text).collect();
    assert_eq!(texts, ["lose a", "b"]);
    assert_eq!(subscriber.stats().delayed_checks, 2);
}

/// A gateway that answers nothing is asked less, and updates go on.
#[tokio::test]
async fn silence_is_survived() {
    let broker = Scripted::start(|packet| match packet {
        Packet::Subscribe(_) => {
            let mut answer = usual(packet);
            answer.packets.extend([message("t", "1", Some(1)), message("t", "3", Some(3))]);
            Some(answer)
        }
        other => Some(usual(other)),
    })
    .await;
    let mut subscriber = Subscriber::builder(connection(&broker.url(), "dashboard"))
        .filter("t")
        .patience(Duration::from_millis(100))
        .hold(Duration::from_millis(500))
        .most_checks(10.0)
        .start()
        .unwrap();
    let expected = [("1".to_owned(), Via::Passive, 0), ("3".to_owned(), Via::Passive, 1)];
    assert_eq!(take(&mut subscriber, 2).await, expected);
    until("silence", || subscriber.stats().silent_checks > 1).await;
    assert_eq!(subscriber.stats().lost, 1);
}

/// A gateway that can't even read the number of a check: the client knows which one it means, and does not wait for more.
#[tokio::test]
async fn a_refusal_without_a_number_is_noticed() {
    let broker = Scripted::start(|packet| match packet {
        Packet::Publish(publish) if publish.topic == format!("{PLAYED}/check/dashboard") => {
            let answer = json!({ "v": 1, "id": 0, "error": "too long" }).to_string();
            Some(Answer::send(vec![message(&format!("{PLAYED}/update/dashboard"), answer, None)]))
        }
        other => Some(usual(other)),
    })
    .await;
    let subscriber = dashboard(&broker.url(), Version::V5);
    until("a refusal", || subscriber.stats().refused_checks > 0).await;
    assert_eq!((subscriber.stats().silent_checks, subscriber.stats().delayed_checks), (0, 0));
}

/// A program that does not take its updates: the broker may not send more than the window, and nothing is lost.
#[tokio::test]
async fn a_slow_program_holds_back_the_broker() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let slow = Subscriber::builder(connection(&url, "slow")).filter("slow/#").buffer(100).passive_only();
    let mut slow = slow.start().unwrap();
    until("a connection", || slow.stats().connections == 1).await;
    let publisher = Publisher::builder(connection(&url, "meter")).retain(true).start().unwrap();
    publisher.offer("slow/first", "first");
    assert_eq!(soon("the first", slow.next()).await.unwrap().payload, "first");
    for n in 0..500 {
        publisher.offer("slow/series", n);
        soon("delivery", publisher.delivered()).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for n in 0..500 {
        let update = soon("an update", slow.next()).await.unwrap();
        assert_eq!((update.payload, update.lost_before), (n.to_string().into(), 0));
    }
    assert_eq!(slow.stats().overrun, 0);
}

/// The program takes nothing for longer than updates wait for others, so that the broker sends nothing, and the gateway tells
/// of updates after those that the broker still has: none of them is jumped over.
#[tokio::test]
async fn what_the_broker_has_for_a_slow_program_is_not_jumped_over() {
    const LAST: u64 = 110;
    let mut begun = false;
    let kept = |seq: u64| {
        let Packet::Publish(mut publish) = message("t", seq.to_string(), Some(seq)) else { unreachable!() };
        (publish.qos, publish.pkid) = (QoS::AtLeastOnce, seq as u16);
        Packet::Publish(publish)
    };
    let broker = Scripted::start(move |packet| match packet {
        Packet::Publish(publish) if publish.topic == format!("{PLAYED}/check/dashboard") => {
            let check: Value = serde_json::from_slice(&publish.payload).unwrap();
            let first = !std::mem::replace(&mut begun, true);
            let head = if first { 100 } else { LAST };
            let newest =
                json!({ "topic": "t", "seq": LAST, "payload_b64": STANDARD.encode(LAST.to_string()) });
            let updates: Vec<Value> = (!first).then_some(newest).into_iter().collect();
            let answer = json!({ "v": 1, "id": check["id"], "heads": { "t": head }, "updates": updates });
            let mut packets = vec![message(&format!("{PLAYED}/update/dashboard"), answer.to_string(), None)];
            packets.extend(first.then(|| kept(101)));
            Some(Answer::send(packets))
        }
        // One at a time.
        Packet::PubAck(ack) if u64::from(ack.pkid) < LAST => {
            Some(Answer::send(vec![kept(u64::from(ack.pkid) + 1)]))
        }
        other => Some(usual(other)),
    })
    .await;
    let often = ConstantConfig { interval: Span::from_millis(50) }.build().unwrap();
    let builder = Subscriber::builder(connection(&broker.url(), "dashboard")).filter("t").strategy(often);
    let mut subscriber = builder.most_checks(20.0).hold(Duration::from_millis(200)).start().unwrap();
    until("many checks", || subscriber.stats().answered_checks > 40).await;
    let expected: Vec<_> = (101..=LAST).map(|seq| (seq.to_string(), Via::Passive, 0)).collect();
    assert_eq!(take(&mut subscriber, expected.len()).await, expected);
}

/// With QoS 0 nothing holds the broker back: what does not fit is lost, and the next update says how much.
#[tokio::test]
async fn what_does_not_fit_is_counted() {
    let broker = Scripted::start(|packet| match packet {
        Packet::Subscribe(_) => {
            let mut answer = usual(packet);
            answer.packets.extend((1..=50u64).map(|seq| message("t", seq.to_string(), Some(seq))));
            Some(answer)
        }
        other => Some(usual(other)),
    })
    .await;
    let subscriber = Subscriber::builder(connection(&broker.url(), "dashboard")).filter("t").buffer(10);
    let mut subscriber = subscriber.passive_only().start().unwrap();
    until("all came", || subscriber.stats().overrun == 40).await;
    let texts: Vec<String> = take(&mut subscriber, 10).await.into_iter().map(|(text, ..)| text).collect();
    assert_eq!(texts, (1..=10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!((subscriber.stats().passive, subscriber.stats().lost), (10, 40));
}

/// The same for bytes: few messages can be large.
#[tokio::test]
async fn what_is_too_large_together_is_counted() {
    for (topic, payload) in [("t".to_owned(), 1_000), ("t".repeat(1_000), 0)] {
        let broker = Scripted::start(move |packet| match packet {
            Packet::Subscribe(_) => {
                let mut answer = usual(packet);
                let payload = vec![b'x'; payload];
                answer.packets.extend((1..=50u64).map(|seq| message(&topic, payload.clone(), Some(seq))));
                Some(answer)
            }
            other => Some(usual(other)),
        })
        .await;
        let builder = Subscriber::builder(connection(&broker.url(), "dashboard")).filter("#");
        let mut subscriber = builder.buffer_bytes(11_500).passive_only().start().unwrap();
        until("all came", || subscriber.stats().overrun == 40).await;
        assert_eq!(take(&mut subscriber, 10).await.len(), 10);
        assert_eq!((subscriber.stats().passive, subscriber.stats().lost), (10, 40));
    }
}

/// An answer brings one update at a time: what came by itself after them waits until all are there, however long it takes.
#[tokio::test]
async fn what_waits_does_not_give_up_while_there_is_more() {
    let mut begun = false;
    let broker = Scripted::start(move |packet| match packet {
        Packet::Publish(publish) if publish.topic == format!("{PLAYED}/check/dashboard") => {
            let check: Value = serde_json::from_slice(&publish.payload).unwrap();
            let since = check["filters"][0]["since"]["t"].as_u64();
            let updates: Vec<Value> = since.map(|since| since + 1).filter(|next| *next < 20).into_iter().collect::<Vec<_>>()
                .into_iter().map(|seq| json!({ "topic": "t", "seq": seq, "payload_b64": STANDARD.encode(seq.to_string()) })).collect();
            let head = if since.is_some() { 20 } else { 0 };
            let answer = json!({ "v": 1, "id": check["id"], "heads": { "t": head }, "updates": updates, "truncated": since.is_some_and(|since| since < 18) });
            let mut packets = vec![message(&format!("{PLAYED}/update/dashboard"), answer.to_string(), None)];
            if !std::mem::replace(&mut begun, true) {
                packets.push(message("t", "20", Some(20)));
            }
            Some(Answer::send(packets))
        }
        other => Some(usual(other)),
    })
    .await;
    let builder = Subscriber::builder(connection(&broker.url(), "dashboard")).filter("t");
    let mut subscriber = builder.most_checks(4.0).hold(Duration::from_secs(2)).start().unwrap();
    let texts: Vec<String> = take(&mut subscriber, 20).await.into_iter().map(|(text, ..)| text).collect();
    assert_eq!(texts, (1..=20).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// More topics than the subscriber keeps track of, and a gateway that tells of them before all others, in answers that have no
/// room for all: it is not asked for ever, and what waits for a missing update does not wait for ever.
#[tokio::test]
async fn topics_that_are_not_tracked_do_not_keep_it_asking() {
    let mut begun = false;
    let broker = Scripted::start(move |packet| match packet {
        Packet::Publish(publish) if publish.topic == format!("{PLAYED}/check/dashboard") => {
            let check: Value = serde_json::from_slice(&publish.payload).unwrap();
            let first = !std::mem::replace(&mut begun, true);
            let other = json!({ "topic": "other", "seq": 7, "payload_b64": STANDARD.encode("7") });
            let heads = if first { json!({ "t": 1 }) } else { json!({ "other": 8, "t": 3 }) };
            let updates = if first { json!([]) } else { json!([other]) };
            let answer =
                json!({ "v": 1, "id": check["id"], "heads": heads, "updates": updates, "truncated": !first });
            let mut packets = vec![message(&format!("{PLAYED}/update/dashboard"), answer.to_string(), None)];
            if first {
                packets.extend([message("t", "1", Some(1)), message("t", "3", Some(3))]);
            }
            Some(Answer::send(packets))
        }
        other => Some(usual(other)),
    })
    .await;
    let rarely = ConstantConfig { interval: Span::from_secs(100) }.build().unwrap();
    let builder = Subscriber::builder(connection(&broker.url(), "dashboard")).filter("#").strategy(rarely);
    let builder = builder.most_topics(1).most_checks(20.0).hold(Duration::from_secs(1));
    let mut subscriber = builder.start().unwrap();
    let expected = [("1".to_owned(), Via::Passive, 0), ("3".to_owned(), Via::Passive, 1)];
    assert_eq!(take(&mut subscriber, 2).await, expected);
    let checks = broker.payloads(&format!("{PLAYED}/check/dashboard"));
    assert!(checks[0].contains("filters") && !checks[0].contains("only_named"));
    assert!(checks[1..].iter().all(|check| check.contains(r#""only_named":true"#)), "{checks:?}");
    assert!(checks.len() <= 3, "one to begin, one for the gap, perhaps one in its turn: {checks:?}");
}

fn with_receipt(id: u16, text: &str, again: bool) -> Packet {
    let mut publish = Publish::new("t", QoS::AtLeastOnce, text.to_owned(), None);
    (publish.pkid, publish.dup) = (id, again);
    Packet::Publish(publish)
}

/// The connection breaks before the broker has heard that messages arrived, and the session goes on: it sends them again. They
/// carry no number.
#[tokio::test]
async fn what_a_broker_sends_again_comes_once() {
    let mut connections = 0;
    let broker = Scripted::start(move |packet| match packet {
        Packet::Connect(..) => {
            connections += 1;
            Some(if connections == 1 { usual(packet) } else { Answer::send([resumed()]) })
        }
        Packet::Subscribe(_) => {
            let mut answer = usual(packet);
            answer.packets.extend(match connections {
                1 => vec![with_receipt(1, "same", false), with_receipt(2, "same", false)],
                _ => vec![
                    with_receipt(1, "same", true),
                    with_receipt(2, "same", true),
                    with_receipt(3, "new", true),
                ],
            });
            Some(answer)
        }
        // The first acknowledgement is not heard.
        Packet::PubAck(_) if connections == 1 => Some(Answer { packets: vec![], close: true }),
        _ => None,
    })
    .await;
    let soon_back = Reconnect::default().first(Duration::from_millis(50));
    let builder =
        Subscriber::builder(connection(&broker.url(), "dashboard").reconnect(soon_back)).filter("t");
    let mut subscriber = builder.passive_only().start().unwrap();
    let acknowledged = |id| {
        broker
            .seen
            .lock()
            .iter()
            .filter(|packet| matches!(packet, Packet::PubAck(ack) if ack.pkid == id))
            .count()
    };
    until("both", || subscriber.stats().passive == 2).await;
    assert_eq!(take(&mut subscriber, 1).await[0].0, "same");
    until("the second connection", || subscriber.stats().duplicates == 2).await;
    until("the first again", || acknowledged(1) == 2).await;
    assert_eq!(acknowledged(2), 0, "the program has not taken it");
    let texts: Vec<String> = take(&mut subscriber, 2).await.into_iter().map(|(text, ..)| text).collect();
    assert_eq!(texts, ["same", "new"]);
    until("all acknowledgements", || acknowledged(2) == 1 && acknowledged(3) == 1).await;
}

/// The connection breaks between the two halves of a delivery with QoS 2: after the break the broker goes on with the second.
#[tokio::test]
async fn the_second_half_of_qos_2_may_come_after_a_break() {
    let mut connections = 0;
    let broker = Scripted::start(move |packet| match packet {
        Packet::Connect(..) => {
            connections += 1;
            let release = Packet::PubRel(PubRel::new(7, None));
            Some(if connections == 1 { usual(packet) } else { Answer::send([resumed(), release]) })
        }
        Packet::Subscribe(_) if connections == 1 => {
            let mut answer = usual(packet);
            let mut publish = Publish::new("t", QoS::ExactlyOnce, "once", None);
            publish.pkid = 7;
            answer.packets.push(Packet::Publish(publish));
            Some(answer)
        }
        Packet::PubRec(_) => Some(Answer { packets: vec![], close: true }),
        _ => None,
    })
    .await;
    let soon_back = Reconnect::default().first(Duration::from_millis(50));
    let builder = Subscriber::builder(connection(&broker.url(), "dashboard").reconnect(soon_back));
    let mut subscriber = builder.filter_with("t", Qos::ExactlyOnce).passive_only().start().unwrap();
    assert_eq!(take(&mut subscriber, 1).await[0].0, "once");
    until("the end", || {
        broker.seen.lock().iter().any(|packet| matches!(packet, Packet::PubComp(end) if end.pkid == 7))
    })
    .await;
    assert_eq!(subscriber.stats().connections, 2);
}

/// The same for one that the program knows nothing of: it was started anew, and the session is older than it.
#[tokio::test]
async fn the_second_half_of_qos_2_may_come_to_a_new_program() {
    let broker = Scripted::start(|packet| match packet {
        Packet::Connect(..) => {
            let releases = [7, 8, 9].map(|id| Packet::PubRel(PubRel::new(id, None)));
            Some(Answer::send([vec![resumed()], releases.to_vec()].concat()))
        }
        _ => None,
    })
    .await;
    let soon_back = Reconnect::default().first(Duration::from_millis(50));
    let builder = Subscriber::builder(connection(&broker.url(), "dashboard").reconnect(soon_back));
    let subscriber = builder.filter_with("t", Qos::ExactlyOnce).passive_only().start().unwrap();
    let ends = || broker.seen.lock().iter().filter(|packet| matches!(packet, Packet::PubComp(_))).count();
    until("the end of all", || ends() == 3).await;
    assert_eq!(subscriber.stats().connections, 2, "the first of them was not understood");
}

/// With 3.1.1 the broker chooses how much it sends before it hears of any of it. Whatever it chooses, nothing is lost, and
/// every acknowledgement arrives: else its window would close bit by bit.
#[tokio::test]
async fn a_slow_program_loses_nothing_with_mqtt_3() {
    const MESSAGES: u32 = 3_000;
    let gateway = Gateway::start();
    let url = gateway.url();
    let connection = |id: &str| connection(&url, id);
    let builder = Subscriber::builder(connection("slow").version(Version::V311)).filter("slow/#");
    let mut slow = builder.passive_only().start().unwrap();
    let policy = tidegate_client::Policy::Batch { samples: 1, bytes: 100 };
    let source = Publisher::builder(connection("source")).policy(policy).window(64).buffer(5_000, 10_000_000);
    let source = source.start().unwrap();
    until("both", || slow.stats().connections + source.stats().connections == 2).await;
    source.offer("slow/first", "first");
    assert_eq!(soon("the first", slow.next()).await.unwrap().payload, "first");
    for round in 0..4 {
        for n in 0..MESSAGES {
            assert!(source.offer(&format!("slow/{n}"), round));
        }
        soon("delivery", source.delivered()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..MESSAGES {
            let update = soon("an update", slow.next()).await.unwrap();
            assert_eq!((update.payload, update.lost_before), (round.to_string().into(), 0));
        }
    }
    assert_eq!((slow.stats().overrun, slow.stats().lost), (0, 0));
}

//! Messages of exempt classes overtake others in the queue of a slow consumer; what one publisher sends on one topic stays
//! in order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::client::Client;
use common::packet::Version::V5;
use common::packet::*;
use common::property::*;
use common::server::{Server, Setup};
use common::unique;

const BY_TOPIC: &str = r#"[{name="alarm",topic="work/alarm*",exempt=true}]"#;
const BY_CLIENT: &str = r#"[{name="alarm",client="siren-*",exempt=true}]"#;

fn start(name: &str, classes: &str) -> Server {
    let settings = [
        ("plugins", r#"["access","overload","gate"]"#),
        ("overload.classes", classes),
        ("queue.offline_messages", "10"),
    ];
    let settings = settings.map(|(key, value)| (key, value.to_owned())).to_vec();
    Server::start(name, &Setup { settings, ..Setup::default() })
}

/// A consumer that is given one message at a time.
fn one_by_one(connect: Connect) -> Connect {
    connect.with(short(RECEIVE_MAXIMUM, 1))
}

/// Publishes numbered messages: `data 0`, `data 1`, ...
fn publish(client: &mut Client, topic: &str, numbers: std::ops::Range<usize>) {
    let name = topic.trim_start_matches("work/");
    for number in numbers {
        assert_eq!(client.publish(Publish::new(topic, format!("{name} {number}")).qos(1)), 0);
    }
}

fn texts(name: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{name} {number}")).collect()
}

/// Returns when all that was accepted before is in the queues: what a new client publishes waits for that.
fn all_is_queued(server: &Server) {
    let (mut publisher, topic) = (server.client(V5), unique("settled/"));
    publisher.subscribe(&topic, 0);
    publisher.publish(Publish::new(&topic, "settled"));
    assert_eq!(publisher.receive().text(), "settled");
}

/// Takes what waits behind a message that was not acknowledged yet.
fn go_on(consumer: &mut Client, server: &Server, first: &Publish, count: usize) -> Vec<String> {
    all_is_queued(server);
    consumer.acknowledge(first);
    let texts = consumer.receive_texts(count);
    consumer.expect_silence();
    texts
}

/// One publisher sends both: whether a message is urgent is a question of its topic, whatever was sent before.
#[test]
fn a_slow_consumer_gets_an_exempt_message_next() {
    let server = start("urgent-next", BY_TOPIC);
    for filter in ["work/#", "$share/workers/work/#"] {
        let mut consumer = server.connect(&one_by_one(Connect::v5(&unique("slow"))));
        consumer.subscribe(filter, 1);
        let mut publisher = server.client(V5);
        publish(&mut publisher, "work/data", 0..5);
        let first = consumer.expect_publish();
        assert_eq!(first.text(), "data 0");
        publish(&mut publisher, "work/alarm", 0..2);
        publish(&mut publisher, "work/data", 5..8);
        publish(&mut publisher, "work/alarm2", 0..1);
        // a topic that no class is about, between two that are
        publish(&mut publisher, "$own/topic", 0..1);
        publish(&mut publisher, "work/alarm", 2..3);
        let expected =
            [texts("alarm", 0..2), texts("alarm2", 0..1), texts("alarm", 2..3), texts("data", 1..8)].concat();
        assert_eq!(go_on(&mut consumer, &server, &first, expected.len()), expected, "{filter}");
        consumer.disconnect();
    }
}

/// A topic of the client's own that starts with `$` is as ordinary after an alarm as before it.
#[test]
fn every_topic_keeps_its_order_whatever_comes_between() {
    let server = start("urgent-order", BY_TOPIC);
    let mut consumer = server.connect(&one_by_one(Connect::v5(&unique("slow"))));
    consumer.subscribe("work/#", 1);
    consumer.subscribe("$own/#", 1);
    let mut publisher = server.client(V5);
    publish(&mut publisher, "work/data", 0..1);
    let first = consumer.expect_publish();
    for number in 0..4 {
        for topic in ["work/data", "$own/topic", "work/alarm", "$own/topic"] {
            let text = format!("{topic} {number}");
            publisher.publish(Publish::new(topic, text).qos(1));
        }
    }
    let seen = go_on(&mut consumer, &server, &first, 16);
    let (alarms, others) = seen.split_at(4);
    assert!(alarms.iter().all(|text| text.starts_with("work/alarm")), "{seen:?}");
    let rounds = |n| ["work/data", "$own/topic", "$own/topic"].map(|topic| format!("{topic} {n}"));
    assert_eq!(others, (0..4).flat_map(rounds).collect::<Vec<_>>());
}

#[test]
fn an_exempt_client_overtakes_others() {
    let server = start("urgent-client", BY_CLIENT);
    let mut consumer = server.connect(&one_by_one(Connect::v5(&unique("slow"))));
    consumer.subscribe("work/#", 2);
    let (mut device, mut siren) = (server.client(V5), server.connect(&Connect::v5(&unique("siren-"))));
    publish(&mut device, "work/data", 0..4);
    let first = consumer.expect_publish();
    publish(&mut siren, "work/data", 10..12);
    siren.publish(Publish::new("work/data", "data 12").qos(2));
    siren.publish(Publish::new("work/data", "data 13").qos(0));
    siren.ping();
    let expected = [texts("data", 10..14), texts("data", 1..4)].concat();
    assert_eq!(go_on(&mut consumer, &server, &first, 7), expected);
}

/// What was sent comes again first; then what is urgent; what was dropped for want of room is ordinary.
#[test]
fn a_consumer_that_comes_back_gets_urgent_messages_before_others() {
    let server = start("urgent-back", BY_TOPIC);
    let id = unique("away");
    let connect = || one_by_one(Connect::persistent(V5, &id));
    let mut consumer = server.connect(&connect());
    consumer.subscribe("work/#", 1);
    let mut publisher = server.client(V5);
    publish(&mut publisher, "work/data", 0..3);
    assert_eq!(consumer.expect_publish().text(), "data 0");
    all_is_queued(&server);
    consumer.disconnect();
    publish(&mut publisher, "work/alarm", 0..2);
    publish(&mut publisher, "work/data", 3..12);
    publish(&mut publisher, "work/alarm", 2..4);
    all_is_queued(&server);
    let mut consumer = server.connect(&connect());
    let first = consumer.expect_publish();
    assert_eq!((first.text(), first.dup), ("data 0", true));
    // room for ten: four alarms and the newest six
    let expected = [texts("alarm", 0..4), texts("data", 6..12)].concat();
    assert_eq!(go_on(&mut consumer, &server, &first, 10), expected);
}

/// What a member of a group gives back is before all others of its kind, and not before what is urgent.
#[test]
fn what_a_member_gives_back_waits_behind_urgent_messages() {
    let server = start("urgent-group", BY_TOPIC);
    let connect = |name| Connect::persistent(V5, &unique(name)).with(short(RECEIVE_MAXIMUM, 2));
    let mut witness = server.client(V5);
    witness.subscribe("gone", 0);
    let mut leaves = server.connect(&connect("leaves").will(Will::new("gone", "")));
    leaves.subscribe("$share/workers/work/#", 1);
    let mut publisher = server.client(V5);
    publish(&mut publisher, "work/alarm", 0..1);
    assert_eq!(leaves.expect_publish().text(), "alarm 0");
    publish(&mut publisher, "work/data", 0..4);
    assert_eq!(leaves.expect_publish().text(), "data 0");
    publish(&mut publisher, "work/alarm", 1..3);
    all_is_queued(&server);
    let mut stays = server.connect(&connect("stays"));
    stays.subscribe("$share/workers/work/#", 1);
    let held = [stays.expect_publish(), stays.expect_publish()];
    assert_eq!(held.each_ref().map(Publish::text), ["alarm 1", "alarm 2"]);
    leaves.vanish();
    // its will is published after it gave everything back
    assert_eq!(witness.receive().topic, "gone");
    publish(&mut publisher, "work/alarm", 3..4);
    all_is_queued(&server);
    held.iter().for_each(|publish| stays.acknowledge(publish));
    let expected = [&["alarm 0", "alarm 3"][..], &["data 0", "data 1", "data 2", "data 3"]].concat();
    assert_eq!(stays.receive_texts(6), expected);
    stays.expect_silence();
}

/// A will is as urgent as what its client publishes on that topic, so that it is not overtaken by it.
#[test]
fn a_will_is_in_order_with_what_its_client_publishes() {
    for (name, classes) in [("urgent-will-topic", BY_TOPIC), ("urgent-will-client", BY_CLIENT)] {
        let server = start(name, classes);
        let mut consumer = server.connect(&one_by_one(Connect::v5(&unique("slow"))));
        consumer.subscribe("work/#", 1);
        let mut witness = server.client(V5);
        witness.subscribe("work/alarm", 0);
        publish(&mut server.client(V5), "work/data", 0..3);
        let first = consumer.expect_publish();
        let connect = Connect::v5(&unique("siren-")).will(Will::new("work/alarm", "alarm 1").qos(1));
        let mut siren = server.connect(&connect);
        publish(&mut siren, "work/alarm", 0..1);
        siren.vanish();
        assert_eq!(witness.receive_texts(2), ["alarm 0", "alarm 1"]);
        let mut siren = server.connect(&connect);
        publish(&mut siren, "work/alarm", 2..3);
        let expected = [texts("alarm", 0..3), texts("data", 1..3)].concat();
        let seen = go_on(&mut consumer, &server, &first, 5);
        assert_eq!(seen, expected, "{name}");
    }
}

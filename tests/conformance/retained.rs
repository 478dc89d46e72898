//! Retained messages.

use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

both_versions!(
    new_subscription_gets_it,
    the_last_one_counts,
    empty_retained_deletes,
    empty_retained_is_delivered_as_a_message,
    empty_not_retained_deletes_nothing,
    not_retained_replaces_nothing,
    established_subscription_gets_no_flag,
    wildcards_get_all_that_match,
    lower_of_both_qos,
    subscribing_again_sends_it_again,
    it_outlives_its_publisher,
    each_filter_of_a_subscribe_gets_its_own,
    qos0_replaces_qos1,
);

/// [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-8] / [MQTT-3.3.1-9] A new subscription gets it, with RETAIN.
fn new_subscription_gets_it(version: Version) {
    let topic = unique("retained/");
    client(version).publish(Publish::new(&topic, "kept").qos(1).retain());
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 1);
    let publish = subscriber.receive();
    assert_eq!((publish.text(), publish.retain, publish.dup, publish.qos), ("kept", true, false, 1));
    subscriber.expect_silence();
}

/// [MQTT-3.3.1-5] One for each topic: the last.
fn the_last_one_counts(version: Version) {
    let (topic, mut publisher) = (unique("retained/"), client(version));
    for text in ["1", "2", "3"] {
        publisher.publish(Publish::new(&topic, text).qos(1).retain());
    }
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 1);
    assert_eq!(subscriber.receive().text(), "3");
    subscriber.expect_silence();
}

/// [MQTT-3.3.1-10], [MQTT-3.3.1-11] / [MQTT-3.3.1-6], [MQTT-3.3.1-7] Empty and retained: it is gone.
fn empty_retained_deletes(version: Version) {
    let (topic, mut publisher) = (unique("retained/"), client(version));
    publisher.publish(Publish::new(&topic, "kept").qos(1).retain());
    publisher.publish(Publish::new(&topic, "").qos(1).retain());
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 1);
    subscriber.expect_nothing();
}

/// [MQTT-3.3.1-10] / [MQTT-3.3.1-6] It is processed as normal: those who listen get it.
fn empty_retained_is_delivered_as_a_message(version: Version) {
    let (topic, mut publisher, mut subscriber) = (unique("retained/"), client(version), client(version));
    subscriber.subscribe(&topic, 1);
    publisher.publish(Publish::new(&topic, "").qos(1).retain());
    let publish = subscriber.receive();
    assert_eq!((publish.text(), publish.retain), ("", false));
}

/// [MQTT-3.3.1-12] / [MQTT-3.3.1-8] Empty but not retained deletes nothing.
fn empty_not_retained_deletes_nothing(version: Version) {
    let (topic, mut publisher) = (unique("retained/"), client(version));
    publisher.publish(Publish::new(&topic, "kept").qos(1).retain());
    publisher.publish(Publish::new(&topic, "").qos(1));
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 1);
    assert_eq!(subscriber.receive().text(), "kept");
}

/// [MQTT-3.3.1-12] / [MQTT-3.3.1-8] Without RETAIN nothing is stored or replaced.
fn not_retained_replaces_nothing(version: Version) {
    let (topic, mut publisher) = (unique("retained/"), client(version));
    publisher.publish(Publish::new(&topic, "kept").qos(1).retain());
    publisher.publish(Publish::new(&topic, "passing").qos(1));
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 1);
    assert_eq!(subscriber.receive().text(), "kept");
    subscriber.expect_silence();
}

/// [MQTT-3.3.1-9] / [MQTT-3.3.1-12] Those who listened already see RETAIN 0.
fn established_subscription_gets_no_flag(version: Version) {
    let (topic, mut publisher, mut subscriber) = (unique("retained/"), client(version), client(version));
    subscriber.subscribe(&topic, 1);
    publisher.publish(Publish::new(&topic, "live").qos(1).retain());
    let publish = subscriber.receive();
    assert_eq!((publish.text(), publish.retain), ("live", false));
}

/// [MQTT-3.3.1-6] / [MQTT-3.3.1-9] A filter with wildcards gets every one that matches.
fn wildcards_get_all_that_match(version: Version) {
    let (root, mut publisher) = (unique("many"), client(version));
    for n in 0..20 {
        publisher.publish(Publish::new(&format!("{root}/{}/{n}", n % 2), n.to_string()).qos(1).retain());
    }
    for (filter, count) in [("#", 20), ("+/+", 20), ("0/#", 10), ("+/7", 1), ("1/+", 10)] {
        let mut subscriber = client(version);
        subscriber.subscribe(&format!("{root}/{filter}"), 1);
        let mut texts = subscriber.receive_texts(count);
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), count, "filter {filter}");
        subscriber.expect_silence();
    }
}

/// [MQTT-3.8.4-6] / [MQTT-3.8.4-8] The QoS of a retained message is lowered like any other.
fn lower_of_both_qos(version: Version) {
    let (topic, mut publisher) = (unique("retained/"), client(version));
    for qos in 0..=2 {
        publisher.publish(Publish::new(&topic, "kept").qos(qos).retain());
        for granted in 0..=2 {
            let mut subscriber = client(version);
            subscriber.subscribe(&topic, granted);
            assert_eq!(subscriber.receive().qos, qos.min(granted), "{qos} against {granted}");
        }
    }
}

/// [MQTT-3.8.4-3] / [MQTT-3.8.4-4] Subscribing again to the same filter sends it again.
fn subscribing_again_sends_it_again(version: Version) {
    let topic = unique("retained/");
    client(version).publish(Publish::new(&topic, "kept").qos(1).retain());
    let mut subscriber = client(version);
    for _ in 0..2 {
        subscriber.subscribe(&topic, 1);
        let publish = subscriber.receive();
        assert_eq!((publish.text(), publish.retain), ("kept", true));
        subscriber.expect_silence();
    }
}

/// [MQTT-3.1.2-7] Retained messages are no part of a session.
fn it_outlives_its_publisher(version: Version) {
    let topic = unique("retained/");
    let mut publisher = server().connect(&Connect::persistent(version, &unique("gone")));
    publisher.publish(Publish::new(&topic, "kept").qos(1).retain());
    let clean = Connect::new(version, &publisher.id);
    publisher.disconnect();
    server().connect(&clean).disconnect();
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 0);
    assert_eq!(subscriber.receive().text(), "kept");
}

/// [MQTT-3.8.4-4] / [MQTT-3.8.4-5] Several filters are like several SUBSCRIBE packets.
fn each_filter_of_a_subscribe_gets_its_own(version: Version) {
    let (root, mut publisher, mut subscriber) = (unique("each"), client(version), client(version));
    for name in ["a", "b"] {
        publisher.publish(Publish::new(&format!("{root}/{name}"), name).qos(1).retain());
    }
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    subscriber.subscribe_with(&Subscribe::new(2, &[(&a, 1), (&b, 0)]));
    let mut got: Vec<(String, u8)> = (0..2)
        .map(|_| {
            let publish = subscriber.receive();
            (publish.text().to_owned(), publish.qos)
        })
        .collect();
    got.sort_unstable();
    assert_eq!(got, [("a".to_owned(), 1), ("b".to_owned(), 0)]);
}

/// [MQTT-3.3.1-7] / [MQTT-3.3.1-5] A QoS 0 message replaces the stored one too.
fn qos0_replaces_qos1(version: Version) {
    let (topic, mut publisher) = (unique("retained/"), client(version));
    publisher.publish(Publish::new(&topic, "old").qos(1).retain());
    publisher.publish(Publish::new(&topic, "new").retain());
    publisher.ping();
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 1);
    let publish = subscriber.receive();
    assert_eq!((publish.text(), publish.qos), ("new", 0));
}

/// [MQTT-3.3.2-4], [MQTT-3.3.2-17], [MQTT-3.3.2-20] A retained message keeps its properties.
#[test]
fn properties_are_kept() {
    let topic = unique("retained/");
    let publish = Publish::new(&topic, "kept").qos(1).retain().with(byte(PAYLOAD_FORMAT, 1));
    let publish = publish.with(text(CONTENT_TYPE, "text/plain")).with(user("k", "1")).with(user("k", "2"));
    client(V5).publish(publish);
    let mut subscriber = client(V5);
    subscriber.subscribe(&topic, 1);
    let properties = subscriber.receive().properties;
    assert_eq!(properties.number(PAYLOAD_FORMAT), Some(1));
    assert_eq!(properties.text(CONTENT_TYPE), Some("text/plain"));
    assert_eq!(properties.users(), [("k", "1"), ("k", "2")]);
}

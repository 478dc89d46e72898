//! UNSUBSCRIBE and UNSUBACK.

use crate::client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::unique;

both_versions!(
    deliveries_stop,
    unknown_filter_is_acknowledged,
    compared_character_by_character,
    several_filters_one_answer,
    what_was_started_is_completed,
    subscribing_again_works,
    no_filter_at_all,
    wrong_header_flags,
    packet_identifier_zero,
    filter_with_bad_utf8,
);

/// [MQTT-3.10.4-2], [MQTT-3.10.4-4] Nothing new after UNSUBACK, which has the identifier.
fn deliveries_stop(version: Version) {
    let (topic, mut publisher, mut subscriber) = (unique("stop/"), client(version), client(version));
    subscriber.subscribe(&topic, 1);
    publisher.publish(Publish::new(&topic, "before").qos(1));
    assert_eq!(subscriber.receive().text(), "before");
    subscriber.unsubscribe(&[&topic]);
    publisher.publish(Publish::new(&topic, "after").qos(1));
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-3.10.4-5] Nothing to end: UNSUBACK all the same; 5.0 says 0x11.
fn unknown_filter_is_acknowledged(version: Version) {
    let unsuback = client(version).unsubscribe(&["never/subscribed"]);
    assert_eq!(unsuback.codes, if version == V5 { vec![0x11] } else { vec![] });
}

/// [MQTT-3.10.4-1] Only the same filter is meant, not one that matches it.
fn compared_character_by_character(version: Version) {
    let (root, mut publisher, mut subscriber) = (unique("same"), client(version), client(version));
    subscriber.subscribe(&format!("{root}/a/b"), 1);
    for other in ["#", "+/b", "a/+", "A/b", "a/b/", "/a/b"] {
        subscriber.unsubscribe(&[&format!("{root}/{other}")]);
    }
    publisher.publish(Publish::new(&format!("{root}/a/b"), "x").qos(1));
    assert_eq!(subscriber.receive().text(), "x");
}

/// [MQTT-3.10.4-6], [MQTT-3.11.3-1] Several filters: one UNSUBACK, codes in order.
fn several_filters_one_answer(version: Version) {
    let (root, mut publisher, mut subscriber) = (unique("several"), client(version), client(version));
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{root}/{name}"));
    subscriber.subscribe_with(&Subscribe::new(1, &[(&a, 1), (&b, 1), (&c, 1)]));
    let unsuback = subscriber.unsubscribe(&[&c, "never/subscribed", &a]);
    assert_eq!(unsuback.codes, if version == V5 { vec![0, 0x11, 0] } else { vec![] });
    for topic in [&a, &c, &b] {
        publisher.publish(Publish::new(topic, "x").qos(1));
    }
    assert_eq!(subscriber.receive().topic, b);
}

/// [MQTT-3.10.4-3] What it started to send at QoS 1 and 2 goes to its end.
fn what_was_started_is_completed(version: Version) {
    let (topic, mut publisher, mut subscriber) = (unique("started/"), client(version), client(version));
    subscriber.subscribe(&topic, 2);
    publisher.publish(Publish::new(&topic, "x").qos(2));
    let publish = subscriber.expect_publish();
    subscriber.unsubscribe(&[&topic]);
    subscriber.acknowledge(&publish);
    subscriber.expect_silence();
}

/// Section 3.10: the way back is open.
fn subscribing_again_works(version: Version) {
    let (topic, mut client) = (unique("back/"), client(version));
    for _ in 0..3 {
        client.subscribe(&topic, 1);
        client.publish(Publish::new(&topic, "x").qos(1));
        client.receive();
        client.unsubscribe(&[&topic]);
    }
    client.publish(Publish::new(&topic, "x").qos(1));
    client.expect_silence();
}

fn expect_violation(version: Version, packet: &(impl Encode + ?Sized)) {
    let mut client = client(version);
    client.send(packet);
    client.expect_closed(&[0x81, 0x82]);
}

/// [MQTT-3.10.3-2] At least one filter.
fn no_filter_at_all(version: Version) {
    expect_violation(version, &Unsubscribe::new(1, &[]));
}

/// [MQTT-3.10.1-1], [MQTT-2.2.2-2] The flags in the header are 0010.
fn wrong_header_flags(version: Version) {
    for first in [0xA0, 0xA1, 0xA3, 0xAA] {
        let mut bytes = Unsubscribe::new(1, &["flags"]).encode(version);
        bytes[0] = first;
        expect_violation(version, &bytes);
    }
}

/// [MQTT-2.3.1-1] / [MQTT-2.2.1-3] The identifier is not zero.
fn packet_identifier_zero(version: Version) {
    expect_violation(version, &Unsubscribe::new(0, &["id/zero"]));
}

/// [MQTT-3.10.3-1], [MQTT-1.5.3-1] / [MQTT-1.5.4-1] Filters are UTF-8.
fn filter_with_bad_utf8(version: Version) {
    let mut body = vec![0, 1];
    properties(&mut body, version, &Vec::new());
    field(&mut body, b"a/\xF5\x80\x80\x80");
    expect_violation(version, &frame(0xA2, &body));
}

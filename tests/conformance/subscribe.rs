//! SUBSCRIBE and SUBACK.

use crate::client;
use crate::common::packet::Version::{V5, V311};
use crate::common::packet::*;
use crate::common::unique;

both_versions!(
    suback_answers_each_filter_in_order,
    suback_has_the_identifier,
    replaced_by_the_same_filter,
    overlapping_filters_one_copy_at_the_highest_qos,
    wildcard_and_plain_filter_overlap,
    several_filters_for_one_topic_in_one_subscribe,
    no_filter_at_all,
    empty_filter,
    wrong_header_flags,
    packet_identifier_zero,
    filter_with_bad_utf8,
    filter_with_null,
    qos_three,
    reserved_option_bits,
    options_missing,
    each_subscriber_gets_a_copy,
    own_messages_come_back,
);

/// [MQTT-3.8.4-1], [MQTT-3.8.4-5] / [MQTT-3.8.4-6], [MQTT-3.9.3-1] One code for each filter, in order.
fn suback_answers_each_filter_in_order(version: Version) {
    let (root, mut client) = (unique("codes"), client(version));
    let filters: Vec<String> = (0..6).map(|n| format!("{root}/{n}")).collect();
    let filters: Vec<(&str, u8)> = filters.iter().map(String::as_str).zip([2, 0, 1, 1, 0, 2]).collect();
    let suback = client.subscribe_with(&Subscribe::new(10, &filters));
    assert_eq!(suback.codes, [2, 0, 1, 1, 0, 2]);
}

/// [MQTT-3.8.4-2], [MQTT-2.3.1-7] / [MQTT-2.2.1-6] Each SUBACK carries the identifier of its SUBSCRIBE.
fn suback_has_the_identifier(version: Version) {
    let mut client = client(version);
    for id in [1, 255, 256, 65_535] {
        let suback = client.subscribe_with(&Subscribe::new(id, &[("suback/id", 0)]));
        assert_eq!(suback.id, id);
    }
}

/// [MQTT-3.8.4-3] The same filter replaces the subscription: one copy, at the new QoS.
fn replaced_by_the_same_filter(version: Version) {
    let (topic, mut publisher, mut subscriber) = (unique("replace/"), client(version), client(version));
    for qos in [2, 0, 1] {
        subscriber.subscribe(&topic, qos);
        publisher.publish(Publish::new(&topic, "x").qos(2));
        assert_eq!(subscriber.receive().qos, qos);
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT-3.3.5-1] / [MQTT-3.3.4-2] Overlapping subscriptions: Tidegate sends one copy, at the highest
/// QoS. Mosquitto sends several to MQTT 5.
fn overlapping_filters_one_copy_at_the_highest_qos(version: Version) {
    let (root, mut publisher, mut subscriber) = (unique("over"), client(version), client(version));
    let topic = format!("{root}/a/b");
    for (filter, qos) in [("#", 0), ("a/+", 2), ("+/b", 1)] {
        subscriber.subscribe(&format!("{root}/{filter}"), qos);
    }
    for qos in 0..=2 {
        publisher.publish(Publish::new(&topic, "x").qos(qos));
        assert_eq!(subscriber.receive().qos, qos);
        subscriber.expect_nothing_from(&mut publisher);
    }
}

/// [MQTT-3.3.5-1] / [MQTT-3.3.4-2] The same for a filter without wildcards. Mosquitto sends two to MQTT
/// 5.
fn wildcard_and_plain_filter_overlap(version: Version) {
    let (topic, mut publisher, mut subscriber) = (unique("over/"), client(version), client(version));
    subscriber.subscribe(&topic, 0);
    subscriber.subscribe(&format!("{topic}/#"), 1);
    publisher.publish(Publish::new(&topic, "x").qos(2));
    assert_eq!(subscriber.receive().qos, 1);
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-3.8.4-4] / [MQTT-3.8.4-5] The same filter twice in one packet: the last one counts.
fn several_filters_for_one_topic_in_one_subscribe(version: Version) {
    let (topic, mut publisher, mut subscriber) = (unique("twice/"), client(version), client(version));
    let suback = subscriber.subscribe_with(&Subscribe::new(4, &[(&topic, 2), (&topic, 1)]));
    assert_eq!(suback.codes, [2, 1]);
    publisher.publish(Publish::new(&topic, "x").qos(2));
    assert_eq!(subscriber.receive().qos, 1);
    subscriber.expect_nothing_from(&mut publisher);
}

fn expect_violation(version: Version, packet: &(impl Encode + ?Sized)) {
    let mut client = client(version);
    client.send(packet);
    client.expect_closed(&[0x81, 0x82]);
}

/// [MQTT-3.8.3-3] / [MQTT-3.8.3-2] A SUBSCRIBE without filter.
fn no_filter_at_all(version: Version) {
    expect_violation(version, &Subscribe::new(1, &[]));
}

/// [MQTT-4.7.3-1] A filter has at least one character.
fn empty_filter(version: Version) {
    let mut client = client(version);
    client.send(&Subscribe::new(1, &[("", 0)]));
    client.expect_closed(&[0x81, 0x82, 0x8F]);
}

/// [MQTT-3.8.1-1], [MQTT-2.2.2-2] The flags in the header are 0010.
fn wrong_header_flags(version: Version) {
    for flags in [0x80, 0x81, 0x83, 0x8A] {
        let mut bytes = Subscribe::new(1, &[("flags", 0)]).encode(version);
        bytes[0] = flags;
        expect_violation(version, &bytes);
    }
}

/// [MQTT-2.3.1-1] / [MQTT-2.2.1-3] The identifier is not zero.
fn packet_identifier_zero(version: Version) {
    expect_violation(version, &Subscribe::new(0, &[("id/zero", 0)]));
}

fn subscribe_bytes(version: Version, filter: &[u8], options: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 1];
    properties(&mut body, version, &Vec::new());
    field(&mut body, filter);
    body.extend_from_slice(options);
    frame(0x82, &body)
}

/// [MQTT-3.8.3-1], [MQTT-1.5.3-1] / [MQTT-1.5.4-1] Filters are UTF-8.
fn filter_with_bad_utf8(version: Version) {
    expect_violation(version, &subscribe_bytes(version, b"a/\xC3\x28", &[0]));
}

/// [MQTT-4.7.3-2], [MQTT-1.5.3-2] / [MQTT-1.5.4-2] Filters have no U+0000.
fn filter_with_null(version: Version) {
    expect_violation(version, &subscribe_bytes(version, b"a\0b", &[0]));
}

/// [MQTT-3.8.3-4] / section 3.8.3.1: QoS 3 does not exist.
fn qos_three(version: Version) {
    expect_violation(version, &Subscribe::new(1, &[("qos/three", 3)]));
}

/// [MQTT-3.8.3-4] / [MQTT-3.8.3-5] The upper bits of the options are reserved: six in 3.1.1, two in 5.0.
fn reserved_option_bits(version: Version) {
    let bits: &[u8] = if version == V5 { &[0x40, 0x80] } else { &[0x04, 0x08, 0x10, 0x20, 0x40, 0x80] };
    for bit in bits {
        expect_violation(version, &Subscribe::new(1, &[("reserved", *bit)]));
    }
}

/// [MQTT-4.8.0-1] / [MQTT-4.13.1-1] A filter without its options byte.
fn options_missing(version: Version) {
    expect_violation(version, &subscribe_bytes(version, b"a/b", &[]));
}

/// Section 3.8.3.1: Retain Handling 3 does not exist.
#[test]
fn retain_handling_three() {
    expect_violation(V5, &Subscribe::new(1, &[("retain/three", 0x30)]));
}

/// Section 4.1: subscriptions of different clients do not touch each other.
fn each_subscriber_gets_a_copy(version: Version) {
    let (topic, mut publisher) = (unique("fan/"), client(version));
    let mut subscribers: Vec<_> = (0..5).map(|n| client(if n % 2 == 0 { V5 } else { V311 })).collect();
    for (n, subscriber) in subscribers.iter_mut().enumerate() {
        subscriber.subscribe(&topic, (n % 3) as u8);
    }
    publisher.publish(Publish::new(&topic, "to all").qos(2));
    for (n, subscriber) in subscribers.iter_mut().enumerate() {
        let publish = subscriber.receive();
        assert_eq!((publish.text(), publish.qos), ("to all", (n % 3) as u8));
    }
}

/// Section 3.3.5 / 3.8.3.1: without No Local a client gets what it publishes itself.
fn own_messages_come_back(version: Version) {
    let (topic, mut client) = (unique("own/"), client(version));
    client.subscribe(&topic, 2);
    for qos in 0..=2 {
        client.publish(Publish::new(&topic, "echo").qos(qos));
        assert_eq!(client.receive().qos, qos);
    }
}

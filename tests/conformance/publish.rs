//! PUBLISH: what a server must carry, and what it must not accept.

use crate::client;
use crate::common::packet::Version::{V5, V311};
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;

both_versions!(
    payload_of_any_bytes,
    empty_payload,
    large_payload,
    no_subscriber,
    dup_is_not_passed_on,
    qos_three,
    packet_identifier_zero,
    topic_with_plus,
    topic_with_hash,
    topic_with_null,
    topic_with_bad_utf8,
    topic_with_surrogate,
    empty_topic,
    highest_packet_identifier,
);

/// Section 3.3.3: the payload is any bytes.
fn payload_of_any_bytes(version: Version) {
    let (topic, mut client) = (unique("bytes/"), client(version));
    client.subscribe(&topic, 0);
    let all: Vec<u8> = (0..=255).collect();
    client.publish(Publish::new(&topic, all.clone()));
    assert_eq!(client.receive().payload, all);
}

/// Section 3.3.3: a payload may be empty.
fn empty_payload(version: Version) {
    let (topic, mut client) = (unique("empty/"), client(version));
    client.subscribe(&topic, 1);
    client.publish(Publish::new(&topic, "").qos(1));
    assert!(client.receive().payload.is_empty());
}

/// Section 2.2.3 / 2.1.4: a remaining length of three bytes, in both directions.
fn large_payload(version: Version) {
    let (topic, mut client) = (unique("large/"), client(version));
    client.subscribe(&topic, 2);
    let payload: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    client.publish(Publish::new(&topic, payload.clone()).qos(2));
    assert!(client.receive().payload == payload, "the payload changed on its way");
}

/// [MQTT-3.3.4-1] Nobody listens: it is acknowledged all the same (5.0 may say 0x10).
fn no_subscriber(version: Version) {
    let mut client = client(version);
    for qos in 0..=2 {
        let code = client.publish(Publish::new(&unique("nobody/"), "x").qos(qos));
        assert!(matches!(code, 0x00 | 0x10), "0x{code:02x}");
    }
}

/// [MQTT-3.3.1-3] DUP of the incoming packet says nothing about the outgoing one.
fn dup_is_not_passed_on(version: Version) {
    let topic = unique("dup/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 2);
    publisher.publish(Publish::new(&topic, "1").qos(1).dup());
    publisher.publish(Publish::new(&topic, "2").qos(2).dup());
    for text in ["1", "2"] {
        let publish = subscriber.receive();
        assert_eq!((publish.text(), publish.dup), (text, false));
    }
}

/// [MQTT-3.3.1-4] Both QoS bits set.
fn qos_three(version: Version) {
    let mut client = client(version);
    client.send(&Publish::new("qos/three", "x").qos(3).id(1));
    client.expect_closed(&[0x81, 0x82]);
}

/// [MQTT-2.3.1-1] / [MQTT-2.2.1-3] Packet identifiers are not zero.
fn packet_identifier_zero(version: Version) {
    let mut client = client(version);
    client.send(&Publish::new("id/zero", "x").qos(1).id(0));
    client.expect_closed(&[0x81, 0x82]);
}

fn expect_bad_topic(version: Version, topic: &[u8]) {
    let mut client = client(version);
    let mut body = Vec::new();
    field(&mut body, topic);
    properties(&mut body, version, &Vec::new());
    body.push(b'x');
    client.send(&frame(0x30, &body));
    client.expect_closed(&[0x81, 0x82, 0x90]);
}

/// [MQTT-3.3.2-2], [MQTT-4.7.1-1] / [MQTT-4.7.0-1] No wildcards in topic names.
fn topic_with_plus(version: Version) {
    expect_bad_topic(version, b"a/+/b");
}

/// [MQTT-3.3.2-2], [MQTT-4.7.1-1] / [MQTT-4.7.0-1] No wildcards in topic names.
fn topic_with_hash(version: Version) {
    expect_bad_topic(version, b"a/#");
}

/// [MQTT-4.7.3-2], [MQTT-1.5.3-2] / [MQTT-1.5.4-2] No U+0000 in topic names.
fn topic_with_null(version: Version) {
    expect_bad_topic(version, b"a\0b");
}

/// [MQTT-3.3.2-1], [MQTT-1.5.3-1] / [MQTT-1.5.4-1] Topic names are UTF-8.
fn topic_with_bad_utf8(version: Version) {
    expect_bad_topic(version, b"a/\xFF\xFE");
    expect_bad_topic(version, b"a/\xC0\xAF");
}

/// [MQTT-1.5.3-1] / [MQTT-1.5.4-1] Surrogates are not characters.
fn topic_with_surrogate(version: Version) {
    expect_bad_topic(version, b"a/\xED\xA0\x80");
}

/// [MQTT-4.7.3-1] A topic name has at least one character (5.0: unless an alias stands for it).
fn empty_topic(version: Version) {
    expect_bad_topic(version, b"");
}

/// [MQTT-2.3.1-6] / [MQTT-2.2.1-5] The acknowledgement has the identifier of the message, the highest too.
fn highest_packet_identifier(version: Version) {
    let mut client = client(version);
    client.publish(Publish::new("id/high", "x").qos(1).id(65_535));
    client.publish(Publish::new("id/high", "x").qos(2).id(65_535));
}

/// [MQTT-3.3.4-6] Only a server sends subscription identifiers. Mosquitto accepts it.
#[test]
fn subscription_identifier_from_a_client() {
    let mut client = client(V5);
    client.send(&Publish::new("sub/id", "x").with(subscription_id(1)));
    client.expect_closed(&[0x81, 0x82]);
}

/// A message goes from each version to the other one.
#[test]
fn between_versions() {
    for (from, to) in [(V311, V5), (V5, V311)] {
        let topic = unique("between/");
        let (mut publisher, mut subscriber) = (client(from), client(to));
        subscriber.subscribe(&topic, 2);
        let mut publish = Publish::new(&topic, "hello").qos(2);
        if from == V5 {
            publish = publish.with(text(CONTENT_TYPE, "text/plain")).with(user("a", "b"));
        }
        publisher.publish(publish);
        let received = subscriber.receive();
        assert_eq!((received.topic.as_str(), received.text(), received.qos), (topic.as_str(), "hello", 2));
    }
}

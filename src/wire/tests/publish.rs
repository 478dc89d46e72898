//! PUBLISH.

use super::super::{Publish, PublishProperties, QoS, ReasonCode, Version};
use super::*;

const V5: Option<Version> = Some(Version::V5);
const V311: Option<Version> = Some(Version::V311);

#[track_caller]
fn accepted(version: Option<Version>, bytes: &[u8]) -> Publish<'_> {
    match read(version, bytes) {
        Ok(Packet::Publish(publish)) => publish,
        other => panic!("{other:?}"),
    }
}

/// A QoS 0 PUBLISH to "t" with these properties.
fn with(properties: &[&[u8]]) -> Vec<u8> {
    packet(0x30, &[&sized("t"), &block(properties), b"payload"])
}

#[test]
fn both_versions() {
    let expected = Publish {
        dup: true,
        qos: QoS::ExactlyOnce,
        retain: true,
        topic: "a/b",
        packet_id: 258,
        properties: PublishProperties::default(),
        payload: b"\0\xFF",
    };
    let bytes = packet(0x3D, &[&sized("a/b"), &[1, 2], b"\0\xFF"]);
    assert_eq!(accepted(V311, &bytes), expected);
    let bytes = packet(0x3D, &[&sized("a/b"), &[1, 2], &[0], b"\0\xFF"]);
    assert_eq!(accepted(V5, &bytes), expected);
}

/// [MQTT-2.2.1-2]
#[test]
fn qos_0_has_no_packet_identifier() {
    let bytes = packet(0x30, &[&sized("t")]);
    let found = accepted(V311, &bytes);
    assert_eq!((found.packet_id, found.payload), (0, &b""[..]));
}

/// [MQTT-2.2.1-3]; 3.1.1: [MQTT-2.3.1-1]
#[test]
fn packet_identifier_0() {
    for first in [0x32, 0x34] {
        assert_eq!(refused(V311, &packet(first, &[&sized("t"), &[0, 0]])), PROTOCOL);
        assert_eq!(refused(V5, &packet(first, &[&sized("t"), &[0, 0], &[0]])), PROTOCOL);
    }
}

/// [MQTT-3.3.2-2]
#[test]
fn no_wildcards_in_a_topic_name() {
    for topic in ["+", "#", "a/+/b", "a#"] {
        assert_eq!(refused(V311, &packet(0x30, &[&sized(topic)])), ReasonCode::TOPIC_NAME_INVALID);
        assert_eq!(refused(V5, &packet(0x30, &[&sized(topic), &[0]])), ReasonCode::TOPIC_NAME_INVALID);
    }
}

/// [MQTT-3.3.2-1], [MQTT-1.5.4-1], [MQTT-1.5.4-2], [MQTT-4.7.3-2]
#[test]
fn a_topic_is_utf_8_without_nul() {
    for topic in [&b"a\0"[..], b"\xC3", b"\xED\xBF\xBF"] {
        assert_eq!(refused(V311, &packet(0x30, &[&sized(topic)])), MALFORMED);
        assert_eq!(refused(V5, &packet(0x30, &[&sized(topic), &[0]])), MALFORMED);
    }
}

/// [MQTT-4.7.3-1]
#[test]
fn an_empty_topic_needs_an_alias() {
    assert_eq!(refused(V311, &packet(0x30, &[&sized("")])), PROTOCOL);
    assert_eq!(refused(V5, &packet(0x30, &[&sized(""), &[0]])), PROTOCOL);
    let bytes = packet(0x30, &[&sized(""), &block(&[&[0x23, 0, 3]])]);
    let found = accepted(V5, &bytes);
    assert_eq!((found.topic, found.properties.topic_alias), ("", Some(3)));
}

#[test]
fn all_properties() {
    let properties = [
        vec![0x23, 1, 0],
        user("k", "v"),
        vec![0x01, 1],
        property(0x09, [0, 255]),
        vec![0x02, 0, 0, 0, 9],
        property(0x08, "reply"),
        user("k", "v"),
        property(0x03, "text"),
    ];
    let parts: Vec<&[u8]> = properties.iter().map(Vec::as_slice).collect();
    let bytes = with(&parts);
    let found = accepted(V5, &bytes);
    assert_eq!(found.properties.raw, properties.concat());
    assert_eq!((found.properties.topic_alias, found.properties.message_expiry), (Some(256), Some(9)));
    assert_eq!(found.payload, b"payload");

    let mut forwarded = b"before".to_vec();
    found.properties.write_forwarded(&mut forwarded);
    let kept = [&properties[1..4], &properties[5..]].concat().concat();
    assert_eq!(forwarded, [b"before".to_vec(), kept].concat());
}

#[test]
fn what_travels_is_copied_whole_when_nothing_is_left_out() {
    let bytes = with(&[&user("k", "v"), &property(0x03, "text")]);
    let mut forwarded = Vec::new();
    accepted(V5, &bytes).properties.write_forwarded(&mut forwarded);
    assert_eq!(forwarded, [user("k", "v"), property(0x03, "text")].concat());
}

#[test]
fn bad_properties() {
    let cases: [(&[&[u8]], ReasonCode, &str); 13] = [
        (&[&[0x23, 0, 0]], ReasonCode::TOPIC_ALIAS_INVALID, "[MQTT-3.3.2-8] topic alias 0"),
        (&[&[0x0B, 1]], PROTOCOL, "[MQTT-3.3.4-6] subscription identifier"),
        (&[&property(0x08, "a/+")], PROTOCOL, "[MQTT-3.3.2-14] wildcard in the response topic"),
        (&[&property(0x08, "")], PROTOCOL, "[MQTT-4.7.3-1] empty response topic"),
        (&[&property(0x08, b"\xFF")], MALFORMED, "[MQTT-3.3.2-13] response topic not UTF-8"),
        (&[&property(0x03, b"\xFF")], MALFORMED, "[MQTT-3.3.2-19] content type not UTF-8"),
        (&[&[0x01, 2]], PROTOCOL, "payload format 2"),
        (&[&[0x02, 0, 0, 0, 1], &[0x02, 0, 0, 0, 1]], PROTOCOL, "message expiry twice"),
        (&[&property(0x09, "x"), &property(0x09, "x")], PROTOCOL, "correlation data twice"),
        (&[&[0x11, 0, 0, 0, 1]], MALFORMED, "session expiry"),
        (&[&[0x7F]], MALFORMED, "unknown property"),
        (&[&[0x26], &sized("k"), &sized(b"\xFF")], MALFORMED, "[MQTT-1.5.7-1] user property not UTF-8"),
        (&[&[0x26], &sized("k")], MALFORMED, "half a user property"),
    ];
    for (properties, reason, what) in cases {
        assert_eq!(refused(V5, &with(properties)), reason, "{what}");
    }
}

#[test]
fn bad_property_lengths() {
    let cases: [(&[u8], &str); 5] = [
        (&[5, 0x01, 1], "past the packet's end"),
        (&[0x80], "cut"),
        (&[0x82, 0x00, 0x01, 1], "[MQTT-1.5.5-1] longer than needed"),
        (&[0x80, 0x80, 0x80, 0x80, 0x01], "five bytes"),
        (&[1, 0x01, 1], "in the middle of a property"),
    ];
    for (bytes, what) in cases {
        assert_eq!(refused(V5, &packet(0x30, &[&sized("t"), bytes])), MALFORMED, "{what}");
    }
}

#[test]
fn cut_short_is_malformed() {
    let whole = packet(0x32, &[&sized("topic"), &[0, 1], &block(&[&user("k", "v")])]);
    accepted(V5, &whole);
    for length in 0..whole.len() - 2 {
        assert_eq!(refused(V5, &packet(0x32, &[&whole[2..2 + length]])), MALFORMED, "{length} bytes");
    }
}

/// A payload format of 1 is a hint, the payload is not looked at.
#[test]
fn a_payload_that_is_not_text_passes() {
    let bytes = packet(0x30, &[&sized("t"), &block(&[&[0x01, 1]]), b"\xFF"]);
    assert_eq!(accepted(V5, &bytes).payload, b"\xFF");
}

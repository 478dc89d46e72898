//! SUBSCRIBE and UNSUBSCRIBE.

use super::super::{Filter, QoS, ReasonCode, RetainHandling, Subscribe, Unsubscribe, Version};
use super::*;

const V5: Option<Version> = Some(Version::V5);
const V311: Option<Version> = Some(Version::V311);

fn subscribe(properties: &[&[u8]], filters: &[(&str, u8)]) -> Vec<u8> {
    let filters: Vec<u8> =
        filters.iter().flat_map(|(path, options)| [sized(path), vec![*options]].concat()).collect();
    packet(0x82, &[&[0, 7], &block(properties), &filters])
}

fn plain(path: &str, qos: QoS) -> Filter {
    Filter {
        path: path.into(),
        qos,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::Always,
    }
}

#[test]
fn version_3_1_1() {
    let bytes = packet(0x82, &[&[0, 7], &sized("a/+"), &[0], &sized("#"), &[2]]);
    let filters = vec![plain("a/+", QoS::AtMostOnce), plain("#", QoS::ExactlyOnce)];
    let expected = Subscribe { packet_id: 7, identifier: None, filters };
    assert_eq!(read(V311, &bytes), Ok(Packet::Subscribe(expected)));
}

#[test]
fn version_5() {
    let properties: [&[u8]; 3] = [&user("k", "v"), &[0x0B, 0xFF, 0xFF, 0xFF, 0x7F], &user("k", "v")];
    let bytes = subscribe(&properties, &[("a", 0x2D), ("$share/g/b", 0x1A)]);
    let filters = vec![
        Filter {
            no_local: true,
            retain_as_published: true,
            retain_handling: RetainHandling::Never,
            ..plain("a", QoS::AtLeastOnce)
        },
        Filter {
            retain_as_published: true,
            retain_handling: RetainHandling::IfNew,
            ..plain("$share/g/b", QoS::ExactlyOnce)
        },
    ];
    let expected = Subscribe { packet_id: 7, identifier: Some(268_435_455), filters };
    assert_eq!(read(V5, &bytes), Ok(Packet::Subscribe(expected)));
}

#[test]
fn bad_options() {
    let cases: [(u8, ReasonCode, &str); 5] = [
        (0x03, PROTOCOL, "QoS 3"),
        (0x30, PROTOCOL, "retain handling 3"),
        (0x40, MALFORMED, "[MQTT-3.8.3-5] a reserved bit"),
        (0x80, MALFORMED, "[MQTT-3.8.3-5] a reserved bit"),
        (0xC1, MALFORMED, "[MQTT-3.8.3-5] reserved bits"),
    ];
    for (options, reason, what) in cases {
        assert_eq!(refused(V5, &subscribe(&[], &[("a", 0), ("b", options)])), reason, "{what}");
    }
    // 3.1.1: [MQTT-3-8.3-4]
    for options in [0x03, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80] {
        assert_eq!(refused(V311, &packet(0x82, &[&[0, 7], &sized("a"), &[options]])), MALFORMED);
    }
}

/// [MQTT-3.8.3-4]
#[test]
fn no_local_on_a_shared_subscription() {
    assert_eq!(refused(V5, &subscribe(&[], &[("$share/g/a", 0x04)])), PROTOCOL);
    assert!(read(V5, &subscribe(&[], &[("$shared/g/a", 0x04)])).is_ok());
}

#[test]
fn bad_properties() {
    let cases: [(&[&[u8]], ReasonCode, &str); 5] = [
        (&[&[0x0B, 0]], PROTOCOL, "subscription identifier 0"),
        (&[&[0x0B, 1], &[0x0B, 2]], PROTOCOL, "two subscription identifiers"),
        (&[&[0x0B, 0x81, 0x00]], MALFORMED, "[MQTT-1.5.5-1] integer longer than needed"),
        (&[&[0x0B, 0x80, 0x80, 0x80, 0x80, 0x01]], MALFORMED, "integer of five bytes"),
        (&[&property(0x1F, "why")], MALFORMED, "reason string"),
    ];
    for (properties, reason, what) in cases {
        assert_eq!(refused(V5, &subscribe(properties, &[("a", 0)])), reason, "{what}");
    }
    assert_eq!(refused(V5, &packet(0xA2, &[&[0, 7], &block(&[&[0x0B, 1]]), &sized("a")])), MALFORMED);
}

#[test]
fn unsubscribe() {
    let expected = Unsubscribe { packet_id: 7, filters: vec!["a/#".into(), "b".into()] };
    let bytes = packet(0xA2, &[&[0, 7], &sized("a/#"), &sized("b")]);
    assert_eq!(read(V311, &bytes), Ok(Packet::Unsubscribe(expected.clone())));
    let bytes = packet(0xA2, &[&[0, 7], &block(&[&user("k", "v")]), &sized("a/#"), &sized("b")]);
    assert_eq!(read(V5, &bytes), Ok(Packet::Unsubscribe(expected)));
}

/// [MQTT-3.8.3-2], [MQTT-3.10.3-2]; 3.1.1: [MQTT-3.8.3-3]
#[test]
fn at_least_one_filter() {
    for first in [0x82, 0xA2] {
        assert_eq!(refused(V311, &packet(first, &[&[0, 7]])), PROTOCOL);
        assert_eq!(refused(V5, &packet(first, &[&[0, 7], &[0]])), PROTOCOL);
    }
}

/// [MQTT-4.7.3-1], [MQTT-3.8.3-1], [MQTT-3.10.3-1], [MQTT-1.5.4-2]
#[test]
fn filters_are_strings_of_at_least_one_character() {
    for filter in [&b""[..], b"\0", b"\xFF"] {
        assert_eq!(refused(V311, &packet(0x82, &[&[0, 7], &sized(filter), &[0]])), MALFORMED);
        assert_eq!(refused(V5, &packet(0x82, &[&[0, 7], &[0], &sized(filter), &[0]])), MALFORMED);
        assert_eq!(refused(V311, &packet(0xA2, &[&[0, 7], &sized(filter)])), MALFORMED);
        assert_eq!(refused(V5, &packet(0xA2, &[&[0, 7], &[0], &sized(filter)])), MALFORMED);
    }
}

/// [MQTT-2.2.1-3]; 3.1.1: [MQTT-2.3.1-1]
#[test]
fn packet_identifier_0() {
    assert_eq!(refused(V311, &packet(0x82, &[&[0, 0], &sized("a"), &[0]])), PROTOCOL);
    assert_eq!(refused(V311, &packet(0xA2, &[&[0, 0], &sized("a")])), PROTOCOL);
}

#[test]
fn cut_short_is_malformed() {
    let whole = subscribe(&[&[0x0B, 1]], &[("abc", 1)]);
    for length in (0..5).chain(6..whole.len() - 2) {
        assert_eq!(refused(V5, &packet(0x82, &[&whole[2..2 + length]])), MALFORMED, "{length} bytes");
    }
    // After the properties: a SUBSCRIBE without filters.
    assert_eq!(refused(V5, &packet(0x82, &[&whole[2..7]])), PROTOCOL);
}

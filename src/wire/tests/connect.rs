//! CONNECT.

use super::super::{Connect, QoS, ReasonCode, Version, Will};
use super::*;

/// CONNECT with nothing but an empty client identifier.
pub(super) fn minimal(level: u8) -> Vec<u8> {
    connect(level, 0x02, &[], &[&sized("")])
}

fn connect(level: u8, flags: u8, properties: &[&[u8]], payload: &[&[u8]]) -> Vec<u8> {
    let properties = if level == 5 { block(properties) } else { Vec::new() };
    packet(0x10, &[&sized("MQTT"), &[level, flags, 0, 60], &properties, &payload.concat()])
}

#[track_caller]
fn accepted(bytes: &[u8]) -> Connect {
    match read(None, bytes) {
        Ok(Packet::Connect(connect)) => *connect,
        other => panic!("{other:?}"),
    }
}

fn plain(version: Version) -> Connect {
    Connect {
        version,
        clean_start: true,
        keep_alive: 60,
        client_id: String::new(),
        will: None,
        user: None,
        password: None,
        session_expiry: 0,
        receive_maximum: 65_535,
        maximum_packet_size: None,
        topic_alias_maximum: 0,
        request_response_information: false,
        request_problem_information: true,
        authentication_method: None,
    }
}

#[test]
fn defaults() {
    assert_eq!(accepted(&minimal(4)), plain(Version::V311));
    assert_eq!(accepted(&minimal(5)), plain(Version::V5));
}

#[test]
fn a_session_of_version_3_1_1_lives_for_ever_unless_clean() {
    let kept = accepted(&connect(4, 0x00, &[], &[&sized("c")]));
    assert!(!kept.clean_start);
    assert_eq!(kept.session_expiry, u32::MAX);
    let version_5 = accepted(&connect(5, 0x00, &[], &[&sized("c")]));
    assert_eq!(version_5.session_expiry, 0);
}

#[test]
fn everything_in_3_1_1() {
    let payload = [sized("c"), sized("w/t"), sized([0, 255]), sized("u"), sized([0xFF, 0])].concat();
    let found = accepted(&connect(4, 0b1111_0110, &[], &[&payload]));
    let will = Will {
        topic: "w/t".into(),
        payload: vec![0, 255].into(),
        qos: QoS::ExactlyOnce,
        retain: true,
        delay: 0,
        message_expiry: None,
        properties: vec![].into(),
    };
    let expected = Connect {
        client_id: "c".into(),
        will: Some(will),
        user: Some("u".into()),
        password: Some(vec![0xFF, 0].into()),
        ..plain(Version::V311)
    };
    assert_eq!(found, expected);
}

#[test]
fn every_property_in_version_5() {
    let properties: [&[u8]; 10] = [
        &[0x11, 0, 0, 1, 0],
        &[0x21, 0, 7],
        &[0x27, 0, 1, 0, 0],
        &[0x22, 0, 9],
        &[0x19, 1],
        &[0x17, 0],
        &user("k", "v"),
        &user("k", "v"),
        &property(0x15, "SCRAM"),
        &property(0x16, [0, 1]),
    ];
    let found = accepted(&connect(5, 0x02, &properties, &[&sized("c")]));
    let expected = Connect {
        client_id: "c".into(),
        session_expiry: 256,
        receive_maximum: 7,
        maximum_packet_size: Some(65_536),
        topic_alias_maximum: 9,
        request_response_information: true,
        request_problem_information: false,
        authentication_method: Some("SCRAM".into()),
        ..plain(Version::V5)
    };
    assert_eq!(found, expected);
}

#[test]
fn will_properties_keep_their_order() {
    let kept = [user("z", "1"), property(0x09, [0]), vec![0x01, 1], property(0x08, "r"), user("a", "2")];
    let before = [0x18, 0, 0, 0, 5];
    let after = [0x02, 0, 0, 0, 6];
    let will = block(&[&kept[0], &before, &kept[1], &kept[2], &after, &kept[3], &kept[4]]);
    let found =
        accepted(&connect(5, 0x06, &[], &[&sized("c"), &will, &sized("w"), &sized("p")])).will.unwrap();
    assert_eq!((found.delay, found.message_expiry), (5, Some(6)));
    assert_eq!(found.properties, kept.concat());
    assert_eq!(&found.payload[..], b"p");
}

/// [MQTT-3.1.2-1], [MQTT-3.1.2-2]
#[test]
fn other_protocols_are_refused_with_a_reason() {
    let cases: [(&[u8], u8, &str); 6] = [
        (b"MQIsdp", 3, "MQTT 3.1 is not supported, use 3.1.1 or 5.0"),
        (b"MQTT", 3, "MQTT 3.1 is not supported, use 3.1.1 or 5.0"),
        (b"MQTT", 6, "protocol level is neither 4 (3.1.1) nor 5 (5.0)"),
        (b"MQTT", 0x84, "protocol level is neither 4 (3.1.1) nor 5 (5.0)"),
        (b"mqtt", 4, "protocol name is not MQTT"),
        (b"\xFF", 5, "protocol name is not MQTT"),
    ];
    for (name, level, what) in cases {
        let bytes = packet(0x10, &[&sized(name), &[level, 2, 0, 0], &sized("")]);
        let error = read(None, &bytes).unwrap_err();
        assert_eq!((error.reason, error.what), (ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, what));
    }
}

/// [MQTT-3.1.2-3] the reserved flag; [MQTT-3.1.2-11], [MQTT-3.1.2-13] will QoS and retain without a will;
/// [MQTT-3.1.2-12] will QoS 3
#[test]
fn flags() {
    for (flags, what) in [
        (0x03, "reserved flag of CONNECT"),
        (0x0A, "will QoS or will retain without a will"),
        (0x12, "will QoS or will retain without a will"),
        (0x22, "will QoS or will retain without a will"),
        (0x1E, "will QoS 3"),
    ] {
        for level in [4, 5] {
            let error = read(None, &connect(level, flags, &[], &[&sized("c")])).unwrap_err();
            assert_eq!((error.reason, error.what), (MALFORMED, what), "{flags:08b}");
        }
    }
}

/// 3.1.1: [MQTT-3.1.2-22]
#[test]
fn a_password_without_a_user_name() {
    let payload = [sized("c"), sized("secret")].concat();
    assert_eq!(refused(None, &connect(4, 0x42, &[], &[&payload])), MALFORMED);
    let found = accepted(&connect(5, 0x42, &[], &[&payload]));
    assert_eq!((found.user, found.password.as_deref()), (None, Some(&b"secret"[..])));
}

/// [MQTT-1.5.4-1], [MQTT-1.5.4-2], [MQTT-3.1.3-4], [MQTT-3.1.3-11], [MQTT-3.1.3-12]
#[test]
fn strings_are_utf_8_without_nul() {
    for bad in [&b"\0"[..], b"a\0b", b"\xFF", b"\xED\xA0\x80", b"\xC0\x80", b"\xE2\x82"] {
        for level in [4, 5] {
            let none = if level == 5 { vec![0] } else { vec![] };
            let bad_id = connect(level, 0x02, &[], &[&sized(bad)]);
            let bad_user = connect(level, 0x82, &[], &[&sized("c"), &sized(bad)]);
            let bad_will = connect(level, 0x06, &[], &[&sized("c"), &none, &sized(bad), &sized("")]);
            for bytes in [bad_id, bad_user, bad_will] {
                assert_eq!(refused(None, &bytes), MALFORMED, "{bad:?}");
            }
        }
        let method = connect(5, 2, &[&property(0x15, bad)], &[&sized("c")]);
        let pair = [&[0x26][..], &sized("k"), &sized(bad)].concat();
        let user = connect(5, 2, &[&pair], &[&sized("c")]);
        assert_eq!((refused(None, &method), refused(None, &user)), (MALFORMED, MALFORMED));
    }
}

/// [MQTT-1.5.4-3]
#[test]
fn a_byte_order_mark_is_a_character() {
    let found = accepted(&connect(5, 2, &[], &[&sized("\u{FEFF}c")]));
    assert_eq!(found.client_id, "\u{FEFF}c");
}

#[test]
fn a_will_topic_is_a_topic_name() {
    for topic in ["", "a/+", "#"] {
        let bytes = connect(4, 0x06, &[], &[&sized("c"), &sized(topic), &sized("")]);
        assert_eq!(refused(None, &bytes), ReasonCode::TOPIC_NAME_INVALID, "{topic:?}");
    }
}

#[test]
fn bad_properties() {
    let method = property(0x15, "m");
    let cases: [(&[&[u8]], ReasonCode, &str); 12] = [
        (&[&[0x21, 0, 0]], PROTOCOL, "receive maximum 0"),
        (&[&[0x27, 0, 0, 0, 0]], PROTOCOL, "maximum packet size 0"),
        (&[&[0x19, 2]], PROTOCOL, "request response information 2"),
        (&[&[0x17, 2]], PROTOCOL, "request problem information 2"),
        (&[&property(0x16, "d")], PROTOCOL, "authentication data without a method"),
        (&[&method, &method], PROTOCOL, "a property twice"),
        (&[&[0x11, 0, 0, 0, 1], &[0x11, 0, 0, 0, 1]], PROTOCOL, "a property twice, even if it says the same"),
        (&[&[0x01, 1]], MALFORMED, "a property of PUBLISH"),
        (&[&[0x24, 1]], MALFORMED, "a property of CONNACK"),
        (&[&[0x00]], MALFORMED, "an unknown property"),
        (&[&[0x91, 0x00, 0, 0, 0, 0]], MALFORMED, "an identifier of two bytes"),
        (&[&[0x11, 0, 0]], MALFORMED, "a value that is cut"),
    ];
    for (properties, reason, what) in cases {
        assert_eq!(refused(None, &connect(5, 2, properties, &[&sized("c")])), reason, "{what}");
    }
}

#[test]
fn bad_will_properties() {
    let cases: [(&[&[u8]], ReasonCode); 5] = [
        (&[&[0x23, 0, 1]], MALFORMED),
        (&[&[0x18, 0, 0, 0, 1], &[0x18, 0, 0, 0, 1]], PROTOCOL),
        (&[&[0x01, 2]], PROTOCOL),
        (&[&property(0x08, "a/#")], PROTOCOL),
        (&[&property(0x03, b"\xFF")], MALFORMED),
    ];
    for (properties, reason) in cases {
        let bytes = connect(5, 0x06, &[], &[&sized("c"), &block(properties), &sized("w"), &sized("")]);
        assert_eq!(refused(None, &bytes), reason, "{properties:?}");
    }
}

#[test]
fn cut_short_anywhere_or_too_long_is_malformed() {
    let will = block(&[&[0x18, 0, 0, 0, 1]]);
    let payload = [sized("c"), will, sized("w"), sized("p"), sized("u"), sized("p")].concat();
    let whole = connect(5, 0xC6, &[&[0x21, 0, 1], &user("k", "v")], &[&payload]);
    accepted(&whole);
    let body = &whole[2..];
    for length in 0..body.len() {
        assert_eq!(refused(None, &packet(0x10, &[&body[..length]])), MALFORMED, "{length} bytes");
    }
    assert_eq!(refused(None, &packet(0x10, &[body, &[0]])), MALFORMED);
}

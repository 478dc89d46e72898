//! The encoder, byte by byte.

use super::super::{Connack, Encoder, Outgoing, QoS, ReasonCode, Version};
use super::*;

const V5: Encoder = Encoder { version: Version::V5, maximum: u32::MAX, problem_information: true };
const V311: Encoder = Encoder { version: Version::V311, ..V5 };

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn message(topic: &[u8]) -> Outgoing<'_> {
    Outgoing {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: 0,
        topic_alias: None,
        message_expiry: None,
        subscription_ids: &[],
        properties: &[],
        payload: b"p",
    }
}

/// 3.1.1: [MQTT-3.2.2-4], and the return codes; 5.0: [MQTT-3.2.2-6]
#[test]
fn connack_of_an_error_has_no_session() {
    for (reason, code) in [
        (0x00, 0),
        (0x80, 3),
        (0x81, 5),
        (0x84, 1),
        (0x85, 2),
        (0x86, 4),
        (0x87, 5),
        (0x88, 3),
        (0x89, 3),
        (0x8A, 5),
        (0x8B, 3),
        (0x8C, 5),
        (0x95, 5),
        (0x97, 3),
        (0x9F, 3),
        (0xFF, 5),
    ] {
        let connack = Connack { session_present: true, reason: ReasonCode(reason), ..Connack::default() };
        let present = u8::from(reason == 0);
        assert_eq!(written(|out| V311.connack(out, &connack)), [0x20, 2, present, code], "0x{reason:02x}");
        assert_eq!(written(|out| V5.connack(out, &connack)), [0x20, 3, present, reason, 0]);
    }
}

/// [MQTT-3.2.2-19]: a reason string is left out when it makes the packet too large.
#[test]
fn connack_drops_its_text_but_never_the_rest() {
    let connack =
        Connack { receive_maximum: Some(5), reason_string: Some("a long explanation"), ..Connack::default() };
    let short = [0x20, 6, 0, 0, 3, 0x21, 0, 5];
    assert_eq!(written(|out| Encoder { maximum: 8, ..V5 }.connack(out, &connack)), short);
    assert_eq!(written(|out| Encoder { maximum: 7, ..V5 }.connack(out, &connack)), Vec::<u8>::new());
    // A CONNACK may explain itself even when the client asked for no problem information.
    let quiet = Encoder { problem_information: false, ..V5 };
    assert_eq!(written(|out| quiet.connack(out, &connack)).len(), 8 + 3 + 18);
}

#[test]
fn publish_bytes() {
    let full = Outgoing {
        dup: true,
        qos: QoS::AtLeastOnce,
        retain: true,
        packet_id: 258,
        topic_alias: Some(3),
        message_expiry: Some(4),
        subscription_ids: &[1, 128],
        properties: &[0x01, 1],
        ..message(b"t")
    };
    let mut out = Vec::new();
    assert!(V5.publish(&mut out, &full));
    let properties =
        block(&[&[0x0B, 1], &[0x0B, 0x80, 0x01], &[0x23, 0, 3], &[0x02, 0, 0, 0, 4], &[0x01, 1]]);
    assert_eq!(out, packet(0x3B, &[&sized("t"), &[1, 2], &properties, b"p"]));
    out.clear();
    assert!(V311.publish(&mut out, &full));
    assert_eq!(out, packet(0x3B, &[&sized("t"), &[1, 2], b"p"]));
}

/// [MQTT-3.3.1-2]
#[test]
fn no_dup_with_qos_0() {
    let mut out = Vec::new();
    assert!(V311.publish(&mut out, &Outgoing { dup: true, ..message(b"t") }));
    assert_eq!(out, [0x30, 4, 0, 1, b't', b'p']);
}

/// [MQTT-3.1.2-24]
#[test]
fn publish_at_the_clients_maximum() {
    let mut out = Vec::new();
    assert!(Encoder { maximum: 7, ..V5 }.publish(&mut out, &message(b"t")));
    assert_eq!(out.len(), 7);
    assert!(!Encoder { maximum: 6, ..V5 }.publish(&mut out, &message(b"t")));
    assert_eq!(out.len(), 7);
}

#[test]
fn publish_with_a_topic_that_is_too_long() {
    let mut out = Vec::new();
    assert!(V5.publish(&mut out, &message(&[b'a'; 65_535])));
    out.clear();
    assert!(!V5.publish(&mut out, &message(&[b'a'; 65_536])));
    assert!(out.is_empty());
}

#[test]
fn lengths_at_the_edges_of_the_integer() {
    for length in [127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
        let payload = vec![0; length - 3];
        let mut out = Vec::new();
        assert!(V311.publish(&mut out, &Outgoing { payload: &payload, ..message(b"t") }));
        assert_eq!(out, packet(0x30, &[&sized("t"), &payload]));
    }
}

#[test]
fn acknowledgements_are_as_short_as_they_can_be() {
    assert_eq!(written(|out| V5.puback(out, 9, ReasonCode(0), None, &[])), [0x40, 2, 0, 9]);
    assert_eq!(written(|out| V5.pubrec(out, 9, ReasonCode(0x97), None, &[])), [0x50, 3, 0, 9, 0x97]);
    assert_eq!(written(|out| V5.pubrel(out, 9, ReasonCode(0))), [0x62, 2, 0, 9]);
    assert_eq!(written(|out| V5.pubcomp(out, 9, ReasonCode(0x92))), [0x70, 3, 0, 9, 0x92]);
    let expected = packet(0x40, &[&[0, 9, 0], &block(&[&property(0x1F, "why"), &user("k", "v")])]);
    assert_eq!(written(|out| V5.puback(out, 9, ReasonCode(0), Some("why"), &[("k", "v")])), expected);
}

/// [MQTT-3.1.2-29], [MQTT-3.4.2-2], [MQTT-3.4.2-3]
#[test]
fn no_problem_information_unless_wanted_and_it_fits() {
    let quiet = Encoder { problem_information: false, ..V5 };
    let user_pair = [("k", "v")];
    let reason = ReasonCode::QUOTA_EXCEEDED;
    let bare = [0x40, 3, 0, 9, 0x97];
    assert_eq!(written(|out| quiet.puback(out, 9, reason, Some("why"), &user_pair)), bare);
    let with_user = packet(0x40, &[&[0, 9, 0x97], &block(&[&user("k", "v")])]);
    let tight = Encoder { maximum: with_user.len() as u32, ..V5 };
    assert_eq!(written(|out| tight.puback(out, 9, reason, Some("why"), &user_pair)), with_user);
    let tighter = Encoder { maximum: tight.maximum - 1, ..V5 };
    assert_eq!(written(|out| tighter.puback(out, 9, reason, Some("why"), &user_pair)), bare);
}

/// 3.1.1: [MQTT-3.9.3-2]
#[test]
fn suback_codes() {
    let codes = [0, 1, 2, 3, 0x80, 0x87, 0xA2].map(ReasonCode);
    let five = written(|out| V5.suback(out, 9, &codes));
    assert_eq!(five, [0x90, 10, 0, 9, 0, 0, 1, 2, 3, 0x80, 0x87, 0xA2]);
    let four = written(|out| V311.suback(out, 9, &codes));
    assert_eq!(four, [0x90, 9, 0, 9, 0, 1, 2, 0x80, 0x80, 0x80, 0x80]);
    assert_eq!(written(|out| V5.unsuback(out, 9, &codes[..2])), [0xB0, 5, 0, 9, 0, 0, 1]);
    assert_eq!(written(|out| V311.unsuback(out, 9, &codes[..2])), [0xB0, 2, 0, 9]);
}

#[test]
fn disconnect_and_pingresp() {
    assert_eq!(written(|out| V311.disconnect(out, ReasonCode(0x8B), Some("bye"), None)), Vec::<u8>::new());
    assert_eq!(written(|out| V5.disconnect(out, ReasonCode(0x8B), None, None)), [0xE0, 2, 0x8B, 0]);
    let properties = block(&[&property(0x1C, "other"), &property(0x1F, "bye")]);
    let expected = packet(0xE0, &[&[0x9C], &properties]);
    assert_eq!(written(|out| V5.disconnect(out, ReasonCode(0x9C), Some("bye"), Some("other"))), expected);
    assert_eq!(written(|out| V5.pingresp(out)), [0xD0, 0]);
}

/// [MQTT-1.5.4-2], and the two bytes of a string's length
#[test]
fn strings_are_cut_where_the_protocol_ends() {
    let long = "é".repeat(40_000);
    let out = written(|out| V5.disconnect(out, ReasonCode(0x80), Some(&long), None));
    let text = &out[out.len() - 65_534..];
    assert_eq!(text, "é".repeat(32_767).as_bytes());
    assert_eq!(out.len(), 4 + 1 + 3 + 3 + 65_534);
    let out = written(|out| V5.puback(out, 9, ReasonCode(0), Some("a\0b"), &[("k\0", "\0")]));
    assert_eq!(out, packet(0x40, &[&[0, 9, 0], &block(&[&property(0x1F, "a"), &user("k", "")])]));
}

//! The fixed header.

use super::super::{Frame, ReasonCode, Version, frame};
use super::*;

const V5: Option<Version> = Some(Version::V5);
const V311: Option<Version> = Some(Version::V311);

#[test]
fn waits_for_the_whole_packet() {
    let bytes = packet(0x30, &[&sized("a"), &[0; 200]]);
    for length in 0..bytes.len() {
        assert_eq!(frame(&bytes[..length], 1000), Ok(None), "{length} bytes");
    }
    let found = Frame { first: 0x30, header: 3, body: 203 };
    assert_eq!(frame(&bytes, 1000), Ok(Some(found)));
    let with_more = [bytes, vec![0xFF; 9]].concat();
    assert_eq!(frame(&with_more, 1000), Ok(Some(found)));
}

#[test]
fn lengths_of_one_to_four_bytes() {
    for (lengths, body) in [
        (&[0x00][..], 0),
        (&[0x7F], 127),
        (&[0x80, 0x01], 128),
        (&[0xFF, 0x7F], 16_383),
        (&[0x80, 0x80, 0x01], 16_384),
        (&[0xFF, 0xFF, 0x7F], 2_097_151),
        (&[0x80, 0x80, 0x80, 0x01], 2_097_152),
    ] {
        let header = [&[0x30], lengths].concat();
        let bytes = [header.clone(), vec![0; body]].concat();
        assert_eq!(frame(&bytes, usize::MAX), Ok(Some(Frame { first: 0x30, header: header.len(), body })));
    }
}

#[test]
fn a_fifth_byte_of_length_is_malformed() {
    assert_eq!(frame(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], usize::MAX), Ok(None));
    for more in [&[0xFF, 0xFF, 0xFF, 0xFF][..], &[0x80, 0x80, 0x80, 0x80, 0x01]] {
        let bytes = [&[0x30], more].concat();
        assert_eq!(frame(&bytes, usize::MAX).unwrap_err().reason, MALFORMED);
    }
}

/// [MQTT-1.5.5-1]; 3.1.1 has no such rule.
#[test]
fn a_padded_length_is_malformed_in_version_5() {
    let ping = [0xC0, 0x80, 0x80, 0x00];
    assert_eq!(refused(V5, &ping), MALFORMED);
    assert_eq!(read(V311, &ping), Ok(Packet::PingReq));
    let mut connect = super::connect::minimal(5);
    connect.splice(1..2, [connect[1] | 0x80, 0]);
    assert_eq!(refused(None, &connect), MALFORMED);
    let mut connect = super::connect::minimal(4);
    connect.splice(1..2, [connect[1] | 0x80, 0]);
    assert!(matches!(read(None, &connect), Ok(Packet::Connect(_))));
}

#[test]
fn a_large_packet_is_refused_as_soon_as_its_length_is_known() {
    let bytes = packet(0x30, &[&[0; 98]]);
    assert_eq!(bytes.len(), 100);
    assert!(frame(&bytes, 100).unwrap().is_some());
    assert_eq!(frame(&bytes[..2], 99).unwrap_err().reason, ReasonCode::PACKET_TOO_LARGE);
    assert_eq!(frame(&bytes[..1], 99), Ok(None));
    assert_eq!(
        frame(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], 1000).unwrap_err().reason,
        ReasonCode::PACKET_TOO_LARGE
    );
}

/// [MQTT-2.1.3-1], [MQTT-2.2.2-2], [MQTT-3.6.1-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1], [MQTT-3.14.1-1], [MQTT-3.15.1-1]
#[test]
fn only_the_flags_of_the_type_are_accepted() {
    let clients = [(1, 0), (4, 0), (5, 0), (6, 2), (7, 0), (8, 2), (10, 2), (12, 0), (14, 0), (15, 0)];
    for (kind, right) in clients {
        for flags in 0..16 {
            let found = frame(&[kind << 4 | flags], usize::MAX);
            if flags == right {
                assert_eq!(found, Ok(None), "type {kind}");
            } else {
                assert_eq!(found.unwrap_err().reason, MALFORMED, "type {kind} with flags {flags:04b}");
            }
        }
    }
}

/// [MQTT-3.3.1-2], [MQTT-3.3.1-4]
#[test]
fn publish_flags() {
    for flags in 0..16_u8 {
        let qos = (flags >> 1) & 3;
        let sound = qos < 3 && !(qos == 0 && flags & 8 != 0);
        let found = frame(&[0x30 | flags], usize::MAX);
        assert_eq!(found.map_err(|error| error.reason), if sound { Ok(None) } else { Err(MALFORMED) });
    }
}

#[test]
fn packets_of_servers_and_reserved_types() {
    for first in [0x20, 0x90, 0xB0, 0xD0] {
        assert_eq!(frame(&[first, 0], usize::MAX).unwrap_err().reason, PROTOCOL);
    }
    assert_eq!(frame(&[0x00, 0], usize::MAX).unwrap_err().reason, MALFORMED);
    // AUTH is reserved in 3.1.1.
    let auth = packet(0xF0, &[&[0x18], &block(&[&property(0x15, "x")])]);
    assert!(matches!(read(V5, &auth), Ok(Packet::Auth(_))));
    assert_eq!(refused(V311, &auth), MALFORMED);
}

#[test]
fn decode_does_not_trust_the_first_byte() {
    for first in [0x00, 0x20, 0x36, 0x38, 0x81, 0xD0] {
        assert!(super::super::decode(V5, Frame { first, header: 2, body: 0 }, &[]).is_err());
    }
}

/// [MQTT-3.1.0-1], [MQTT-3.1.0-2]
#[test]
fn connect_comes_first_and_once() {
    assert_eq!(refused(None, &[0xC0, 0]), PROTOCOL);
    assert_eq!(refused(None, &packet(0x30, &[&sized("a")])), PROTOCOL);
    for version in [V311, V5] {
        assert_eq!(refused(version, &super::connect::minimal(5)), PROTOCOL);
    }
}

#[test]
fn pingreq_is_empty() {
    for version in [V311, V5] {
        assert_eq!(read(version, &[0xC0, 0]), Ok(Packet::PingReq));
        assert_eq!(refused(version, &[0xC0, 1, 0]), MALFORMED);
    }
}

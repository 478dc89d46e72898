//! The acknowledgements of PUBLISH, DISCONNECT and AUTH.

use super::super::{Ack, Auth, Disconnect, ReasonCode, Version};
use super::*;

const V5: Option<Version> = Some(Version::V5);
const V311: Option<Version> = Some(Version::V311);
const ACKS: [u8; 4] = [0x40, 0x50, 0x62, 0x70];

fn ack_of(packet: Packet<'_>) -> (u8, Ack) {
    match packet {
        Packet::PubAck(ack) => (0x40, ack),
        Packet::PubRec(ack) => (0x50, ack),
        Packet::PubRel(ack) => (0x62, ack),
        Packet::PubComp(ack) => (0x70, ack),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_length_of_an_acknowledgement() {
    for first in ACKS {
        let success = (first, Ack { packet_id: 258, reason: ReasonCode::SUCCESS });
        assert_eq!(ack_of(read(V311, &packet(first, &[&[1, 2]])).unwrap()), success);
        let properties = block(&[&property(0x1F, "why"), &user("k", "v"), &user("k", "v")]);
        for rest in [&[][..], &[0], &[0, 0], &[&[0][..], &properties].concat()] {
            assert_eq!(ack_of(read(V5, &packet(first, &[&[1, 2], rest])).unwrap()), success);
        }
    }
}

#[test]
fn reason_codes_belong_to_the_packet() {
    let published = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
    for code in 0..=255 {
        for (first, codes) in
            [(0x40, &published[..]), (0x50, &published), (0x62, &[0, 0x92]), (0x70, &[0, 0x92])]
        {
            let bytes = packet(first, &[&[1, 2, code]]);
            if codes.contains(&code) {
                assert_eq!(ack_of(read(V5, &bytes).unwrap()).1.reason, ReasonCode(code));
            } else {
                assert_eq!(refused(V5, &bytes), PROTOCOL, "{first:02x} {code:02x}");
            }
        }
    }
}

#[test]
fn bad_acknowledgements() {
    for first in ACKS {
        assert_eq!(refused(V5, &packet(first, &[&[0, 0]])), PROTOCOL);
        assert_eq!(refused(V311, &packet(first, &[&[0, 0]])), PROTOCOL);
        let malformed: [&[u8]; 7] = [
            &[],
            &[0],
            &[0, 1, 0, 1],
            &[0, 1, 0, 0, 0],
            &[0, 1, 0, 5, 0x11, 0, 0, 0, 0],
            &[0, 1, 0, 4, 0x1F, 0, 1, 0],
            &[0, 1, 0, 0x80, 0x00],
        ];
        for body in malformed {
            assert_eq!(refused(V5, &packet(first, &[body])), MALFORMED, "{body:?}");
        }
        let twice = block(&[&property(0x1F, "a"), &property(0x1F, "a")]);
        assert_eq!(refused(V5, &packet(first, &[&[0, 1, 0], &twice])), PROTOCOL);
        assert_eq!(refused(V311, &packet(first, &[&[0, 1, 0]])), MALFORMED);
    }
}

#[test]
fn disconnect() {
    let normal = Disconnect { reason: ReasonCode::SUCCESS, session_expiry: None };
    assert_eq!(read(V311, &[0xE0, 0]), Ok(Packet::Disconnect(normal)));
    assert_eq!(refused(V311, &[0xE0, 1, 0]), MALFORMED);
    for bytes in [&[0xE0, 0][..], &[0xE0, 1, 0], &[0xE0, 2, 0, 0]] {
        assert_eq!(read(V5, bytes), Ok(Packet::Disconnect(normal)));
    }
    let properties = block(&[&property(0x1F, "why"), &[0x11, 0, 0, 0, 9], &user("k", "v")]);
    let expected = Disconnect { reason: ReasonCode::DISCONNECT_WITH_WILL, session_expiry: Some(9) };
    assert_eq!(read(V5, &packet(0xE0, &[&[4], &properties])), Ok(Packet::Disconnect(expected)));
}

/// [MQTT-3.14.2-1]
#[test]
fn disconnect_reasons_are_a_clients() {
    let clients = [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];
    for code in 0..=255 {
        let bytes = [0xE0, 1, code];
        match read(V5, &bytes) {
            Ok(packet) => {
                assert!(clients.contains(&code), "{code:02x}");
                let expected = Disconnect { reason: ReasonCode(code), session_expiry: None };
                assert_eq!(packet, Packet::Disconnect(expected));
            }
            Err(error) => {
                assert!(!clients.contains(&code), "{code:02x}");
                assert_eq!(error.reason, PROTOCOL);
            }
        }
    }
}

#[test]
fn bad_disconnects() {
    let expiry = [0x11, 0, 0, 0, 9];
    assert_eq!(refused(V5, &packet(0xE0, &[&[0], &block(&[&expiry, &expiry])])), PROTOCOL);
    assert_eq!(refused(V5, &packet(0xE0, &[&[0], &block(&[&[0x23, 0, 1]])])), MALFORMED);
    assert_eq!(refused(V5, &packet(0xE0, &[&[0, 0, 0]])), MALFORMED);
    assert_eq!(refused(V5, &packet(0xE0, &[&[0, 3, 0x11]])), MALFORMED);
}

/// [MQTT-3.15.2-1]: success comes from servers only, so that the short forms are understood but refused.
#[test]
fn auth() {
    let properties =
        block(&[&user("k", "v"), &property(0x15, "SCRAM"), &property(0x16, [0]), &property(0x1F, "why")]);
    for code in [0x18, 0x19] {
        let expected = Auth { reason: ReasonCode(code), method: Some("SCRAM".into()) };
        assert_eq!(read(V5, &packet(0xF0, &[&[code], &properties])), Ok(Packet::Auth(expected)));
    }
    for code in [0x00, 0x01, 0x80, 0x87] {
        assert_eq!(refused(V5, &packet(0xF0, &[&[code], &properties])), PROTOCOL);
    }
    for short in [&[][..], &[0x00], &[0x18], &[0x18, 0]] {
        assert_eq!(refused(V5, &packet(0xF0, &[short])), PROTOCOL);
    }
    let method = property(0x15, "m");
    assert_eq!(refused(V5, &packet(0xF0, &[&[0x18], &block(&[&method, &method])])), PROTOCOL);
    assert_eq!(refused(V5, &packet(0xF0, &[&[0x18], &block(&[&method, &[0x11, 0, 0, 0, 0]])])), MALFORMED);
    assert_eq!(refused(V5, &packet(0xF0, &[&[0x18], &block(&[&method]), &[0]])), MALFORMED);
}

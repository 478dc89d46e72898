//! Packets that are not MQTT: the connection ends, with the reason in 5.0, and nothing else happens.

use crate::client;
use crate::common::packet::Version::{V5, V311};
use crate::common::packet::*;

both_versions!(
    packet_type_zero,
    packets_only_a_server_sends,
    remaining_length_of_five_bytes,
    reserved_flags,
    ping_with_a_body,
    acknowledgement_too_short,
    publish_too_short,
    topic_beyond_the_packet,
    subscribe_too_short,
    filter_beyond_the_packet,
    acknowledgement_of_identifier_zero,
);

fn expect_violation(version: Version, packet: &[u8]) {
    let mut client = client(version);
    client.send(packet);
    let reasons = [0x81, 0x82];
    client.expect_closed(&reasons);
}

/// Section 2.2.1 / 2.1.2: packet type 0 is forbidden.
fn packet_type_zero(version: Version) {
    expect_violation(version, &[0x00, 0]);
}

/// Section 2.2.1 / 2.1.2: CONNACK, SUBACK, UNSUBACK and PINGRESP go from server to client. Mosquitto
/// ignores some.
fn packets_only_a_server_sends(version: Version) {
    let packets: [&[u8]; 4] = [&[0x20, 2, 0, 0], &[0x90, 3, 0, 1, 0], &[0xB0, 2, 0, 1], &[0xD0, 0]];
    for packet in packets {
        expect_violation(version, packet);
    }
}

/// Section 2.2.3 / 1.5.5: the remaining length has at most four bytes.
fn remaining_length_of_five_bytes(version: Version) {
    expect_violation(version, &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]);
}

/// [MQTT-2.2.2-2] / [MQTT-2.1.3-1], [MQTT-3.6.1-1], [MQTT-3.14.1-1] Reserved header flags. Mosquitto lets
/// those of PINGREQ pass.
fn reserved_flags(version: Version) {
    let packets: [&[u8]; 6] =
        [&[0xC1, 0], &[0xE1, 0], &[0x60, 2, 0, 1], &[0x42, 2, 0, 1], &[0x51, 2, 0, 1], &[0x78, 2, 0, 1]];
    for packet in packets {
        expect_violation(version, packet);
    }
}

/// Section 3.12: PINGREQ has nothing behind its header. Mosquitto answers.
fn ping_with_a_body(version: Version) {
    expect_violation(version, &[0xC0, 1, 0]);
}

/// Sections 3.4 to 3.7: an acknowledgement has at least an identifier.
fn acknowledgement_too_short(version: Version) {
    for first in [0x40, 0x50, 0x62, 0x70] {
        expect_violation(version, &[first, 1, 0]);
        expect_violation(version, &[first, 0]);
    }
}

/// Section 3.3: a PUBLISH without topic, and one without the identifier that its QoS demands.
fn publish_too_short(version: Version) {
    expect_violation(version, &[0x30, 0]);
    expect_violation(version, &[0x30, 1, 0]);
    expect_violation(version, &[0x32, 4, 0, 1, b'a', 0]);
}

/// Section 1.5.3 / 1.5.4: a length that goes beyond the packet.
fn topic_beyond_the_packet(version: Version) {
    expect_violation(version, &[0x30, 5, 0, 10, b'a', b'b', b'c']);
}

/// Section 3.8: a SUBSCRIBE and an UNSUBSCRIBE of nothing.
fn subscribe_too_short(version: Version) {
    for packet in [[0x82, 0], [0xA2, 0]] {
        expect_violation(version, &packet);
    }
    expect_violation(version, &[0x82, 1, 0]);
    expect_violation(version, &[0xA2, 1, 0]);
}

/// Section 1.5.3 / 1.5.4: the same in SUBSCRIBE and UNSUBSCRIBE.
fn filter_beyond_the_packet(version: Version) {
    for first in [0x82, 0xA2] {
        let mut body = vec![0, 1];
        properties(&mut body, version, &Vec::new());
        body.extend_from_slice(&[0, 9, b'a']);
        expect_violation(version, &frame(first, &body));
    }
}

/// [MQTT-2.3.1-1] / [MQTT-2.2.1-3] No packet has identifier 0.
fn acknowledgement_of_identifier_zero(version: Version) {
    for first in [0x40, 0x50, 0x62, 0x70] {
        expect_violation(version, &[first, 2, 0, 0]);
    }
}

/// [MQTT-3.14.1-1], section 2.2.1: 3.1.1 has no AUTH, and its acknowledgements and DISCONNECT have nothing
/// more. Mosquitto lets longer acknowledgements pass.
#[test]
fn too_much_for_v311() {
    let packets: [&[u8]; 4] = [&[0xF0, 0], &[0xE0, 1, 0], &[0x40, 3, 0, 1, 0], &[0x62, 4, 0, 1, 0, 0]];
    for packet in packets {
        expect_violation(V311, packet);
    }
}

/// Section 2.2.2: property lengths that are wrong.
#[test]
fn property_length_beyond_the_packet() {
    expect_violation(V5, b"\x30\x04\0\x01a\x05");
    expect_violation(V5, b"\x82\x04\0\x01\x7F\0");
    expect_violation(V5, b"\xE0\x02\0\x09");
    expect_violation(V5, b"\x40\x04\0\x01\0\x09");
    expect_violation(V5, b"\x30\x08\0\x01a\xFF\xFF\xFF\xFF\x01");
}

/// Section 2.2.2: a property cut short.
#[test]
fn property_cut_short() {
    expect_violation(V5, b"\x30\x06\0\x01a\x02\x02\0");
    expect_violation(V5, b"\x30\x08\0\x01a\x04\x03\0\x09x");
    expect_violation(V5, b"\x30\x05\0\x01a\x01\x23");
}

/// Section 3.14.2: bytes that no property accounts for. Mosquitto ignores them.
#[test]
fn bytes_after_the_properties() {
    expect_violation(V5, b"\xE0\x03\0\0\0");
    expect_violation(V5, b"\x40\x05\0\x01\0\0\0");
}

/// [MQTT-3.15.1-1] Reserved flags of AUTH.
#[test]
fn auth_with_flags() {
    expect_violation(V5, &[0xF1, 0]);
}

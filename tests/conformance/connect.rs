//! CONNECT: what gets in, what does not, and how the server says so.

use crate::common::client::{Client, End};
use crate::common::decode::Packet;
use crate::common::packet::Version::{V5, V311};
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::{PATIENCE, unique};
use crate::{client, server};

both_versions!(
    first_packet_must_be_connect,
    second_connect_is_a_violation,
    wrong_protocol_name,
    unknown_protocol_level,
    reserved_connect_flag,
    will_qos_without_will,
    will_retain_without_will,
    will_qos_three,
    shortest_and_longest_standard_client_ids,
    empty_client_id_is_given_one,
    oversized_client_id,
    missing_user_name,
    missing_password,
    missing_will_message,
    client_id_beyond_the_packet,
    bytes_after_the_payload,
    client_id_with_bad_utf8,
    client_id_with_null,
    user_name_with_bad_utf8,
    packets_right_behind_connect,
    connect_byte_by_byte,
    refused_connect_ends_processing,
);

/// The server ends the connection, at most after a CONNACK that says why.
fn expect_refused(client: &mut Client, codes: &[u8]) {
    match client.recv_within(PATIENCE) {
        Ok(Packet::Connack(connack)) => {
            assert!(codes.contains(&connack.code), "CONNACK 0x{:02x}, expected {codes:02x?}", connack.code);
            assert_eq!(client.recv_within(PATIENCE), Err(End::Closed), "after a refusing CONNACK");
        }
        other => assert_eq!(other, Err(End::Closed), "a malformed CONNECT must not be accepted"),
    }
}

/// A malformed CONNECT: 3.1.1 closes without CONNACK, 5.0 may say 0x81 or 0x82 before.
fn expect_malformed(version: Version, packet: &(impl Encode + ?Sized)) {
    let mut client = server().open(version);
    client.send(packet);
    let codes: &[u8] = if version == V5 { &[0x81, 0x82] } else { &[] };
    expect_refused(&mut client, codes);
}

/// CONNECT as bytes, with the payload replaced.
fn connect_with_payload(version: Version, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = b"\0\x04MQTT".to_vec();
    body.extend_from_slice(&[if version == V5 { 5 } else { 4 }, flags, 0, 60]);
    properties(&mut body, version, &Vec::new());
    body.extend_from_slice(payload);
    frame(0x10, &body)
}

/// [MQTT-3.1.0-1], [MQTT-3.2.0-1], [MQTT-3.14.0-1] Anything but CONNECT first ends the connection, without
/// a packet from the server.
fn first_packet_must_be_connect(version: Version) {
    let packets: [Vec<u8>; 5] = [
        Publish::new("first", "x").encode(version),
        Subscribe::new(1, &[("first", 0)]).encode(version),
        Ack::new(Kind::Pubrel, 1).encode(version),
        PINGREQ.to_vec(),
        Disconnect::default().encode(version),
    ];
    for packet in packets {
        let mut client = server().open(version);
        client.send(&packet);
        assert_eq!(client.recv_within(PATIENCE), Err(End::Closed), "after {packet:02x?}");
    }
}

/// [MQTT-3.1.0-2] A second CONNECT is a protocol error.
fn second_connect_is_a_violation(version: Version) {
    let mut client = client(version);
    client.send(&Connect::new(version, &client.id));
    client.expect_closed(&[0x82]);
}

/// [MQTT-3.1.2-1] Another protocol name is not served; the server may say why (0x01 or 0x84).
fn wrong_protocol_name(version: Version) {
    let mut client = server().open(version);
    client.send(&Connect { protocol: "MQTX".into(), ..Connect::new(version, &unique("name")) });
    let answer = read_to_end(&client);
    assert!(answer.is_empty() || matches!(answer[..4], [0x20, _, 0, 0x01 | 0x84]), "{answer:02x?}");
}

/// [MQTT-3.1.2-2] A level that no server knows is refused as such (0x01 or, in the form of 5.0, 0x84).
fn unknown_protocol_level(version: Version) {
    let mut client = server().open(version);
    let mut bytes = Connect::new(version, &unique("level")).encode(version);
    bytes[8] = if version == V5 { 6 } else { 3 };
    client.send(&bytes);
    let answer = read_to_end(&client);
    assert_eq!(answer.first(), Some(&0x20), "CONNACK, got {answer:02x?}");
    assert!(matches!(answer[3], 0x01 | 0x84), "unacceptable protocol level, got {answer:02x?}");
}

fn read_to_end(client: &Client) -> Vec<u8> {
    let mut all = Vec::new();
    client.stream().set_read_timeout(Some(PATIENCE)).expect("a time-out");
    std::io::Read::read_to_end(&mut client.stream(), &mut all).expect("the server closes");
    all
}

/// [MQTT-3.1.2-2] MQTT 3.1 (`MQIsdp`, level 3) is told that its level is not served. Mosquitto serves it.
#[test]
fn mqtt_3_1_is_refused_clearly() {
    let mut client = server().open(V311);
    client.send(&Connect { protocol: "MQIsdp".into(), level: 3, ..Connect::v311(&unique("old")) });
    assert_eq!(read_to_end(&client), [0x20, 2, 0, 1]);
}

/// [MQTT-3.1.2-3] The lowest flag bit is reserved.
fn reserved_connect_flag(version: Version) {
    expect_malformed(version, &Connect::new(version, &unique("flag")).flip(0x01));
}

/// [MQTT-3.1.2-13] / [MQTT-3.1.2-11] No will, but a will QoS.
fn will_qos_without_will(version: Version) {
    expect_malformed(version, &Connect::new(version, &unique("flag")).flip(0x08));
}

/// [MQTT-3.1.2-15] / [MQTT-3.1.2-13] No will, but will retain.
fn will_retain_without_will(version: Version) {
    expect_malformed(version, &Connect::new(version, &unique("flag")).flip(0x20));
}

/// [MQTT-3.1.2-14] / [MQTT-3.1.2-12] Will QoS 3 does not exist.
fn will_qos_three(version: Version) {
    let connect = Connect::new(version, &unique("flag")).will(Will::new("will", "x"));
    expect_malformed(version, &connect.flip(0x18));
}

/// [MQTT-3.1.2-22] Without a user name there is no password in 3.1.1.
#[test]
fn password_without_user_name_v311() {
    let connect = Connect { password: Some(b"secret".to_vec()), ..Connect::v311(&unique("flag")) };
    expect_malformed(V311, &connect);
}

/// Section 3.1.2.9 of 5.0 allows a password without user name.
#[test]
fn password_without_user_name_v5() {
    server().connect(&Connect { password: Some(b"secret".to_vec()), ..Connect::v5(&unique("flag")) });
}

/// [MQTT-3.1.3-5] Identifiers of 1 to 23 letters and digits must be allowed.
fn shortest_and_longest_standard_client_ids(version: Version) {
    let (short, long) =
        if version == V5 { ("a", "0123456789abcdefghijklm") } else { ("Z", "NOPQRSTUVWXYZnopqrstuvw") };
    server().connect(&Connect::new(version, short)).disconnect();
    server().connect(&Connect::new(version, long)).disconnect();
}

/// [MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16] An empty identifier gets a unique one, which 5.0 tells.
fn empty_client_id_is_given_one(version: Version) {
    let (mut first, mut second) =
        (server().connect(&Connect::new(version, "")), server().connect(&Connect::new(version, "")));
    first.ping();
    second.ping();
    if version == V5 {
        let id = first.connack.properties.text(ASSIGNED_CLIENT_ID).expect("Assigned Client Identifier");
        assert!(!id.is_empty());
        assert_ne!(Some(id), second.connack.properties.text(ASSIGNED_CLIENT_ID));
    }
}

/// [MQTT-3.1.3-8], [MQTT-3.2.2-5] In 3.1.1 an empty identifier needs a clean session.
#[test]
fn empty_client_id_without_clean_session() {
    let mut client = server().attempt(&Connect::v311("").resume());
    assert_eq!(client.connack.code, 0x02);
    client.expect_closed(&[]);
}

/// [MQTT-3.1.3-9] / [MQTT-3.1.3-8] A refused identifier is told so: the limit is 256 bytes by default.
/// Mosquitto has no limit.
fn oversized_client_id(version: Version) {
    let mut client = server().attempt(&Connect::new(version, &"x".repeat(300)));
    assert_eq!(client.connack.code, if version == V5 { 0x85 } else { 0x02 });
    client.expect_end();
}

/// [MQTT-3.1.2-19] / [MQTT-3.1.2-17] The user name flag without a user name.
fn missing_user_name(version: Version) {
    expect_malformed(version, &Connect::new(version, &unique("flag")).flip(0x80));
}

/// [MQTT-3.1.2-21] / [MQTT-3.1.2-19] The password flag without a password.
fn missing_password(version: Version) {
    let connect = Connect { user: Some("user".into()), ..Connect::new(version, &unique("flag")) };
    expect_malformed(version, &connect.flip(0x40));
}

/// [MQTT-3.1.2-9] The will flag without a will in the payload.
fn missing_will_message(version: Version) {
    expect_malformed(version, &Connect::new(version, &unique("flag")).flip(0x04));
}

/// [MQTT-3.1.4-1] A length that goes beyond the packet.
fn client_id_beyond_the_packet(version: Version) {
    expect_malformed(version, &connect_with_payload(version, 2, b"\0\x0Ashort"));
}

/// [MQTT-3.1.4-1] Bytes that no field accounts for.
fn bytes_after_the_payload(version: Version) {
    expect_malformed(version, &connect_with_payload(version, 2, b"\0\x05extra??"));
}

/// [MQTT-3.1.3-4], [MQTT-1.5.3-1] / [MQTT-1.5.4-1] The identifier is UTF-8.
fn client_id_with_bad_utf8(version: Version) {
    expect_malformed(version, &connect_with_payload(version, 2, b"\0\x04ab\xC3\x28"));
}

/// [MQTT-1.5.3-2] / [MQTT-1.5.4-2] No text contains U+0000.
fn client_id_with_null(version: Version) {
    let mut client = server().open(version);
    client.send(&connect_with_payload(version, 2, b"\0\x03a\0b"));
    expect_refused(&mut client, if version == V5 { &[0x81, 0x82, 0x85] } else { &[0x02] });
}

/// [MQTT-3.1.3-11] / [MQTT-3.1.3-12] The user name is UTF-8.
fn user_name_with_bad_utf8(version: Version) {
    expect_malformed(version, &connect_with_payload(version, 0x82, b"\0\x02ab\0\x02\xED\xA0"));
}

/// Section 3.1.4: a client need not wait for CONNACK before it goes on.
fn packets_right_behind_connect(version: Version) {
    let mut client = server().open(version);
    let topic = unique("behind/");
    let mut bytes = Connect::new(version, &unique("c")).encode(version);
    bytes.extend(Subscribe::new(7, &[(&topic, 1)]).encode(version));
    bytes.extend(Publish::new(&topic, "hello").qos(1).id(8).encode(version));
    bytes.extend(PINGREQ);
    client.send(&bytes);
    assert!(matches!(client.recv(), Packet::Connack(connack) if connack.code == 0));
    assert!(matches!(client.recv(), Packet::Suback(suback) if suback.id == 7));
    client.expect_ack(Kind::Puback, 8);
    assert_eq!(client.receive().text(), "hello");
    client.wait_for("PINGRESP", |packet| (*packet == Packet::Pingresp).then_some(()));
}

/// [MQTT-4.2.0-1] TCP is a stream: packets need not come whole.
fn connect_byte_by_byte(version: Version) {
    let mut client = server().open(version);
    for byte in Connect::new(version, &unique("slow")).encode(version) {
        client.send(&[byte]);
    }
    assert!(matches!(client.recv(), Packet::Connack(connack) if connack.code == 0));
}

/// [MQTT-3.1.4-5] / [MQTT-3.1.4-6] What follows a refused CONNECT is not processed.
fn refused_connect_ends_processing(version: Version) {
    let topic = unique("refused/");
    let mut subscriber = client(version);
    subscriber.subscribe(&topic, 1);
    let mut refused = server().open(version);
    let mut bytes = Connect::new(version, &unique("c")).flip(0x01).encode(version);
    bytes.extend(Publish::new(&topic, "must not arrive").encode(version));
    refused.send(&bytes);
    refused.expect_end();
    subscriber.expect_nothing();
}

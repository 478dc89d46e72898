//! Why the MQTT grammar is written here: what the public codecs of rumqttc 0.25 get wrong for a server.
//!
//! They are a client's codecs and serve one well. Each test shows a packet that a client may send and they
//! refuse, or one that must be refused and they accept, next to what Tidegate's codec does with it. A test that
//! fails after an update of rumqttc is good news: delete it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::BytesMut;
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::{Error, v5};
use tidegate::wire::{Disconnect, Packet, ReasonCode, Version, WireError, decode, frame};

const V5: Option<Version> = Some(Version::V5);
const V311: Option<Version> = Some(Version::V311);
const MALFORMED: ReasonCode = ReasonCode::MALFORMED_PACKET;
const PROTOCOL: ReasonCode = ReasonCode::PROTOCOL_ERROR;

fn ours(version: Option<Version>, bytes: &[u8]) -> Result<Packet<'_>, WireError> {
    let found = frame(bytes, usize::MAX)?.expect("a whole packet");
    decode(version, found, &bytes[found.header..found.header + found.body])
}

fn theirs4(bytes: &[u8]) -> Result<v4::Packet, rumqttc::mqttbytes::Error> {
    v4::Packet::read(&mut BytesMut::from(bytes), usize::MAX)
}

fn theirs5(bytes: &[u8]) -> Result<v5::Packet, Error> {
    v5::Packet::read(&mut BytesMut::from(bytes), None)
}

/// They accept, and Tidegate refuses with the reason given.
#[track_caller]
fn accepted_by_5_only(bytes: &[u8], reason: ReasonCode) {
    theirs5(bytes).expect("rumqttc accepts it");
    let version = if bytes[0] == 0x10 { None } else { V5 };
    assert_eq!(ours(version, bytes).unwrap_err().reason, reason);
}

#[track_caller]
fn accepted_by_4_only(bytes: &[u8], reason: ReasonCode) {
    theirs4(bytes).expect("rumqttc accepts it");
    let version = if bytes[0] == 0x10 { None } else { V311 };
    assert_eq!(ours(version, bytes).unwrap_err().reason, reason);
}

/// A packet shorter than 128 bytes.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128);
    [&[first, body.len() as u8], body].concat()
}

/// The CONNECT of a client named "c", after its flags and properties.
fn connect(level: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
    packet(0x10, &[b"\0\x04MQTT", &[level, flags, 0, 60][..], rest].concat())
}

// What a client may send and they refuse.

#[test]
fn a_normal_disconnect_is_refused() {
    let bytes = [0xE0, 0];
    assert!(matches!(theirs5(&bytes), Err(Error::PayloadRequired)));
    let normal = Disconnect { reason: ReasonCode::SUCCESS, session_expiry: None };
    assert_eq!(ours(V5, &bytes), Ok(Packet::Disconnect(normal)));
}

/// "More bytes are needed", although the packet is whole: the codec would wait, and has already thrown it away.
#[test]
fn a_disconnect_with_only_a_reason_is_swallowed() {
    let bytes = [0xE0, 1, 0x04];
    let mut stream = BytesMut::from(&bytes[..]);
    assert!(matches!(v5::Packet::read(&mut stream, None), Err(Error::InsufficientBytes(1))));
    assert!(stream.is_empty());
    let expected = Disconnect { reason: ReasonCode::DISCONNECT_WITH_WILL, session_expiry: None };
    assert_eq!(ours(V5, &bytes), Ok(Packet::Disconnect(expected)));
}

/// The same for any packet that lacks its properties' length: a server must close, not wait.
#[test]
fn a_malformed_publish_is_swallowed() {
    let bytes = packet(0x30, b"\0\x01t");
    let mut stream = BytesMut::from(&bytes[..]);
    assert!(matches!(v5::Packet::read(&mut stream, None), Err(Error::InsufficientBytes(1))));
    assert!(stream.is_empty());
    assert_eq!(ours(V5, &bytes).unwrap_err().reason, MALFORMED);
}

#[test]
fn auth_is_refused() {
    let bytes = packet(0xF0, b"\x18\x08\x15\0\x05SCRAM");
    assert!(matches!(theirs5(&bytes), Err(Error::InvalidPacketType(15))));
    assert!(matches!(ours(V5, &bytes), Ok(Packet::Auth(auth)) if auth.method.as_deref() == Some("SCRAM")));
}

#[test]
fn a_password_that_is_not_text_is_refused() {
    let four = connect(4, 0xC2, b"\0\x01c\0\x01u\0\x01\xFF");
    assert!(theirs4(&four).is_err());
    let five = connect(5, 0xC2, b"\0\0\x01c\0\x01u\0\x01\xFF");
    assert!(theirs5(&five).is_err());
    for bytes in [four, five] {
        let Ok(Packet::Connect(connect)) = ours(None, &bytes) else { panic!("refused") };
        assert_eq!(connect.password.as_deref(), Some(&b"\xFF"[..]));
    }
}

/// An empty user name is not the same as none.
#[test]
fn an_empty_user_name_is_lost() {
    let bytes = connect(5, 0x82, b"\0\0\x01c\0\0");
    assert!(matches!(theirs5(&bytes), Ok(v5::Packet::Connect(_, _, None))));
    assert!(
        matches!(ours(None, &bytes), Ok(Packet::Connect(connect)) if connect.user.as_deref() == Some(""))
    );
}

/// One byte too many is counted for each identifier, so that the third ends up in the payload.
#[test]
fn three_subscription_identifiers_leak_into_the_payload() {
    let bytes = packet(0x30, b"\0\x01t\x06\x0B\x01\x0B\x02\x0B\x03payload");
    let Ok(v5::Packet::Publish(publish)) = theirs5(&bytes) else { panic!("refused") };
    assert_eq!(&publish.payload[..], b"\x0B\x03payload");
    assert_eq!(publish.properties.unwrap().subscription_identifiers, [1, 2]);
}

/// It counts one byte and writes two.
#[test]
fn a_disconnect_with_a_reason_is_written_with_a_stray_byte() {
    let mut bytes = BytesMut::new();
    let disconnect = v5::Disconnect::new(v5::DisconnectReasonCode::DisconnectWithWillMessage);
    v5::Packet::Disconnect(disconnect).write(&mut bytes, None).unwrap();
    assert_eq!(&bytes[..], [0xE0, 1, 0x04, 0]);
}

// What must be refused and they accept.

#[test]
fn nul_in_strings_is_accepted() {
    accepted_by_5_only(&packet(0x82, b"\0\x01\0\0\x03a\0b\0"), MALFORMED);
    accepted_by_4_only(&packet(0x30, b"\0\x03a\0b"), MALFORMED);
}

#[test]
fn a_topic_that_is_not_text_is_accepted() {
    accepted_by_5_only(&packet(0x30, b"\0\x01\xFF\0"), MALFORMED);
}

#[test]
fn wildcards_in_a_topic_name_are_accepted() {
    accepted_by_4_only(&packet(0x30, b"\0\x01#"), ReasonCode::TOPIC_NAME_INVALID);
    accepted_by_5_only(&packet(0x30, b"\0\x01#\0"), ReasonCode::TOPIC_NAME_INVALID);
}

#[test]
fn an_empty_topic_without_an_alias_is_accepted() {
    accepted_by_4_only(&packet(0x30, b"\0\0"), PROTOCOL);
    accepted_by_5_only(&packet(0x30, b"\0\0\0"), PROTOCOL);
}

#[test]
fn topic_alias_0_is_accepted() {
    accepted_by_5_only(&packet(0x30, b"\0\x01t\x03\x23\0\0"), ReasonCode::TOPIC_ALIAS_INVALID);
}

#[test]
fn reserved_flags_of_the_first_byte_are_accepted() {
    accepted_by_4_only(&packet(0x80, b"\0\x01\0\x01a\0"), MALFORMED);
    accepted_by_5_only(&packet(0x8F, b"\0\x01\0\0\x01a\0"), MALFORMED);
    accepted_by_5_only(&[0xCF, 0], MALFORMED);
}

#[test]
fn dup_with_qos_0_is_accepted() {
    accepted_by_4_only(&packet(0x38, b"\0\x01t"), MALFORMED);
    accepted_by_5_only(&packet(0x38, b"\0\x01t\0"), MALFORMED);
}

#[test]
fn the_reserved_flag_of_connect_is_accepted() {
    accepted_by_4_only(&connect(4, 0x03, b"\0\x01c"), MALFORMED);
    accepted_by_5_only(&connect(5, 0x03, b"\0\0\x01c"), MALFORMED);
}

#[test]
fn a_password_without_a_user_name_is_accepted_in_3_1_1() {
    accepted_by_4_only(&connect(4, 0x42, b"\0\x01c\0\x01p"), MALFORMED);
}

#[test]
fn bytes_after_the_end_are_accepted() {
    accepted_by_4_only(&connect(4, 0x02, b"\0\x01cgarbage"), MALFORMED);
    accepted_by_5_only(&connect(5, 0x02, b"\0\0\x01cgarbage"), MALFORMED);
    accepted_by_4_only(&packet(0x40, b"\0\x01garbage"), MALFORMED);
    accepted_by_4_only(&packet(0xE0, b"garbage"), MALFORMED);
    accepted_by_5_only(&packet(0xC0, b"garbage"), MALFORMED);
}

#[test]
fn a_property_that_stands_twice_is_accepted() {
    accepted_by_5_only(&connect(5, 0x02, b"\x06\x21\0\x01\x21\0\x02\0\x01c"), PROTOCOL);
    accepted_by_5_only(&packet(0x82, b"\0\x01\x04\x0B\x01\x0B\x02\0\x01a\0"), PROTOCOL);
}

#[test]
fn properties_past_their_own_length_are_accepted() {
    accepted_by_5_only(&packet(0x30, b"\0\x01t\x01\x01\x01"), MALFORMED);
}

#[test]
fn integers_longer_than_needed_are_accepted() {
    accepted_by_5_only(&packet(0x30, b"\0\x01t\x80\0"), MALFORMED);
}

#[test]
fn values_out_of_range_are_accepted() {
    accepted_by_5_only(&connect(5, 0x02, b"\x03\x21\0\0\0\x01c"), PROTOCOL);
    accepted_by_5_only(&connect(5, 0x02, b"\x05\x27\0\0\0\0\0\x01c"), PROTOCOL);
    accepted_by_5_only(&connect(5, 0x02, b"\x02\x17\x07\0\x01c"), PROTOCOL);
    accepted_by_5_only(&packet(0x30, b"\0\x01t\x02\x01\x02"), PROTOCOL);
    accepted_by_5_only(&packet(0x82, b"\0\x01\x02\x0B\0\0\x01a\0"), PROTOCOL);
}

#[test]
fn authentication_data_without_a_method_is_accepted() {
    accepted_by_5_only(&connect(5, 0x02, b"\x04\x16\0\x01d\0\x01c"), PROTOCOL);
}

#[test]
fn packet_identifier_0_is_accepted() {
    accepted_by_4_only(&packet(0x82, b"\0\0\0\x01a\0"), PROTOCOL);
    accepted_by_5_only(&packet(0x82, b"\0\0\0\0\x01a\0"), PROTOCOL);
    accepted_by_4_only(&packet(0x40, b"\0\0"), PROTOCOL);
}

#[test]
fn reserved_subscription_options_are_accepted() {
    accepted_by_4_only(&packet(0x82, b"\0\x01\0\x01a\xFC"), MALFORMED);
    accepted_by_5_only(&packet(0x82, b"\0\x01\0\0\x01a\xC0"), MALFORMED);
}

#[test]
fn no_local_on_a_shared_subscription_is_accepted() {
    accepted_by_5_only(&packet(0x82, b"\0\x01\0\0\x0A$share/g/a\x04"), PROTOCOL);
}

#[test]
fn unsubscribe_without_a_filter_is_accepted() {
    accepted_by_5_only(&packet(0xA2, b"\0\x01\0"), PROTOCOL);
}

#[test]
fn packets_of_a_server_are_accepted() {
    accepted_by_5_only(&[0xD0, 0], PROTOCOL);
    accepted_by_5_only(&packet(0x20, &[0, 0, 0]), PROTOCOL);
}

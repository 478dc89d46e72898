//! What MQTT 5 adds to CONNECT and CONNACK.

use crate::common::client::End;
use crate::common::decode::Packet;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::{PATIENCE, unique};
use crate::{client, server};

/// The server says 0x81 or 0x82 in CONNACK, or just closes.
fn expect_refused(connect: &Connect) {
    let mut client = server().open(V5);
    client.send(connect);
    match client.recv_within(PATIENCE) {
        Ok(Packet::Connack(connack)) => {
            assert!(matches!(connack.code, 0x81 | 0x82), "CONNACK 0x{:02x} for {connect:?}", connack.code);
            client.expect_end();
        }
        other => assert_eq!(other, Err(End::Closed), "for {connect:?}"),
    }
}

fn connect() -> Connect {
    Connect::v5(&unique("p"))
}

/// Sections 3.1.2.11.2 to 3.1.2.11.10, [MQTT-4.13.1-1]: properties that are protocol errors in CONNECT.
/// Mosquitto accepts data without a method.
#[test]
fn bad_values_are_protocol_errors() {
    let bad: [&[(u8, Value)]; 9] = [
        &[short(RECEIVE_MAXIMUM, 0)],
        &[int(MAXIMUM_PACKET_SIZE, 0)],
        &[byte(REQUEST_PROBLEM_INFORMATION, 2)],
        &[byte(REQUEST_RESPONSE_INFORMATION, 2)],
        &[bytes(AUTHENTICATION_DATA, b"data without method")],
        &[int(SESSION_EXPIRY, 1), int(SESSION_EXPIRY, 1)],
        &[short(RECEIVE_MAXIMUM, 5), short(RECEIVE_MAXIMUM, 5)],
        &[int(MAXIMUM_PACKET_SIZE, 500), int(MAXIMUM_PACKET_SIZE, 500)],
        &[short(TOPIC_ALIAS_MAXIMUM, 1), short(TOPIC_ALIAS_MAXIMUM, 1)],
    ];
    for properties in bad {
        expect_refused(&Connect { properties: properties.to_vec(), ..connect() });
    }
}

/// Section 2.2.2.2: properties that do not belong into CONNECT, or do not exist.
#[test]
fn foreign_properties_are_malformed() {
    let bad = [
        short(TOPIC_ALIAS, 1),
        short(SERVER_KEEP_ALIVE, 10),
        text(ASSIGNED_CLIENT_ID, "me"),
        byte(PAYLOAD_FORMAT, 0),
        subscription_id(1),
        byte(MAXIMUM_QOS, 1),
        byte(0x2B, 1),
        byte(0x00, 1),
    ];
    for property in bad {
        expect_refused(&connect().with(property));
    }
}

/// Section 3.1.3.2: the same for the properties of a will. Mosquitto accepts a payload format of 2.
#[test]
fn bad_will_properties() {
    let bad = [byte(PAYLOAD_FORMAT, 2), int(SESSION_EXPIRY, 1), short(TOPIC_ALIAS, 1), subscription_id(1)];
    for property in bad {
        expect_refused(&connect().will(Will::new("will", "x").with(property)));
    }
}

/// Sections 3.2.2.3.3 and 3.2.2.3.6: the limits are told, so that clients can keep them.
#[test]
fn connack_tells_the_limits() {
    let client = client(V5);
    let properties = &client.connack.properties;
    assert!(properties.number(RECEIVE_MAXIMUM).is_some_and(|max| max > 0), "{properties:?}");
    assert!(properties.number(MAXIMUM_PACKET_SIZE).is_some_and(|max| max >= 65_536), "{properties:?}");
    assert!(properties.number(TOPIC_ALIAS_MAXIMUM).is_some_and(|max| max > 0), "{properties:?}");
}

/// Section 3.2.2.3: nothing is declared missing, because everything is served.
#[test]
fn connack_withholds_no_feature() {
    let client = client(V5);
    let properties = &client.connack.properties;
    assert!(properties.find(MAXIMUM_QOS).is_none(), "Maximum QoS is sent only when it is 0 or 1");
    let features = [
        RETAIN_AVAILABLE,
        WILDCARD_SUBSCRIPTION_AVAILABLE,
        SUBSCRIPTION_IDS_AVAILABLE,
        SHARED_SUBSCRIPTION_AVAILABLE,
    ];
    for feature in features {
        assert_ne!(properties.number(feature), Some(0), "feature 0x{feature:02x}");
    }
}

/// [MQTT-3.1.2-28] No Response Information unless it was asked for.
#[test]
fn no_unwanted_response_information() {
    let client = server().connect(&connect().with(byte(REQUEST_RESPONSE_INFORMATION, 0)));
    assert!(client.connack.properties.find(RESPONSE_INFORMATION).is_none());
}

/// Sections 3.1.2.11.6 and 3.1.2.11.8: the other properties of CONNECT are accepted.
#[test]
fn all_connect_properties_together() {
    let all = connect()
        .with(int(SESSION_EXPIRY, 10))
        .with(short(RECEIVE_MAXIMUM, 10))
        .with(int(MAXIMUM_PACKET_SIZE, 100_000))
        .with(short(TOPIC_ALIAS_MAXIMUM, 10))
        .with(byte(REQUEST_RESPONSE_INFORMATION, 1))
        .with(byte(REQUEST_PROBLEM_INFORMATION, 1))
        .with(user("a", "1"))
        .with(user("a", "2"));
    server().connect(&all).ping();
}

/// [MQTT-4.12.0-1], [MQTT-3.2.2-7] An authentication method that the server does not know.
#[test]
fn unknown_authentication_method() {
    let connect = connect().with(text(AUTHENTICATION_METHOD, "no-such-method"));
    let mut client = server().attempt(&connect.with(bytes(AUTHENTICATION_DATA, b"?")));
    assert_eq!(client.connack.code, 0x8C);
    client.expect_end();
}

/// [MQTT-4.12.0-7] AUTH from a client that named no method is a protocol error.
#[test]
fn auth_without_method() {
    let mut client = client(V5);
    let mut body = vec![0x19];
    properties(&mut body, V5, &vec![text(AUTHENTICATION_METHOD, "no-such-method")]);
    client.send(&frame(0xF0, &body));
    client.expect_closed(&[0x82, 0x8C]);
}

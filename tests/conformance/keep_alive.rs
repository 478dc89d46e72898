//! Keep-alive and ping.

use std::time::Duration;

use crate::common::client::End;
use crate::common::decode::Packet;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

both_versions!(
    ping_is_answered,
    silent_client_is_closed,
    packets_of_any_kind_keep_alive,
    zero_turns_it_off,
    half_a_packet_is_silence,
);

/// [MQTT-3.12.4-1] PINGREQ is answered by PINGRESP.
fn ping_is_answered(version: Version) {
    let mut client = client(version);
    for _ in 0..3 {
        client.send(&PINGREQ);
        assert_eq!(client.recv(), Packet::Pingresp);
    }
}

/// [MQTT-3.1.2-24] / [MQTT-3.1.2-22] Nothing for one and a half times the keep-alive: closed.
fn silent_client_is_closed(version: Version) {
    let mut client = server().connect(&Connect::new(version, &unique("mute")).keep_alive(1));
    client.expect_closed(&[0x8D]);
}

/// [MQTT-3.1.2-24] / [MQTT-3.1.2-22] Any packet counts, not only PINGREQ.
fn packets_of_any_kind_keep_alive(version: Version) {
    let mut client = server().connect(&Connect::new(version, &unique("talk")).keep_alive(2));
    for round in 0..5 {
        assert_eq!(client.recv_within(Duration::from_millis(900)), Err(End::Timeout), "round {round}");
        client.send(&Publish::new("keep/alive", "x"));
    }
    client.ping();
}

/// Section 3.1.2.10: keep-alive 0 turns it off (or the server's limit applies, in 5.0). While this one is
/// silent, another one times out.
fn zero_turns_it_off(version: Version) {
    let mut quiet = server().connect(&Connect::new(version, &unique("quiet")).keep_alive(0));
    let mut other = server().connect(&Connect::new(version, &unique("other")).keep_alive(1));
    other.expect_closed(&[0x8D]);
    quiet.ping();
}

/// [MQTT-3.1.2-24] / [MQTT-3.1.2-22] Bytes that never become a packet do not keep a connection.
fn half_a_packet_is_silence(version: Version) {
    let mut client = server().connect(&Connect::new(version, &unique("half")).keep_alive(1));
    client.send(&[0x30, 100, 0, 4]);
    client.expect_closed(&[0x8D]);
}

/// [MQTT-3.2.2-21], [MQTT-3.1.2-21] The server's limit (60 by default) is told to a client that asks for more.
#[test]
fn server_keep_alive() {
    let client = server().connect(&Connect::v5(&unique("long")).keep_alive(120));
    assert_eq!(client.connack.properties.number(SERVER_KEEP_ALIVE), Some(60));
}

/// [MQTT-3.2.2-21] The limit holds for a client that asks for no keep-alive at all, too.
#[test]
fn server_keep_alive_instead_of_none() {
    let client = server().connect(&Connect::v5(&unique("none")).keep_alive(0));
    assert_eq!(client.connack.properties.number(SERVER_KEEP_ALIVE), Some(60));
}

/// [MQTT-3.2.2-22] A keep-alive within the limit is used as it is.
#[test]
fn no_server_keep_alive_within_the_limit() {
    let client = server().connect(&Connect::v5(&unique("short")).keep_alive(30));
    assert!(matches!(client.connack.properties.number(SERVER_KEEP_ALIVE), None | Some(30)));
}

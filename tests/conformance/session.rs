//! Sessions: how long they last and what they keep.

use crate::common::client::Client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

both_versions!(
    no_session_at_first,
    session_is_kept,
    clean_connect_discards,
    clean_session_ends_with_its_connection,
    subscriptions_and_messages_are_kept,
    offline_messages_keep_order_and_qos,
    take_over,
    take_over_of_a_kept_session,
    a_kept_session_is_not_shared,
    unsubscribe_is_kept,
);

/// [MQTT-3.2.2-3] Nothing to take up.
fn no_session_at_first(version: Version) {
    let client = server().connect(&Connect::persistent(version, &unique("fresh")));
    assert!(!client.connack.session_present);
}

/// [MQTT-3.1.2-4] / [MQTT-3.1.2-5], [MQTT-3.2.2-2] / [MQTT-3.2.2-3] The session is there again, however the
/// connection ended.
fn session_is_kept(version: Version) {
    let connect = Connect::persistent(version, &unique("kept"));
    server().connect(&connect).disconnect();
    let second = server().connect(&connect);
    assert!(second.connack.session_present, "after DISCONNECT");
    second.vanish();
    assert!(server().connect(&connect).connack.session_present, "after a broken connection");
}

/// [MQTT-3.1.2-6] / [MQTT-3.1.2-4], [MQTT-3.2.2-1] / [MQTT-3.2.2-2] Clean: the old session is gone.
fn clean_connect_discards(version: Version) {
    let (topic, connect) = (unique("clean/"), Connect::persistent(version, &unique("wiped")));
    let mut first = server().connect(&connect);
    first.subscribe(&topic, 1);
    first.disconnect();
    client(version).publish(Publish::new(&topic, "waiting").qos(1));
    let mut second = server().connect(&Connect { clean: true, ..connect });
    assert!(!second.connack.session_present);
    client(version).publish(Publish::new(&topic, "later").qos(1));
    second.expect_nothing();
}

/// [MQTT-3.1.2-6] / [MQTT-3.1.2-23] A clean session of 3.1.1, or an expiry of 0 in 5.0, leaves nothing.
fn clean_session_ends_with_its_connection(version: Version) {
    let (topic, id) = (unique("clean/"), unique("brief"));
    let mut first = server().connect(&Connect::new(version, &id));
    first.subscribe(&topic, 1);
    first.disconnect();
    let mut second = server().connect(&Connect::new(version, &id).resume());
    assert!(!second.connack.session_present);
    client(version).publish(Publish::new(&topic, "x").qos(1));
    second.expect_nothing();
}

/// [MQTT-3.1.2-5], [MQTT-4.5.0-1] / [MQTT-3.1.2-23] What arrives while the client is away waits for it.
fn subscriptions_and_messages_are_kept(version: Version) {
    let (topic, connect) = (unique("away/"), Connect::persistent(version, &unique("away")));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&topic, 2);
    subscriber.disconnect();
    let mut publisher = client(version);
    publisher.publish(Publish::new(&topic, "1").qos(1));
    publisher.publish(Publish::new(&topic, "2").qos(2));
    let mut subscriber = server().connect(&connect);
    assert_eq!(subscriber.receive_texts(2), ["1", "2"]);
    publisher.publish(Publish::new(&topic, "3").qos(1));
    assert_eq!(subscriber.receive().text(), "3");
}

/// [MQTT-4.6.0-6] / [MQTT-4.6.0-5] In order, at the QoS that was granted, first delivery without DUP.
fn offline_messages_keep_order_and_qos(version: Version) {
    let (topic, connect) = (unique("away/"), Connect::persistent(version, &unique("away")));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&topic, 1);
    subscriber.vanish();
    let mut publisher = client(version);
    for n in 0..50 {
        publisher.publish(Publish::new(&topic, n.to_string()).qos(1 + n % 2));
    }
    let mut subscriber = server().connect(&connect);
    for n in 0..50 {
        let publish = subscriber.receive();
        assert_eq!((publish.text(), publish.qos, publish.dup), (n.to_string().as_str(), 1, false));
    }
    subscriber.expect_silence();
}

/// [MQTT-3.1.4-2] / [MQTT-3.1.4-3] The same identifier again: the old connection ends (0x8E), the new works.
fn take_over(version: Version) {
    let id = unique("twin");
    let mut old = server().connect(&Connect::new(version, &id));
    let mut new = server().connect(&Connect::new(version, &id));
    old.expect_closed(&[0x8E]);
    new.ping();
}

/// [MQTT-3.1.4-2] / [MQTT-3.1.4-3], [MQTT-4.4.0-1] A kept session moves to the new connection, with what was
/// in flight.
fn take_over_of_a_kept_session(version: Version) {
    let (topic, connect) = (unique("move/"), Connect::persistent(version, &unique("twin")));
    let mut old = server().connect(&connect);
    old.subscribe(&topic, 1);
    client(version).publish(Publish::new(&topic, "moved").qos(1));
    old.expect_publish();
    let mut new = server().connect(&connect);
    assert!(new.connack.session_present);
    old.expect_closed(&[0x8E]);
    let publish = new.receive();
    assert_eq!((publish.text(), publish.dup), ("moved", true));
    new.expect_silence();
}

/// [MQTT-3.1.3-2] The identifier names the session: another identifier sees nothing of it.
fn a_kept_session_is_not_shared(version: Version) {
    let (topic, id) = (unique("own/"), unique("Owner"));
    let mut owner = server().connect(&Connect::persistent(version, &id));
    owner.subscribe(&topic, 1);
    owner.disconnect();
    let mut other = server().connect(&Connect::persistent(version, &id.to_lowercase()));
    assert!(!other.connack.session_present);
    client(version).publish(Publish::new(&topic, "x").qos(1));
    other.expect_nothing();
}

/// [MQTT-3.10.4-2] A subscription that was ended stays so.
fn unsubscribe_is_kept(version: Version) {
    let (topic, connect) = (unique("end/"), Connect::persistent(version, &unique("ended")));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&topic, 1);
    subscriber.unsubscribe(&[&topic]);
    subscriber.disconnect();
    client(version).publish(Publish::new(&topic, "x").qos(1));
    server().connect(&connect).expect_nothing();
}

/// A session of MQTT 5 that ends `seconds` after its connection.
fn expiring(id: &str, seconds: u32) -> Connect {
    Connect::v5(id).resume().with(int(SESSION_EXPIRY, seconds))
}

/// Waits until a session has expired that ended later than everything before this call, and lasted `seconds`.
///
/// A will whose delay is longer than the session is published when the session ends: that is the event.
fn let_a_session_expire(seconds: u32) {
    let topic = unique("expired/");
    let mut watcher = client(V5);
    watcher.subscribe(&topic, 1);
    let will = Will::new(&topic, "expired").with(int(WILL_DELAY, 600));
    server().connect(&expiring(&unique("clock"), seconds).will(will)).vanish();
    assert_eq!(watcher.receive().text(), "expired");
}

/// [MQTT-4.1.0-2], [MQTT-3.1.2-23] After the Session Expiry Interval the session is gone, not before.
#[test]
fn session_expires() {
    let (short, long) = (unique("short"), unique("long"));
    server().connect(&expiring(&short, 1)).disconnect();
    server().connect(&expiring(&long, 600)).disconnect();
    let_a_session_expire(2);
    assert!(!server().connect(&expiring(&short, 1)).connack.session_present);
    assert!(server().connect(&expiring(&long, 600)).connack.session_present);
}

/// [MQTT-4.1.0-1] A session does not expire while its client is connected.
#[test]
fn session_does_not_expire_while_connected() {
    let (topic, id) = (unique("live/"), unique("live"));
    let mut subscriber = server().connect(&expiring(&id, 1));
    subscriber.subscribe(&topic, 1);
    let_a_session_expire(2);
    client(V5).publish(Publish::new(&topic, "still here").qos(1));
    assert_eq!(subscriber.receive().text(), "still here");
}

/// Section 3.1.2.11.2: 0xFFFFFFFF never expires.
#[test]
fn session_that_never_expires() {
    let id = unique("eternal");
    server().connect(&expiring(&id, u32::MAX)).disconnect();
    let second = server().connect(&expiring(&id, 0));
    assert!(second.connack.session_present);
    second.disconnect();
    assert!(!server().connect(&expiring(&id, 0)).connack.session_present);
}

fn leave_with_expiry(client: Client, seconds: u32) {
    client.disconnect_with(&Disconnect::default().with(int(SESSION_EXPIRY, seconds)));
}

/// Section 3.14.2.2.2: DISCONNECT may end the session at once.
#[test]
fn expiry_lowered_at_disconnect() {
    let id = unique("lower");
    leave_with_expiry(server().connect(&expiring(&id, 600)), 0);
    assert!(!server().connect(&expiring(&id, 600)).connack.session_present);
}

/// Section 3.14.2.2.2: DISCONNECT may make the session last longer.
#[test]
fn expiry_raised_at_disconnect() {
    let id = unique("raise");
    leave_with_expiry(server().connect(&expiring(&id, 1)), 600);
    let_a_session_expire(2);
    assert!(server().connect(&expiring(&id, 1)).connack.session_present);
}

/// Section 3.14.2.2.2: a session that was to end with its connection cannot be kept at DISCONNECT.
#[test]
fn expiry_raised_from_zero() {
    let mut client = client(V5);
    client.send(&Disconnect::default().with(int(SESSION_EXPIRY, 10)));
    client.expect_closed(&[0x82]);
}

/// [MQTT-3.1.3-7], [MQTT-3.2.2-16] The assigned identifier names a session like any other.
#[test]
fn assigned_identifier_takes_up_its_session() {
    let client = server().connect(&expiring("", 600));
    let id = client.connack.properties.text(ASSIGNED_CLIENT_ID).expect("an identifier").to_owned();
    client.disconnect();
    assert!(server().connect(&expiring(&id, 600)).connack.session_present);
}

/// [MQTT-3.1.2-4] Clean Start discards what was there, and the new session may be kept.
#[test]
fn clean_start_begins_a_session_that_is_kept() {
    let id = unique("restart");
    server().connect(&expiring(&id, 600)).disconnect();
    let second = server().connect(&Connect { clean: true, ..expiring(&id, 600) });
    assert!(!second.connack.session_present);
    second.disconnect();
    assert!(server().connect(&expiring(&id, 600)).connack.session_present);
}

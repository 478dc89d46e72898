//! Wills: published when a client goes without saying good-bye.

use crate::common::client::Client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

both_versions!(
    broken_connection_publishes_it,
    disconnect_discards_it,
    no_will_no_message,
    not_retained_unless_asked,
    retained_will,
    empty_will_message,
    protocol_error_publishes_it,
    keep_alive_timeout_publishes_it,
    take_over_publishes_it,
    published_once,
    the_next_connection_has_its_own,
    wildcard_in_will_topic,
    will_waits_for_absent_subscriber,
);

/// Somebody who listens on the topic of a will.
fn watcher(version: Version) -> (Client, String) {
    let (mut watcher, topic) = (client(version), unique("will/"));
    watcher.subscribe(&topic, 2);
    (watcher, topic)
}

fn with_will(version: Version, will: Will) -> Client {
    server().connect(&Connect::new(version, &unique("mortal")).will(will))
}

/// [MQTT-3.1.2-8] / [MQTT-3.1.2-7], [MQTT-3.1.2-8], [MQTT-3.1.2-9] Published when the connection breaks, at
/// the will's QoS.
fn broken_connection_publishes_it(version: Version) {
    for qos in 0..=2 {
        let (mut watcher, topic) = watcher(version);
        with_will(version, Will::new(&topic, "gone").qos(qos)).vanish();
        let publish = watcher.receive();
        assert_eq!((publish.text(), publish.qos, publish.retain), ("gone", qos, false));
    }
}

/// [MQTT-3.1.2-10], [MQTT-3.14.4-3] DISCONNECT discards it.
fn disconnect_discards_it(version: Version) {
    let (mut watcher, topic) = watcher(version);
    with_will(version, Will::new(&topic, "must not come").qos(1)).disconnect();
    watcher.expect_nothing();
}

/// [MQTT-3.1.2-12] Without a will nothing is published.
fn no_will_no_message(version: Version) {
    let (mut watcher, topic) = watcher(version);
    let mut silent = client(version);
    silent.publish(Publish::new(&topic, "alive").qos(1));
    silent.vanish();
    assert_eq!(watcher.receive().text(), "alive");
    watcher.expect_nothing();
}

/// [MQTT-3.1.2-16] / [MQTT-3.1.2-14] Will Retain 0: nothing is stored.
fn not_retained_unless_asked(version: Version) {
    let (mut watcher, topic) = watcher(version);
    with_will(version, Will::new(&topic, "gone").qos(1)).vanish();
    watcher.receive();
    let mut late = client(version);
    late.subscribe(&topic, 1);
    late.expect_nothing();
}

/// [MQTT-3.1.2-17] / [MQTT-3.1.2-15] Will Retain 1: it is a retained message.
fn retained_will(version: Version) {
    let (mut watcher, topic) = watcher(version);
    with_will(version, Will::new(&topic, "gone").qos(1).retain()).vanish();
    assert!(!watcher.receive().retain, "for those who listened already");
    let mut late = client(version);
    late.subscribe(&topic, 1);
    let publish = late.receive();
    assert_eq!((publish.text(), publish.retain), ("gone", true));
}

/// Section 3.1.3.3: a will of no bytes is a message.
fn empty_will_message(version: Version) {
    let (mut watcher, topic) = watcher(version);
    with_will(version, Will::new(&topic, "").qos(1)).vanish();
    assert!(watcher.receive().payload.is_empty());
}

/// [MQTT-3.1.2-8] The server closing because of a protocol error publishes it too.
fn protocol_error_publishes_it(version: Version) {
    let (mut watcher, topic) = watcher(version);
    let mut client = with_will(version, Will::new(&topic, "thrown out").qos(1));
    client.send(&Publish::new("bad", "x").qos(3).id(1));
    client.expect_end();
    assert_eq!(watcher.receive().text(), "thrown out");
}

/// [MQTT-3.1.2-8], [MQTT-3.1.2-24] / [MQTT-3.1.2-22] So does a keep-alive that ran out.
fn keep_alive_timeout_publishes_it(version: Version) {
    let (mut watcher, topic) = watcher(version);
    let connect = Connect::new(version, &unique("mortal")).will(Will::new(&topic, "silent").qos(1));
    let _silent = server().connect(&connect.keep_alive(1));
    assert_eq!(watcher.receive().text(), "silent");
}

/// Section 3.1.4 / 3.1.3.2.2: so does a take-over, when the will has no delay.
fn take_over_publishes_it(version: Version) {
    let (mut watcher, topic) = watcher(version);
    let mut old = with_will(version, Will::new(&topic, "taken over").qos(1));
    let _new = server().connect(&Connect::new(version, &old.id));
    old.expect_end();
    assert_eq!(watcher.receive().text(), "taken over");
}

/// [MQTT-3.1.2-10] Once published it is gone from the session.
fn published_once(version: Version) {
    let (mut watcher, topic) = watcher(version);
    let connect = Connect::persistent(version, &unique("mortal"));
    server().connect(&connect.clone().will(Will::new(&topic, "once").qos(1))).vanish();
    assert_eq!(watcher.receive().text(), "once");
    server().connect(&connect).vanish();
    watcher.expect_nothing();
}

/// [MQTT-3.1.2-8] / [MQTT-3.1.2-7] The will is that of the last CONNECT.
fn the_next_connection_has_its_own(version: Version) {
    let (mut watcher, topic) = watcher(version);
    let connect = Connect::persistent(version, &unique("mortal"));
    server().connect(&connect.clone().will(Will::new(&topic, "first").qos(1))).disconnect();
    server().connect(&connect.will(Will::new(&topic, "second").qos(1))).vanish();
    assert_eq!(watcher.receive().text(), "second");
    watcher.expect_nothing();
}

/// [MQTT-4.7.1-1] / [MQTT-4.7.0-1], [MQTT-3.1.3-10] / [MQTT-3.1.3-11] A will's topic is a topic name.
fn wildcard_in_will_topic(version: Version) {
    for topic in ["will/+", "will/#", "#"] {
        let mut client = server().open(version);
        client.send(&Connect::new(version, &unique("mortal")).will(Will::new(topic, "x")));
        match client.recv_within(crate::common::PATIENCE) {
            Ok(crate::common::decode::Packet::Connack(connack)) => {
                assert!(connack.code != 0, "accepted will topic {topic}");
                client.expect_end();
            }
            other => assert_eq!(other, Err(crate::common::client::End::Closed)),
        }
    }
}

/// [MQTT-4.5.0-1] A will is a message like others: it waits for a session that is away.
fn will_waits_for_absent_subscriber(version: Version) {
    let (topic, connect) = (unique("will/"), Connect::persistent(version, &unique("away")));
    let mut absent = server().connect(&connect);
    absent.subscribe(&topic, 1);
    absent.disconnect();
    let mut present = client(version);
    present.subscribe(&topic, 1);
    with_will(version, Will::new(&topic, "gone").qos(1)).vanish();
    present.receive();
    assert_eq!(server().connect(&connect).receive().text(), "gone");
}

/// Section 3.14.2.1: reason 0x04 asks for the will.
#[test]
fn disconnect_with_will() {
    let (mut watcher, topic) = watcher(V5);
    let client = with_will(V5, Will::new(&topic, "as you wish").qos(1));
    client.disconnect_with(&Disconnect::code(0x04));
    assert_eq!(watcher.receive().text(), "as you wish");
}

/// [MQTT-3.1.2-8] Any reason but 0x00 keeps the will. Mosquitto drops the will.
#[test]
fn disconnect_with_an_error() {
    let (mut watcher, topic) = watcher(V5);
    let client = with_will(V5, Will::new(&topic, "failed").qos(1));
    client.disconnect_with(&Disconnect::code(0x80));
    assert_eq!(watcher.receive().text(), "failed");
}

/// [MQTT-3.1.3-10], section 3.1.3.2: the properties of the will are those of its message, in order.
#[test]
fn properties_of_the_will() {
    let (mut watcher, topic) = watcher(V5);
    let will = Will::new(&topic, "gone")
        .qos(1)
        .with(byte(PAYLOAD_FORMAT, 1))
        .with(int(MESSAGE_EXPIRY, 500))
        .with(text(CONTENT_TYPE, "text/plain"))
        .with(text(RESPONSE_TOPIC, "answer/here"))
        .with(bytes(CORRELATION_DATA, &[0, 255, 7]))
        .with(user("b", "1"))
        .with(user("a", "2"))
        .with(user("b", "1"));
    with_will(V5, will).vanish();
    let properties = watcher.receive().properties;
    assert_eq!(properties.number(PAYLOAD_FORMAT), Some(1));
    assert!(properties.number(MESSAGE_EXPIRY).is_some_and(|left| left <= 500 && left > 400));
    assert_eq!(properties.text(CONTENT_TYPE), Some("text/plain"));
    assert_eq!(properties.text(RESPONSE_TOPIC), Some("answer/here"));
    assert_eq!(properties.find(CORRELATION_DATA), Some(&Value::Bytes(vec![0, 255, 7])));
    assert_eq!(properties.users(), [("b", "1"), ("a", "2"), ("b", "1")]);
    assert!(properties.find(WILL_DELAY).is_none());
}

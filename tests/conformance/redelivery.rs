//! What a session owes after its connection broke.

use crate::common::client::Client;
use crate::common::decode::Packet;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::unique;
use crate::{client, server};

both_versions!(
    unacknowledged_is_sent_again,
    acknowledged_is_not_sent_again,
    pubrel_is_sent_again,
    publish_without_pubrec_is_sent_again,
    order_survives,
    qos2_of_the_publisher_survives,
    pubrel_of_the_publisher_after_reconnect,
    in_flight_goes_first,
    no_resend_while_connected,
);

/// A persistent subscriber of a new topic, and the topic.
fn subscriber(version: Version, qos: u8) -> (Client, String) {
    let (topic, id) = (unique("redeliver/"), unique("keeper"));
    let mut subscriber = server().connect(&Connect::persistent(version, &id));
    subscriber.subscribe(&topic, qos);
    (subscriber, topic)
}

/// Breaks the connection and takes the session up again.
fn reconnect(old: Client) -> Client {
    let connect = Connect::persistent(old.version, &old.id);
    old.vanish();
    let new = server().connect(&connect);
    assert!(new.connack.session_present, "the session must be kept");
    new
}

/// [MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-2.3.1-3] The same message, the same identifier, DUP set.
fn unacknowledged_is_sent_again(version: Version) {
    for qos in [1, 2] {
        let (mut subscriber, topic) = subscriber(version, qos);
        client(version).publish(Publish::new(&topic, "keep").qos(qos));
        let first = subscriber.expect_publish();
        let mut subscriber = reconnect(subscriber);
        let second = subscriber.expect_publish();
        assert_eq!(second, Publish { dup: true, ..first });
        subscriber.acknowledge(&second);
        reconnect(subscriber).expect_silence();
    }
}

/// [MQTT-4.3.2-1] / [MQTT-4.3.2-3] PUBACK ends it.
fn acknowledged_is_not_sent_again(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 1);
    let mut publisher = client(version);
    publisher.publish(Publish::new(&topic, "1").qos(1));
    publisher.publish(Publish::new(&topic, "2").qos(1));
    assert_eq!(subscriber.receive().text(), "1");
    assert_eq!(subscriber.expect_publish().text(), "2");
    subscriber.ping();
    let mut subscriber = reconnect(subscriber);
    assert_eq!(subscriber.receive().text(), "2");
    subscriber.expect_silence();
}

/// [MQTT-4.4.0-1], [MQTT-4.3.3-1] / [MQTT-4.3.3-5], [MQTT-4.3.3-6] After PUBREC it is PUBREL that is sent
/// again, never PUBLISH.
fn pubrel_is_sent_again(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 2);
    client(version).publish(Publish::new(&topic, "x").qos(2));
    let publish = subscriber.expect_publish();
    subscriber.send(&Ack::new(Kind::Pubrec, publish.id));
    subscriber.expect_ack(Kind::Pubrel, publish.id);
    let mut subscriber = reconnect(subscriber);
    match subscriber.recv() {
        Packet::Ack(ack) => assert_eq!((ack.kind, ack.id), (Kind::Pubrel, publish.id)),
        other => panic!("expected PUBREL, got {other:?}"),
    }
    subscriber.send(&Ack::new(Kind::Pubcomp, publish.id));
    subscriber.expect_silence();
    reconnect(subscriber).expect_silence();
}

/// [MQTT-4.4.0-1] Without PUBREC it is PUBLISH, and the flow goes to its end.
fn publish_without_pubrec_is_sent_again(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 2);
    client(version).publish(Publish::new(&topic, "x").qos(2));
    subscriber.expect_publish();
    let mut subscriber = reconnect(reconnect(subscriber));
    assert!(subscriber.receive().dup);
    subscriber.expect_silence();
}

/// [MQTT-4.6.0-1], [MQTT-4.6.0-6] / [MQTT-4.6.0-5] What is sent again comes in its first order.
fn order_survives(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 2);
    let mut publisher = client(version);
    for n in 0..10 {
        publisher.publish(Publish::new(&topic, n.to_string()).qos(1 + n % 2));
    }
    for _ in 0..10 {
        subscriber.expect_publish();
    }
    let mut subscriber = reconnect(subscriber);
    let texts: Vec<String> = (0..10).map(|_| subscriber.expect_publish().text().to_owned()).collect();
    assert_eq!(texts, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

/// [MQTT-4.3.3-2] / [MQTT-4.3.3-10], [MQTT-3.1.2-4] / [MQTT-3.1.2-5] The server remembers QoS 2 identifiers
/// over a broken connection.
fn qos2_of_the_publisher_survives(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 2);
    let mut publisher = server().connect(&Connect::persistent(version, &unique("sender")));
    publisher.send(&Publish::new(&topic, "once").qos(2).id(5));
    publisher.expect_ack(Kind::Pubrec, 5);
    let mut publisher = reconnect(publisher);
    publisher.publish(Publish::new(&topic, "once").qos(2).id(5).dup());
    assert_eq!(subscriber.receive().text(), "once");
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-4.4.0-1], [MQTT-4.3.3-2] / [MQTT-4.3.3-11] PUBREL may come on the next connection.
fn pubrel_of_the_publisher_after_reconnect(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 2);
    let mut publisher = server().connect(&Connect::persistent(version, &unique("sender")));
    publisher.send(&Publish::new(&topic, "once").qos(2).id(6));
    publisher.expect_ack(Kind::Pubrec, 6);
    let mut publisher = reconnect(publisher);
    publisher.send(&Ack::new(Kind::Pubrel, 6));
    assert_eq!(publisher.expect_ack(Kind::Pubcomp, 6).code, 0);
    assert_eq!(subscriber.receive().text(), "once");
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-4.6.0-6] / [MQTT-4.6.0-5] What was in flight comes before what arrived in the meantime.
fn in_flight_goes_first(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 1);
    let mut publisher = client(version);
    publisher.publish(Publish::new(&topic, "1").qos(1));
    subscriber.expect_publish();
    let id = subscriber.id.clone();
    subscriber.vanish();
    publisher.publish(Publish::new(&topic, "2").qos(1));
    let mut subscriber = server().connect(&Connect::persistent(version, &id));
    assert_eq!(subscriber.receive_texts(2), ["1", "2"]);
}

/// [MQTT-4.4.0-1] Messages are sent again only after a new connection (3.1.1 allows more, Tidegate does not).
fn no_resend_while_connected(version: Version) {
    let (mut subscriber, topic) = subscriber(version, 1);
    let mut publisher = client(version);
    publisher.publish(Publish::new(&topic, "1").qos(1));
    assert_eq!(subscriber.expect_publish().text(), "1");
    publisher.publish(Publish::new(&topic, "2").qos(1));
    assert_eq!(subscriber.expect_publish().text(), "2");
    subscriber.expect_silence();
}

/// [MQTT-4.4.0-2] PUBACK or PUBREC with an error ends it as well.
#[test]
fn an_error_is_an_acknowledgement() {
    for (qos, kind) in [(1, Kind::Puback), (2, Kind::Pubrec)] {
        let (mut subscriber, topic) = subscriber(V5, qos);
        client(V5).publish(Publish::new(&topic, "x").qos(qos));
        let publish = subscriber.expect_publish();
        subscriber.send(&Ack::new(kind, publish.id).code(0x83));
        subscriber.expect_silence();
        reconnect(subscriber).expect_silence();
    }
}

//! The delivery protocols of QoS 0, 1 and 2 within one connection.

use crate::client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::unique;

both_versions!(
    lower_of_publish_and_subscription,
    qos2_step_by_step,
    qos2_resent_is_delivered_once,
    qos2_identifier_is_free_after_pubcomp,
    qos1_identifier_is_free_after_puback,
    pubrel_for_unknown_identifier,
    unknown_acknowledgements_are_harmless,
    identifiers_in_flight_differ,
    order_is_kept_at_each_qos,
    acknowledgements_in_any_order,
    many_publishes_in_one_write,
    identifiers_are_per_direction,
);

/// [MQTT-3.8.4-6] / [MQTT-3.8.4-8], [MQTT-3.3.4-1] Every publish QoS against every subscription QoS.
fn lower_of_publish_and_subscription(version: Version) {
    let mut publisher = client(version);
    for granted in 0..=2 {
        let (topic, mut subscriber) = (unique("min/"), client(version));
        subscriber.subscribe(&topic, granted);
        for qos in 0..=2 {
            publisher.publish(Publish::new(&topic, "x").qos(qos));
            assert_eq!(subscriber.receive().qos, qos.min(granted), "{qos} against {granted}");
        }
    }
}

/// [MQTT-4.3.3-1], [MQTT-4.3.3-2] / [MQTT-4.3.3-4], [MQTT-4.3.3-8], [MQTT-4.3.3-11], [MQTT-2.3.1-6] /
/// [MQTT-2.2.1-5] The four packets of QoS 2, in both directions.
fn qos2_step_by_step(version: Version) {
    let topic = unique("steps/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 2);
    publisher.send(&Publish::new(&topic, "x").qos(2).id(77));
    publisher.expect_ack(Kind::Pubrec, 77);
    publisher.send(&Ack::new(Kind::Pubrel, 77));
    assert_eq!(publisher.expect_ack(Kind::Pubcomp, 77).code, 0);
    let publish = subscriber.expect_publish();
    assert_eq!((publish.qos, publish.dup), (2, false));
    subscriber.expect_silence();
    subscriber.send(&Ack::new(Kind::Pubrec, publish.id));
    assert_eq!(subscriber.expect_ack(Kind::Pubrel, publish.id).code, 0);
    subscriber.send(&Ack::new(Kind::Pubcomp, publish.id));
    subscriber.expect_silence();
}

/// [MQTT-4.3.3-2] / [MQTT-4.3.3-10] Until PUBREL, the same identifier is the same message. Mosquitto
/// closes the connection.
fn qos2_resent_is_delivered_once(version: Version) {
    let topic = unique("once/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 2);
    for dup in [false, true, true] {
        publisher.send(&Publish { dup, ..Publish::new(&topic, "once").qos(2).id(9) });
        publisher.expect_ack(Kind::Pubrec, 9);
    }
    publisher.send(&Ack::new(Kind::Pubrel, 9));
    publisher.expect_ack(Kind::Pubcomp, 9);
    assert_eq!(subscriber.receive().text(), "once");
    subscriber.expect_nothing_from(&mut publisher);
}

/// [MQTT-4.3.3-2] / [MQTT-4.3.3-12] After PUBCOMP, the same identifier is a new message.
fn qos2_identifier_is_free_after_pubcomp(version: Version) {
    let topic = unique("again/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 2);
    for text in ["1", "2", "3"] {
        publisher.publish(Publish::new(&topic, text).qos(2).id(9));
    }
    assert_eq!(subscriber.receive_texts(3), ["1", "2", "3"]);
}

/// [MQTT-4.3.2-2] / [MQTT-4.3.2-5] After PUBACK, the same identifier is a new message, even with DUP.
fn qos1_identifier_is_free_after_puback(version: Version) {
    let topic = unique("again/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 1);
    publisher.publish(Publish::new(&topic, "1").qos(1).id(9));
    publisher.publish(Publish::new(&topic, "2").qos(1).id(9).dup());
    assert_eq!(subscriber.receive_texts(2), ["1", "2"]);
}

/// [MQTT-4.3.3-2] / [MQTT-4.3.3-11] PUBREL is always answered; 5.0 says 0x92 when there is no such
/// message. Mosquitto says 0x00.
fn pubrel_for_unknown_identifier(version: Version) {
    let mut client = client(version);
    client.send(&Ack::new(Kind::Pubrel, 4_321));
    let code = client.expect_ack(Kind::Pubcomp, 4_321).code;
    assert_eq!(code, if version == V5 { 0x92 } else { 0 });
}

/// Section 4.3: an acknowledgement of nothing is no reason to lose a connection.
fn unknown_acknowledgements_are_harmless(version: Version) {
    let mut client = client(version);
    for kind in [Kind::Puback, Kind::Pubcomp, Kind::Pubrec] {
        client.send(&Ack::new(kind, 1_234));
    }
    client.ping();
}

/// [MQTT-2.3.1-4] / [MQTT-2.2.1-4] Identifiers in use are not used again.
fn identifiers_in_flight_differ(version: Version) {
    let topic = unique("ids/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 2);
    for n in 0..16 {
        publisher.publish(Publish::new(&topic, "x").qos(1 + n % 2));
    }
    let mut ids: Vec<u16> = (0..16).map(|_| subscriber.expect_publish().id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 16);
}

/// [MQTT-4.6.0-6] / [MQTT-4.6.0-5], [MQTT-4.6.0-6] Order is kept for each topic and QoS.
fn order_is_kept_at_each_qos(version: Version) {
    for qos in 0..=2 {
        let topic = unique("order/");
        let (mut publisher, mut subscriber) = (client(version), client(version));
        subscriber.subscribe(&topic, qos);
        let texts: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        for text in &texts {
            publisher.publish(Publish::new(&topic, text.as_str()).qos(qos));
        }
        assert_eq!(subscriber.receive_texts(50), texts, "QoS {qos}");
    }
}

/// Section 4.3.2: messages in flight may be acknowledged in another order; the connection goes on.
fn acknowledgements_in_any_order(version: Version) {
    let topic = unique("any/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 1);
    for _ in 0..10 {
        publisher.publish(Publish::new(&topic, "x").qos(1));
    }
    let ids: Vec<u16> = (0..10).map(|_| subscriber.expect_publish().id).collect();
    for id in ids.iter().rev() {
        subscriber.send(&Ack::new(Kind::Puback, *id));
    }
    publisher.publish(Publish::new(&topic, "last").qos(1));
    assert_eq!(subscriber.receive().text(), "last");
    subscriber.expect_silence();
}

/// [MQTT-4.6.0-2], [MQTT-4.6.0-3] Acknowledgements come in the order of the messages.
fn many_publishes_in_one_write(version: Version) {
    let mut client = client(version);
    for (qos, kind) in [(1, Kind::Puback), (2, Kind::Pubrec)] {
        let ids = 100..116;
        let bytes: Vec<u8> =
            ids.clone().flat_map(|id| Publish::new("burst", "x").qos(qos).id(id).encode(version)).collect();
        client.send(&bytes);
        for id in ids {
            let next = client.recv();
            let is_next =
                matches!(&next, crate::common::decode::Packet::Ack(ack) if ack.kind == kind && ack.id == id);
            assert!(is_next, "{next:?} instead of {kind:?} {id}");
        }
    }
}

/// Section 2.3.1 / 2.2.1: client and server choose identifiers independently; the same one may be in use in
/// both directions.
fn identifiers_are_per_direction(version: Version) {
    let topic = unique("both/");
    let (mut publisher, mut subscriber) = (client(version), client(version));
    subscriber.subscribe(&topic, 2);
    publisher.publish(Publish::new(&topic, "down").qos(2));
    let down = subscriber.expect_publish();
    subscriber.send(&Publish::new(&unique("up/"), "up").qos(2).id(down.id));
    subscriber.expect_ack(Kind::Pubrec, down.id);
    subscriber.send(&Ack::new(Kind::Pubrec, down.id));
    subscriber.expect_ack(Kind::Pubrel, down.id);
    subscriber.send(&Ack::new(Kind::Pubrel, down.id));
    assert_eq!(subscriber.expect_ack(Kind::Pubcomp, down.id).code, 0);
    subscriber.send(&Ack::new(Kind::Pubcomp, down.id));
    subscriber.expect_silence();
}

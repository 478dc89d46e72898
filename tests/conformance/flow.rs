//! Receive Maximum and Maximum Packet Size of MQTT 5, in both directions.

use crate::common::client::Client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

/// A subscriber that takes at most `maximum` at a time.
fn limited(topic: &str, maximum: u16) -> Client {
    let connect = Connect::v5(&unique("limited")).with(short(RECEIVE_MAXIMUM, maximum));
    let mut client = server().connect(&connect);
    client.subscribe(topic, 2);
    client
}

/// Publishes, and waits until another subscriber has it all: then nothing is on its way any more.
fn publish_and_settle(topic: &str, count: u16, qos: u8) {
    let (mut publisher, mut control) = (client(V5), client(V5));
    control.subscribe(topic, 0);
    for n in 0..count {
        publisher.publish(Publish::new(topic, n.to_string()).qos(qos));
    }
    control.receive_texts(usize::from(count));
}

/// [MQTT-3.3.4-9], [MQTT-4.9.0-1], [MQTT-4.9.0-2] No more in flight than the client wants; each PUBACK
/// makes room for one. Mosquitto sends more than three.
#[test]
fn receive_maximum_of_the_client_qos1() {
    let topic = unique("window/");
    let mut subscriber = limited(&topic, 3);
    publish_and_settle(&topic, 8, 1);
    let mut flight: Vec<Publish> = (0..3).map(|_| subscriber.expect_publish()).collect();
    subscriber.expect_silence();
    for n in 3..8 {
        subscriber.acknowledge(&flight.remove(0));
        let next = subscriber.expect_publish();
        assert_eq!(next.text(), n.to_string());
        flight.push(next);
        subscriber.expect_silence();
    }
}

/// [MQTT-3.3.4-9], [MQTT-4.9.0-2] At QoS 2 it is PUBCOMP that makes room, not PUBREC.
#[test]
fn receive_maximum_of_the_client_qos2() {
    let topic = unique("window/");
    let mut subscriber = limited(&topic, 1);
    publish_and_settle(&topic, 2, 2);
    let first = subscriber.expect_publish();
    subscriber.expect_silence();
    subscriber.send(&Ack::new(Kind::Pubrec, first.id));
    subscriber.expect_ack(Kind::Pubrel, first.id);
    subscriber.expect_silence();
    subscriber.send(&Ack::new(Kind::Pubcomp, first.id));
    assert_eq!(subscriber.receive().text(), "1");
}

/// [MQTT-3.3.4-9], section 4.9: PUBREC with an error makes room as well.
#[test]
fn refused_message_makes_room() {
    let topic = unique("window/");
    let mut subscriber = limited(&topic, 1);
    publish_and_settle(&topic, 2, 2);
    let first = subscriber.expect_publish();
    subscriber.expect_silence();
    subscriber.send(&Ack::new(Kind::Pubrec, first.id).code(0x97));
    assert_eq!(subscriber.receive().text(), "1");
}

/// [MQTT-3.3.4-10], [MQTT-4.9.0-3] A full window holds nothing back but PUBLISH.
#[test]
fn full_window_holds_only_publish() {
    let topic = unique("window/");
    let mut subscriber = limited(&topic, 1);
    publish_and_settle(&topic, 3, 1);
    let first = subscriber.expect_publish();
    subscriber.expect_silence();
    subscriber.publish(Publish::new(&unique("other/"), "x").qos(2));
    let other = unique("other/");
    subscriber.subscribe(&other, 1);
    assert_eq!(subscriber.unsubscribe(&[&other]).codes, [0]);
    subscriber.expect_silence();
    subscriber.acknowledge(&first);
    assert_eq!(subscriber.receive_texts(2), ["1", "2"]);
}

/// Section 4.9: after a reconnect the window is that of the new CONNECT, and counts what is sent again.
/// Mosquitto sends all three again.
#[test]
fn window_after_reconnect() {
    let (topic, id) = (unique("window/"), unique("limited"));
    let connect = Connect::persistent(V5, &id);
    let mut subscriber = server().connect(&connect.clone().with(short(RECEIVE_MAXIMUM, 3)));
    subscriber.subscribe(&topic, 1);
    publish_and_settle(&topic, 5, 1);
    for _ in 0..3 {
        subscriber.expect_publish();
    }
    subscriber.vanish();
    let mut subscriber = server().connect(&connect.with(short(RECEIVE_MAXIMUM, 2)));
    let mut flight: Vec<Publish> = (0..2).map(|_| subscriber.expect_publish()).collect();
    subscriber.expect_silence();
    for n in 2..5 {
        subscriber.acknowledge(&flight.remove(0));
        let next = subscriber.expect_publish();
        assert_eq!(next.text(), n.to_string());
        flight.push(next);
    }
}

/// [MQTT-3.3.4-7] More than the server's Receive Maximum without PUBREL is 0x93. Mosquitto says 0x97 in
/// PUBREC.
#[test]
fn receive_maximum_of_the_server() {
    let mut client = client(V5);
    let maximum = client.connack.properties.number(RECEIVE_MAXIMUM).expect("Receive Maximum");
    let topic = unique("exceed/");
    for id in 1..=maximum as u16 {
        client.send(&Publish::new(&topic, "x").qos(2).id(id));
        client.expect_ack(Kind::Pubrec, id);
    }
    client.expect_silence();
    client.send(&Publish::new(&topic, "x").qos(2).id(maximum as u16 + 1));
    client.expect_closed(&[0x93]);
}

/// [MQTT-3.2.2-15] A packet over the server's Maximum Packet Size is 0x95. Mosquitto takes a few bytes
/// more.
#[test]
fn maximum_packet_size_of_the_server() {
    let mut client = client(V5);
    let maximum = client.connack.properties.number(MAXIMUM_PACKET_SIZE).expect("Maximum Packet Size");
    let maximum = maximum as usize;
    let overhead = Publish::new("size", vec![7; maximum - 100]).encode(V5).len() - (maximum - 100);
    let largest = Publish::new("size", vec![7; maximum - overhead]);
    assert_eq!(largest.encode(V5).len(), maximum);
    client.send(&largest);
    client.expect_silence();
    // The server need not read all of it before it answers.
    let _ = client.try_send(&Publish::new("size", vec![7; maximum - overhead + 1]));
    client.expect_closed(&[0x95]);
}

/// [MQTT-3.1.2-24], [MQTT-3.1.2-25] What is too large for a client is dropped for that client alone.
#[test]
fn maximum_packet_size_of_the_client() {
    let (topic, mut publisher, mut big) = (unique("size/"), client(V5), client(V5));
    let mut small = server().connect(&Connect::v5(&unique("small")).with(int(MAXIMUM_PACKET_SIZE, 100)));
    small.subscribe(&topic, 1);
    big.subscribe(&topic, 1);
    for text in ["x".repeat(200), "short".to_owned()] {
        publisher.publish(Publish::new(&topic, text).qos(1));
    }
    assert_eq!(small.receive().text(), "short");
    assert_eq!(big.receive().payload.len(), 200);
    assert_eq!(big.receive().text(), "short");
}

/// [MQTT-3.1.2-24] The limit counts the whole packet: one that fits exactly is sent. Mosquitto sends a
/// larger one.
#[test]
fn packet_of_exactly_the_maximum_size() {
    let (topic, mut publisher) = (unique("size/"), client(V5));
    let fits = Publish::new(&topic, vec![b'x'; 60]);
    let size = fits.encode(V5).len() as u32;
    let mut limited = server().connect(&Connect::v5(&unique("tight")).with(int(MAXIMUM_PACKET_SIZE, size)));
    limited.subscribe(&topic, 0);
    publisher.publish(Publish::new(&topic, vec![b'x'; 61]));
    publisher.publish(fits);
    assert_eq!(limited.receive().payload.len(), 60);
}

/// [MQTT-3.1.2-25] A dropped message does not use up the window. With Mosquitto it does.
#[test]
fn too_large_does_not_use_the_window() {
    let (topic, mut publisher) = (unique("size/"), client(V5));
    let connect = Connect::v5(&unique("small")).with(int(MAXIMUM_PACKET_SIZE, 100));
    let mut small = server().connect(&connect.with(short(RECEIVE_MAXIMUM, 1)));
    small.subscribe(&topic, 1);
    for _ in 0..5 {
        publisher.publish(Publish::new(&topic, "x".repeat(200)).qos(1));
    }
    publisher.publish(Publish::new(&topic, "short").qos(1));
    assert_eq!(small.receive().text(), "short");
}

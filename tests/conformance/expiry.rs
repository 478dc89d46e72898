//! The Message Expiry Interval of MQTT 5.

use std::time::Instant;

use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::{PATIENCE, unique};
use crate::{client, server};

fn expiring(topic: &str, text: &str, seconds: u32) -> Publish {
    Publish::new(topic, text).qos(1).with(int(MESSAGE_EXPIRY, seconds))
}

/// Waits until a retained message that lasts a second, sent now, is not there any more.
fn let_a_message_expire() {
    let topic = unique("clock/");
    client(V5).publish(expiring(&topic, "tick", 1).retain());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut subscriber = client(V5);
        let end = unique("end/");
        subscriber.subscribe(&topic, 0);
        subscriber.subscribe(&end, 0);
        client(V5).publish(Publish::new(&end, "end"));
        if subscriber.receive().topic == end {
            return;
        }
        assert!(Instant::now() < deadline, "the retained message does not expire");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// [MQTT-3.3.2-5] A retained message that expired is not sent any more.
#[test]
fn retained_message_expires() {
    let_a_message_expire();
}

/// [MQTT-3.3.2-5] What waited too long for an absent client is deleted, what did not is sent. Mosquitto
/// sends both.
#[test]
fn waiting_message_expires() {
    let (topic, connect) = (unique("expiry/"), Connect::persistent(V5, &unique("away")));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&topic, 1);
    subscriber.disconnect();
    let mut publisher = client(V5);
    publisher.publish(expiring(&topic, "short", 1));
    publisher.publish(expiring(&topic, "long", 600));
    publisher.publish(Publish::new(&topic, "for ever").qos(1));
    let_a_message_expire();
    let mut subscriber = server().connect(&connect);
    assert_eq!(subscriber.receive_texts(2), ["long", "for ever"]);
    subscriber.expect_silence();
}

/// [MQTT-3.3.2-6] What is sent on carries the time that is left.
#[test]
fn time_left_is_sent_on() {
    let (topic, connect) = (unique("expiry/"), Connect::persistent(V5, &unique("away")));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&topic, 1);
    subscriber.disconnect();
    client(V5).publish(expiring(&topic, "x", 600));
    let_a_message_expire();
    let mut subscriber = server().connect(&connect);
    let left = subscriber.receive().properties.number(MESSAGE_EXPIRY).expect("Message Expiry Interval");
    assert!((500..600).contains(&left), "{left} s left of 600 after more than 1 s");
}

/// [MQTT-3.3.2-6] The same for a retained message.
#[test]
fn time_left_of_a_retained_message() {
    let topic = unique("expiry/");
    client(V5).publish(expiring(&topic, "x", 600).retain());
    let_a_message_expire();
    let mut subscriber = client(V5);
    subscriber.subscribe(&topic, 1);
    let left = subscriber.receive().properties.number(MESSAGE_EXPIRY).expect("Message Expiry Interval");
    assert!((500..600).contains(&left), "{left} s left of 600 after more than 1 s");
}

/// [MQTT-3.3.2-6] Delivered at once: the interval as it was sent, or little less.
#[test]
fn interval_of_a_live_message() {
    let (topic, mut client) = (unique("expiry/"), client(V5));
    client.subscribe(&topic, 1);
    client.publish(expiring(&topic, "x", 600));
    let left = client.receive().properties.number(MESSAGE_EXPIRY).expect("Message Expiry Interval");
    assert!((500..=600).contains(&left), "{left}");
}

/// [MQTT-3.3.2-5] A message that waits behind a full window expires too. Mosquitto sends it.
#[test]
fn message_behind_a_full_window_expires() {
    let topic = unique("expiry/");
    let connect = Connect::v5(&unique("slow")).with(short(RECEIVE_MAXIMUM, 1));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&topic, 1);
    let mut publisher = client(V5);
    publisher.publish(Publish::new(&topic, "first").qos(1));
    let first = subscriber.expect_publish();
    publisher.publish(expiring(&topic, "short", 1));
    publisher.publish(Publish::new(&topic, "last").qos(1));
    let_a_message_expire();
    subscriber.acknowledge(&first);
    assert_eq!(subscriber.receive().text(), "last");
}

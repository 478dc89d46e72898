//! Subscription options and identifiers of MQTT 5.

use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

/// [MQTT-3.8.3-3] No Local: nothing of one's own comes back, everything else does.
#[test]
fn no_local() {
    let (topic, mut client, mut other) = (unique("local/"), client(V5), crate::client(V5));
    client.subscribe(&topic, 1 | NO_LOCAL);
    client.publish(Publish::new(&topic, "own").qos(1));
    other.publish(Publish::new(&topic, "other").qos(1));
    assert_eq!(client.receive().text(), "other");
    client.publish(Publish::new(&topic, "own").qos(1));
    let mut same = client;
    // The fence must come from the client itself: it is the one whose messages must not come.
    let fence = unique("fence/");
    same.subscribe(&fence, 1);
    same.publish(Publish::new(&fence, "fence").qos(1));
    assert_eq!(same.receive().text(), "fence");
}

/// [MQTT-3.8.3-3] No Local goes with the client identifier, so also over a new connection of the session.
#[test]
fn no_local_is_part_of_the_session() {
    let (topic, connect) = (unique("local/"), Connect::persistent(V5, &unique("local")));
    let mut first = server().connect(&connect);
    first.subscribe(&topic, 1 | NO_LOCAL);
    first.disconnect();
    let mut second = server().connect(&connect);
    second.publish(Publish::new(&topic, "own").qos(1));
    client(V5).publish(Publish::new(&topic, "other").qos(1));
    assert_eq!(second.receive().text(), "other");
}

/// [MQTT-3.3.1-12], [MQTT-3.3.1-13] Retain As Published: RETAIN as the publisher set it, or 0.
#[test]
fn retain_as_published() {
    let (topic, mut publisher) = (unique("rap/"), client(V5));
    let (mut with, mut without) = (client(V5), client(V5));
    with.subscribe(&topic, 1 | RETAIN_AS_PUBLISHED);
    without.subscribe(&topic, 1);
    for retain in [true, false] {
        publisher.publish(Publish { retain, ..Publish::new(&topic, "x").qos(1) });
        assert_eq!(with.receive().retain, retain);
        assert!(!without.receive().retain);
    }
}

/// [MQTT-3.3.1-13] A retained message at subscription has RETAIN 1 with either setting.
#[test]
fn retain_as_published_at_subscription() {
    let topic = unique("rap/");
    client(V5).publish(Publish::new(&topic, "kept").qos(1).retain());
    for options in [1, 1 | RETAIN_AS_PUBLISHED] {
        let mut subscriber = client(V5);
        subscriber.subscribe(&topic, options);
        assert!(subscriber.receive().retain);
    }
}

/// [MQTT-3.3.1-9] Retain Handling 0: each time.
#[test]
fn retain_handling_always() {
    let (topic, mut subscriber) = (unique("rh/"), client(V5));
    client(V5).publish(Publish::new(&topic, "kept").qos(1).retain());
    for _ in 0..3 {
        subscriber.subscribe(&topic, 1);
        assert_eq!(subscriber.receive().text(), "kept");
    }
}

/// [MQTT-3.3.1-10] Retain Handling 1: only when the subscription is new.
#[test]
fn retain_handling_if_new() {
    let (topic, mut subscriber) = (unique("rh/"), client(V5));
    client(V5).publish(Publish::new(&topic, "kept").qos(1).retain());
    subscriber.subscribe(&topic, 1 | RETAIN_IF_NEW);
    assert_eq!(subscriber.receive().text(), "kept");
    subscriber.subscribe(&topic, 1 | RETAIN_IF_NEW);
    subscriber.expect_nothing();
    subscriber.unsubscribe(&[&topic]);
    subscriber.subscribe(&topic, 1 | RETAIN_IF_NEW);
    assert_eq!(subscriber.receive().text(), "kept", "after UNSUBSCRIBE it is new again");
}

/// [MQTT-3.3.1-11] Retain Handling 2: never; later messages come.
#[test]
fn retain_handling_never() {
    let (topic, mut subscriber) = (unique("rh/"), client(V5));
    client(V5).publish(Publish::new(&topic, "kept").qos(1).retain());
    subscriber.subscribe(&topic, 1 | RETAIN_NEVER);
    subscriber.expect_nothing();
    client(V5).publish(Publish::new(&topic, "live").qos(1).retain());
    assert_eq!(subscriber.receive().text(), "live");
}

/// [MQTT-3.3.4-3] The identifier comes with what the subscription brings, live and retained.
#[test]
fn subscription_identifier() {
    let (topic, mut publisher, mut subscriber) = (unique("sid/"), client(V5), client(V5));
    publisher.publish(Publish::new(&topic, "kept").qos(1).retain());
    subscriber.subscribe_with(&Subscribe::new(1, &[(&topic, 1)]).with(subscription_id(268_435_455)));
    assert_eq!(subscriber.receive().properties.numbers(SUBSCRIPTION_ID), [268_435_455]);
    publisher.publish(Publish::new(&topic, "live").qos(1));
    assert_eq!(subscriber.receive().properties.numbers(SUBSCRIPTION_ID), [268_435_455]);
}

/// [MQTT-3.3.4-3] One identifier for all filters of a SUBSCRIBE; none where none was given.
#[test]
fn subscription_identifier_for_several_filters() {
    let (root, mut client) = (unique("sid"), client(V5));
    let (a, b, c) = (format!("{root}/a"), format!("{root}/b"), format!("{root}/c"));
    client.subscribe_with(&Subscribe::new(1, &[(&a, 0), (&b, 1)]).with(subscription_id(7)));
    client.subscribe(&c, 1);
    for (topic, expected) in [(&a, vec![7]), (&b, vec![7]), (&c, vec![])] {
        client.publish(Publish::new(topic, "x").qos(1));
        assert_eq!(client.receive().properties.numbers(SUBSCRIPTION_ID), expected);
    }
}

/// [MQTT-3.3.4-4], [MQTT-3.3.4-2] Overlapping subscriptions: one copy, the highest QoS, all identifiers.
/// Mosquitto sends a copy for each.
#[test]
fn overlapping_subscription_identifiers() {
    let (root, mut publisher, mut subscriber) = (unique("sid"), client(V5), client(V5));
    for (id, filter, qos) in [(1, "a/b", 0), (2, "a/+", 2), (300, "#", 1)] {
        let filter = format!("{root}/{filter}");
        subscriber.subscribe_with(&Subscribe::new(id, &[(&filter, qos)]).with(subscription_id(id.into())));
    }
    subscriber.subscribe(&format!("{root}/+/b"), 0);
    publisher.publish(Publish::new(&format!("{root}/a/b"), "x").qos(2));
    let publish = subscriber.receive();
    assert_eq!((publish.qos, publish.properties.numbers(SUBSCRIPTION_ID)), (2, vec![1, 2, 300]));
    subscriber.expect_nothing_from(&mut publisher);
}

/// Section 3.8.4: a replaced subscription takes the new identifier, or none.
#[test]
fn subscription_identifier_is_replaced() {
    let (topic, mut client) = (unique("sid/"), client(V5));
    client.subscribe_with(&Subscribe::new(1, &[(&topic, 1)]).with(subscription_id(1)));
    client.subscribe_with(&Subscribe::new(2, &[(&topic, 1)]).with(subscription_id(2)));
    client.publish(Publish::new(&topic, "x").qos(1));
    assert_eq!(client.receive().properties.numbers(SUBSCRIPTION_ID), [2]);
    client.subscribe(&topic, 1);
    client.publish(Publish::new(&topic, "x").qos(1));
    assert!(client.receive().properties.numbers(SUBSCRIPTION_ID).is_empty());
}

/// Section 4.1: identifiers are part of the session.
#[test]
fn subscription_identifier_is_kept_with_the_session() {
    let (topic, connect) = (unique("sid/"), Connect::persistent(V5, &unique("sid")));
    let mut first = server().connect(&connect);
    first.subscribe_with(&Subscribe::new(1, &[(&topic, 1)]).with(subscription_id(99)));
    first.disconnect();
    client(V5).publish(Publish::new(&topic, "x").qos(1));
    let mut second = server().connect(&connect);
    assert_eq!(second.receive().properties.numbers(SUBSCRIPTION_ID), [99]);
}

/// Section 3.8.2.1.2: an identifier of 0, or two of them, is a protocol error.
#[test]
fn bad_subscription_identifiers() {
    for ids in [vec![subscription_id(0)], vec![subscription_id(1), subscription_id(2)]] {
        let mut client = client(V5);
        client.send(&Subscribe { properties: ids, ..Subscribe::new(1, &[("bad/id", 0)]) });
        client.expect_closed(&[0x81, 0x82]);
    }
}

/// Section 3.8.2.1: user properties of SUBSCRIBE and UNSUBSCRIBE are accepted, other properties are not.
#[test]
fn subscribe_properties() {
    let mut client = client(V5);
    let subscribe = Subscribe::new(1, &[("sub/props", 0)]).with(user("a", "b")).with(user("a", "c"));
    assert_eq!(client.subscribe_with(&subscribe).codes, [0]);
    client.send(&Subscribe::new(2, &[("sub/props", 0)]).with(text(CONTENT_TYPE, "x")));
    client.expect_closed(&[0x81, 0x82]);
}

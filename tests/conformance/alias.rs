//! Topic aliases of MQTT 5, in both directions.

use std::collections::HashMap;

use crate::common::client::Client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

fn aliased(topic: &str, alias: u16, text: &str) -> Publish {
    Publish::new(topic, text).with(short(TOPIC_ALIAS, alias))
}

fn maximum(client: &Client) -> u16 {
    client.connack.properties.number(TOPIC_ALIAS_MAXIMUM).unwrap_or(0) as u16
}

/// Section 3.3.2.3.4, [MQTT-3.3.2-12] An alias stands for its topic, up to the highest value.
#[test]
fn alias_of_the_client() {
    let (topic, mut publisher, mut subscriber) = (unique("alias/"), client(V5), client(V5));
    subscriber.subscribe(&topic, 2);
    for alias in [1, maximum(&publisher)] {
        publisher.publish(aliased(&topic, alias, "set"));
        for qos in 0..=2 {
            publisher.publish(aliased("", alias, "used").qos(qos));
        }
        for text in ["set", "used", "used", "used"] {
            let publish = subscriber.receive();
            assert_eq!((publish.topic.as_str(), publish.text()), (topic.as_str(), text));
        }
    }
}

/// Section 3.3.2.3.4: an alias is changed by sending it with another topic.
#[test]
fn alias_is_changed() {
    let (root, mut publisher, mut subscriber) = (unique("alias"), client(V5), client(V5));
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    subscriber.subscribe(&format!("{root}/#"), 1);
    for publish in [aliased(&a, 1, ""), aliased("", 1, ""), aliased(&b, 1, ""), aliased("", 1, "")] {
        publisher.publish(publish);
    }
    let topics: Vec<String> = (0..4).map(|_| subscriber.receive().topic).collect();
    assert_eq!(topics, [&a, &a, &b, &b].map(String::clone));
}

/// [MQTT-3.3.2-8] Alias 0 does not exist (0x94). Mosquitto says 0x81.
#[test]
fn alias_zero() {
    let mut client = client(V5);
    client.send(&aliased("alias/zero", 0, "x"));
    client.expect_closed(&[0x94]);
}

/// [MQTT-3.3.2-9], [MQTT-3.2.2-17] An alias over the server's maximum (0x94).
#[test]
fn alias_over_the_maximum() {
    let mut client = client(V5);
    let alias = maximum(&client) + 1;
    client.send(&aliased("alias/high", alias, "x"));
    client.expect_closed(&[0x94]);
}

/// Section 3.3.2.3.4: an alias that was never set up is a protocol error.
#[test]
fn alias_unknown() {
    let mut client = client(V5);
    client.send(&aliased("", 1, "x"));
    client.expect_closed(&[0x82]);
}

/// Section 3.3.2.3.4: two aliases in one packet are a protocol error.
#[test]
fn alias_twice() {
    let mut client = client(V5);
    client.send(&aliased("alias/twice", 1, "x").with(short(TOPIC_ALIAS, 1)));
    client.expect_closed(&[0x81, 0x82]);
}

/// [MQTT-3.3.2-7] Aliases end with their connection, also when the session goes on.
#[test]
fn alias_ends_with_the_connection() {
    let connect = Connect::persistent(V5, &unique("alias"));
    let mut first = server().connect(&connect);
    first.publish(aliased("alias/first", 1, "x"));
    first.disconnect();
    let mut second = server().connect(&connect);
    second.send(&aliased("", 1, "x"));
    second.expect_closed(&[0x82, 0x94]);
}

/// Section 3.3.2.3.4: a client's alias means nothing to the subscribers.
#[test]
fn alias_is_not_passed_on() {
    let (topic, mut publisher, mut subscriber) = (unique("alias/"), client(V5), client(V5));
    subscriber.subscribe(&topic, 0);
    publisher.publish(aliased(&topic, 5, "x"));
    let publish = subscriber.receive();
    assert_eq!(publish.topic, topic);
    assert!(publish.properties.find(TOPIC_ALIAS).is_none());
}

/// Receives a message and finds its topic by the aliases that the server has set up.
fn resolve(client: &mut Client, known: &mut HashMap<u32, String>) -> (String, Option<u32>) {
    let publish = client.receive();
    let alias = publish.properties.number(TOPIC_ALIAS);
    match (alias, publish.topic.is_empty()) {
        (Some(alias), true) => (known.get(&alias).expect("an alias set up before").clone(), Some(alias)),
        (Some(alias), false) => {
            known.insert(alias, publish.topic.clone());
            (publish.topic, Some(alias))
        }
        (None, _) => (publish.topic, None),
    }
}

/// [MQTT-3.1.2-26], [MQTT-3.3.2-11] The server keeps to the client's maximum, and the topics are right.
#[test]
fn aliases_of_the_server() {
    let root = unique("alias");
    let mut publisher = client(V5);
    let connect = Connect::v5(&unique("alias")).with(short(TOPIC_ALIAS_MAXIMUM, 3));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&format!("{root}/#"), 1);
    let topics: Vec<String> = (0..24).map(|n| format!("{root}/{}", n % 6)).collect();
    for (n, topic) in topics.iter().enumerate() {
        publisher.publish(Publish::new(topic, "x").qos((n % 2) as u8));
    }
    let mut known = HashMap::new();
    for topic in &topics {
        let (found, alias) = resolve(&mut subscriber, &mut known);
        assert_eq!(&found, topic);
        assert!(alias.is_none_or(|alias| alias <= 3), "alias {alias:?}");
    }
}

/// Section 3.3.2.3.4: where the client allows aliases, a topic that comes again comes without its text.
/// Mosquitto sends no aliases.
#[test]
fn aliases_of_the_server_save_bytes() {
    let (topic, mut publisher) = (unique("alias/"), client(V5));
    let connect = Connect::v5(&unique("alias")).with(short(TOPIC_ALIAS_MAXIMUM, 10));
    let mut subscriber = server().connect(&connect);
    subscriber.subscribe(&topic, 0);
    let mut without_text = 0;
    for _ in 0..5 {
        publisher.publish(Publish::new(&topic, "x"));
        without_text += usize::from(subscriber.receive().topic.is_empty());
    }
    assert!(without_text > 0, "no alias was used");
}

/// [MQTT-3.1.2-27] No aliases for a client that did not allow them.
#[test]
fn no_aliases_unless_allowed() {
    let (topic, mut publisher) = (unique("alias/"), client(V5));
    let zero = Connect::v5(&unique("alias")).with(short(TOPIC_ALIAS_MAXIMUM, 0));
    for mut subscriber in [client(V5), server().connect(&zero)] {
        subscriber.subscribe(&topic, 0);
        for _ in 0..3 {
            publisher.publish(Publish::new(&topic, "x"));
            assert!(subscriber.receive().properties.find(TOPIC_ALIAS).is_none());
        }
    }
}

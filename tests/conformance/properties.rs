//! Properties of MQTT 5 messages and acknowledgements.

use crate::client;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::server;

/// Publishes with these properties and returns those of the message that arrives.
fn through(properties: &[(u8, Value)]) -> Properties {
    let (topic, mut publisher, mut subscriber) = (unique("props/"), client(V5), client(V5));
    subscriber.subscribe(&topic, 1);
    publisher.publish(Publish { properties: properties.to_vec(), ..Publish::new(&topic, "x").qos(1) });
    subscriber.receive().properties
}

/// [MQTT-3.3.2-4] Payload Format Indicator, unaltered.
#[test]
fn payload_format() {
    assert_eq!(through(&[byte(PAYLOAD_FORMAT, 1)]).number(PAYLOAD_FORMAT), Some(1));
    assert!(matches!(through(&[byte(PAYLOAD_FORMAT, 0)]).number(PAYLOAD_FORMAT), None | Some(0)));
}

/// [MQTT-3.3.2-20] Content Type, unaltered.
#[test]
fn content_type() {
    for value in ["application/json; charset=utf-8", "ü", ""] {
        assert_eq!(through(&[text(CONTENT_TYPE, value)]).text(CONTENT_TYPE), Some(value));
    }
}

/// [MQTT-3.3.2-15] Response Topic, unaltered.
#[test]
fn response_topic() {
    let value = "reply/to/here";
    assert_eq!(through(&[text(RESPONSE_TOPIC, value)]).text(RESPONSE_TOPIC), Some(value));
}

/// [MQTT-3.3.2-16] Correlation Data, unaltered, empty too.
#[test]
fn correlation_data() {
    for value in [vec![], vec![0, 1, 254, 255], vec![9; 10_000]] {
        let found = through(&[bytes(CORRELATION_DATA, &value)]);
        assert_eq!(found.find(CORRELATION_DATA), Some(&Value::Bytes(value)));
    }
}

/// [MQTT-3.3.2-17], [MQTT-3.3.2-18] User properties, all of them, in order.
#[test]
fn user_properties() {
    let pairs = [("z", "1"), ("a", "2"), ("z", "1"), ("", ""), ("ключ", "значение"), ("a", "")];
    let properties: Properties = pairs.iter().map(|(name, value)| user(name, value)).collect();
    assert_eq!(through(&properties).users(), pairs);
}

/// [MQTT-3.3.2-18] Also when other properties stand between them.
#[test]
fn user_properties_among_others() {
    let found = through(&[
        user("1", "a"),
        text(CONTENT_TYPE, "t"),
        user("2", "b"),
        bytes(CORRELATION_DATA, b"c"),
        user("3", "c"),
    ]);
    assert_eq!(found.users(), [("1", "a"), ("2", "b"), ("3", "c")]);
    assert_eq!(found.text(CONTENT_TYPE), Some("t"));
}

/// Section 3.3.2.3: a message without properties arrives without.
#[test]
fn nothing_is_added() {
    assert_eq!(through(&[]), []);
}

/// Section 4.10: request and response.
#[test]
fn request_and_response() {
    let (request, reply) = (unique("request/"), unique("reply/"));
    let (mut asker, mut answerer) = (client(V5), client(V5));
    answerer.subscribe(&request, 1);
    asker.subscribe(&reply, 1);
    let question = Publish::new(&request, "?").qos(1).with(text(RESPONSE_TOPIC, &reply));
    asker.publish(question.with(bytes(CORRELATION_DATA, b"42")));
    let got = answerer.receive();
    let to = got.properties.text(RESPONSE_TOPIC).expect("Response Topic").to_owned();
    let data = got.properties.find(CORRELATION_DATA).expect("Correlation Data").clone();
    answerer.publish(Publish::new(&to, "!").qos(1).with((CORRELATION_DATA, data)));
    let answer = asker.receive();
    assert_eq!(answer.text(), "!");
    assert_eq!(answer.properties.find(CORRELATION_DATA), Some(&Value::Bytes(b"42".to_vec())));
}

fn expect_bad(properties: Properties, reasons: &[u8]) {
    let mut client = client(V5);
    client.send(&Publish { properties, ..Publish::new("bad/props", "x") });
    client.expect_closed(reasons);
}

/// Section 3.3.2.3.2: the Payload Format Indicator is 0 or 1. Mosquitto accepts others.
#[test]
fn payload_format_two() {
    expect_bad(vec![byte(PAYLOAD_FORMAT, 2)], &[0x81, 0x82, 0x99]);
}

/// [MQTT-3.3.2-14] No wildcards in the Response Topic. Mosquitto accepts them.
#[test]
fn response_topic_with_wildcards() {
    for topic in ["a/+", "#"] {
        expect_bad(vec![text(RESPONSE_TOPIC, topic)], &[0x81, 0x82, 0x90]);
    }
}

/// Section 3.3.2.3: what may stand once stands once.
#[test]
fn repeated_properties() {
    let twice = [
        byte(PAYLOAD_FORMAT, 1),
        int(MESSAGE_EXPIRY, 5),
        text(CONTENT_TYPE, "t"),
        text(RESPONSE_TOPIC, "r"),
        bytes(CORRELATION_DATA, b"c"),
    ];
    for property in twice {
        expect_bad(vec![property.clone(), property], &[0x81, 0x82]);
    }
}

/// Section 2.2.2.2: properties that do not belong into PUBLISH, or do not exist.
#[test]
fn foreign_properties() {
    let foreign =
        [int(SESSION_EXPIRY, 1), short(RECEIVE_MAXIMUM, 1), text(REASON_STRING, "r"), byte(0x7F, 1)];
    for property in foreign {
        expect_bad(vec![property], &[0x81, 0x82]);
    }
}

/// [MQTT-1.5.4-1], [MQTT-3.3.2-19], [MQTT-3.3.2-13] Text in properties is UTF-8.
#[test]
fn properties_with_bad_utf8() {
    for id in [CONTENT_TYPE, RESPONSE_TOPIC] {
        expect_bad(vec![bytes(id, b"\xC3\x28")], &[0x81, 0x82]);
    }
    let mut client = client(V5);
    client.send(&frame(0x30, b"\0\x01t\x08\x26\0\x01k\0\x02\xC3\x28x"));
    client.expect_closed(&[0x81, 0x82]);
}

/// [MQTT-3.1.2-29] Request Problem Information 0: no text and no user properties on acknowledgements.
#[test]
fn no_problem_information() {
    let connect = Connect::v5(&unique("plain")).with(byte(REQUEST_PROBLEM_INFORMATION, 0));
    let mut client = server().connect(&connect);
    client.send(&Ack::new(Kind::Pubrel, 99));
    assert_eq!(client.expect_ack(Kind::Pubcomp, 99).properties, []);
    client.send(&Publish::new("no/info", "x").qos(1).id(1));
    assert_eq!(client.expect_ack(Kind::Puback, 1).properties, []);
    let suback = client.subscribe_with(&Subscribe::new(2, &[("test/nosubscribe", 0), ("ok", 0)]));
    assert_eq!(suback.properties, []);
    assert_eq!(client.unsubscribe(&["never/subscribed"]).properties, []);
}

/// Section 3.4.2 and others: acknowledgements with and without code, length and properties are the same.
#[test]
fn short_and_long_acknowledgements() {
    let (topic, mut publisher, mut subscriber) = (unique("acks/"), client(V5), client(V5));
    subscriber.subscribe(&topic, 1);
    let tails: [&[u8]; 4] = [&[], &[0], &[0, 0], b"\0\x07\x26\0\x01a\0\x01b"];
    for tail in tails {
        publisher.publish(Publish::new(&topic, "x").qos(1));
        let publish = subscriber.expect_publish();
        subscriber.send(&frame(0x40, &[&publish.id.to_be_bytes(), tail].concat()));
        subscriber.expect_silence();
    }
}

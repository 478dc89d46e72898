//! Numbers and active checks with the real binary: what all plugins let pass is numbered, wherever `check` stands among
//! them, and a consumer gets what it missed where it asks for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::PATIENCE;
use common::client::Client;
use common::packet::*;
use common::property::*;
use common::server::{Server, Setup};
use serde_json::{Value as Json, json};

/// What a consumer needs to ask, and one topic that nobody may have.
const RULES: &str = "deny everyone subscribe secret\neveryone any #\neveryone subscribe $tide/#\n\
                     client * publish $tide/v1/check/%c\n";

/// A gateway with plugins in this order, which keeps two messages of each topic.
fn start(name: &str, plugins: &str) -> Server {
    let rules = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.rules"));
    std::fs::write(&rules, RULES).expect("a rules file");
    let settings = vec![
        ("plugins", plugins.to_owned()),
        ("access.rules", rules.display().to_string()),
        ("check.max_updates", "2".to_owned()),
    ];
    Server::start(name, &Setup { settings, ..Setup::default() })
}

/// The number of a message, and all its other properties.
fn numbered(publish: &Publish) -> (Option<u64>, Properties) {
    let mut number = None;
    let mut rest = publish.properties.clone();
    if let Some((_, Value::Pair(key, value))) = rest.first()
        && key == "tide-seq"
    {
        number = Some(value.parse().expect("a number"));
        rest.remove(0);
    }
    (number, rest)
}

/// Asks about a filter; the answer comes on the topic that is named, with its correlation data.
fn check(
    client: &mut Client,
    filter: &str,
    since: Json,
    reply: Properties,
) -> (String, Json, Option<Vec<u8>>) {
    let text = json!({ "v": 1, "id": 9, "filters": [{ "filter": filter, "since": since }] }).to_string();
    let topic = format!("$tide/v1/check/{}", client.id);
    let check = Publish { properties: reply, ..Publish::new(&topic, text) };
    assert_eq!(client.publish(check.qos(1)), 0);
    let answer = client.receive();
    let correlation = answer.properties.iter().find_map(|(id, value)| match value {
        Value::Bytes(bytes) if *id == CORRELATION_DATA => Some(bytes.clone()),
        _ => None,
    });
    (answer.topic.clone(), serde_json::from_str(answer.text()).expect("JSON"), correlation)
}

fn works(name: &str, plugins: &str) {
    let server = start(name, plugins);
    let mut consumer = server.connect(&Connect::v5("dashboard"));
    let mut old = server.connect(&Connect::v311("old"));
    for client in [&mut consumer, &mut old] {
        client.subscribe("room/#", 1);
    }
    consumer.subscribe("$tide/v1/update/dashboard/#", 0);
    let mut source = server.connect(&Connect::v5("source").will(Will::new("room/1", "gone").qos(1)));
    let pair = |key: &str, value: &str| (USER_PROPERTY, Value::Pair(key.into(), value.into()));
    let forged = pair("tide-seq", "999");
    for number in 1..=4 {
        // What is refused takes no number.
        assert_eq!(source.publish(Publish::new("$tide/v1/rate", "{}").qos(1)), 0x87);
        let publish =
            Publish::new("room/1", number.to_string()).qos(1).with(pair("a", "b")).with(forged.clone());
        assert_eq!(source.publish(publish), 0);
        let seen = consumer.receive();
        assert_eq!(numbered(&seen), (Some(number), vec![pair("a", "b"), forged.clone()]), "{seen:?}");
        assert_eq!(old.receive().text(), number.to_string());
    }
    source.publish(Publish::new("room/kept", "x").qos(1).retain());
    assert_eq!(numbered(&consumer.receive()).0, Some(1), "numbers are those of a topic");
    // A will has a number as soon as it is published, and not before.
    let (_, answer, _) = check(&mut consumer, "room/#", json!({}), vec![]);
    assert_eq!(answer["heads"]["room/1"], 4);
    drop(source);
    let will = consumer.receive();
    assert_eq!((will.text(), numbered(&will).0), ("gone", Some(5)));
    // Two are kept, three were missed.
    let (topic, answer, _) = check(&mut consumer, "room/#", json!({ "room/1": 2, "room/kept": 1 }), vec![]);
    assert_eq!(topic, "$tide/v1/update/dashboard");
    assert_eq!((&answer["missed"], &answer["heads"]["room/1"]), (&json!(3), &json!(5)), "{answer}");
    let seqs: Vec<_> =
        answer["updates"].as_array().unwrap().iter().map(|update| update["seq"].clone()).collect();
    assert_eq!(seqs, [4, 5]);
    // The retained message still says its number to whoever comes later.
    let mut later = server.client(Version::V5);
    later.subscribe("room/kept", 1);
    assert_eq!(numbered(&later.receive()).0, Some(1));
}

#[test]
fn in_front_of_all_others() {
    works("check-first", r#"["check","access","overload","gate"]"#);
}

#[test]
fn behind_all_others() {
    works("check-last", r#"["access","overload","gate","check"]"#);
}

/// What `access` denies can't be asked for, though `check` hears of the subscription first.
#[test]
fn what_access_denies_is_not_answered() {
    let server = start("check-denied", r#"["check","access"]"#);
    let mut consumer = server.connect(&Connect::v5("dashboard"));
    consumer.subscribe("$tide/v1/update/dashboard", 0);
    assert_eq!(consumer.try_subscribe("secret", 1), [0x80]);
    let mut source = server.client(Version::V5);
    source.publish(Publish::new("secret", "x").qos(1));
    let (_, answer, _) = check(&mut consumer, "secret", json!({}), vec![]);
    assert!(answer["error"].as_str().unwrap().contains("not subscribed"), "{answer}");
    assert_eq!(answer.get("heads"), None);
    let stranger = Publish::new("$tide/v1/check/dashboard", "{}").qos(1);
    assert_eq!(source.publish(stranger), 0x87, "nobody asks for another");
}

/// Response Topic and Correlation Data, within the client's own topic.
#[test]
fn answers_go_where_they_are_asked_for() {
    let server = start("check-reply", r#"["access","check"]"#);
    let mut consumer = server.connect(&Connect::v5("dashboard"));
    consumer.subscribe("$tide/v1/update/dashboard/#", 0);
    consumer.subscribe("t", 1);
    let below = "$tide/v1/update/dashboard/t";
    let data = || (CORRELATION_DATA, Value::Bytes(vec![0, 255, 7]));
    let reply = vec![text(RESPONSE_TOPIC, below), data()];
    let (topic, answer, correlation) = check(&mut consumer, "t", json!({}), reply);
    assert_eq!((&*topic, correlation), (below, Some(vec![0, 255, 7])));
    assert_eq!(answer["id"], 9);
    let mut listener = server.client(Version::V5);
    listener.subscribe("alarm", 1);
    let reply = vec![text(RESPONSE_TOPIC, "alarm"), data()];
    let (topic, answer, _) = check(&mut consumer, "t", json!({}), reply);
    assert_eq!(topic, "$tide/v1/update/dashboard");
    assert!(answer["error"].as_str().unwrap().contains("response topic"), "{answer}");
    listener.expect_silence();
    let metrics = metrics(&server);
    for line in [
        "# HELP tidegate_check_answered_total ",
        "tidegate_check_answered_total 1",
        "tidegate_check_refused_total 1",
        "tidegate_check_merged_total 0",
        "tidegate_check_deferred_total 0",
        "tidegate_check_topics 0",
        "tidegate_check_history_bytes 0",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
}

fn metrics(server: &Server) -> String {
    let mut stream = TcpStream::connect(server.admin).expect("the admin endpoint");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

//! Topic names and filters: what matches what.

use crate::client;
use crate::common::client::Client;
use crate::common::packet::*;
use crate::common::unique;

both_versions!(
    matching,
    hash_alone_matches_all,
    plus_at_the_first_level,
    leading_slash_is_a_level,
    dollar_topics_and_leading_wildcards,
    no_normalisation,
    longest_topic,
    byte_order_mark_is_kept,
    invalid_filters_are_refused,
    a_refused_filter_harms_no_other,
);

/// Publishes to `topics` and returns those that `filter` let through. The filter may match what other tests
/// publish: that is left out.
fn matched<'a>(version: Version, filter: &str, topics: &[&'a str]) -> Vec<&'a str> {
    let (mut subscriber, mut publisher) = (client(version), client(version));
    subscriber.subscribe(filter, 0);
    let end = unique("end/");
    subscriber.subscribe(&end, 0);
    for topic in topics {
        publisher.publish(Publish::new(topic, "x").qos(1));
    }
    publisher.publish(Publish::new(&end, "end").qos(1));
    let seen = topics_until(&mut subscriber, &end);
    topics.iter().copied().filter(|topic| seen.iter().any(|seen| seen == topic)).collect()
}

fn topics_until(subscriber: &mut Client, end: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let topic = subscriber.receive().topic;
        if topic == end {
            return seen;
        }
        seen.push(topic);
    }
}

/// [MQTT-4.7.1-2], [MQTT-4.7.1-3] / [MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-3.3.2-3] The examples of section
/// 4.7.1, and the corners.
fn matching(version: Version) {
    let root = unique("match");
    let names = ["", "/a", "/a/b", "/a/b/c", "/a/", "/a//c", "/A", "/a b", "/ab"];
    let topics: Vec<String> = names.iter().map(|name| format!("{root}{name}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let table: [(&str, &[&str]); 13] = [
        ("", &[""]),
        ("/#", &names),
        ("/a/#", &["/a", "/a/b", "/a/b/c", "/a/", "/a//c"]),
        ("/+", &["/a", "/A", "/a b", "/ab"]),
        ("/a/+", &["/a/b", "/a/"]),
        ("/+/b", &["/a/b"]),
        ("/+/+", &["/a/b", "/a/"]),
        ("/+/+/c", &["/a/b/c", "/a//c"]),
        ("/a/+/#", &["/a/b", "/a/b/c", "/a/", "/a//c"]),
        ("/a", &["/a"]),
        ("/a/", &["/a/"]),
        ("/a/b/c/#", &["/a/b/c"]),
        ("/+/b/#", &["/a/b", "/a/b/c"]),
    ];
    for (filter, expected) in table {
        let expected: Vec<String> = expected.iter().map(|name| format!("{root}{name}")).collect();
        assert_eq!(matched(version, &format!("{root}{filter}"), &topics), expected, "filter {filter}");
    }
}

/// [MQTT-4.7.1-2] / [MQTT-4.7.1-1] `#` matches every topic that has no `$` in front.
fn hash_alone_matches_all(version: Version) {
    let topics = [unique("hash"), unique("hash/a/"), unique("/hash")];
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    assert_eq!(matched(version, "#", &topics), topics);
}

/// [MQTT-4.7.1-3] / [MQTT-4.7.1-2] `+` may stand at the first level.
fn plus_at_the_first_level(version: Version) {
    let name = unique("first");
    let topics = [format!("a/{name}"), format!("/{name}"), name.clone(), format!("a/b/{name}")];
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    assert_eq!(matched(version, &format!("+/{name}"), &topics), topics[..2]);
}

/// Section 4.7.1.3: `/finance` matches `+/+` and `/+` but not `+`.
fn leading_slash_is_a_level(version: Version) {
    let topic = format!("/{}", unique("finance"));
    for (filter, matches) in [("+/+", true), ("/+", true), ("+", false)] {
        assert_eq!(matched(version, filter, &[&topic]).len(), usize::from(matches), "filter {filter}");
    }
}

/// [MQTT-4.7.2-1] Filters that start with a wildcard do not match topics that start with `$`.
fn dollar_topics_and_leading_wildcards(version: Version) {
    let (mut subscriber, mut publisher) = (client(version), client(version));
    for filter in ["#", "+/broker/#", "+/broker/version", "+/#"] {
        subscriber.subscribe(filter, 0);
    }
    let end = unique("end/");
    publisher.publish(Publish::new(&end, "end").qos(1));
    let dollar: Vec<String> =
        topics_until(&mut subscriber, &end).into_iter().filter(|topic| topic.starts_with('$')).collect();
    assert!(dollar.is_empty(), "{dollar:?}");
}

/// [MQTT-4.7.3-4] Names are compared as they are: case, spaces, composed and decomposed characters.
fn no_normalisation(version: Version) {
    let root = unique("norm/");
    let names = ["caf\u{e9}", "cafe\u{301}", "CAF\u{c9}", "caf\u{e9} ", "ｃａｆé"];
    let topics: Vec<String> = names.iter().map(|name| format!("{root}/{name}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    assert_eq!(matched(version, topics[0], &topics), topics[..1]);
    assert_eq!(matched(version, topics[1], &topics), topics[1..2]);
    assert_eq!(matched(version, &format!("{root}/+"), &topics), topics);
}

/// [MQTT-4.7.3-3] Topics may have up to 65,535 bytes.
fn longest_topic(version: Version) {
    let root = unique("long/");
    let topic = format!("{root}{}", "x".repeat(65_535 - root.len()));
    assert_eq!(matched(version, &topic, &[&topic]).len(), 1);
}

/// [MQTT-1.5.3-3] / [MQTT-1.5.4-3] U+FEFF is a character like others, at the start of a string too.
fn byte_order_mark_is_kept(version: Version) {
    let plain = unique("bom/");
    let marked = format!("\u{feff}{plain}");
    assert_eq!(matched(version, &marked, &[&marked, &plain]), [&marked]);
}

/// [MQTT-4.7.1-2], [MQTT-4.7.1-3] / [MQTT-4.7.1-1], [MQTT-4.7.1-2] Wildcards in the wrong place get a
/// failure code (0x80 or 0x8F). Mosquitto closes the connection.
fn invalid_filters_are_refused(version: Version) {
    let mut client = client(version);
    let code = if version == Version::V5 { 0x8F } else { 0x80 };
    for filter in ["a#", "#a", "a/#/b", "#/", "##", "a+", "+a", "a/+b/c", "++", "a/b+"] {
        assert_eq!(client.try_subscribe(filter, 1), [code], "filter {filter}");
    }
    client.ping();
}

/// [MQTT-3.8.4-4] / [MQTT-3.8.4-5] The others of the same SUBSCRIBE are granted. Mosquitto closes the
/// connection.
fn a_refused_filter_harms_no_other(version: Version) {
    let (topic, mut client) = (unique("other/"), client(version));
    let suback = client.subscribe_with(&Subscribe::new(3, &[("bad#", 1), (&topic, 1), ("+bad", 0)]));
    let code = if version == Version::V5 { 0x8F } else { 0x80 };
    assert_eq!(suback.codes, [code, 1, code]);
    client.publish(Publish::new(&topic, "hello").qos(1));
    assert_eq!(client.receive().text(), "hello");
}

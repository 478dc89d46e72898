//! Shared subscriptions: `$share/{group}/{filter}`.

use crate::common::client::{Client, End};
use crate::common::decode::Packet;
use crate::common::packet::Version::V5;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::{client, server};

both_versions!(
    each_message_goes_to_one_member,
    single_member_gets_all_in_order,
    groups_are_independent,
    unacknowledged_goes_to_another_member,
    slow_member_does_not_stall_the_group,
    no_retained_messages,
    unsubscribed_member_gets_no_more,
    granted_qos_is_respected,
    invalid_shares,
    filter_with_wildcards,
    connected_members_serve_while_another_is_away,
);

/// A new group, and the topic it listens to.
fn group() -> (String, String) {
    let topic = unique("shared/");
    (format!("$share/{}/{topic}", unique("group")), topic)
}

fn member(version: Version, filter: &str, qos: u8) -> Client {
    let mut member = client(version);
    member.subscribe(filter, qos);
    member
}

fn publish_all(publisher: &mut Client, topic: &str, count: usize) {
    for n in 0..count {
        publisher.publish(Publish::new(topic, n.to_string()).qos(1));
    }
}

/// Everything that these members get until each of `count` messages came once.
fn collect(members: &mut [Client], count: usize) -> Vec<Vec<String>> {
    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
    let mut got = vec![Vec::new(); members.len()];
    while got.iter().map(Vec::len).sum::<usize>() < count {
        assert!(std::time::Instant::now() < deadline, "got only {got:?}");
        for (member, texts) in members.iter_mut().zip(&mut got) {
            match member.recv_within(std::time::Duration::from_millis(20)) {
                Ok(Packet::Publish(publish)) => {
                    member.acknowledge(&publish);
                    texts.push(publish.text().to_owned());
                }
                Ok(other) => panic!("unexpected {other:?}"),
                Err(end) => assert_eq!(end, End::Timeout),
            }
        }
    }
    got
}

/// Section 4.8.2: each message goes to one member, and no member is left out.
fn each_message_goes_to_one_member(version: Version) {
    let (filter, topic) = group();
    let mut members = [member(version, &filter, 1), member(version, &filter, 1)];
    publish_all(&mut client(version), &topic, 40);
    let got = collect(&mut members, 40);
    let mut all: Vec<usize> = got.concat().iter().map(|text| text.parse().expect("a number")).collect();
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
    assert!(got.iter().all(|texts| !texts.is_empty()), "one member got nothing");
    for member in &mut members {
        member.expect_silence();
    }
}

/// Section 4.8.2: a group of one is a subscription.
fn single_member_gets_all_in_order(version: Version) {
    let (filter, topic) = group();
    let mut member = member(version, &filter, 1);
    publish_all(&mut client(version), &topic, 30);
    let expected: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    assert_eq!(member.receive_texts(30), expected);
}

/// Section 4.8.2: each group gets each message once, and ordinary subscribers theirs.
fn groups_are_independent(version: Version) {
    let topic = unique("shared/");
    let filters = [unique("group"), unique("group")].map(|group| format!("$share/{group}/{topic}"));
    let mut clients = [
        member(version, &filters[0], 1),
        member(version, &filters[1], 1),
        member(version, &topic, 1),
        member(version, &topic, 0),
    ];
    publish_all(&mut client(version), &topic, 10);
    let expected: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    for client in &mut clients {
        assert_eq!(client.receive_texts(10), expected);
        client.expect_silence();
    }
}

/// Section 4.8.2: a member that goes for good leaves what it had unacknowledged (QoS 1) to another.
/// Mosquitto drops it.
fn unacknowledged_goes_to_another_member(version: Version) {
    let (filter, topic) = group();
    let mut leaver = member(version, &filter, 1);
    let mut publisher = client(version);
    publish_all(&mut publisher, &topic, 5);
    for _ in 0..5 {
        leaver.expect_publish();
    }
    let mut heir = member(version, &filter, 1);
    leaver.vanish();
    let mut texts = heir.receive_texts(5);
    texts.sort_unstable();
    assert_eq!(texts, ["0", "1", "2", "3", "4"]);
    heir.expect_nothing_from(&mut publisher);
}

/// Section 4.8.2: a member that acknowledges nothing does not hold up the others. With Mosquitto it does.
fn slow_member_does_not_stall_the_group(version: Version) {
    let (filter, topic) = group();
    let mut slow = Connect::new(version, &unique("slow"));
    if version == V5 {
        slow = slow.with(short(RECEIVE_MAXIMUM, 1));
    }
    let mut slow = server().connect(&slow);
    slow.subscribe(&filter, 1);
    let mut quick = member(version, &filter, 1);
    let mut publisher = client(version);
    let mut received = 0;
    // What the slow one does not take, the quick one must get: one after another, so that it has room.
    for n in 0..50 {
        publisher.publish(Publish::new(&topic, n.to_string()).qos(1));
        while let Ok(Packet::Publish(publish)) = quick.recv_within(std::time::Duration::from_millis(2)) {
            quick.acknowledge(&publish);
            received += 1;
        }
    }
    let held = if version == V5 { 1 } else { 49 };
    while received < 50 - held {
        quick.receive();
        received += 1;
    }
    slow.ping();
}

/// Section 4.8.2, 3.3.1.3: a shared subscription gets no retained messages when it is made. Mosquitto
/// sends them.
fn no_retained_messages(version: Version) {
    let (filter, topic) = group();
    let mut publisher = client(version);
    publisher.publish(Publish::new(&topic, "kept").qos(1).retain());
    let mut member = member(version, &filter, 1);
    publisher.publish(Publish::new(&topic, "live").qos(1));
    assert_eq!(member.receive().text(), "live");
}

/// [MQTT-3.10.4-2], section 3.10.4: UNSUBSCRIBE of the whole filter leaves the group.
fn unsubscribed_member_gets_no_more(version: Version) {
    let (filter, topic) = group();
    let (mut leaver, mut stayer) = (member(version, &filter, 1), member(version, &filter, 1));
    let unsuback = leaver.unsubscribe(&[&filter]);
    assert_eq!(unsuback.codes, if version == V5 { vec![0] } else { vec![] });
    let mut publisher = client(version);
    publish_all(&mut publisher, &topic, 10);
    assert_eq!(stayer.receive_texts(10).len(), 10);
    leaver.expect_nothing_from(&mut publisher);
}

/// [MQTT-4.8.2-3] Each member gets messages at the QoS granted to it.
fn granted_qos_is_respected(version: Version) {
    let (filter, topic) = group();
    let mut publisher = client(version);
    for granted in 0..=2 {
        let mut member = member(version, &filter, granted);
        publisher.publish(Publish::new(&topic, "x").qos(2));
        assert_eq!(member.receive().qos, granted);
        member.unsubscribe(&[&filter]);
    }
}

/// [MQTT-4.8.2-1], [MQTT-4.8.2-2] A share name has a character, no wildcard, and a filter behind it.
/// Mosquitto grants some.
fn invalid_shares(version: Version) {
    let code = if version == V5 { 0x8F } else { 0x80 };
    let mut client = client(version);
    for filter in
        ["$share//a", "$share/g", "$share/g/", "$share/g+/a", "$share/#/a", "$share/+/a", "$share/g/a#"]
    {
        assert_eq!(client.try_subscribe(filter, 1), [code], "filter {filter}");
    }
}

/// Section 4.8.2: what follows the share name is a filter like others.
fn filter_with_wildcards(version: Version) {
    let (root, mut publisher) = (unique("shared"), client(version));
    let mut member = member(version, &format!("$share/{}/{root}/+/x/#", unique("group")), 1);
    for topic in ["a/x", "a/y", "b/x/c", "x"] {
        publisher.publish(Publish::new(&format!("{root}/{topic}"), topic).qos(1));
    }
    assert_eq!(member.receive_texts(2), ["a/x", "b/x/c"]);
    member.expect_nothing_from(&mut publisher);
}

/// Section 4.8.2: a member that is away with its session does not take what others could. With Mosquitto
/// it does.
fn connected_members_serve_while_another_is_away(version: Version) {
    let (filter, topic) = group();
    let mut away = server().connect(&Connect::persistent(version, &unique("away")));
    away.subscribe(&filter, 1);
    away.disconnect();
    let mut present = member(version, &filter, 1);
    publish_all(&mut client(version), &topic, 20);
    assert_eq!(present.receive_texts(20).len(), 20);
}

/// [MQTT-3.8.3-4] No Local on a shared subscription is a protocol error. Mosquitto grants it.
#[test]
fn no_local_on_a_share() {
    let mut client = client(V5);
    client.send(&Subscribe::new(1, &[("$share/group/local", 1 | NO_LOCAL)]));
    client.expect_closed(&[0x82]);
}

/// [MQTT-4.8.2-4] QoS 2 that was started with a member is completed with that member.
#[test]
fn started_qos2_is_completed_with_its_member() {
    let (filter, topic) = group();
    let connect = Connect::persistent(V5, &unique("member"));
    let mut first = server().connect(&connect);
    first.subscribe(&filter, 2);
    let mut publisher = client(V5);
    publisher.publish(Publish::new(&topic, "x").qos(2));
    let publish = first.expect_publish();
    let mut other = member(V5, &filter, 2);
    first.vanish();
    other.expect_nothing_from(&mut publisher);
    let mut first = server().connect(&connect);
    let again = first.receive();
    assert_eq!((again.id, again.text(), again.dup), (publish.id, "x", true));
    other.expect_silence();
}

/// [MQTT-4.8.2-5] QoS 2 that was started with a member whose session ends goes to nobody else.
#[test]
fn started_qos2_goes_to_nobody_else() {
    let (filter, topic) = group();
    let mut first = member(V5, &filter, 2);
    let mut publisher = client(V5);
    publisher.publish(Publish::new(&topic, "x").qos(2));
    first.expect_publish();
    let mut other = member(V5, &filter, 2);
    first.vanish();
    other.expect_nothing_from(&mut publisher);
    other.expect_nothing();
}

/// [MQTT-4.8.2-6] A message that a member refuses is not offered to another.
#[test]
fn refused_message_is_discarded() {
    for (qos, kind) in [(1, Kind::Puback), (2, Kind::Pubrec)] {
        let (filter, topic) = group();
        let mut first = member(V5, &filter, qos);
        let mut publisher = client(V5);
        publisher.publish(Publish::new(&topic, "x").qos(qos));
        let publish = first.expect_publish();
        let mut other = member(V5, &filter, qos);
        first.send(&Ack::new(kind, publish.id).code(0x80));
        first.expect_silence();
        first.disconnect();
        other.expect_nothing_from(&mut publisher);
        other.expect_nothing();
    }
}

/// [MQTT-3.3.4-3] A shared subscription may have an identifier.
#[test]
fn subscription_identifier_of_a_share() {
    let ((filter, topic), mut member) = (group(), client(V5));
    member.subscribe_with(&Subscribe::new(1, &[(&filter, 1)]).with(subscription_id(5)));
    client(V5).publish(Publish::new(&topic, "x").qos(1));
    assert_eq!(member.receive().properties.numbers(SUBSCRIPTION_ID), [5]);
}

//! Single cases, each of which went wrong once.

use std::time::Duration;

use tidegate_plugin::{Client, Hook, Plugin, Refusal, Verdict};

use crate::common::decode::Packet;
use crate::common::packet::*;
use crate::common::property::*;
use crate::common::unique;
use crate::house::{End, House, Link, ON_PURPOSE, run};

fn house() -> &'static House {
    static HOUSE: std::sync::OnceLock<House> = std::sync::OnceLock::new();
    HOUSE.get_or_init(|| House::start(|_| {}))
}

async fn client() -> Link {
    house().connect(&Connect::v5(&unique("c"))).await.0
}

fn persistent(id: &str) -> Connect {
    Connect::persistent(Version::V5, id)
}

fn puback(id: u16) -> Ack {
    Ack::new(Kind::Puback, id)
}

async fn leave(mut link: Link) {
    link.send(&Disconnect::default()).await.unwrap();
    assert_eq!(link.recv().await, Err(End::Closed));
}

fn no_codes(packet: Packet) -> Option<()> {
    matches!(packet, Packet::Unsuback(_)).then_some(())
}

fn published(packet: Packet) -> Option<Publish> {
    match packet {
        Packet::Publish(publish) => Some(publish),
        _ => None,
    }
}

/// [MQTT-3.14.4-1] Nothing follows DISCONNECT, not even the acknowledgement of what came before the mistake.
#[test]
fn nothing_follows_disconnect() {
    run(async {
        let mut link = client().await;
        let mut bytes = Publish::new("t", "x").qos(1).id(7).encode(Version::V5);
        bytes.push(0);
        link.send(&bytes).await.unwrap();
        assert_eq!(link.recv().await, Ok(Packet::Ack(puback(7))));
        assert!(matches!(link.recv().await, Ok(Packet::Disconnect(disconnect)) if disconnect.code == 0x81));
        assert_eq!(link.recv().await, Err(End::Closed));
    });
}

/// A client may acknowledge what it got on its last connection before it is sent again on this one.
#[test]
fn acknowledged_before_it_is_sent_again() {
    run(async {
        let (id, topic) = (unique("early"), unique("early/"));
        let (mut link, _) = house().connect(&persistent(&id)).await;
        link.subscribe(&topic, 1).await;
        let mut publisher = client().await;
        for n in 0..6 {
            publisher.publish(&topic, n.to_string()).await;
            assert_eq!(link.expect_publish().await.text(), n.to_string());
        }
        drop(link);
        let mut bytes = persistent(&id).with(short(RECEIVE_MAXIMUM, 2)).encode(Version::V5);
        for id in 3..=6 {
            bytes.extend(puback(id).encode(Version::V5));
        }
        let mut link = house().open(Version::V5, 4096);
        link.send(&bytes).await.unwrap();
        assert!(matches!(link.recv().await, Ok(Packet::Connack(connack)) if connack.session_present));
        publisher.publish(&topic, "new").await;
        for n in 0..2_u16 {
            let publish = link.expect_publish().await;
            assert_eq!((publish.text(), publish.id, publish.dup), (&*n.to_string(), n + 1, true));
        }
        link.send(&PINGREQ).await.unwrap();
        assert_eq!(link.recv().await, Ok(Packet::Pingresp), "two are unacknowledged: no third one");
        link.send(&puback(1)).await.unwrap();
        assert_eq!(link.expect_publish().await.text(), "new");
    });
}

/// A member that leaves its group and joins again still owes acknowledgements from before.
#[test]
fn a_member_joins_again() {
    run(async {
        let topic = unique("again/");
        let filter = format!("$share/g/{topic}");
        let (mut away, _) = house().connect(&persistent(&unique("away"))).await;
        let (mut member, mut publisher) = (client().await, client().await);
        member.subscribe(&filter, 1).await;
        // the group outlives its member, but nobody else is there
        away.subscribe(&filter, 1).await;
        leave(away).await;
        publisher.publish(&topic, "one").await;
        let one = member.expect_publish().await;
        member.send(&Unsubscribe::new(9, &[&filter])).await.unwrap();
        member.wait_for(no_codes).await;
        member.subscribe(&filter, 1).await;
        member.send(&puback(one.id)).await.unwrap();
        member.ping().await;
        publisher.publish(&topic, "two").await;
        assert_eq!(member.expect_publish().await.text(), "two");
    });
}

/// What a member got from a group that it then left stays with it when its connection breaks.
#[test]
fn unacknowledged_from_a_group_that_was_left() {
    run(async {
        let (id, topic) = (unique("left"), unique("left/"));
        let filter = format!("$share/g/{topic}");
        let (mut member, _) = house().connect(&persistent(&id)).await;
        member.subscribe(&filter, 1).await;
        member.subscribe(&format!("$share/g/{topic}/other"), 1).await;
        client().await.publish(&topic, "mine").await;
        assert_eq!(member.expect_publish().await.text(), "mine");
        member.send(&Unsubscribe::new(9, &[&filter])).await.unwrap();
        member.wait_for(no_codes).await;
        drop(member);
        let (mut member, present) = house().connect(&persistent(&id)).await;
        assert!(present);
        let again = member.expect_publish().await;
        assert_eq!((again.text(), again.dup), ("mine", true));
    });
}

/// What waits in a group whose members are away goes to the first one that joins.
#[test]
fn a_new_member_gets_what_waits() {
    run(async {
        let (id, topic) = (unique("away"), unique("away/"));
        let filter = format!("$share/g/{topic}");
        let (mut away, _) = house().connect(&persistent(&id)).await;
        away.subscribe(&filter, 1).await;
        leave(away).await;
        client().await.publish(&topic, "waits").await;
        let mut member = client().await;
        member.subscribe(&filter, 1).await;
        assert_eq!(member.expect_publish().await.text(), "waits");
    });
}

/// [MQTT-3.1.2-6] in 3.1.1; section 3.1.2.11.2 in 5.0: a session that ends with its connection is not handed on
/// to the one that takes over.
#[test]
fn a_clean_session_is_not_taken_over() {
    run(async {
        for version in [Version::V311, Version::V5] {
            let (id, topic) = (unique("clean"), unique("clean/"));
            let (mut old, _) = house().connect(&Connect::new(version, &id)).await;
            old.subscribe(&topic, 1).await;
            let (mut new, present) = house().connect(&Connect::new(version, &id).resume()).await;
            assert!(!present, "{version:?}");
            client().await.publish(&topic, "not for you").await;
            new.send(&PINGREQ).await.unwrap();
            assert_eq!(new.recv().await, Ok(Packet::Pingresp));
        }
    });
}

/// [MQTT-3.1.2-24] / [MQTT-3.1.2-22] What the gateway sends does not keep a silent client alive.
#[test]
fn messages_do_not_keep_a_silent_client() {
    run(async {
        let topic = unique("silent/");
        let (mut silent, _) = house().connect(&Connect::v5(&unique("silent")).keep_alive(1)).await;
        silent.subscribe(&topic, 0).await;
        let mut publisher = client().await;
        let deadline = tokio::time::Instant::now() + crate::common::PATIENCE;
        while tokio::time::Instant::now() < deadline {
            publisher.publish(&topic, "tick").await;
            while let Ok(packet) = silent.try_recv() {
                match packet {
                    Packet::Disconnect(disconnect) => return assert_eq!(disconnect.code, 0x8D),
                    packet => assert!(matches!(packet, Packet::Publish(_)), "{packet:?}"),
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("a silent client was kept");
    });
}

/// Retained messages that are larger together than a queue may be still all arrive.
#[test]
fn large_retained_messages() {
    let house = House::start(|settings| settings.queue.max_bytes = 64 * 1024);
    run(async {
        let (mut publisher, _) = house.connect(&Connect::v5("publisher")).await;
        for n in 0..60_u8 {
            publisher.send(&Publish::new(&format!("large/{n}"), vec![n; 10_000]).retain()).await.unwrap();
        }
        publisher.ping().await;
        let (mut subscriber, _) = house.connect(&Connect::v5("subscriber")).await;
        subscriber.subscribe("large/#", 1).await;
        let mut seen = std::collections::HashSet::new();
        while seen.len() < 60 {
            let publish = subscriber.expect_publish().await;
            seen.insert(publish.payload[0]);
            if publish.qos == 1 {
                subscriber.send(&puback(publish.id)).await.unwrap();
            }
        }
    });
}

/// [MQTT-3.8.4-3] Who subscribes again before all retained messages came gets all of them with the new identifier,
/// whether it unsubscribed in between or not.
#[test]
fn subscribed_again_before_all_retained_messages_came() {
    const MESSAGES: usize = 1_000;
    let house = House::start(|settings| settings.session.sys_interval = 0);
    run(async {
        let (mut publisher, _) = house.connect(&Connect::v5("publisher")).await;
        for n in 0..MESSAGES {
            let publish = Publish::new(&format!("kept/{n}"), "x").qos(1).id(1).retain();
            publisher.send(&publish).await.unwrap();
            publisher.wait_for(|packet| (packet == Packet::Ack(puback(1))).then_some(())).await;
        }
        for unsubscribes in [false, true] {
            let connect = Connect::v5("subscriber").with(short(RECEIVE_MAXIMUM, 1));
            let (mut subscriber, _) = house.connect(&connect).await;
            subscriber.send(&Subscribe::new(1, &[("kept/#", 1)]).with(subscription_id(1))).await.unwrap();
            let mut unacknowledged = subscriber.wait_for(published).await;
            if unsubscribes {
                subscriber.send(&Unsubscribe::new(2, &["kept/#"])).await.unwrap();
            }
            subscriber.send(&Subscribe::new(3, &[("kept/#", 1)]).with(subscription_id(2))).await.unwrap();
            let mut seen = std::collections::HashSet::new();
            while seen.len() < MESSAGES {
                subscriber.send(&puback(unacknowledged.id)).await.unwrap();
                unacknowledged = subscriber.wait_for(published).await;
                if unacknowledged.properties.contains(&subscription_id(2)) {
                    assert!(seen.insert(unacknowledged.topic.clone()), "{} came twice", unacknowledged.topic);
                }
            }
        }
    });
}

/// [MQTT-4.3.3-1] A QoS 2 message whose delivery has begun is completed though it expires meanwhile: its
/// identifier must not be given to another message, which the client would take for the same one.
#[test]
fn expired_between_publish_and_pubrec() {
    run(async {
        let (id, topic) = (unique("expires"), unique("expires/"));
        let (mut link, _) = house().connect(&persistent(&id)).await;
        link.subscribe(&topic, 2).await;
        let mut publisher = client().await;
        let brief = Publish::new(&topic, "brief").qos(2).id(1).with(int(MESSAGE_EXPIRY, 1));
        publisher.send(&brief).await.unwrap();
        let first = link.expect_publish().await;
        drop(link);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let (mut link, _) = house().connect(&persistent(&id)).await;
        let again = link.expect_publish().await;
        assert_eq!((again.text(), again.id, again.dup), ("brief", first.id, true));
    });
}

/// A subscription that finds nothing among many retained messages does not keep its thread from others.
#[test]
fn a_long_search_lets_others_in() {
    let house = House::start(|settings| settings.session.sys_interval = 0);
    run(async {
        let (mut publisher, _) = house.connect(&Connect::v5("publisher")).await;
        for n in 0..20_000 {
            publisher.send(&Publish::new(&format!("many/{n}/x"), "x").retain()).await.unwrap();
        }
        publisher.ping().await;
        let (mut searcher, _) = house.connect(&Connect::v5("searcher")).await;
        let filters: Vec<String> = (0..2_000).map(|n| format!("many/+/{n}")).collect();
        let filters: Vec<(&str, u8)> = filters.iter().map(|filter| (filter.as_str(), 0)).collect();
        searcher.send(&Subscribe::new(1, &filters)).await.unwrap();
        searcher.send(&Subscribe::new(2, &[("many/7/x", 0)])).await.unwrap();
        // its state is needed to take it over
        let (_taker, _) = house.connect(&Connect::v5("searcher")).await;
        loop {
            match searcher.recv().await {
                Ok(Packet::Disconnect(disconnect)) => return assert_eq!(disconnect.code, 0x8E),
                Ok(Packet::Suback(_)) => {}
                other => panic!("{other:?}: the search went to its end"),
            }
        }
    });
}

/// A filter of tens of thousands of levels would cost a hundred times its size.
#[test]
fn filters_of_many_levels() {
    run(async {
        let mut link = client().await;
        for (levels, code) in [(200, 1), (201, 0x8F), (60_000, 0x8F)] {
            let filter = "/".repeat(levels - 1);
            link.send(&Subscribe::new(3, &[(&filter, 1)])).await.unwrap();
            let suback = link.wait_for(|packet| match packet {
                Packet::Suback(suback) => Some(suback),
                _ => None,
            });
            assert_eq!(suback.await.codes, [code], "{levels}");
        }
    });
}

/// Waits as long as a duration can be, or panics, as the topic says.
struct Whim;

impl Plugin for Whim {
    fn name(&self) -> &'static str {
        "whim"
    }

    fn connect(&self, _: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(Some(Box::new(Whim)))
    }
}

impl Hook for Whim {
    fn on_publish(&mut self, publish: &tidegate_plugin::Publish<'_>) -> Verdict {
        match publish.topic {
            "wait" => Verdict::Delay(Duration::MAX),
            "panic" => panic!("{ON_PURPOSE}"),
            _ => Verdict::Continue,
        }
    }
}

/// A plugin's longest possible delay is only a long delay.
#[test]
fn the_longest_delay() {
    let house = House::with_plugin(|_| {}, Some(Box::new(Whim)));
    run(async {
        let (mut link, _) = house.connect(&Connect::v5("c")).await;
        link.send(&Publish::new("wait", "x")).await.unwrap();
        link.ping().await;
        drop(link);
        let (mut link, _) = house.connect(&Connect::v5("c")).await;
        link.publish("else", "x").await;
    });
}

/// A plugin that panics costs its client the connection, and nobody else anything.
#[test]
fn a_plugin_panics() {
    let house = House::with_plugin(|_| {}, Some(Box::new(Whim)));
    run(async {
        let (mut other, _) = house.connect(&Connect::v5("other")).await;
        other.subscribe("#", 0).await;
        // often enough to meet every thread
        for n in 0..20 {
            let will = Will::new("will", &n.to_string());
            let (mut link, _) = house.connect(&Connect::v311("c").will(will)).await;
            link.send(&Publish::new("panic", "x")).await.unwrap();
            assert_eq!(link.recv().await, Err(End::Closed));
            assert_eq!(other.expect_publish().await.text(), n.to_string());
            other.ping().await;
        }
        drop(other);
        house.wait_until_empty().await;
    });
}

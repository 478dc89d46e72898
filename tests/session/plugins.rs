//! What a plugin decides is done.

use tidegate_plugin::{Client, Hook, Plugin, Publish, Refusal, Subscribe, Verdict};

use crate::common::decode::Packet;
use crate::common::packet::{self, Connect, Encode, Version, Will};
use crate::common::property::*;
use crate::common::unique;
use crate::house::{End, House, run};

/// Answers what the topic says.
struct ByTopic;

impl Plugin for ByTopic {
    fn name(&self) -> &'static str {
        "by-topic"
    }

    fn connect(&self, _: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(Some(Box::new(Self)))
    }
}

impl Hook for ByTopic {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        answer(publish.topic)
    }

    fn on_subscribe(&mut self, subscribe: &Subscribe<'_>) -> Verdict {
        answer(subscribe.filter)
    }
}

fn answer(topic: &str) -> Verdict {
    match topic.split('/').next() {
        Some("drop") => Verdict::Drop,
        Some("refuse") => Verdict::Refuse(Refusal::not_authorized("not this one")),
        Some("close") => Verdict::Close(Refusal::not_authorized("not here")),
        _ => Verdict::Continue,
    }
}

fn house() -> House {
    House::with_plugin(|settings| settings.listen.connect_timeout = 3600, Some(Box::new(ByTopic)))
}

/// `Close` ends the connection, and MQTT 5 clients are told why; there is no SUBACK before.
#[test]
fn close_on_subscribe() {
    let house = house();
    run(async {
        for version in [Version::V5, Version::V311] {
            let (mut link, _) = house.connect(&Connect::new(version, &unique("close"))).await;
            let filters = [("fine", 1), ("close/it", 1)];
            link.send(&packet::Subscribe::new(1, &filters)).await.unwrap();
            if version == Version::V5 {
                let Ok(Packet::Disconnect(disconnect)) = link.recv().await else { panic!("no DISCONNECT") };
                assert_eq!(disconnect.code, 0x87);
                assert_eq!(disconnect.properties.text(REASON_STRING), Some("not here"));
            }
            assert_eq!(link.recv().await, Err(End::Closed));
        }
    });
}

/// `Refuse` on one filter refuses that one.
#[test]
fn refuse_on_subscribe() {
    let house = house();
    run(async {
        let (mut link, _) = house.connect(&Connect::v5(&unique("refuse"))).await;
        let filters = [("fine", 1), ("refuse/it", 1), ("drop/it", 1)];
        link.send(&packet::Subscribe::new(1, &filters)).await.unwrap();
        let Ok(Packet::Suback(suback)) = link.recv().await else { panic!("no SUBACK") };
        assert_eq!(suback.codes, [1, 0x87, 0x80]);
    });
}

/// A will that a plugin drops is not published; the client is let in, and the will of another one is published.
#[test]
fn drop_of_a_will() {
    let house = house();
    run(async {
        for (topic, expected) in [("drop/will", 0), ("keep/will", 1)] {
            let will = Will::new(topic, "gone").retain();
            let (link, _) = house.connect(&Connect::v5(&unique("will")).will(will)).await;
            drop(link);
            house.wait_until_empty().await;
            let (mut reader, _) = house.connect(&Connect::v5(&unique("reader"))).await;
            // retained, so that it would be there by now
            reader.send(&packet::Subscribe::new(1, &[("+/will", 1)])).await.unwrap();
            reader.wait_for(|packet| matches!(packet, Packet::Suback(_)).then_some(())).await;
            reader.send(&packet::PINGREQ.encode(Version::V5)).await.unwrap();
            let mut wills = 0;
            while let Packet::Publish(publish) = reader.recv().await.unwrap() {
                assert_eq!((&*publish.topic, publish.text()), ("keep/will", "gone"));
                wills += 1;
            }
            assert_eq!(wills, expected, "{topic}");
            drop(reader);
            house.wait_until_empty().await;
        }
    });
}

/// A will that a plugin refuses keeps the client out.
#[test]
fn refusal_of_a_will() {
    let house = house();
    run(async {
        let mut link = house.open(Version::V5, 4096);
        let connect = Connect::v5(&unique("will")).will(Will::new("refuse/will", "gone"));
        link.send(&connect).await.unwrap();
        assert!(matches!(link.recv().await, Ok(Packet::Connack(connack)) if connack.code == 0x87));
        assert_eq!(link.recv().await, Err(End::Closed));
    });
}

/// A gateway that stops does not wait for those who have not said who they are.
#[test]
fn the_nameless_are_closed_when_it_stops() {
    let house = house();
    run(async {
        let mut silent = house.open(Version::V5, 4096);
        let mut slow = house.open(Version::V5, 4096);
        slow.send(&Connect::v5("slow").encode(Version::V5)[..5]).await.unwrap();
        let (mut known, _) = house.connect(&Connect::v5("known")).await;
        house.gateway.drain();
        assert!(matches!(known.recv().await, Ok(Packet::Disconnect(disconnect)) if disconnect.code == 0x8B));
        for link in [&mut silent, &mut slow] {
            // not because `listen.connect_timeout` is over: that is an hour
            assert_eq!(link.recv().await, Err(End::Closed));
        }
    });
}

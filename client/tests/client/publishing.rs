//! A publisher against the real gateway with a played controller, and against acknowledgements that say something.

use std::time::Duration;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAck, PubAckProperties, PubAckReason};
use tidegate_client::{Connection, Policy, Publisher, Qos, Subscriber, Version};

use crate::gateway::Gateway;
use crate::scripted::{Answer, Scripted, takes_at_most};
use crate::{PLAYED, soon, until};

/// A client under the played prefix.
pub(crate) fn connection(url: &str, client: &str) -> Connection {
    Connection::new(url, client).unwrap().prefix(PLAYED)
}

/// Announces rates, retained, as the gateway would.
pub(crate) struct Controller {
    publisher: Publisher,
    seq: u64,
}

impl Controller {
    pub(crate) fn start(url: &str) -> Self {
        let publisher = Publisher::builder(connection(url, "controller")).retain(true).start().unwrap();
        Self { publisher, seq: 0 }
    }

    /// Announces a rate under a topic below the prefix.
    pub(crate) async fn announce(&mut self, topic: &str, rate: &str, ttl: Duration) {
        self.seq += 1;
        let (seq, ttl) = (self.seq, ttl.as_millis());
        let text =
            format!(r#"{{"v":1,"seq":{seq},"phase":"protect","rate":{rate},"burst":1,"ttl_ms":{ttl}}}"#);
        self.raw(topic, &text).await;
    }

    pub(crate) async fn raw(&self, topic: &str, text: &str) {
        self.publisher.offer(&format!("{PLAYED}/{topic}"), text);
        soon("an announcement", self.publisher.delivered()).await;
    }
}

/// Someone who takes everything under a filter.
pub(crate) async fn listener(url: &str, filter: &str) -> Subscriber {
    let id = format!("listener-{}", filter.replace(['/', '#', '+'], "-"));
    let subscriber = Subscriber::builder(connection(url, &id)).filter(filter).passive_only().start().unwrap();
    until("a subscription", || subscriber.stats().connections > 0).await;
    // The subscription goes out with the connection; a message of our own shows that it is in force.
    let (probe, mut subscriber) = (Publisher::builder(connection(url, "probe")).start().unwrap(), subscriber);
    let topic = filter.replace(['#', '+'], "probe");
    soon("the probe", async {
        loop {
            probe.offer(&topic, "probe");
            let patience = Duration::from_millis(200);
            // Others may publish there already.
            if let Ok(Some(update)) = tokio::time::timeout(patience, subscriber.next()).await
                && update.topic == topic
            {
                return;
            }
        }
    })
    .await;
    subscriber
}

async fn rates(version: Version) {
    let gateway = Gateway::start();
    let mut controller = Controller::start(&gateway.url());
    let connection = connection(&gateway.url(), "meter-1").version(version);
    let publisher = Publisher::builder(connection).class("slow").rate(1000.0).start().unwrap();
    let ttl = Duration::from_secs(600);
    controller.announce("rate", "50", ttl).await;
    until("the rate of all", || publisher.rate() == Some(50.0)).await;
    controller.announce("rate/class/slow", "20", ttl).await;
    until("the rate of its class", || publisher.rate() == Some(20.0)).await;
    controller.announce("rate/client/meter-1", "5", ttl).await;
    until("its own rate", || publisher.rate() == Some(5.0)).await;
    assert!(publisher.is_held_back());
    assert_eq!(publisher.interval(), Duration::from_millis(200));
    // Taken back: an empty retained message.
    controller.raw("rate/client/meter-1", "").await;
    until("the rate of its class again", || publisher.rate() == Some(20.0)).await;
    controller.announce("rate/class/slow", "null", ttl).await;
    until("freedom", || publisher.rate() == Some(1000.0)).await;
    controller.raw("rate/class/slow", r#"{"seq":1,"rate":7}"#).await;
    controller.raw("rate/class/slow", "rubbish").await;
    until("both counted", || publisher.stats().rates_stale == 1 && publisher.stats().nonsense == 1).await;
    assert_eq!(publisher.rate(), Some(1000.0));
    // A publisher that comes later gets what is retained.
    let late = Publisher::builder(self::connection(&gateway.url(), "meter-2")).start().unwrap();
    until("the retained rate", || late.rate() == Some(50.0)).await;
}

#[tokio::test]
async fn follows_everyone_class_and_client_with_mqtt_5() {
    rates(Version::V5).await;
}

#[tokio::test]
async fn follows_everyone_class_and_client_with_mqtt_3() {
    rates(Version::V311).await;
}

#[tokio::test]
async fn a_rate_is_left_when_nobody_confirms_it() {
    let gateway = Gateway::start();
    let mut controller = Controller::start(&gateway.url());
    let publisher =
        Publisher::builder(connection(&gateway.url(), "meter")).rate(2.0).growth(5.0).start().unwrap();
    controller.announce("rate", "0.5", Duration::from_millis(500)).await;
    until("the rate", || publisher.rate().is_some_and(|rate| rate < 2.0)).await;
    until("its own rate again", || publisher.rate() == Some(2.0) && !publisher.is_held_back()).await;
}

/// Every sample counts once, however messages are cut, with every version and quality of service.
#[tokio::test]
async fn the_mean_of_all_messages_is_that_of_all_samples() {
    let gateway = Gateway::start();
    let mut updates = listener(&gateway.url(), "mean/#").await;
    let variants = [
        (Version::V5, Qos::AtLeastOnce),
        (Version::V5, Qos::ExactlyOnce),
        (Version::V5, Qos::AtMostOnce),
        (Version::V311, Qos::AtLeastOnce),
        (Version::V311, Qos::ExactlyOnce),
    ];
    for (number, (version, qos)) in variants.into_iter().enumerate() {
        let connection = connection(&gateway.url(), &format!("mean-{number}")).version(version);
        let publisher =
            Publisher::builder(connection).policy(Policy::Mean).qos(qos).rate(20.0).start().unwrap();
        let topic = format!("mean/{number}");
        let mut offered = 0.0;
        for n in 0..300 {
            let sample = f64::from(n).sin();
            offered += sample;
            assert!(publisher.offer(&topic, sample));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        soon("delivery", publisher.delivered()).await;
        let (mut sum, mut count) = (0.0, 0);
        while count < 300 {
            let update = soon("a message", updates.next()).await.unwrap();
            assert_eq!((update.topic.as_str(), update.lost_before), (topic.as_str(), 0));
            let value: serde_json::Value = serde_json::from_slice(&update.payload).unwrap();
            let samples = value["count"].as_u64().unwrap();
            (sum, count) = (sum + value["mean"].as_f64().unwrap() * samples as f64, count + samples);
        }
        assert_eq!(count, 300);
        assert!((sum - offered).abs() < 1e-9, "{sum} {offered}");
        let stats = publisher.stats();
        assert!(stats.is_conserved() && stats.delivered_samples == 300, "{stats:?}");
        assert!(stats.delivered_messages < 300, "held to 20 a second, samples are merged");
        publisher.close().await;
    }
}

/// A broker that refuses the first two messages and says the rate, as PROTOCOL.md has it.
#[tokio::test]
async fn a_refusal_is_obeyed_and_the_message_goes_again() {
    let mut refusals = 2;
    let broker = Scripted::start(move |packet| {
        let Packet::Publish(publish) = packet else { return None };
        let refuse = refusals > 0;
        refusals -= i32::from(refuse);
        let (reason, wait) =
            if refuse { (PubAckReason::QuotaExceeded, "50") } else { (PubAckReason::Success, "0") };
        let user_properties = vec![("tide-rate".into(), "12.5".into()), ("tide-wait-ms".into(), wait.into())];
        let properties = Some(PubAckProperties { reason_string: None, user_properties });
        Some(Answer::send([Packet::PubAck(PubAck { pkid: publish.pkid, reason, properties })]))
    })
    .await;
    let publisher = Publisher::builder(connection(&broker.url(), "meter")).start().unwrap();
    publisher.offer_urgent("alarm", "first").unwrap();
    publisher.offer_urgent("alarm", "second").unwrap();
    soon("delivery", publisher.delivered()).await;
    assert_eq!(broker.payloads("alarm"), ["first", "first", "first", "second"]);
    let stats = publisher.stats();
    assert_eq!((stats.pushed_back, stats.urgent_delivered), (2, 2));
    assert_eq!(publisher.rate(), Some(12.5));
}

#[tokio::test]
async fn without_a_broker_nothing_blocks_and_nothing_grows() {
    // A port on which nobody listens.
    let publisher = Publisher::builder(connection("mqtt://127.0.0.1:1", "meter"))
        .policy(Policy::Batch { samples: 1000, bytes: 10_000 })
        .buffer(50, 100_000)
        .urgent_buffer(10, 1_000)
        .start()
        .unwrap();
    for n in 0..200_000 {
        publisher.offer(&format!("t/{}", n % 100), Bytes::from_static(b"twenty bytes or so.."));
        if n % 1000 == 0 {
            let _ = publisher.offer_urgent("alarm", "x");
            tokio::task::yield_now().await;
            assert!(publisher.buffered_bytes() <= 100_000);
        }
    }
    let stats = publisher.stats();
    assert!(stats.is_conserved(), "{stats:?}");
    assert_eq!((stats.urgent_waiting, stats.connections), (10, 0));
}

/// What is left when everything has come to an end: what was too large, and what is no news.
#[tokio::test]
async fn whoever_waits_for_delivery_does_not_wait_for_what_never_goes() {
    let broker = Scripted::start(|packet| match packet {
        Packet::Connect(..) => Some(Answer::send([takes_at_most(100)])),
        _ => None,
    })
    .await;
    let builder =
        Publisher::builder(connection(&broker.url(), "meter")).min_interval(Duration::from_millis(1));
    let publisher = builder.deadband(1.0).start().unwrap();
    until("a connection", || publisher.stats().connections == 1).await;
    let delivered =
        async { tokio::join!(publisher.delivered(), async { publisher.offer("t", "x".repeat(200)) }) };
    publisher.offer("large", "x".repeat(200));
    soon("the end of what is too large", delivered).await;
    publisher.offer("value", 20.0);
    soon("a value", publisher.delivered()).await;
    publisher.offer("value", 20.5);
    soon("the end of what is no news", publisher.delivered()).await;
    let stats = publisher.stats();
    assert_eq!((stats.rejected_samples, stats.delivered_samples, stats.waiting), (2, 1, 1));
}

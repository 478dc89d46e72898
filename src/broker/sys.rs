//! `$SYS/broker/...`: retained messages about the broker itself.

use std::sync::Weak;
use std::time::Duration;

use super::Broker;
use super::message::Parts;
use crate::wire::QoS;

/// Publishes them every `session.sys_interval` seconds while the broker lives.
pub(super) async fn run(broker: Weak<Broker>) {
    let Some(interval) = broker.upgrade().map(|broker| broker.settings.session.sys_interval) else { return };
    if interval == 0 {
        return;
    }
    let mut tick = tokio::time::interval(Duration::from_secs(interval.into()));
    let (mut last, mut seconds) = (Load::default(), 0);
    loop {
        tick.tick().await;
        seconds += u32::from(interval);
        let Some(broker) = broker.upgrade() else { return };
        // when much waits, the next update says as much as this one would
        if !broker.own.crowded() {
            last = broker.publish_sys(last, seconds);
            seconds = 0;
        }
    }
}

/// Counts at the last update, from which rates are made.
#[derive(Debug, Default, Clone, Copy)]
struct Load {
    received: u64,
    sent: u64,
    bytes_received: u64,
    bytes_sent: u64,
}

impl Broker {
    fn publish_sys(&self, last: Load, seconds: u32) -> Load {
        let stats = &self.stats;
        let levels = self.levels();
        let load = Load {
            received: stats.published.get(),
            sent: stats.delivered.get(),
            bytes_received: stats.bytes_received.get(),
            bytes_sent: stats.bytes_sent.get(),
        };
        let rate = |now: u64, before: u64| format!("{:.2}", (now - before) as f64 / f64::from(seconds));
        let dropped = stats.dropped_full.get() + stats.dropped_expired.get() + stats.dropped_large.get();
        let values = [
            ("version", format!("tidegate {}", env!("CARGO_PKG_VERSION"))),
            ("uptime", format!("{} seconds", self.clock.now() / 1000)),
            ("clients/connected", levels.connected.to_string()),
            ("clients/total", levels.sessions.to_string()),
            ("clients/disconnected", (levels.sessions as u64).saturating_sub(levels.connected).to_string()),
            ("subscriptions/count", levels.subscriptions.to_string()),
            ("retained messages/count", levels.retained.to_string()),
            ("messages/received", load.received.to_string()),
            ("messages/sent", load.sent.to_string()),
            ("messages/stored", levels.waiting.to_string()),
            ("messages/dropped", dropped.to_string()),
            ("bytes/received", load.bytes_received.to_string()),
            ("bytes/sent", load.bytes_sent.to_string()),
            ("load/messages/received", rate(load.received, last.received)),
            ("load/messages/sent", rate(load.sent, last.sent)),
            ("load/bytes/received", rate(load.bytes_received, last.bytes_received)),
            ("load/bytes/sent", rate(load.bytes_sent, last.bytes_sent)),
        ];
        for (name, value) in values {
            let topic = format!("$SYS/broker/{name}");
            let parts = Parts {
                topic: &topic,
                properties: b"",
                payload: value.as_bytes(),
                qos: QoS::AtMostOnce,
                retain: true,
                urgent: false,
                ordinal: 0,
                expires: 0,
            };
            self.publish_own(0, parts);
        }
        load
    }
}

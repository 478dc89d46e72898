//! What the ledger asks of a consumer queue, and what plugins may ask of the broker.

use std::sync::Arc;

use tidegate_control::time::Moment;
use tidegate_plugin::{Host, Publisher, QueueReport};

use super::Broker;
use super::message::Parts;
use super::queue::Stated;
use super::topic;
use super::tree::{Subscription, Target};
use crate::ledger::{Measured, name};
use crate::wire::{QoS, correlation_data};

impl Measured for Subscription {
    fn measure(&self, now: Moment) -> Option<QueueReport> {
        let mut filter = Arc::clone(&self.filter);
        let mut filters: Arc<[_]> = Arc::new([]);
        let (id, name, group, qos, in_flight, consumers, stated) = match &self.target {
            Target::Session(session) => {
                let mut state = session.state.lock();
                let (in_flight, qos) = (state.inflight.len() as u64, state.highest_qos());
                // whichever subscription the first message came through
                filters = state.filters();
                drop(state);
                filter = filters.first().map_or(filter, Arc::clone);
                let connected = u32::from(session.queue.is_connected());
                let stated = session.queue.statement(now, connected, in_flight);
                let name = name::of_client(&session.client_id, &filter);
                (session.number, name, None, qos, in_flight, connected, stated)
            }
            Target::Group(group) => {
                let (consumers, in_flight, qos) = group.at_work();
                let members =
                    topic::split_share(&group.path).ok().flatten().map_or("", |(members, _)| members);
                let stated = group.queue.statement(now, consumers, in_flight);
                let name = name::of_group(members, &filter);
                (group.number, name, Some(members.into()), qos, in_flight, consumers, stated)
            }
        };
        if filters.is_empty() {
            filters = Arc::new([Arc::clone(&filter)]);
        }
        let Stated { statement, waiting, age, held, never_holds } = stated?;
        Some(QueueReport {
            id,
            name,
            group,
            filter,
            filters,
            qos: qos as u8,
            consumers,
            reading: statement.reading,
            waiting,
            age,
            in_flight,
            soonest: statement.soonest,
            dropped: statement.dropped,
            lost: statement.lost,
            delays: statement.delays,
            feeders: statement.feeders,
            held,
            never_holds,
            elsewhere: None,
        })
    }
}

impl Broker {
    /// Publishes a message of a plugin, unless too many wait.
    fn publish_for_plugin(&self, parts: Parts<'_>) {
        if !self.own.crowded() {
            self.publish_own(0, parts);
            return;
        }
        self.stats.own_left_out.add(1);
        // who subscribes later shall get the newest one nevertheless
        if parts.retain {
            self.retain(0, parts);
        }
    }
}

/// A message of a plugin.
fn parts<'a>(topic: &'a str, payload: &'a [u8], retain: bool) -> Parts<'a> {
    Parts {
        topic,
        properties: b"",
        payload,
        qos: QoS::AtMostOnce,
        retain,
        urgent: false,
        ordinal: 0,
        expires: 0,
    }
}

impl Host for Broker {
    fn publish(&self, topic: &str, payload: &[u8], retain: bool) {
        self.publish_for_plugin(parts(topic, payload, retain));
    }

    fn retain(&self, topic: &str, payload: &[u8]) {
        Broker::retain(self, 0, parts(topic, payload, true));
    }

    fn respond(&self, topic: &str, payload: &[u8], correlation: Option<&[u8]>) -> bool {
        if self.own.crowded() {
            return false;
        }
        let mut properties = Vec::new();
        if let Some(data) = correlation {
            correlation_data(&mut properties, data);
        }
        self.publish_own(0, Parts { properties: &properties, ..parts(topic, payload, false) });
        true
    }

    fn subscribers(&self, topic: &str) -> usize {
        let mut count = 0;
        self.tree.read().each_match(topic, |_| count += 1);
        count
    }

    fn publisher(&self, number: u64) -> Option<Arc<Publisher>> {
        self.gates.find(number).map(|gate| Arc::clone(&gate.publisher))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::message::Message;
    use super::super::own::ENOUGH;
    use super::super::queue::{Entry, HoldPolicy, Limits};
    use super::super::session::Session;
    use super::*;
    use crate::chain::Chain;
    use crate::config::Settings;

    /// A queue has its name and its filters from the client's subscriptions, not from the one that a message came through.
    #[tokio::test]
    async fn a_report_names_all_filters_of_a_client() {
        let broker = Broker::start(Settings::default(), Chain::default()).unwrap();
        let session = Arc::new(Session::new(1, "c".into()));
        session.queue.connect(1);
        let limits = Limits { measured: true, ..broker.limits.clone() };
        let (qos, retain) = (QoS::AtLeastOnce, false);
        let message = Arc::new(Message::new(1, &parts("billing/1", b"x", retain)));
        session.queue.push(vec![Entry { message, extra: None, since: 1, qos, retain }], 1, &limits);
        let subscribe = |filter: &str, since| {
            let subscription = Arc::new(Subscription {
                target: Target::Session(Arc::clone(&session)),
                filter: filter.into(),
                qos: QoS::AtLeastOnce,
                no_local: false,
                retain_as_published: false,
                since,
                extra: None,
                policy: HoldPolicy::WhileProgress,
            });
            let mut state = session.state.lock();
            state.count(&subscription, false);
            state.subscriptions.insert(filter.into(), Arc::clone(&subscription));
            subscription
        };
        let (billing, debug) = (subscribe("billing/#", 1), subscribe("debug/#", 2));
        for via in [&billing, &debug, &subscribe("$SYS/#", 3)] {
            let report = via.measure(Moment::from_secs_f64(1.0)).unwrap();
            assert_eq!((&*report.name, &*report.filter), ("client/c:billing/#", "billing/#"));
            assert_eq!(*report.filters, ["billing/#".into(), "debug/#".into()]);
        }
    }

    /// In a runtime of one thread nothing leaves until the test waits.
    #[tokio::test]
    async fn messages_of_plugins_are_bounded() {
        let broker = Broker::start(Settings::default(), Chain::default()).unwrap();
        let payload = vec![b'x'; 64 * 1024];
        let sent = 2 * ENOUGH / payload.len();
        for _ in 0..sent {
            broker.publish("control/much", &payload, false);
        }
        let left_out = broker.stats.own_left_out.get() as usize;
        let accepted = (sent - left_out) * payload.len();
        assert!(accepted > ENOUGH / 2 && accepted <= ENOUGH + payload.len(), "{accepted}");
        broker.publish("control/state", b"newest", true);
        assert_eq!(broker.stats.own_left_out.get() as usize, left_out + 1);
        assert_eq!(broker.levels().retained, 1);
        Host::retain(&*broker, "control/later", b"newest");
        assert_eq!(broker.levels().retained, 2);
        Host::retain(&*broker, "control/later", b"");
        assert_eq!(broker.levels().retained, 1);
        assert!(!broker.respond("control/answer", b"x", None), "it is not lost: whoever answers tries again");
        assert_eq!(broker.stats.own_left_out.get() as usize, left_out + 1);
        broker.own.room().await;
        assert!(broker.respond("control/answer", b"x", Some(b"1")));
        broker.publish("control/much", b"x", false);
        assert_eq!(broker.stats.own_left_out.get() as usize, left_out + 1);
    }
}

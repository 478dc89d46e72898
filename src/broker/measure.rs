//! What the ledger asks of a consumer queue, and what plugins may ask of the broker.

use std::sync::Arc;

use tidegate_control::time::Moment;
use tidegate_plugin::{Host, Publisher, QueueReport};

use super::Broker;
use super::message::Parts;
use super::queue::Stated;
use super::topic;
use super::tree::{Subscription, Target};
use crate::ledger::Measured;
use crate::wire::QoS;

impl Measured for Subscription {
    fn measure(&self, now: Moment) -> Option<QueueReport> {
        let (id, owner, group, in_flight, consumers, stated) = match &self.target {
            Target::Session(session) => {
                let in_flight = session.state.lock().inflight.len() as u64;
                let connected = u32::from(session.queue.is_connected());
                let stated = session.queue.statement(now, connected, in_flight);
                (session.number, &*session.client_id, None, in_flight, connected, stated)
            }
            Target::Group(group) => {
                let (consumers, in_flight) = group.at_work();
                let name = topic::split_share(&group.path).ok().flatten().map_or("", |(name, _)| name);
                let stated = group.queue.statement(now, consumers, in_flight);
                (group.number, name, Some(name.into()), in_flight, consumers, stated)
            }
        };
        let Stated { statement, waiting, age, held } = stated?;
        Some(QueueReport {
            id,
            name: format!("{owner}:{}", self.filter).into(),
            group,
            filter: Arc::clone(&self.filter),
            qos: self.qos as u8,
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
        })
    }
}

impl Host for Broker {
    fn publish(&self, topic: &str, payload: &[u8], retain: bool) {
        let qos = QoS::AtMostOnce;
        let parts = Parts { topic, properties: b"", payload, qos, retain, ordinal: 0, expires: 0 };
        self.publish_own(0, parts);
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

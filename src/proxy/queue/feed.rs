//! Subscriptions that feed a queue, and what they all together want of it.

use std::sync::Arc;

use super::Queue;
use crate::broker::tree::Subscribed;
use crate::wire::QoS;

/// A subscription as the tree holds it.
pub(in crate::proxy) struct Feed {
    pub(in crate::proxy) queue: Arc<Queue>,
    pub(in crate::proxy) qos: QoS,
    /// It must not hold publishers.
    pub(in crate::proxy) never: bool,
    /// Its client is at another node.
    pub(in crate::proxy) guest: bool,
    /// The connection that does not want its own messages.
    pub(in crate::proxy) not_from: Option<u64>,
    /// The consumer gets the retain flag as it was published, so that it does not tell what was stored.
    pub(in crate::proxy) as_published: bool,
}

impl Feed {
    /// It is in force.
    pub(in crate::proxy) fn begin(&self, filter: &str) {
        self.queue.subscribed(filter, self.qos, self.never, self.guest);
    }

    /// It is in force no longer.
    pub(in crate::proxy) fn end(&self) {
        self.queue.state.lock().terms.count(self.qos, self.never, self.guest, -1);
    }
}

/// How many subscriptions that are in force want what.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// By QoS: those of clients that are here, and of all clients.
    here: [i64; 3],
    all: [i64; 3],
    /// Those that must not hold publishers.
    pub(super) never: i64,
}

impl Terms {
    pub(super) fn count(&mut self, qos: QoS, never: bool, guest: bool, by: i64) {
        self.here[qos as usize] += if guest { 0 } else { by };
        self.all[qos as usize] += by;
        self.never += if never { by } else { 0 };
    }

    /// The highest QoS of clients that are here, if there are any.
    pub(super) fn here(&self) -> Option<QoS> {
        highest(&self.here)
    }

    /// The highest QoS of all.
    pub(super) fn qos(&self) -> QoS {
        highest(&self.all).unwrap_or(QoS::AtMostOnce)
    }
}

fn highest(counts: &[i64; 3]) -> Option<QoS> {
    let all = [QoS::ExactlyOnce, QoS::AtLeastOnce, QoS::AtMostOnce];
    all.into_iter().find(|qos| counts[*qos as usize] > 0)
}

impl Subscribed for Feed {
    fn key(&self) -> (bool, usize) {
        (self.queue.group.is_some(), self.queue.number as usize)
    }
}

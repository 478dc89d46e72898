//! A dispatcher: reads a shard of the spine, matches, and appends to consumer queues. It never waits for a consumer.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::Broker;
use super::message::{BatchReader, Frame, Message};
use super::queue::{Entry, Extra, Pushed, Queue};
use super::spine::Outlet;
use super::tree::{Subscribed as _, Subscription, Target};
use crate::ledger::Measured;
use crate::wire::QoS;

/// Bytes taken from the spine in one turn: enough to share a lock, few enough that a full queue is seen soon.
const TURN: usize = 128 * 1024;
/// Milliseconds between two reports of dropped messages.
const REPORT_INTERVAL: u64 = 1000;
/// Topics whose matches are remembered, and about how many bytes they may take.
const CACHE: usize = 8192;
const CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Entries that wait for the end of a turn: with many subscribers to each message they would be far too many.
const PENDING: usize = 256 * 1024;

/// Runs until the broker is dropped. On a thread of its own: it blocks, and while it does it does not keep the broker.
pub fn run(broker: Weak<Broker>, mut outlet: Outlet) {
    let mut dispatcher = Dispatcher::default();
    let mut batches = Vec::new();
    loop {
        match outlet.receive(&mut batches, TURN) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::error!(%error, "the spine stopped: no more messages are dispatched");
                return;
            }
        }
        // without it nobody is left to get anything: what comes out until the end is thrown away
        if let Some(broker) = broker.upgrade() {
            dispatcher.lost(&broker, outlet.lost());
            for batch in batches.drain(..) {
                dispatcher.batch(&broker, batch);
            }
            dispatcher.flush(&broker);
        }
        batches.clear();
        outlet.settle();
    }
}

#[derive(Default)]
struct Dispatcher {
    /// Matches of recent topics, as of `generation` of the tree.
    plans: HashMap<Box<[u8]>, Plan>,
    plans_bytes: usize,
    generation: u64,
    /// What goes to each target at the end of this turn, and how much that is.
    pending: Vec<Pending>,
    waiting: usize,
    places: HashMap<(bool, usize), usize>,
    lost: u64,
    /// Messages dropped since the last report, and when the next one may be.
    unreported: u64,
    report_after: u64,
}

/// The subscriptions that match a topic, those of one session together.
type Plan = Arc<[Item]>;

enum Item {
    One(Arc<Subscription>),
    Overlapping(Vec<Arc<Subscription>>),
}

struct Pending {
    via: Arc<Subscription>,
    entries: Vec<Entry>,
}

impl Dispatcher {
    fn lost(&mut self, broker: &Broker, lost: u64) {
        if lost > self.lost {
            tracing::error!(batches = lost - self.lost, "messages were lost in the spine");
            broker.stats.spine_lost.add(lost - self.lost);
            self.lost = lost;
        }
    }

    fn batch(&mut self, broker: &Broker, batch: Bytes) {
        let Some(mut reader) = BatchReader::new(batch) else { return };
        self.forget_old_plans(broker);
        let now = broker.clock.now();
        // publishers tend to repeat their topic
        let mut last: Option<(Frame, Plan)> = None;
        while let Some(frame) = reader.next_frame() {
            let topic = reader.topic(&frame);
            let plan = match &last {
                Some((known, plan)) if reader.topic(known) == topic => Arc::clone(plan),
                _ => self.plan(broker, topic),
            };
            if !plan.is_empty() {
                let message = reader.message(&frame);
                for item in plan.iter() {
                    if let Some((via, entry)) = item.entry(&message, now) {
                        self.add(via, entry);
                    }
                }
                if self.waiting >= PENDING {
                    self.flush(broker);
                }
            }
            last = Some((frame, plan));
        }
    }

    fn forget_old_plans(&mut self, broker: &Broker) {
        let generation = broker.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.forget_plans();
            self.generation = generation;
        }
    }

    fn forget_plans(&mut self) {
        self.plans.clear();
        self.plans_bytes = 0;
    }

    fn plan(&mut self, broker: &Broker, topic: &[u8]) -> Plan {
        if let Some(plan) = self.plans.get(topic) {
            return Arc::clone(plan);
        }
        // it was text when it was accepted
        let name = std::str::from_utf8(topic).unwrap_or_default();
        let mut found: Vec<Arc<Subscription>> = Vec::new();
        broker.tree.read().each_match(name, |subscription| found.push(Arc::clone(subscription)));
        let plan: Plan = group_by_target(found).into();
        let bytes = topic.len() + plan.iter().map(Item::bytes).sum::<usize>();
        if self.plans.len() >= CACHE || self.plans_bytes + bytes > CACHE_BYTES {
            self.forget_plans();
        }
        self.plans_bytes += bytes;
        self.plans.insert(topic.into(), Arc::clone(&plan));
        plan
    }

    fn add(&mut self, via: &Arc<Subscription>, entry: Entry) {
        self.waiting += 1;
        let key = via.key();
        // most often it is the target of the message before
        if let Some(pending) = self.pending.last_mut()
            && pending.via.key() == key
        {
            pending.entries.push(entry);
            return;
        }
        let place = *self.places.entry(key).or_insert_with(|| {
            self.pending.push(Pending { via: Arc::clone(via), entries: Vec::new() });
            self.pending.len() - 1
        });
        self.pending[place].entries.push(entry);
    }

    /// Hands every queue its batch under one lock.
    fn flush(&mut self, broker: &Broker) {
        self.places.clear();
        self.waiting = 0;
        let now = broker.clock.now();
        for Pending { via, entries } in std::mem::take(&mut self.pending) {
            broker.stats.queued.add(entries.len() as u64);
            // kept only in case the queue turns out to be over its bound
            let publishers = Publishers::of(&entries);
            let limits = &broker.limits;
            match &via.target {
                Target::Session(session) => {
                    let pushed = session.queue.push(entries, now, limits);
                    self.settle(broker, &session.queue, pushed, publishers, &via);
                }
                Target::Group(group) => {
                    let pushed = group.push(entries, now, limits);
                    self.settle(broker, &group.queue, pushed, publishers, &via);
                }
            }
        }
    }

    fn settle(
        &mut self,
        broker: &Broker,
        queue: &Queue,
        pushed: Pushed,
        publishers: Publishers,
        via: &Arc<Subscription>,
    ) {
        if pushed.opened {
            broker.ledger.enter(via.number(), Arc::clone(via) as Arc<dyn Measured>);
        }
        broker.stats.dropped_gone.add(pushed.unwanted);
        self.report_drops(broker, queue, pushed.dropped, via);
        if pushed.over {
            let gates =
                publishers.0.into_iter().filter_map(|number| Some((number, broker.gates.find(number)?)));
            let held = queue.hold(gates, broker.clock.now(), &broker.limits);
            broker.stats.holds.add(held.count);
            if held.count > 0 {
                broker.watch_progress(via, held.began);
            }
        }
        if let Some(waker) = pushed.wake {
            waker.wake();
        }
    }
}

impl Dispatcher {
    /// A drop is never silent: counted each time, logged at most once a second.
    fn report_drops(&mut self, broker: &Broker, queue: &Queue, dropped: u64, via: &Arc<Subscription>) {
        broker.stats.dropped_full.add(dropped);
        self.unreported += dropped;
        let now = broker.clock.now();
        if self.unreported > 0 && now >= self.report_after {
            let state = queue.state(now);
            tracing::warn!(
                consumer = via.consumer(),
                dropped = self.unreported,
                ?state,
                "queues over their bound"
            );
            self.unreported = 0;
            self.report_after = now + REPORT_INTERVAL;
        }
    }
}

/// The publishers of a run of entries, each once where they follow each other.
struct Publishers(Vec<u64>);

impl Publishers {
    fn of(entries: &[Entry]) -> Self {
        let mut publishers = Vec::with_capacity(8);
        for entry in entries {
            if publishers.last() != Some(&entry.message.publisher) {
                publishers.push(entry.message.publisher);
            }
        }
        Self(publishers)
    }
}

impl Item {
    /// What remembering it costs.
    fn bytes(&self) -> usize {
        let more = match self {
            Self::One(_) => 0,
            Self::Overlapping(all) => std::mem::size_of_val(&all[..]),
        };
        std::mem::size_of::<Self>() + more
    }

    /// The entry for this target, and the subscription to send it through; `None` when it gets none.
    fn entry(&self, message: &Arc<Message>, now: u64) -> Option<(&Arc<Subscription>, Entry)> {
        match self {
            Self::One(subscription) => {
                if !subscription.wants(message) {
                    return None;
                }
                let entry = Entry {
                    message: Arc::clone(message),
                    extra: subscription.extra.clone(),
                    since: now,
                    qos: message.qos.min(subscription.qos),
                    retain: message.retain && subscription.retain_as_published,
                };
                Some((subscription, entry))
            }
            Self::Overlapping(all) => overlapping(all, message, now),
        }
    }
}

/// One copy for all matching subscriptions of a client: at the highest QoS, with all their identifiers.
fn overlapping<'a>(
    all: &'a [Arc<Subscription>],
    message: &Arc<Message>,
    now: u64,
) -> Option<(&'a Arc<Subscription>, Entry)> {
    let wanting = || all.iter().filter(|subscription| subscription.wants(message));
    let first = wanting().next()?;
    let qos = wanting().map(|subscription| subscription.qos).max().unwrap_or(QoS::AtMostOnce);
    let identifiers: Box<[u32]> = wanting()
        .filter_map(|subscription| subscription.extra.as_ref())
        .flat_map(|extra| extra.identifiers.iter().copied())
        .collect();
    let entry = Entry {
        message: Arc::clone(message),
        extra: (!identifiers.is_empty()).then(|| Arc::new(Extra { identifiers, group: None })),
        since: now,
        qos: message.qos.min(qos),
        retain: message.retain && wanting().any(|subscription| subscription.retain_as_published),
    };
    Some((first, entry))
}

fn group_by_target(mut found: Vec<Arc<Subscription>>) -> Vec<Item> {
    found.sort_by_key(|subscription| subscription.key());
    let mut items: Vec<Item> = Vec::with_capacity(found.len());
    for run in found.chunk_by(|a, b| a.key() == b.key()) {
        items.push(match run {
            [one] => Item::One(Arc::clone(one)),
            several => Item::Overlapping(several.to_vec()),
        });
    }
    items
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::message::{BatchWriter, Parts};
    use super::*;
    use crate::chain::Chain;
    use crate::config::Settings;

    /// Long topics, or many subscribers to each, do not make the memory of matches grow without bound.
    #[tokio::test]
    async fn matches_are_remembered_within_a_bound() {
        let broker = Broker::start(Settings::default(), Chain::default()).unwrap();
        let mut dispatcher = Dispatcher::default();
        for number in 0..600 {
            let topic = format!("{number}{}", "x".repeat(60_000));
            let mut batch = BatchWriter::default();
            batch.start(1);
            let parts = Parts {
                topic: &topic,
                properties: b"",
                payload: b"",
                qos: QoS::AtMostOnce,
                retain: false,
                urgent: false,
                ordinal: 1,
                expires: 0,
            };
            batch.push(&parts, |_| {});
            dispatcher.batch(&broker, batch.finish());
            let bytes: usize = dispatcher.plans.keys().map(|topic| topic.len()).sum();
            assert!(bytes <= CACHE_BYTES, "{bytes} bytes of topics");
        }
        assert!(!dispatcher.plans.is_empty());
    }
}

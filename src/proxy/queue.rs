//! What the upstream keeps for one consumer or one shared group, as far as a proxy can know it.
//!
//! Arrivals are messages that passed and match a subscription. They wait upstream until they are seen on their way to a
//! consumer, and depart when it acknowledges them or, with QoS 0, when its socket takes them. What does not come although
//! the consumers have room for more was lost upstream.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::flow::Flow;
use tidegate_control::time::Moment;
use tidegate_plugin::QueueReport;

use crate::broker::clock::{Millis, moment};
use crate::broker::tree::Subscribed;
use crate::ledger::{Account, Measured, QUIET_TURNS};
use crate::wire::QoS;

/// How long consumers must have had room before what does not come counts as lost, in milliseconds.
const ROOM: u64 = 500;

/// The queue of one session or of one group.
pub(super) struct Queue {
    pub(super) number: u64,
    owner: Arc<str>,
    group: Option<Arc<str>>,
    /// Messages that the upstream keeps for one consumer; 0 is not known.
    limit: u64,
    state: Mutex<State>,
}

struct State {
    account: Account,
    /// What passed and has not been sent to a consumer: all of it waits upstream.
    upstream: Flow,
    /// The ledger asks for statements.
    listed: bool,
    filter: Arc<str>,
    qos: QoS,
    consumers: u32,
    in_flight: u64,
    /// Consumers that have as much as they can take.
    full: u32,
    /// When the last one had.
    full_at: Millis,
    /// The fewest messages that waited upstream since then.
    least: u64,
    /// Messages that came since the last statement.
    fresh: u64,
}

/// A subscription as the tree holds it.
pub(super) struct Feed {
    pub(super) queue: Arc<Queue>,
    pub(super) qos: QoS,
    /// The connection that does not want its own messages.
    pub(super) not_from: Option<u64>,
}

impl Queue {
    pub(super) fn new(
        number: u64,
        owner: Arc<str>,
        group: Option<Arc<str>>,
        limit: u64,
        now: Millis,
    ) -> Self {
        let state = State {
            account: Account::open(moment(now)),
            upstream: Flow::new(moment(now)),
            listed: false,
            filter: "".into(),
            qos: QoS::AtMostOnce,
            consumers: 0,
            in_flight: 0,
            full: 0,
            full_at: now,
            least: 0,
            fresh: 0,
        };
        Self { number, owner, group, limit, state: Mutex::new(state) }
    }

    /// A consumer subscribes.
    pub(super) fn subscribed(&self, filter: &str, qos: QoS) {
        let mut state = self.state.lock();
        if state.filter.is_empty() {
            state.filter = filter.into();
        }
        state.qos = state.qos.max(qos);
    }

    /// Messages passed that are for this queue; `true` when the ledger must be told of it.
    pub(super) fn arrive(&self, now: Millis, publisher: u64, qos: QoS, count: u32) -> bool {
        let mut state = self.state.lock();
        if qos == QoS::AtMostOnce && state.consumers == 0 {
            // nobody is there, and such messages are not kept
            return false;
        }
        let (at, count64) = (moment(now), u64::from(count));
        state.account.arrive(at, count64);
        state.account.fed_by(publisher, count);
        state.upstream.arrive(at, count64);
        state.fresh += count64;
        if qos != QoS::AtMostOnce && self.limit != 0 {
            let room = self.limit.saturating_mul(state.consumers.max(1).into());
            let over = (state.upstream.depth() + state.in_flight).saturating_sub(room).min(count64);
            state.lose(at, over);
        }
        !std::mem::replace(&mut state.listed, true)
    }

    /// A message is on its way to a consumer; `true` when the ledger must be told of it. `stored` says that it was
    /// retained, so that it never waited.
    pub(super) fn deliver(&self, now: Millis, qos: QoS, stored: bool) -> bool {
        let mut state = self.state.lock();
        let at = moment(now);
        let waited = state.upstream.delay(at).as_nanos() / 1_000_000;
        if stored || state.upstream.depart(at, 1) == 0 {
            // published elsewhere: it arrives as we see it
            state.account.arrive(at, 1);
        } else {
            state.account.waited(waited);
        }
        state.least = state.least.min(state.upstream.depth());
        state.in_flight += u64::from(qos != QoS::AtMostOnce);
        !std::mem::replace(&mut state.listed, true)
    }

    /// A consumer is done with messages, the quickest one after so many milliseconds; `acknowledged` ones were in flight.
    pub(super) fn finish(&self, now: Millis, count: u64, acknowledged: bool, soonest: u64) {
        let mut state = self.state.lock();
        state.account.depart(moment(now), count, soonest);
        if acknowledged {
            state.in_flight = state.in_flight.saturating_sub(count);
        }
    }

    /// A consumer is there.
    pub(super) fn join(&self, now: Millis) {
        let mut state = self.state.lock();
        state.consumers += 1;
        state.note_full(now);
    }

    /// A consumer is gone with so many messages in flight: if its session is kept, the upstream has them again.
    pub(super) fn part(&self, now: Millis, in_flight: u64, full: bool) {
        let mut state = self.state.lock();
        state.consumers = state.consumers.saturating_sub(1);
        state.in_flight = state.in_flight.saturating_sub(in_flight);
        state.full -= u32::from(full).min(state.full);
        state.upstream.arrive(moment(now), in_flight);
        state.note_full(now);
    }

    /// A consumer has as much as it can take, or has room again.
    pub(super) fn set_full(&self, now: Millis, full: bool) {
        let mut state = self.state.lock();
        if full {
            state.full += 1;
        } else {
            state.full = state.full.saturating_sub(1);
        }
        state.note_full(now);
    }

    /// Messages that wait upstream.
    pub(super) fn waiting(&self) -> u64 {
        self.state.lock().upstream.depth()
    }
}

impl State {
    fn note_full(&mut self, now: Millis) {
        self.full_at = now;
        self.least = u64::MAX;
    }

    fn lose(&mut self, at: Moment, count: u64) {
        let lost = self.upstream.lose(at, count);
        self.account.lose(at, lost);
    }

    /// What did not come although there was room for it all the time is lost.
    fn settle(&mut self, now: Moment, millis: Millis) {
        let old = self.upstream.depth().saturating_sub(std::mem::take(&mut self.fresh));
        self.least = self.least.min(old);
        if self.full > 0 || self.consumers == 0 {
            self.note_full(millis);
        } else if millis >= self.full_at + ROOM {
            let missing = self.least;
            self.lose(now, missing);
            self.note_full(millis);
        }
    }
}

impl Measured for Queue {
    fn measure(&self, now: Moment) -> Option<QueueReport> {
        let mut state = self.state.lock();
        state.settle(now, now.as_nanos() / 1_000_000);
        let waiting = state.upstream.depth();
        let (consumers, in_flight) = (state.consumers, state.in_flight);
        let statement = state.account.statement(now, consumers, u64::MAX);
        if statement.quiet > QUIET_TURNS {
            state.listed = false;
            return None;
        }
        Some(QueueReport {
            id: self.number,
            name: format!("{}:{}", self.owner, state.filter).into(),
            group: self.group.clone(),
            filter: Arc::clone(&state.filter),
            qos: state.qos as u8,
            consumers,
            reading: statement.reading,
            waiting,
            age: state.upstream.delay(now),
            in_flight,
            soonest: statement.soonest,
            dropped: statement.dropped,
            lost: statement.lost,
            delays: statement.delays,
            feeders: statement.feeders,
            held: 0,
        })
    }
}

impl Subscribed for Feed {
    fn key(&self) -> (bool, usize) {
        (self.queue.group.is_some(), self.queue.number as usize)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn report(queue: &Queue, now: Millis) -> QueueReport {
        queue.measure(moment(now)).unwrap()
    }

    #[test]
    fn what_does_not_come_is_lost_once_there_was_room_for_long() {
        let queue = Queue::new(1, "c".into(), None, 0, 1);
        queue.join(1);
        assert!(queue.arrive(1, 7, QoS::AtLeastOnce, 10));
        for _ in 0..4 {
            queue.deliver(2, QoS::AtLeastOnce, false);
        }
        queue.set_full(2, true);
        let seen = report(&queue, 2_000);
        assert_eq!(
            (seen.reading.depth, seen.waiting, seen.in_flight, seen.lost),
            (10, 6, 4, 0),
            "it is full"
        );
        queue.finish(2_000, 4, true, 5);
        queue.set_full(2_000, false);
        assert_eq!(report(&queue, 2_100).waiting, 6);
        queue.arrive(2_590, 7, QoS::AtLeastOnce, 1);
        let seen = report(&queue, 2_600);
        assert_eq!((seen.waiting, seen.lost), (1, 6), "the one that just came may be on its way");
    }

    #[test]
    fn what_is_over_the_limit_is_lost_at_once() {
        let queue = Queue::new(1, "c".into(), None, 5, 1);
        queue.arrive(1, 7, QoS::AtLeastOnce, 8);
        let seen = report(&queue, 2);
        assert_eq!((seen.waiting, seen.lost, seen.reading.depth), (5, 3, 5));
        queue.arrive(3, 7, QoS::AtMostOnce, 1);
        assert_eq!(report(&queue, 4).waiting, 5, "QoS 0 is not kept for a consumer that is away");
    }

    #[test]
    fn what_a_consumer_had_comes_again() {
        let queue = Queue::new(1, "c".into(), None, 0, 1);
        queue.join(1);
        queue.arrive(1, 7, QoS::AtLeastOnce, 3);
        (0..3).for_each(|_| {
            queue.deliver(2, QoS::AtLeastOnce, false);
        });
        queue.part(3, 3, false);
        let seen = report(&queue, 5_000);
        assert_eq!((seen.reading.depth, seen.waiting, seen.in_flight, seen.lost), (3, 3, 0, 0));
        queue.join(5_000);
        (0..3).for_each(|_| {
            queue.deliver(5_001, QoS::AtLeastOnce, false);
        });
        queue.finish(5_002, 3, true, 1);
        assert_eq!(report(&queue, 5_003).reading.depth, 0);
    }

    #[test]
    fn what_others_published_counts_when_it_is_seen() {
        let queue = Queue::new(1, "c".into(), None, 0, 1);
        queue.join(1);
        queue.deliver(2, QoS::AtLeastOnce, false);
        assert_eq!(report(&queue, 3).reading.depth, 1);
        queue.finish(4, 1, true, 2);
        assert_eq!(report(&queue, 5).reading.depth, 0);
    }
}

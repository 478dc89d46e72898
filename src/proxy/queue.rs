//! What the upstream keeps for one consumer or one shared group, as far as a proxy can know it.
//!
//! Arrivals are messages that passed and match a subscription. They wait upstream until they are seen on their way to a
//! consumer, and depart when it acknowledges them or, with QoS 0, when its socket takes them. What does not come although
//! the consumers have room for more was lost upstream.

mod elsewhere;

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::flow::Flow;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::QueueReport;

use self::elsewhere::{Debt, Other};
pub(super) use self::elsewhere::{Heard, Hearing};
use crate::broker::clock::{Millis, moment};
use crate::broker::tree::Subscribed;
use crate::ledger::{Account, Measured, QUIET_TURNS};
use crate::wire::QoS;

/// How long consumers must have had nothing to do before what does not come counts as lost, in milliseconds.
const IDLE: u64 = 250;

/// The queue of one session or of one group.
pub(super) struct Queue {
    pub(super) number: u64,
    owner: Arc<str>,
    group: Option<Arc<str>>,
    bounds: Bounds,
    state: Mutex<State>,
}

/// What a queue may hold before its publishers wait, as in the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bounds {
    /// Messages that the upstream keeps for one consumer; 0 is not known.
    pub(super) limit: u64,
    /// Messages that one consumer can be at work on.
    pub(super) window: u64,
    pub(super) messages: u64,
    pub(super) delay: Millis,
    /// A consumer that takes nothing for this long holds nobody.
    pub(super) progress: Millis,
    /// There may be other nodes before the same broker.
    pub(super) nodes: bool,
}

/// A queue of so few messages is never late.
const FEW: u64 = 32;
/// Messages that may wait before it is known how fast consumers are: those who begin to publish do not know it either.
const FIRST: u64 = 256;

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
    /// Consumers whose sockets take nothing more.
    blocked: u32,
    /// Since when consumers may have had nothing to do.
    idle_since: Millis,
    /// Messages that came since then.
    since_idle: u64,
    /// It must not hold publishers.
    never: bool,
    /// It holds publishers.
    over: bool,
    /// Messages a second that busy consumers take; 0 is not known.
    rate: f64,
    /// When a consumer last took something or came.
    moved: Millis,
    /// Publishers that wait for it.
    held: u32,
    /// Messages that came from publishers of this node, and those that its consumers are done with.
    own_arrived: u64,
    own_done: u64,
    /// Milliseconds of the quickest acknowledgement in the last turn that had one.
    soonest: Option<u64>,
    /// What other nodes before the same broker say.
    others: Vec<Other>,
    debt: Debt,
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
        bounds: Bounds,
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
            blocked: 0,
            idle_since: now,
            since_idle: 0,
            never: false,
            over: false,
            rate: 0.0,
            moved: now,
            held: 0,
            own_arrived: 0,
            own_done: 0,
            soonest: None,
            others: Vec::new(),
            debt: Debt::default(),
        };
        Self { number, owner, group, bounds, state: Mutex::new(state) }
    }

    /// A consumer subscribes; `never` says that it must not hold publishers.
    pub(super) fn subscribed(&self, filter: &str, qos: QoS, never: bool) {
        let mut state = self.state.lock();
        state.never |= never;
        if state.filter.is_empty() {
            state.filter = filter.into();
        }
        state.qos = state.qos.max(qos);
    }

    /// Messages passed that are for this queue; `true` when the ledger must be told of it.
    pub(super) fn arrive(&self, now: Millis, publisher: u64, qos: QoS, count: u32) -> bool {
        let mut state = self.state.lock();
        if qos == QoS::AtMostOnce && state.all_consumers() == 0 {
            // nobody is there, and such messages are not kept
            return false;
        }
        let (at, count64) = (moment(now), u64::from(count));
        state.account.arrive(at, count64);
        state.account.fed_by(publisher, count);
        state.upstream.arrive(at, count64);
        state.since_idle += count64;
        state.own_arrived += count64;
        if qos != QoS::AtMostOnce && self.bounds.limit != 0 {
            let room = self.bounds.limit.saturating_mul(state.all_consumers().max(1).into());
            let over = (state.upstream.depth() + state.all_in_flight()).saturating_sub(room).min(count64);
            state.lose(at, over);
        }
        !std::mem::replace(&mut state.listed, true)
    }

    /// A message is on its way to a consumer; `true` when the ledger must be told of it. `stored` says that it was
    /// retained, so that it never waited.
    pub(super) fn deliver(&self, now: Millis, qos: QoS, stored: bool) -> bool {
        let mut state = self.state.lock();
        let at = moment(now);
        state.settle(now);
        let waited = state.upstream.delay(at).as_nanos() / 1_000_000;
        if stored {
            state.account.arrive(at, 1);
            state.own_arrived += 1;
        } else {
            if state.upstream.depth() > 0 {
                state.account.waited(waited);
            }
            state.take(now, 1);
        }
        state.in_flight += u64::from(qos != QoS::AtMostOnce);
        state.at_work(now);
        !std::mem::replace(&mut state.listed, true)
    }

    /// A consumer is done with messages, the quickest one after so many milliseconds; `acknowledged` ones were in flight.
    pub(super) fn finish(&self, now: Millis, count: u64, acknowledged: bool, soonest: u64) {
        let mut state = self.state.lock();
        state.account.depart(moment(now), count, soonest);
        state.moved = now;
        state.own_done += count;
        if acknowledged {
            state.in_flight = state.in_flight.saturating_sub(count);
        }
        state.at_work(now);
    }

    /// A consumer is there.
    pub(super) fn join(&self, now: Millis) {
        let mut state = self.state.lock();
        state.consumers += 1;
        state.moved = now;
        state.at_work(now);
    }

    /// A consumer is gone with so many messages in flight: if its session is kept, the upstream has them again.
    pub(super) fn part(&self, now: Millis, in_flight: u64, blocked: bool) {
        let mut state = self.state.lock();
        state.consumers = state.consumers.saturating_sub(1);
        state.in_flight = state.in_flight.saturating_sub(in_flight);
        state.blocked = state.blocked.saturating_sub(blocked.into());
        state.wait_again(now, in_flight);
        state.at_work(now);
    }

    /// The socket of a consumer takes nothing more, or does again.
    pub(super) fn set_blocked(&self, now: Millis, blocked: bool) {
        let mut state = self.state.lock();
        state.blocked = if blocked { state.blocked + 1 } else { state.blocked.saturating_sub(1) };
        state.at_work(now);
    }

    /// Whether its publishers are to wait: more is there, or for longer, than may be, and consumers are at work on it.
    pub(super) fn holds(&self, now: Millis) -> bool {
        let mut state = self.state.lock();
        let may = !state.must_not_hold()
            && state.qos != QoS::AtMostOnce
            && state.all_consumers() > 0
            && now <= state.moved + self.bounds.progress;
        let (waiting, _, age) = state.seen(moment(now), self.bounds.window);
        let age = age.as_nanos() / 1_000_000;
        let most = if state.rate > 0.0 { self.bounds.messages } else { self.bounds.messages.min(FIRST) };
        // it ends well below where it began, so that it does not flutter
        let (most, delay) = match state.over {
            true => (most * 3 / 4, self.bounds.delay / 2),
            false => (most, self.bounds.delay),
        };
        let ahead = if state.rate > 0.0 { (waiting as f64 / state.rate * 1e3) as u64 } else { 0 };
        state.over = may && (waiting > most || waiting > FEW && age.max(ahead) > delay);
        state.over
    }

    /// A publisher begins to wait for it, or does no longer.
    pub(super) fn set_held(&self, held: bool) {
        let mut state = self.state.lock();
        state.held = if held { state.held + 1 } else { state.held.saturating_sub(1) };
    }

    /// Messages that wait upstream.
    pub(super) fn waiting(&self) -> u64 {
        self.state.lock().upstream.depth()
    }

    /// Takes in what another node says of it; `true` when the ledger must be told of it.
    pub(super) fn hear(&self, hearing: Hearing, heard: Heard) -> bool {
        let mut state = self.state.lock();
        let moves = heard.in_flight > 0 || heard.waiting > 0 || !heard.crowds.is_empty();
        state.hear(hearing, heard);
        moves && !std::mem::replace(&mut state.listed, true)
    }

    /// Another node says nothing of it any more.
    pub(super) fn forget_node(&self, now: Millis, node: u64) {
        self.state.lock().forget_node(now, node);
    }

    /// What this node says of it to others.
    pub(super) fn own(&self) -> Heard {
        let state = self.state.lock();
        Heard {
            arrived: state.own_arrived,
            done: state.own_done,
            in_flight: state.in_flight,
            consumers: state.consumers,
            waiting: state.upstream.depth(),
            soonest: state.soonest,
            never: state.never,
            crowds: Vec::new(),
        }
    }

    /// What members of the group subscribe to.
    pub(super) fn group_path(&self) -> String {
        let filter = Arc::clone(&self.state.lock().filter);
        format!("$share/{}/{filter}", self.owner)
    }

    /// The highest QoS of those who subscribe here.
    pub(super) fn qos(&self) -> QoS {
        self.state.lock().qos
    }
}

impl State {
    /// Consumers have something to do, or just had.
    fn at_work(&mut self, now: Millis) {
        (self.idle_since, self.since_idle) = (now, 0);
    }

    /// Messages that wait, those that consumers work on, and the age of the first one that waits. What consumers were sent
    /// and cannot work on yet waits in their sockets.
    fn seen(&self, now: Moment, window: u64) -> (u64, u64, Span) {
        let in_flight = self.all_in_flight();
        let at_work = in_flight.min(window.saturating_mul(self.all_consumers().into()));
        let in_sockets = in_flight - at_work;
        let age = if in_sockets > 0 { self.account.delay(now) } else { self.upstream.delay(now) };
        (self.upstream.depth() + in_sockets, at_work, age)
    }

    fn lose(&mut self, at: Moment, count: u64) {
        let lost = self.upstream.lose(at, count);
        self.account.lose(at, lost);
    }

    /// A consumer that has nothing to do would get what waits: what came before and does not come any more is lost. How
    /// many messages a broker sends at a time is not asked, since that changes from moment to moment.
    fn settle(&mut self, now: Millis) {
        let idle = self.all_in_flight() == 0 && self.blocked == 0 && self.all_consumers() > 0;
        if idle && now >= self.idle_since + IDLE + 2 * self.news_takes() {
            let missing = self.upstream.depth().saturating_sub(self.since_idle);
            self.lose(moment(now), missing);
            self.at_work(now);
        }
    }
}

impl Measured for Queue {
    fn measure(&self, now: Moment) -> Option<QueueReport> {
        let mut state = self.state.lock();
        let millis = now.as_nanos() / 1_000_000;
        state.reckon(millis);
        state.settle(millis);
        let consumers = state.all_consumers();
        let (waiting, in_flight, age) = state.seen(now, self.bounds.window);
        let statement = state.account.statement(now, consumers, u64::MAX);
        if let Some(rate) = statement.reading.processing_rate() {
            state.rate = if state.rate == 0.0 { rate } else { 0.8 * state.rate + 0.2 * rate };
        }
        state.soonest = statement.soonest.or(state.soonest);
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
            age,
            in_flight,
            soonest: state.soonest(statement.soonest),
            dropped: statement.dropped,
            lost: statement.lost,
            delays: statement.delays,
            feeders: statement.feeders,
            held: state.held,
            elsewhere: self.bounds.nodes.then(|| state.crowds()),
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

    const BOUNDS: Bounds =
        Bounds { limit: 0, window: 50, messages: 100, delay: 1_000, progress: 10_000, nodes: false };

    #[test]
    fn publishers_wait_while_there_is_too_much() {
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
        queue.subscribed("t", QoS::AtLeastOnce, false);
        queue.arrive(1, 7, QoS::AtLeastOnce, 101);
        assert!(!queue.holds(1), "nobody is there to take it");
        queue.join(1);
        assert!(queue.holds(2));
        (0..25).for_each(|_| {
            queue.deliver(3, QoS::AtLeastOnce, false);
        });
        assert!(queue.holds(3), "76 are still there");
        queue.deliver(4, QoS::AtLeastOnce, false);
        assert!(!queue.holds(4));
        assert!(queue.holds(1_100), "the first one has waited for too long");
        assert!(!queue.holds(10_002), "the consumer takes nothing");
        queue.finish(10_003, 1, true, 5);
        assert!(queue.holds(10_004));
        queue.subscribed("debug", QoS::AtLeastOnce, true);
        assert!(!queue.holds(10_005), "the operator says never");
    }

    /// Nobody can know how long 300 messages take before the first ones are done.
    #[test]
    fn few_may_wait_before_consumers_were_seen_at_work() {
        let bounds = Bounds { messages: 10_000, ..BOUNDS };
        let queue = Queue::new(1, "c".into(), None, bounds, 1);
        queue.subscribed("t", QoS::AtLeastOnce, false);
        queue.join(1);
        queue.arrive(1, 7, QoS::AtLeastOnce, 300);
        assert!(queue.holds(1));
        report(&queue, 2);
        for now in 2..=201 {
            queue.deliver(now, QoS::AtLeastOnce, false);
            queue.finish(now, 1, true, 1);
        }
        report(&queue, 202);
        queue.arrive(202, 7, QoS::AtLeastOnce, 300);
        assert!(!queue.holds(202), "400 at 1,000 a second are soon done");
        queue.arrive(202, 7, QoS::AtLeastOnce, 700);
        assert!(queue.holds(202), "1,100 are not");
    }

    fn report(queue: &Queue, now: Millis) -> QueueReport {
        queue.measure(moment(now)).unwrap()
    }

    #[test]
    fn what_waits_in_sockets_waits() {
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
        queue.join(1);
        (0..60).for_each(|_| {
            queue.deliver(1, QoS::AtLeastOnce, false);
        });
        let seen = report(&queue, 301);
        assert_eq!((seen.waiting, seen.in_flight, seen.age), (10, 50, Span::from_millis(300)));
    }

    #[test]
    fn what_does_not_come_is_lost_once_there_was_nothing_to_do() {
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
        queue.join(1);
        assert!(queue.arrive(1, 7, QoS::AtLeastOnce, 10));
        for _ in 0..4 {
            queue.deliver(2, QoS::AtLeastOnce, false);
        }
        let seen = report(&queue, 2_000);
        assert_eq!(
            (seen.reading.depth, seen.waiting, seen.in_flight, seen.lost),
            (10, 6, 4, 0),
            "it is at work"
        );
        queue.finish(2_000, 4, true, 5);
        assert_eq!(report(&queue, 2_100).waiting, 6);
        queue.arrive(2_240, 7, QoS::AtLeastOnce, 1);
        let seen = report(&queue, 2_250);
        assert_eq!((seen.waiting, seen.lost), (1, 6), "the one that just came may be on its way");
        assert_eq!(report(&queue, 2_500).lost, 1, "it did not come either");
    }

    #[test]
    fn what_is_over_the_limit_is_lost_at_once() {
        let queue = Queue::new(1, "c".into(), None, Bounds { limit: 5, ..BOUNDS }, 1);
        queue.arrive(1, 7, QoS::AtLeastOnce, 8);
        let seen = report(&queue, 2);
        assert_eq!((seen.waiting, seen.lost, seen.reading.depth), (5, 3, 5));
        queue.arrive(3, 7, QoS::AtMostOnce, 1);
        assert_eq!(report(&queue, 4).waiting, 5, "QoS 0 is not kept for a consumer that is away");
    }

    #[test]
    fn what_a_consumer_had_comes_again() {
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
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
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
        queue.join(1);
        queue.deliver(2, QoS::AtLeastOnce, false);
        assert_eq!(report(&queue, 3).reading.depth, 1);
        queue.finish(4, 1, true, 2);
        assert_eq!(report(&queue, 5).reading.depth, 0);
    }
}

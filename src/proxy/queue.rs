//! What the upstream keeps for one consumer or one shared group, as far as a proxy can know it.
//!
//! Arrivals are messages that passed and match a subscription. They wait upstream until they are seen on their way to a
//! consumer, and depart when it acknowledges them or, with QoS 0, when its socket takes them. What does not come although
//! the consumers have room for more was lost upstream.

mod elsewhere;
mod hold;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tidegate_control::flow::Flow;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::QueueReport;

use self::elsewhere::{Debt, Other};
pub(super) use self::elsewhere::{Heard, Hearing};
use crate::broker::clock::{Millis, moment};
use crate::broker::tree::Subscribed;
use crate::hold::HeldGates;
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
    /// Publishers wait for their turn.
    lasting: AtomicBool,
    state: Mutex<State>,
}

/// What a queue may hold before its publishers wait, as in the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bounds {
    /// Messages that the upstream keeps for one consumer; 0 is not known.
    pub(super) limit: u64,
    /// Messages that one consumer can be at work on, unless it says itself that it takes fewer.
    pub(super) window: u64,
    pub(super) messages: u64,
    pub(super) delay: Millis,
    /// A consumer that takes nothing for this long holds nobody.
    pub(super) progress: Millis,
    /// There may be other nodes before the same broker.
    pub(super) nodes: bool,
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
    /// Messages that they all can be at work on.
    window: u64,
    in_flight: u64,
    /// Consumers whose sockets take nothing more.
    blocked: u32,
    /// Since when consumers may have had nothing to do.
    idle_since: Millis,
    /// Messages that came since then.
    since_idle: u64,
    /// It must not hold publishers.
    never: bool,
    /// Messages a second that busy consumers take; 0 is not known.
    rate: f64,
    /// When a consumer last took something or came.
    moved: Millis,
    /// Publishers that wait for it.
    held: Option<Box<HeldGates>>,
    /// Messages that may come from those who were let go.
    granted: usize,
    /// What waited when the first consumer came.
    backlog: u64,
    /// Messages that came from publishers of this node, and those that its consumers are done with.
    own_arrived: u64,
    own_done: u64,
    /// Messages that this node found to be lost.
    own_lost: u64,
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
            window: 0,
            in_flight: 0,
            blocked: 0,
            idle_since: now,
            since_idle: 0,
            never: false,
            rate: 0.0,
            moved: now,
            held: None,
            granted: 0,
            backlog: 0,
            own_arrived: 0,
            own_done: 0,
            own_lost: 0,
            soonest: None,
            others: Vec::new(),
            debt: Debt::default(),
        };
        Self { number, owner, group, bounds, lasting: AtomicBool::new(false), state: Mutex::new(state) }
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
        let new = state.put(now, count64);
        state.account.arrive(at, new);
        state.account.fed_by(publisher, count);
        state.since_idle += new;
        state.own_arrived += count64;
        state.granted = state.granted.saturating_sub(count as usize);
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
        let enter = !std::mem::replace(&mut state.listed, true);
        let released = self.let_go(&mut state, now);
        drop(state);
        released.open();
        enter
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
        let released = self.let_go(&mut state, now);
        drop(state);
        released.open();
    }

    /// A consumer is there that takes so many messages at a time.
    pub(super) fn join(&self, now: Millis, window: u64) {
        let mut state = self.state.lock();
        if state.all_consumers() == 0 {
            state.backlog = state.upstream.depth();
        }
        state.consumers += 1;
        state.window += window.min(self.bounds.window);
        state.moved = now;
        state.at_work(now);
    }

    /// A consumer that took so many messages at a time is gone with some in flight: if its session is kept, the upstream
    /// has them again.
    pub(super) fn part(&self, now: Millis, window: u64, in_flight: u64, blocked: bool) {
        let mut state = self.state.lock();
        state.consumers = state.consumers.saturating_sub(1);
        state.window = state.window.saturating_sub(window.min(self.bounds.window));
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
            lost: state.own_lost,
            in_flight: state.in_flight,
            consumers: state.consumers,
            window: state.window,
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
    fn seen(&self, now: Moment) -> (u64, u64, Span) {
        let in_flight = self.all_in_flight();
        let at_work = in_flight.min(self.all_windows());
        let in_sockets = in_flight - at_work;
        let age = if in_sockets > 0 { self.account.delay(now) } else { self.upstream.delay(now) };
        (self.upstream.depth() + in_sockets, at_work, age)
    }

    fn lose(&mut self, at: Moment, count: u64) {
        self.own_lost += self.book_lost(at, count);
    }

    fn book_lost(&mut self, at: Moment, count: u64) -> u64 {
        let lost = self.upstream.lose(at, count);
        self.backlog = self.backlog.saturating_sub(lost);
        self.account.lose(at, lost);
        lost
    }

    /// A consumer that has nothing to do would get what waits: what came before and does not come any more is lost. How
    /// many messages a broker sends at a time is not asked, since that changes from moment to moment.
    fn settle(&mut self, now: Millis) {
        // where there is no consumer that is not seen soon enough
        let idle = self.all_in_flight() == 0 && self.blocked == 0 && self.consumers > 0;
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
        let (waiting, in_flight, age) = state.seen(now);
        let statement = state.account.statement(now, consumers, u64::MAX);
        if let Some(rate) = statement.reading.processing_rate() {
            state.rate = if state.rate == 0.0 { rate } else { 0.8 * state.rate + 0.2 * rate };
        }
        state.soonest = statement.soonest.or(state.soonest);
        if statement.quiet > QUIET_TURNS && state.held.is_none() {
            state.listed = false;
            return None;
        }
        state.go_on();
        let released = self.let_go(&mut state, millis);
        let report = QueueReport {
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
            held: state.held.as_ref().map_or(0, |held| held.len() as u32),
            elsewhere: self.bounds.nodes.then(|| state.crowds()),
        };
        drop(state);
        released.open();
        Some(report)
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

    fn report(queue: &Queue, now: Millis) -> QueueReport {
        queue.measure(moment(now)).unwrap()
    }

    #[test]
    fn what_waits_in_sockets_waits() {
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
        queue.join(1, u64::MAX);
        (0..60).for_each(|_| {
            queue.deliver(1, QoS::AtLeastOnce, false);
        });
        let seen = report(&queue, 301);
        assert_eq!((seen.waiting, seen.in_flight, seen.age), (10, 50, Span::from_millis(300)));
    }

    #[test]
    fn what_does_not_come_is_lost_once_there_was_nothing_to_do() {
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
        queue.join(1, u64::MAX);
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
        queue.join(1, u64::MAX);
        queue.arrive(1, 7, QoS::AtLeastOnce, 3);
        (0..3).for_each(|_| {
            queue.deliver(2, QoS::AtLeastOnce, false);
        });
        queue.part(3, u64::MAX, 3, false);
        let seen = report(&queue, 5_000);
        assert_eq!((seen.reading.depth, seen.waiting, seen.in_flight, seen.lost), (3, 3, 0, 0));
        queue.join(5_000, u64::MAX);
        (0..3).for_each(|_| {
            queue.deliver(5_001, QoS::AtLeastOnce, false);
        });
        queue.finish(5_002, 3, true, 1);
        assert_eq!(report(&queue, 5_003).reading.depth, 0);
    }

    #[test]
    fn what_others_published_counts_when_it_is_seen() {
        let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
        queue.join(1, u64::MAX);
        queue.deliver(2, QoS::AtLeastOnce, false);
        assert_eq!(report(&queue, 3).reading.depth, 1);
        queue.finish(4, 1, true, 2);
        assert_eq!(report(&queue, 5).reading.depth, 0);
    }
}

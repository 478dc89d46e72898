//! What the upstream keeps for one consumer or one shared group, as far as a proxy can know it.
//!
//! Arrivals are messages that passed and match a subscription. They wait upstream until they are seen on their way to a
//! consumer, and depart when it acknowledges them or, with QoS 0, when its socket takes them. What does not come although
//! the consumers have room for more was lost upstream.

mod books;
mod elsewhere;
mod feed;
mod hold;
mod idle;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tidegate_control::flow::Flow;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::QueueReport;

use self::books::Strangers;
pub(super) use self::books::{Counts, MOST_THERE};
use self::elsewhere::Other;
pub(super) use self::elsewhere::{Heard, Hearing};
pub(super) use self::feed::Feed;
use self::feed::Terms;
use self::idle::Idle;
use self::told::Told;
pub(super) use self::told::Word;
use crate::broker::clock::{Millis, moment};
use crate::hold::{HeldGates, Released};
use crate::ledger::{Account, MOST_FILTERS, Measured, QUIET_TURNS, name};
use crate::wire::QoS;

/// The queue of one session or of one group.
pub(super) struct Queue {
    pub(super) number: u64,
    /// Since when it is known.
    pub(super) born: Millis,
    owner: Arc<str>,
    pub(super) group: Option<Arc<str>>,
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

impl Bounds {
    /// Messages that the upstream keeps for so many consumers. For one that is away it has no place for those in flight.
    fn room(&self, consumers: u32) -> u64 {
        match consumers {
            0 => self.limit.saturating_sub(self.window).max(1),
            consumers => self.limit.saturating_mul(consumers.into()),
        }
    }
}

struct State {
    account: Account,
    /// What passed and has not been sent to a consumer: all of it waits upstream.
    upstream: Flow,
    /// The ledger asks for statements.
    listed: bool,
    /// Nobody subscribes here any more, nor ever will.
    gone: bool,
    /// Filters that feed it, those that came first first; at least one from the first subscription on.
    filters: Arc<[Arc<str>]>,
    /// The only one of them feeds it no longer.
    stale: bool,
    terms: Terms,
    consumers: u32,
    /// Messages that they all can be at work on.
    window: u64,
    /// QoS 1 and 2 messages that consumers have.
    in_flight: u64,
    /// QoS 0 messages that go to consumers and that no socket took yet.
    leaving: u64,
    /// Consumers whose sockets take nothing more.
    blocked: u32,
    idle: Idle,
    /// Messages a second that busy consumers take; 0 is not known.
    rate: f64,
    /// When a consumer last took something or came.
    moved: Millis,
    /// Publishers that wait for it.
    held: Option<Box<HeldGates>>,
    /// The most of them since the last report: who waits between two of them and is let go right before the second waited.
    most_held: usize,
    /// Messages that may come from those who were let go.
    granted: usize,
    /// What waited when the first consumer came.
    backlog: u64,
    /// What this node counts.
    own: Counts,
    /// What is there beside what nodes count.
    base: i64,
    strangers: Strangers,
    /// Milliseconds of the quickest acknowledgement in the last turn that had one.
    soonest: Option<u64>,
    /// What other nodes before the same broker say.
    others: Vec<Other>,
    /// Until when what they did is booked.
    reckoned: Millis,
    /// This node's, and that of the node whose base is known.
    rank: Rank,
    base_of: Rank,
    /// What the broker says itself.
    told: Told,
}

/// Who knows a queue for how long: when a node met it, in milliseconds since 1970, and the node's number.
pub(super) type Rank = (u64, u64);

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
            gone: false,
            filters: Arc::new([]),
            stale: false,
            terms: Terms::default(),
            consumers: 0,
            window: 0,
            in_flight: 0,
            leaving: 0,
            blocked: 0,
            idle: Idle::new(now),
            rate: 0.0,
            moved: now,
            held: None,
            most_held: 0,
            granted: 0,
            backlog: 0,
            own: Counts::default(),
            base: 0,
            strangers: Strangers::default(),
            soonest: None,
            others: Vec::new(),
            reckoned: now,
            rank: Rank::default(),
            base_of: (u64::MAX, u64::MAX),
            told: Told::default(),
        };
        Self {
            number,
            born: now,
            owner,
            group,
            bounds,
            lasting: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// A consumer subscribes, which may be a `guest` at another node; `never` says that it must not hold publishers.
    pub(super) fn subscribed(&self, filter: &str, qos: QoS, never: bool, guest: bool) {
        let mut state = self.state.lock();
        state.terms.count(qos, never, guest, 1);
        if std::mem::take(&mut state.stale) {
            state.filters = Arc::new([]);
        }
        if state.filters.len() < MOST_FILTERS && !state.filters.iter().any(|known| **known == *filter) {
            let known = state.filters.iter().cloned();
            state.filters = known.chain([filter.into()]).collect();
        }
    }

    /// A subscription ended. The last filter stays until there is another one: the queue is called after it.
    pub(super) fn unsubscribed(&self, filter: &str) {
        let state = &mut *self.state.lock();
        match &*state.filters {
            [only] => state.stale |= **only == *filter,
            all => state.filters = all.iter().filter(|known| ***known != *filter).cloned().collect(),
        }
    }

    /// Messages passed that are for this queue; `true` when the ledger must be told of it.
    pub(super) fn arrive(&self, now: Millis, publisher: u64, qos: QoS, count: u32) -> bool {
        let mut state = self.at(now);
        if state.gone || qos == QoS::AtMostOnce && state.all_consumers() == 0 {
            // nobody is there, and such messages are not kept
            return false;
        }
        let count64 = u64::from(count);
        state.own.arrived += count64;
        state.idle.arrived(now, count64);
        state.balance(now, 0, u64::MAX);
        state.account.fed_by(publisher, count);
        state.granted = state.granted.saturating_sub(count as usize);
        if qos != QoS::AtMostOnce && self.bounds.limit != 0 {
            let room = self.bounds.room(state.all_consumers());
            let over = (state.upstream.depth() + state.all_in_flight()).saturating_sub(room).min(count64);
            state.lose(now, over);
        }
        !std::mem::replace(&mut state.listed, true)
    }

    /// A message is on its way to a consumer; `true` when the ledger must be told of it. `stored` says that it was
    /// retained, so that it never waited.
    pub(super) fn deliver(&self, now: Millis, qos: QoS, stored: bool) -> bool {
        let mut state = self.at(now);
        state.settle(now);
        if stored {
            state.own.arrived += 1;
        } else if state.upstream.depth() > 0 {
            let waited = state.upstream.delay(moment(now)).as_nanos() / 1_000_000;
            state.account.waited(waited);
            state.idle.took(waited);
        }
        if qos == QoS::AtMostOnce {
            state.own.done += 1;
            state.leaving += 1;
        } else {
            state.in_flight += 1;
        }
        state.meet_strangers(now, 1);
        state.balance(now, 0, u64::MAX);
        state.at_work(now);
        let enter = !std::mem::replace(&mut state.listed, true);
        let released = self.let_go(&mut state, now, 0);
        drop(state);
        released.open();
        enter
    }

    /// A consumer is done with messages, the quickest one after so many milliseconds; `acknowledged` ones were in flight.
    pub(super) fn finish(&self, now: Millis, count: u64, acknowledged: bool, soonest: u64) {
        let mut state = self.at(now);
        state.moved = now;
        if acknowledged {
            state.in_flight = state.in_flight.saturating_sub(count);
            state.own.done += count;
        } else {
            state.leaving = state.leaving.saturating_sub(count);
        }
        state.balance(now, count, soonest);
        state.at_work(now);
        let released = self.let_go(&mut state, now, 0);
        drop(state);
        released.open();
    }

    /// A consumer is there that takes so many messages at a time.
    pub(super) fn join(&self, now: Millis, window: u64) {
        let mut state = self.at(now);
        if state.all_consumers() == 0 {
            state.backlog = state.upstream.depth();
        }
        state.consumers += 1;
        state.window += window.min(self.bounds.window);
        state.moved = now;
        state.at_work(now);
    }

    /// A consumer that took so many messages at a time is gone with some in flight: if its session is kept, the upstream
    /// has them again. Those with QoS 0 that its socket had not taken are gone with it.
    pub(super) fn part(&self, now: Millis, window: u64, in_flight: u64, leaving: u64, blocked: bool) {
        let mut state = self.at(now);
        state.consumers = state.consumers.saturating_sub(1);
        state.window = state.window.saturating_sub(window.min(self.bounds.window));
        state.in_flight = state.in_flight.saturating_sub(in_flight);
        state.blocked = state.blocked.saturating_sub(blocked.into());
        state.leaving = state.leaving.saturating_sub(leaving);
        state.account.discard(moment(now), leaving);
        state.balance(now, 0, u64::MAX);
        state.at_work(now);
    }

    /// Nobody subscribes here any more: lets everybody go, and leaves the ledger once consumers are done with what they have.
    pub(super) fn dismiss(&self) {
        let mut state = self.state.lock();
        state.gone = true;
        let held = state.held.take();
        self.lasting.store(false, Ordering::Release);
        drop(state);
        Released::all(held).open();
    }

    /// The socket of a consumer takes nothing more, or does again.
    pub(super) fn set_blocked(&self, now: Millis, blocked: bool) {
        let mut state = self.at(now);
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
        state.hear(&hearing, heard);
        moves && !std::mem::replace(&mut state.listed, true)
    }

    /// Another node says nothing of it any more.
    pub(super) fn forget_node(&self, now: Millis, node: u64) {
        self.state.lock().forget_node(now, node);
    }

    /// What this node, of this rank, says of it to others.
    pub(super) fn own(&self, rank: Rank) -> Heard {
        let mut state = self.state.lock();
        state.rank = rank;
        let (base, among) = state.told_base();
        let counts = state.settled();
        Heard {
            counts,
            fresh: state.own.strangers - counts.strangers,
            base,
            among,
            in_flight: state.in_flight,
            consumers: state.consumers,
            window: state.window,
            waiting: state.upstream.depth(),
            soonest: state.soonest,
            never: state.terms.never > 0,
            crowds: Vec::new(),
        }
    }

    /// What members of the group subscribe to.
    pub(super) fn group_path(&self) -> String {
        let filter = self.state.lock().filter();
        format!("$share/{}/{filter}", self.owner)
    }

    /// The highest QoS of those who subscribe here, if somebody does. Only that is told to other nodes: those who repeat what
    /// others said would go on saying to each other what is over.
    pub(super) fn own_qos(&self) -> Option<QoS> {
        self.state.lock().terms.here()
    }

    /// The highest QoS of all who subscribe.
    pub(super) fn qos(&self) -> QoS {
        self.state.lock().terms.qos()
    }

    /// The state as it is now, with what other nodes did until then. A queue may come and go between two turns of the control
    /// loop: who went by what others had done at the last one would see messages wait that are long gone.
    fn at(&self, now: Millis) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.reckoned < now {
            state.reckon(now);
        }
        state
    }
}

impl State {
    /// The filter that it is called after.
    fn filter(&self) -> Arc<str> {
        let usual = self.filters.iter().find(|filter| !filter.starts_with('$'));
        usual.or(self.filters.first()).cloned().unwrap_or_default()
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
}

impl Measured for Queue {
    fn measure(&self, now: Moment) -> Option<QueueReport> {
        let millis = now.as_nanos() / 1_000_000;
        let mut state = self.at(millis);
        state.settle(millis);
        state.note_depth(millis);
        let consumers = state.all_consumers();
        let (waiting, in_flight, age) = state.seen(now);
        let statement = state.account.statement(now, consumers, u64::MAX);
        if let Some(rate) = statement.reading.processing_rate() {
            state.rate = if state.rate == 0.0 { rate } else { 0.8 * state.rate + 0.2 * rate };
        }
        state.soonest = statement.soonest.or(state.soonest);
        let is_over = state.gone && state.consumers == 0;
        if is_over || statement.quiet > QUIET_TURNS && state.held.is_none() {
            state.listed = false;
            return None;
        }
        state.go_on();
        let released = self.let_go(&mut state, millis, statement.reading.departed);
        let held = state.take_most_held();
        let filter = state.filter();
        let report = QueueReport {
            id: self.number,
            name: match &self.group {
                Some(group) => name::of_group(group, &filter),
                None => name::of_client(&self.owner, &filter),
            },
            group: self.group.clone(),
            filter,
            filters: Arc::clone(&state.filters),
            qos: state.terms.qos() as u8,
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
            held,
            never_holds: state.must_not_hold(),
            elsewhere: self.bounds.nodes.then(|| state.crowds()),
        };
        drop(state);
        released.open();
        Some(report)
    }
}

#[cfg(test)]
mod tests;

//! Sessions: what the broker keeps for a client, connected or away.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::inflight::Inflight;
use super::queue::{Extra, HoldPolicy, Queue};
use super::retained::Cursor;
use super::timers;
use super::tree::{Subscription, Target};
use crate::ledger::MOST_FILTERS;
use crate::wire::{QoS, Will};

/// A client's session.
#[derive(Debug)]
pub struct Session {
    /// Unique for the life of the process; also names the publisher of its messages.
    pub number: u64,
    /// The client identifier.
    pub client_id: Arc<str>,
    /// What waits for it.
    pub queue: Queue,
    /// Everything else. Its connection holds the lock while it works; others look in briefly.
    pub state: Mutex<State>,
}

/// What changes in a session.
#[derive(Debug, Default)]
pub struct State {
    /// The connection that owns the session; a connection with another number must leave.
    pub connection: u64,
    /// Whether that connection is up.
    pub connected: bool,
    /// The session is over; nothing may be added to it.
    pub ended: bool,
    /// Seconds that it outlives its connection; `u32::MAX` is for ever.
    pub expiry: u32,
    /// The user that it belongs to.
    pub user: Option<Arc<str>>,
    /// Published when the connection is lost.
    pub will: Option<Box<KeptWill>>,
    /// By filter as the client gave it, `$share/...` included.
    pub subscriptions: HashMap<Arc<str>, Arc<Subscription>>,
    /// What is due while the client is away.
    pub due: Vec<timers::Key>,
    /// Sent and not acknowledged.
    pub inflight: Inflight,
    /// Identifiers of QoS 2 messages received and not released.
    pub received: HashSet<u16>,
    /// Retained messages still to be read for new subscriptions.
    pub retained: OwedRetained,
    /// How many subscriptions let the queue hold publishers while it makes progress, and how many only briefly.
    pub lasting: usize,
    pub brief: usize,
    /// How many subscriptions of its own, not of groups, ask for each QoS.
    pub by_qos: [usize; 3],
    /// The filters of its own, once somebody has asked for them since they changed.
    pub(super) filters: Option<Arc<[Arc<str>]>>,
}

/// A will until it is published.
#[derive(Debug)]
pub struct KeptWill {
    /// The will.
    pub will: Will,
    /// Whether it overtakes others in queues, as what its client publishes there does.
    pub urgent: bool,
}

/// Retained messages that a subscription is still owed.
#[derive(Debug)]
pub struct PendingRetained {
    /// Where it is in the store.
    pub cursor: Cursor,
    /// Most QoS to deliver with.
    pub qos: QoS,
    /// The subscription's identifier.
    pub extra: Option<Arc<Extra>>,
}

/// The retained messages that new subscriptions are owed, each filter once, first come first served.
#[derive(Debug, Default)]
pub struct OwedRetained {
    /// Each with its number; stale ones, whose number is no longer the filter's, are skipped.
    order: VecDeque<(u64, PendingRetained)>,
    /// The number of what is owed for each filter.
    filters: HashMap<Arc<str>, u64>,
    numbers: u64,
}

/// Stale ones are kept until there are more of them than of the others, and more than these.
const FEW_STALE: usize = 16;

impl OwedRetained {
    /// Owes the messages of a filter from the first one on; what it was owed before is forgotten.
    pub fn add(&mut self, pending: PendingRetained) {
        self.numbers += 1;
        self.filters.insert(Arc::clone(&pending.cursor.filter), self.numbers);
        self.order.push_back((self.numbers, pending));
        self.tidy();
    }

    /// Owes nothing for this filter any more.
    pub fn forget(&mut self, filter: &str) {
        self.filters.remove(filter);
        self.tidy();
    }

    /// What is to be read next.
    pub fn next(&mut self) -> Option<&mut PendingRetained> {
        while let Some(first) = self.order.front()
            && !is_owed(&self.filters, first)
        {
            self.order.pop_front();
        }
        self.order.front_mut().map(|(_, pending)| pending)
    }

    /// What was to be read next has been read.
    pub fn next_is_done(&mut self) {
        if let Some(done) = self.order.pop_front() {
            if is_owed(&self.filters, &done) {
                self.filters.remove(&done.1.cursor.filter);
            }
            self.tidy();
        }
    }

    /// Whether nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// A client that subscribes and unsubscribes for ever while it takes nothing must not fill the memory.
    fn tidy(&mut self) {
        if self.filters.is_empty() {
            *self = Self::default();
        } else if self.order.len() > 2 * self.filters.len() + FEW_STALE {
            self.order.retain(|pending| is_owed(&self.filters, pending));
        }
    }
}

fn is_owed(filters: &HashMap<Arc<str>, u64>, (number, pending): &(u64, PendingRetained)) -> bool {
    filters.get(&pending.cursor.filter) == Some(number)
}

impl State {
    /// Whom the session's queue may hold, by what it subscribes to.
    pub fn hold_policy(&self) -> HoldPolicy {
        match (self.lasting, self.brief) {
            (0, 0) => HoldPolicy::Never,
            (0, _) => HoldPolicy::Briefly,
            _ => HoldPolicy::WhileProgress,
        }
    }

    /// The highest QoS that a subscription of its own asks for.
    pub fn highest_qos(&self) -> QoS {
        match self.by_qos {
            [_, _, two] if two > 0 => QoS::ExactlyOnce,
            [_, one, _] if one > 0 => QoS::AtLeastOnce,
            _ => QoS::AtMostOnce,
        }
    }

    /// The filters of its own, not of groups and not of the gateway's own topics; those that it has had for longer first,
    /// and no more than count for rules.
    pub fn filters(&mut self) -> Arc<[Arc<str>]> {
        let subscriptions = &self.subscriptions;
        let collect = || {
            let is_own = |one: &&Arc<Subscription>| {
                matches!(one.target, Target::Session(_)) && !one.filter.starts_with('$')
            };
            let mut own: Vec<_> = subscriptions.values().filter(is_own).collect();
            own.sort_unstable_by_key(|one| one.since);
            own.into_iter().take(MOST_FILTERS).map(|one| Arc::clone(&one.filter)).collect()
        };
        Arc::clone(self.filters.get_or_insert_with(collect))
    }

    /// Counts a subscription that is new (or one less when it is gone).
    pub fn count(&mut self, subscription: &Subscription, gone: bool) {
        self.filters = None;
        let change = |count: &mut usize| *count = if gone { count.saturating_sub(1) } else { *count + 1 };
        match subscription.policy {
            HoldPolicy::WhileProgress => change(&mut self.lasting),
            HoldPolicy::Briefly => change(&mut self.brief),
            HoldPolicy::Never => {}
        }
        if matches!(subscription.target, Target::Session(_)) {
            change(&mut self.by_qos[subscription.qos as usize]);
        }
    }
}

impl Session {
    /// A session that nobody owns yet.
    pub fn new(number: u64, client_id: Arc<str>) -> Self {
        Self {
            number,
            client_id,
            queue: Queue::new(HoldPolicy::Briefly),
            state: Mutex::new(State::default()),
        }
    }
}

/// All sessions, by client identifier.
#[derive(Debug, Default)]
pub struct Registry {
    /// Locked after a session's state, and for a moment only: everybody who comes or goes needs it.
    pub sessions: Mutex<HashMap<Arc<str>, Arc<Session>>>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn pending(filter: &str, qos: QoS) -> PendingRetained {
        PendingRetained { cursor: Cursor::new(filter.into(), 1), qos, extra: None }
    }

    fn next(owed: &mut OwedRetained) -> Option<(String, QoS)> {
        owed.next().map(|pending| (pending.cursor.filter.to_string(), pending.qos))
    }

    #[test]
    fn first_come_first_served() {
        let mut owed = OwedRetained::default();
        owed.add(pending("a", QoS::AtMostOnce));
        owed.add(pending("b", QoS::AtLeastOnce));
        assert_eq!(next(&mut owed), Some(("a".into(), QoS::AtMostOnce)));
        owed.next_is_done();
        assert_eq!(next(&mut owed), Some(("b".into(), QoS::AtLeastOnce)));
        owed.next_is_done();
        assert_eq!(next(&mut owed), None);
        assert!(owed.is_empty());
    }

    #[test]
    fn a_filter_subscribed_again_is_read_once_and_anew() {
        for unsubscribe in [false, true] {
            let mut owed = OwedRetained::default();
            owed.add(pending("other", QoS::AtMostOnce));
            owed.add(pending("a", QoS::AtMostOnce));
            if unsubscribe {
                owed.forget("a");
            }
            owed.add(pending("a", QoS::ExactlyOnce));
            assert_eq!(next(&mut owed), Some(("other".into(), QoS::AtMostOnce)));
            owed.next_is_done();
            assert_eq!(next(&mut owed), Some(("a".into(), QoS::ExactlyOnce)));
            owed.next_is_done();
            assert_eq!(next(&mut owed), None);
            assert!(owed.is_empty());
        }
    }

    fn subscription(session: &Arc<Session>, filter: &str, qos: QoS, since: u64) -> Subscription {
        Subscription {
            target: Target::Session(Arc::clone(session)),
            filter: filter.into(),
            qos,
            no_local: false,
            retain_as_published: false,
            since,
            extra: None,
            policy: HoldPolicy::Never,
        }
    }

    #[test]
    fn the_highest_qos_of_what_is_subscribed_to() {
        let session = Arc::new(Session::new(1, "client".into()));
        let subscription = |qos| subscription(&session, "a", qos, 1);
        let mut state = State::default();
        let orders = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
        for qos in orders {
            state.count(&subscription(qos), false);
            assert_eq!(state.highest_qos(), qos);
        }
        for qos in orders.into_iter().rev() {
            assert_eq!(state.highest_qos(), qos);
            state.count(&subscription(qos), true);
        }
    }

    #[test]
    fn a_queue_is_not_called_after_topics_of_the_gateway() {
        let session = Arc::new(Session::new(1, "client".into()));
        let mut state = State::default();
        assert!(state.filters().is_empty());
        for (since, filter) in [(1, "$SYS/#"), (3, "late/#"), (2, "data/#")] {
            let one = subscription(&session, filter, QoS::AtLeastOnce, since);
            state.count(&one, false);
            state.subscriptions.insert(filter.into(), Arc::new(one));
            state.filters();
        }
        assert_eq!(*state.filters(), ["data/#".into(), "late/#".into()]);
        let gone = state.subscriptions.remove("data/#").unwrap();
        state.count(&gone, true);
        assert_eq!(*state.filters(), ["late/#".into()]);
        for since in 0..MOST_FILTERS {
            let one = subscription(&session, &format!("many/{since}"), QoS::AtLeastOnce, 10 + since as u64);
            state.count(&one, false);
            state.subscriptions.insert(Arc::clone(&one.filter), Arc::new(one));
        }
        let filters = state.filters();
        assert_eq!((filters.len(), &*filters[0]), (MOST_FILTERS, "late/#"), "there is a bound");
    }

    #[test]
    fn what_is_forgotten_leaves_the_memory_though_the_first_waits() {
        for unsubscribe in [false, true] {
            let mut owed = OwedRetained::default();
            owed.add(pending("stuck", QoS::AtLeastOnce));
            for _ in 0..10_000 {
                owed.add(pending("loop", QoS::AtMostOnce));
                if unsubscribe {
                    owed.forget("loop");
                }
                assert!(owed.order.len() <= 2 * owed.filters.len() + FEW_STALE);
            }
            assert_eq!(next(&mut owed).unwrap().0, "stuck");
        }
    }
}

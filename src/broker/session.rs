//! Sessions: what the broker keeps for a client, connected or away.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::inflight::Inflight;
use super::queue::{Extra, HoldPolicy, Queue};
use super::retained::Cursor;
use super::timers;
use super::tree::Subscription;
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
    pub will: Option<Box<Will>>,
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
    order: VecDeque<PendingRetained>,
    filters: HashSet<Arc<str>>,
}

impl OwedRetained {
    /// Owes the messages of a filter, unless it does already.
    pub fn add(&mut self, pending: PendingRetained) {
        if self.filters.insert(Arc::clone(&pending.cursor.filter)) {
            self.order.push_back(pending);
        }
    }

    /// Owes nothing for this filter any more.
    pub fn forget(&mut self, filter: &str) {
        self.filters.remove(filter);
        self.give_memory_back();
    }

    /// What is to be read next.
    pub fn next(&mut self) -> Option<&mut PendingRetained> {
        while let Some(first) = self.order.front()
            && !self.filters.contains(&first.cursor.filter)
        {
            self.order.pop_front();
        }
        self.order.front_mut()
    }

    /// What was to be read next has been read.
    pub fn next_is_done(&mut self) {
        if let Some(done) = self.order.pop_front() {
            self.filters.remove(&done.cursor.filter);
            self.give_memory_back();
        }
    }

    /// Whether nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    fn give_memory_back(&mut self) {
        if self.filters.is_empty() {
            *self = Self::default();
        }
    }
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

    /// Counts a subscription that is new (or one less when it is gone).
    pub fn count_policy(&mut self, policy: HoldPolicy, gone: bool) {
        let count = match policy {
            HoldPolicy::WhileProgress => &mut self.lasting,
            HoldPolicy::Briefly => &mut self.brief,
            HoldPolicy::Never => return,
        };
        *count = if gone { count.saturating_sub(1) } else { *count + 1 };
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

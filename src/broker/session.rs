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
    pub retained: VecDeque<PendingRetained>,
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
    /// Locked before any session's state.
    pub sessions: Mutex<HashMap<Arc<str>, Arc<Session>>>,
}

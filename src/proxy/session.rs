//! Who is connected, and what is known of sessions that the upstream keeps.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tidegate_plugin::Publisher;

use super::inbox::Inbox;
use crate::broker::Levels;

/// All connections.
#[derive(Default)]
pub(super) struct Sessions {
    numbers: AtomicU64,
    connected: RwLock<HashMap<u64, Connected>>,
}

struct Connected {
    publisher: Arc<Publisher>,
    inbox: Arc<Inbox>,
}

impl Sessions {
    /// A number for a new connection.
    pub(super) fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A client is connected.
    pub(super) fn enter(&self, publisher: &Arc<Publisher>, inbox: &Arc<Inbox>) {
        let connected = Connected { publisher: Arc::clone(publisher), inbox: Arc::clone(inbox) };
        self.connected.write().insert(inbox.number, connected);
    }

    /// A client is gone.
    pub(super) fn leave(&self, inbox: &Arc<Inbox>) {
        self.connected.write().remove(&inbox.number);
    }

    /// The publisher with this number, while it is connected.
    pub(super) fn publisher(&self, number: u64) -> Option<Arc<Publisher>> {
        self.connected.read().get(&number).map(|connected| Arc::clone(&connected.publisher))
    }

    /// Wakes all connections.
    pub(super) fn nudge_all(&self) {
        let all: Vec<_> =
            self.connected.read().values().map(|connected| Arc::clone(&connected.inbox)).collect();
        all.iter().for_each(|inbox| inbox.nudge());
    }

    /// How much there is.
    pub(super) fn levels(&self) -> Levels {
        Levels { connected: 0, sessions: 0, subscriptions: 0, retained: 0, retained_bytes: 0, waiting: 0 }
    }
}

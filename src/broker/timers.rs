//! What is to happen to absent clients later: delayed wills and the end of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::clock::Millis;

/// Something due for an absent client: when, after which connection, and what.
pub type Key = (Millis, u64, Action);

/// What can be due. Of the same moment, the will comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Publish its will.
    PublishWill,
    /// End its session.
    EndSession,
}

/// All that is due, in order of time, with the client's identifier.
#[derive(Debug, Default)]
pub struct Timers {
    due: Mutex<BTreeMap<Key, Arc<str>>>,
    changed: Notify,
}

impl Timers {
    /// Adds something. It is to be removed when the client is back: many would come back long before.
    pub fn add(&self, key: Key, client_id: Arc<str>) {
        let mut all = self.due.lock();
        let first = all.first_key_value().is_none_or(|(earliest, _)| key < *earliest);
        all.insert(key, client_id);
        drop(all);
        if first {
            self.changed.notify_one();
        }
    }

    /// Removes something that may be there.
    pub fn remove(&self, key: &Key) {
        self.due.lock().remove(key);
    }

    /// Takes what is due by now.
    pub fn take_due(&self, now: Millis) -> BTreeMap<Key, Arc<str>> {
        let mut all = self.due.lock();
        let later = all.split_off(&(now + 1, 0, Action::PublishWill));
        std::mem::replace(&mut *all, later)
    }

    /// When the next is due.
    pub fn next(&self) -> Option<Millis> {
        self.due.lock().first_key_value().map(|((at, ..), _)| *at)
    }

    /// Returns when something earlier than all before was added.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// How much is due, ever.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.due.lock().len()
    }
}

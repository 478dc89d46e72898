//! What is to happen to absent clients later: delayed wills and the end of sessions.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::clock::Millis;

/// Something due for an absent client. It applies only while the same connection was its last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The client.
    pub client_id: std::sync::Arc<str>,
    /// Its last connection.
    pub connection: u64,
    /// What is due.
    pub action: Action,
}

/// What can be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Publish its will.
    PublishWill,
    /// End its session.
    EndSession,
}

/// All that is due, in order of time.
#[derive(Debug, Default)]
pub struct Timers {
    due: Mutex<BTreeMap<(Millis, u64), Due>>,
    changed: Notify,
}

impl Timers {
    /// Adds something; `number` tells those of the same moment apart.
    pub fn add(&self, at: Millis, number: u64, due: Due) {
        let mut all = self.due.lock();
        let mut key = (at, number);
        while all.contains_key(&key) {
            key.1 = key.1.wrapping_add(1 << 63).wrapping_add(1);
        }
        let first = all.first_key_value().is_none_or(|(earliest, _)| key < *earliest);
        all.insert(key, due);
        drop(all);
        if first {
            self.changed.notify_one();
        }
    }

    /// Takes what is due by now.
    pub fn take_due(&self, now: Millis) -> Vec<Due> {
        let mut all = self.due.lock();
        let later = all.split_off(&(now + 1, 0));
        std::mem::replace(&mut *all, later).into_values().collect()
    }

    /// When the next is due.
    pub fn next(&self) -> Option<Millis> {
        self.due.lock().first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns when something earlier than all before was added.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

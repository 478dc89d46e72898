//! What every consumer queue holds, and who feeds it.
//!
//! A queue books its arrivals and departures in an [`Account`] under its own lock, so that publishers and consumers
//! share no lock beyond that. A queue that something happens to puts itself on the [`Ledger`]'s list; once in a turn
//! of the control loop the ledger asks each queue on the list for its statement, and forgets those that have been
//! quiet for long.

mod account;
pub mod name;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::time::Moment;
use tidegate_plugin::QueueReport;

pub use account::{Account, Statement};

/// Turns without any message after which a queue is taken from the list.
pub const QUIET_TURNS: u32 = 50;

/// Filters of one client that count for rules about queues: those that it has had for longest.
pub const MOST_FILTERS: usize = 1_000;

/// A queue that can be measured.
pub trait Measured: Send + Sync {
    /// What happened since the last time; `None` when the queue has been quiet for long and leaves the list, which it
    /// enters again with its next message.
    fn measure(&self, now: Moment) -> Option<QueueReport>;
}

/// The queues that something happens to.
#[derive(Default)]
pub struct Ledger {
    active: Mutex<HashMap<u64, Arc<dyn Measured>>>,
}

impl Ledger {
    /// Puts a queue on the list.
    pub fn enter(&self, id: u64, queue: Arc<dyn Measured>) {
        self.active.lock().insert(id, queue);
    }

    /// What all queues on the list did since the last time.
    pub fn read(&self, now: Moment) -> Vec<QueueReport> {
        // taken out, so that nobody who enters has to wait
        let mut listed = std::mem::take(&mut *self.active.lock());
        let mut reports = Vec::with_capacity(listed.len());
        listed.retain(|_, queue| match queue.measure(now) {
            Some(report) => {
                reports.push(report);
                true
            }
            None => false,
        });
        let mut active = self.active.lock();
        // whoever entered meanwhile is newer
        for (id, queue) in listed {
            active.entry(id).or_insert(queue);
        }
        reports
    }
}

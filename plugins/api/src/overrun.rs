//! What becomes of messages over the rate that a queue allows, counted for that queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The counts of one queue. Who limits publishers for the sake of a queue hands them its counts
/// ([`Publisher::set_overrun`](crate::Publisher::set_overrun)); who holds publishers to their rates writes them.
#[derive(Debug, Default)]
pub struct Overrun {
    waiting: AtomicU32,
    refused: AtomicU64,
    dropped: AtomicU64,
}

impl Overrun {
    /// Publishers whose message waits now.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts a message that was refused.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that was thrown away.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages that were refused, and that were thrown away, since this was last asked.
    pub fn take(&self) -> (u64, u64) {
        (self.refused.swap(0, Ordering::Relaxed), self.dropped.swap(0, Ordering::Relaxed))
    }
}

/// A publisher whose message waits; counted for as long as this is there.
#[derive(Debug)]
pub struct Waiting(Arc<Overrun>);

impl Waiting {
    /// It waits from now on.
    pub fn start(overrun: Arc<Overrun>) -> Self {
        overrun.waiting.fetch_add(1, Ordering::Relaxed);
        Self(overrun)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

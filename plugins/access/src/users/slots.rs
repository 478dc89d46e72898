//! How many argon2 runs may go on at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

/// A bound on concurrent argon2 runs, so that a storm of logins takes neither all memory nor all cores.
#[derive(Debug)]
pub struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
    runs: AtomicU64,
}

impl Slots {
    /// So many at once; at least one.
    pub fn new(slots: usize) -> Self {
        Self { free: Mutex::new(slots.max(1)), freed: Condvar::new(), runs: AtomicU64::new(0) }
    }

    /// As many as there are cores.
    pub fn for_this_machine() -> Self {
        Self::new(thread::available_parallelism().map_or(1, usize::from))
    }

    /// How many argon2 runs there were so far.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Waits for a free slot; it is free again when the result is dropped.
    pub(super) fn take(&self) -> Slot<'_> {
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        Slot(self)
    }

    pub(super) fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }
}

/// A slot in use.
pub(super) struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn never_more_at_once_than_slots() {
        let slots = Slots::new(3);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _slot = slots.take();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?} at once");
        assert_eq!(*slots.free.lock(), 3);
    }
}

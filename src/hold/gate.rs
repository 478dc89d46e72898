//! A publisher's gate: closed while a queue that it feeds is over its bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use tidegate_plugin::Publisher;

use super::Line;
use crate::broker::clock::Millis;

/// One for each connection that publishes. Queues close it, its connection looks at it before each PUBLISH.
#[derive(Debug)]
pub struct Gate {
    /// Whose gate it is.
    pub publisher: Arc<Publisher>,
    /// The number of its session.
    pub number: u64,
    holds: AtomicU32,
    until: AtomicU64,
    /// Messages that may pass at once since the last release; 0: nobody said.
    grant: AtomicU32,
    waker: Mutex<Option<Waker>>,
    place: Mutex<Place>,
    left: AtomicBool,
}

/// Where a held publisher stands.
#[derive(Debug, Default)]
struct Place {
    /// The lines of the queues that hold it.
    lines: Vec<Arc<Line>>,
    /// Whether it has something to send, and so stands in them.
    in_line: bool,
}

/// Why publishes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Until a queue lets go.
    ByQueue,
    /// Until this moment at the latest.
    Until(Millis),
}

impl Gate {
    /// An open gate.
    pub fn new(number: u64, publisher: Arc<Publisher>) -> Self {
        Self {
            publisher,
            number,
            holds: AtomicU32::new(0),
            until: AtomicU64::new(0),
            grant: AtomicU32::new(0),
            waker: Mutex::default(),
            place: Mutex::default(),
            left: AtomicBool::new(false),
        }
    }

    /// Whether publishes wait now.
    pub fn held(&self, now: Millis) -> Option<Held> {
        if self.holds.load(Ordering::Acquire) > 0 {
            return Some(Held::ByQueue);
        }
        let until = self.until.load(Ordering::Acquire);
        (until > now).then_some(Held::Until(until))
    }

    /// Remembers whom to wake, then looks again, so that no release is missed.
    pub fn held_or_wake(&self, now: Millis, waker: &Waker) -> Option<Held> {
        *self.waker.lock() = Some(waker.clone());
        self.held(now)
    }

    /// Whether the last brief hold ran its full time: the queue is still long.
    pub fn brief_ran_out(&self) -> bool {
        self.until.load(Ordering::Acquire) != 0
    }

    /// How many messages the queue that let go last has room for, if it said so since this was asked last.
    pub fn take_grant(&self) -> Option<u32> {
        if self.grant.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(self.grant.swap(0, Ordering::AcqRel)).filter(|grant| *grant > 0)
    }

    /// A queue that lets go says how many messages may pass at once.
    pub fn grant(&self, messages: u32) {
        self.grant.store(messages, Ordering::Release);
    }

    /// A queue closes the gate until it releases it.
    pub fn hold(&self, line: &Arc<Line>) {
        self.holds.fetch_add(1, Ordering::AcqRel);
        let mut place = self.place.lock();
        place.lines.push(Arc::clone(line));
        if place.in_line {
            line.join(self.number, self.publisher.share());
        }
    }

    /// The publisher has something to send but for the queues that hold it: it stands in line from now on.
    pub fn stand_in_line(&self) {
        let mut place = self.place.lock();
        if !place.in_line && !place.lines.is_empty() {
            place.in_line = true;
            place.lines.iter().for_each(|line| line.join(self.number, self.publisher.share()));
        }
    }

    /// The publisher's connection is over: nobody need wait for it.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Whether the publisher's connection is over.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// How many queues hold it, and in how many lines it may stand.
    #[cfg(test)]
    pub fn places(&self) -> (usize, usize) {
        (self.holds.load(Ordering::Acquire) as usize, self.place.lock().lines.len())
    }

    /// A queue closes the gate until it releases it or the moment has come.
    pub fn hold_until(&self, until: Millis) {
        self.until.fetch_max(until, Ordering::AcqRel);
    }

    /// The queue with this line lets go.
    pub fn release(&self, line: &Arc<Line>) {
        self.holds.fetch_sub(1, Ordering::AcqRel);
        let mut place = self.place.lock();
        if let Some(at) = place.lines.iter().position(|known| Arc::ptr_eq(known, line)) {
            place.lines.swap_remove(at);
        }
        if place.lines.is_empty() {
            place.in_line = false;
        }
        drop(place);
        self.wake();
    }

    /// Ends a brief hold.
    pub fn release_brief(&self) {
        self.until.store(0, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

/// The gates of all publishers, by session number.
#[derive(Debug, Default)]
pub struct Gates(parking_lot::RwLock<std::collections::HashMap<u64, Arc<Gate>>>);

impl Gates {
    /// Opens a gate for a publisher; an earlier one for the same session is forgotten.
    pub fn open(&self, number: u64, publisher: Arc<Publisher>) -> Arc<Gate> {
        let gate = Arc::new(Gate::new(number, publisher));
        self.0.write().insert(number, Arc::clone(&gate));
        gate
    }

    /// Forgets a gate, unless a newer connection has replaced it.
    pub fn close(&self, publisher: u64, gate: &Arc<Gate>) {
        gate.leave();
        let mut gates = self.0.write();
        if gates.get(&publisher).is_some_and(|current| Arc::ptr_eq(current, gate)) {
            gates.remove(&publisher);
        }
    }

    /// The gate of a publisher that is still connected.
    pub fn find(&self, publisher: u64) -> Option<Arc<Gate>> {
        self.0.read().get(&publisher).cloned()
    }
}

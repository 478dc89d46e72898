//! The run's clock, and waits that are precise to some ten microseconds.
//!
//! The runtime's own timers count whole milliseconds. That would show up as a millisecond of latency in every message
//! that a paced device sends, so a thread of its own wakes those who wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Nanoseconds since the clock was made.
pub type Nanos = u64;

/// A second in nanoseconds.
pub const SECOND: Nanos = 1_000_000_000;

/// A clock that starts at 0, and the thread that wakes those who wait for it. Copies are the same clock.
#[derive(Clone)]
pub struct Clock {
    start: Instant,
    shared: Arc<Shared>,
}

struct Shared {
    waits: Mutex<Waits>,
    changed: Condvar,
}

#[derive(Default)]
struct Waits {
    heap: BinaryHeap<Reverse<Wait>>,
    closed: bool,
}

struct Wait {
    due: Nanos,
    waker: Waker,
}

impl Clock {
    /// Starts a clock at 0.
    pub fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared { waits: Mutex::default(), changed: Condvar::new() });
        let clock = Self { start: Instant::now(), shared };
        let (start, shared) = (clock.start, clock.shared.clone());
        std::thread::Builder::new().name("pacer".into()).spawn(move || wake(start, &shared))?;
        Ok(clock)
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// Ends when the clock shows this time.
    pub fn sleep_until(&self, due: Nanos) -> Sleep<'_> {
        Sleep { clock: self, due, waits: None }
    }

    /// Ends after this time.
    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now().saturating_add(time.as_nanos() as Nanos)).await;
    }

    /// Ends the thread; nobody is woken any more.
    pub fn close(&self) {
        self.shared.waits.lock().closed = true;
        self.shared.changed.notify_one();
    }

    fn wake_at(&self, due: Nanos, waker: Waker) {
        let mut waits = self.shared.waits.lock();
        let first = waits.heap.peek().is_none_or(|Reverse(wait)| due < wait.due);
        waits.heap.push(Reverse(Wait { due, waker }));
        drop(waits);
        if first {
            self.shared.changed.notify_one();
        }
    }
}

/// A wait for a time of the clock.
pub struct Sleep<'a> {
    clock: &'a Clock,
    due: Nanos,
    /// Who is woken, so that being polled again without need costs nothing.
    waits: Option<Waker>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.due <= self.clock.now() {
            return Poll::Ready(());
        }
        if self.due != Nanos::MAX
            && !self.waits.as_ref().is_some_and(|waker| waker.will_wake(context.waker()))
        {
            self.waits = Some(context.waker().clone());
            self.clock.wake_at(self.due, context.waker().clone());
        }
        Poll::Pending
    }
}

impl PartialEq for Wait {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Wait {}

impl PartialOrd for Wait {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wait {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

fn wake(start: Instant, shared: &Shared) {
    let mut due = Vec::new();
    let mut waits = shared.waits.lock();
    while !waits.closed {
        let now = start.elapsed().as_nanos() as Nanos;
        while waits.heap.peek().is_some_and(|Reverse(wait)| wait.due <= now) {
            due.extend(waits.heap.pop().map(|Reverse(wait)| wait.waker));
        }
        if !due.is_empty() {
            drop(waits);
            due.drain(..).for_each(Waker::wake);
            waits = shared.waits.lock();
            continue;
        }
        match waits.heap.peek().map(|Reverse(wait)| wait.due) {
            Some(next) => {
                shared.changed.wait_until(&mut waits, start + Duration::from_nanos(next));
            }
            None => shared.changed.wait(&mut waits),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_order_and_never_early() {
        let clock = Clock::start().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let sleepers: Vec<_> = [30u64, 10, 20]
            .into_iter()
            .map(|millis| {
                let (clock, order) = (clock.clone(), order.clone());
                tokio::spawn(async move {
                    clock.sleep_until(millis * 1_000_000).await;
                    assert!(clock.now() >= millis * 1_000_000);
                    order.lock().push(millis);
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
        assert_eq!(*order.lock(), [10, 20, 30]);
        clock.close();
    }
}

//! The run's clock, and waits that are precise to some ten microseconds.
//!
//! The runtime's own timers count whole milliseconds. That would show up as a millisecond of latency in every message
//! that a paced device sends, so a thread of its own wakes those who wait.

use std::collections::BTreeMap;
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
    /// By time, and by the order of asking.
    all: BTreeMap<Key, Waker>,
    asked: u64,
    /// When the thread will look again by itself; 0 while it is awake.
    until: Nanos,
    closed: bool,
}

/// When a wait ends, and which one of those that end then it is.
type Key = (Nanos, u64);

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

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.shared.waits.lock().all.len()
    }

    fn wake_at(&self, due: Nanos, waker: Waker) -> Key {
        let mut waits = self.shared.waits.lock();
        // A device that hears something waits anew for the same time: that is no reason to wake the thread.
        let sooner = due < waits.until;
        waits.asked += 1;
        let key = (due, waits.asked);
        waits.all.insert(key, waker);
        drop(waits);
        if sooner {
            self.shared.changed.notify_one();
        }
        key
    }

    fn forget(&self, key: Key) {
        self.shared.waits.lock().all.remove(&key);
    }
}

/// A wait for a time of the clock.
pub struct Sleep<'a> {
    clock: &'a Clock,
    due: Nanos,
    /// Who is woken, so that being polled again without need costs nothing.
    waits: Option<(Key, Waker)>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.due <= self.clock.now() {
            return Poll::Ready(());
        }
        let is_known = self.waits.as_ref().is_some_and(|(_, waker)| waker.will_wake(context.waker()));
        if self.due != Nanos::MAX && !is_known {
            if let Some((key, _)) = self.waits.take() {
                self.clock.forget(key);
            }
            let key = self.clock.wake_at(self.due, context.waker().clone());
            self.waits = Some((key, context.waker().clone()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        // A busy connection gives up thousands of waits a second long before they end.
        if let Some((key, _)) = self.waits.take() {
            self.clock.forget(key);
        }
    }
}

fn wake(start: Instant, shared: &Shared) {
    let mut due = Vec::new();
    let mut waits = shared.waits.lock();
    while !waits.closed {
        let now = start.elapsed().as_nanos() as Nanos;
        while waits.all.first_key_value().is_some_and(|((time, _), _)| *time <= now) {
            due.extend(waits.all.pop_first().map(|(_, waker)| waker));
        }
        if !due.is_empty() {
            drop(waits);
            due.drain(..).for_each(Waker::wake);
            waits = shared.waits.lock();
            continue;
        }
        match waits.all.first_key_value().map(|((time, _), _)| *time) {
            Some(next) => {
                waits.until = next;
                shared.changed.wait_until(&mut waits, start + Duration::from_nanos(next));
            }
            None => {
                waits.until = Nanos::MAX;
                shared.changed.wait(&mut waits);
            }
        }
        waits.until = 0;
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

    #[tokio::test]
    async fn waits_that_are_given_up_are_forgotten() {
        let clock = Clock::start().unwrap();
        for _ in 0..100 {
            tokio::select! {
                biased;
                () = clock.sleep_until(3600 * SECOND) => panic!("an hour has passed"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(clock.waiting(), 0);
        clock.close();
    }
}

//! How many clients are connected, and how many may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts connections over all listeners and enforces their limit. Clones share the counts.
#[derive(Debug, Clone)]
pub struct Connections {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    open: AtomicUsize,
    accepted: AtomicU64,
    over_limit: AtomicU64,
    over_rate: AtomicU64,
    handshake_failed: AtomicU64,
    accept_errors: AtomicU64,
    all_closed: Notify,
}

/// What happened to those who connected, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Let in; those whose handshake failed afterwards included.
    pub accepted: u64,
    /// Turned away because `listen.max_connections` were open.
    pub over_limit: u64,
    /// Turned away because their address connects faster than `listen.max_accept_rate`.
    pub over_rate: u64,
    /// Let in, but TLS or WebSocket handshake failed or took too long.
    pub handshake_failed: u64,
    /// Failures of accept itself, such as too few file descriptors.
    pub accept_errors: u64,
}

impl Connections {
    pub(super) fn new(limit: usize) -> Self {
        let shared = Shared {
            limit,
            open: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            over_rate: AtomicU64::new(0),
            handshake_failed: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            all_closed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Connections now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// What happened since the start.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.shared;
        Counts {
            accepted: read(&shared.accepted),
            over_limit: read(&shared.over_limit),
            over_rate: read(&shared.over_rate),
            handshake_failed: read(&shared.handshake_failed),
            accept_errors: read(&shared.accept_errors),
        }
    }

    /// Waits until no connection is open.
    pub async fn all_closed(&self) {
        loop {
            let notified = self.shared.all_closed.notified();
            if self.open() == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Takes a place for one connection, kept until the returned value is dropped.
    pub(super) fn enter(&self) -> Option<Place> {
        let place = Place { shared: self.shared.clone() };
        // `place` gives back on drop what is taken here, in the refused case too.
        if self.shared.open.fetch_add(1, Ordering::Relaxed) < self.shared.limit {
            self.shared.accepted.fetch_add(1, Ordering::Relaxed);
            Some(place)
        } else {
            self.shared.over_limit.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    pub(super) fn count_over_rate(&self) {
        self.shared.over_rate.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_handshake_failed(&self) {
        self.shared.handshake_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_accept_error(&self) {
        self.shared.accept_errors.fetch_add(1, Ordering::Relaxed);
    }
}

/// One open connection's place under the limit.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.shared.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.all_closed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn places_are_limited_and_come_back() {
        let connections = Connections::new(2);
        let first = connections.enter().unwrap();
        let _second = connections.enter().unwrap();
        assert!(connections.enter().is_none());
        assert_eq!(connections.open(), 2);
        drop(first);
        assert!(connections.enter().is_some());
        assert_eq!(connections.counts(), Counts { accepted: 3, over_limit: 1, ..Counts::default() });
    }

    #[tokio::test]
    async fn all_closed_waits_for_the_last() {
        let connections = Connections::new(2);
        let place = connections.enter().unwrap();
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { connections.all_closed().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(place);
        waiting.await.unwrap();
    }
}

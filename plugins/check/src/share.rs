//! What each client's share of the limit is, told only when the limit is near.

use std::collections::HashSet;

use tidegate_control::time::{Moment, Span};

const WINDOW: Span = Span::from_secs(10);
/// Clients that are told apart.
const MOST_CLIENTS: usize = 1_000_000;
/// The share of the limit from which on clients are told theirs.
const NEAR: f64 = 0.7;
/// The share of the limit that is handed out.
const HANDED_OUT: f64 = 0.9;

/// Counts who asks.
#[derive(Debug)]
pub(crate) struct Share {
    limit: f64,
    start: Moment,
    clients: HashSet<u64>,
    checks: u64,
    /// Clients and checks a second of the window before.
    before: (usize, f64),
}

impl Share {
    pub(crate) fn new(limit: f64) -> Self {
        Self { limit, start: Moment::START, clients: HashSet::new(), checks: 0, before: (0, 0.0) }
    }

    /// A client asks; it is known by the hash of its name.
    pub(crate) fn asks(&mut self, now: Moment, client: u64) {
        self.turn(now);
        self.checks += 1;
        if self.clients.len() < MOST_CLIENTS {
            self.clients.insert(client);
        }
    }

    /// The checks a second for each client; none while there is room for all.
    pub(crate) fn each(&mut self, now: Moment) -> Option<f64> {
        self.turn(now);
        let elapsed = now.since(self.start).as_secs_f64().max(1.0);
        let demand = (self.checks as f64 / elapsed).max(self.before.1);
        let clients = self.clients.len().max(self.before.0).max(1);
        (demand > NEAR * self.limit).then(|| HANDED_OUT * self.limit / clients as f64)
    }

    fn turn(&mut self, now: Moment) {
        let elapsed = now.since(self.start);
        if elapsed < WINDOW {
            return;
        }
        // After a longer silence the window before was empty.
        let quiet = elapsed >= WINDOW + WINDOW;
        let rate = self.checks as f64 / WINDOW.as_secs_f64();
        self.before = if quiet { (0, 0.0) } else { (self.clients.len(), rate) };
        self.clients.clear();
        (self.checks, self.start) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_only_when_the_limit_is_near() {
        let mut share = Share::new(100.0);
        let at = Moment::from_secs_f64;
        for n in 0..60 {
            share.asks(at(0.1), n);
        }
        assert_eq!(share.each(at(0.1)), None);
        for n in 0..1000 {
            share.asks(at(0.2), n);
        }
        assert_eq!(share.each(at(0.2)), Some(0.09));
        assert_eq!(share.each(at(11.0)), Some(0.09), "the window before counts");
        assert_eq!(share.each(at(100.0)), None);
    }
}

//! What each client's share of the limit is, told only when the limit is near.

use std::collections::HashSet;

use tidegate_control::time::{Moment, Span};

/// Over how long demand is measured.
const WINDOW: Span = Span::from_secs(10);
/// Over how long clients are counted: as long as the longest time between two checks of one, or those who ask rarely would
/// not count, and the others be told too much.
const CENSUS: Span = Span::from_secs(60);
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
    /// Checks since, and checks a second of the window before.
    start: Moment,
    checks: u64,
    demand_before: f64,
    /// Clients since, and those of the census before.
    census: Moment,
    clients: HashSet<u64>,
    clients_before: usize,
}

impl Share {
    pub(crate) fn new(limit: f64) -> Self {
        let (start, census) = (Moment::START, Moment::START);
        Self {
            limit,
            start,
            checks: 0,
            demand_before: 0.0,
            census,
            clients: HashSet::new(),
            clients_before: 0,
        }
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
        let demand = (self.checks as f64 / elapsed).max(self.demand_before);
        let clients = self.clients.len().max(self.clients_before).max(1);
        (demand > NEAR * self.limit).then(|| HANDED_OUT * self.limit / clients as f64)
    }

    /// Begins new windows when it is time; after a longer silence the one before was empty.
    fn turn(&mut self, now: Moment) {
        let elapsed = now.since(self.start);
        if elapsed >= WINDOW {
            let quiet = elapsed >= WINDOW + WINDOW;
            self.demand_before = if quiet { 0.0 } else { self.checks as f64 / WINDOW.as_secs_f64() };
            (self.checks, self.start) = (0, now);
        }
        let elapsed = now.since(self.census);
        if elapsed >= CENSUS {
            self.clients_before = if elapsed >= CENSUS + CENSUS { 0 } else { self.clients.len() };
            self.clients.clear();
            self.census = now;
        }
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

    /// Each of a thousand asks once in eleven seconds, as it was told to: in ten seconds not all of them are seen.
    #[test]
    fn those_who_ask_rarely_count() {
        let mut share = Share::new(100.0);
        for n in 0..20_000u64 {
            let now = Moment::from_secs_f64(n as f64 * 0.011);
            share.asks(now, n % 1000);
            if n > 1_000 {
                assert_eq!(share.each(now), Some(0.09), "{n}");
            }
        }
    }
}

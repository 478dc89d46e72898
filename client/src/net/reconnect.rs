//! When to try again after a connection broke.
//!
//! Attempts fall into windows that follow each other and grow. A client draws its place within a window at random, over
//! the whole of it (full jitter), and keeps that place in the windows after it. So, whenever a broker comes back,
//! its clients arrive evenly: those later in this window during the rest of it, the others at the same places of the
//! next one, and never more in a second than the growth factor times the mean. Drawing anew each time would be worse:
//! a client that drew a short time twice meets others that did.

use std::time::Duration;

use tidegate_control::random::Random;
use tidegate_control::time::{Moment, Span};

use crate::clock::span;

/// How long to wait before a connection is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Reconnect {
    /// The first window: after a break, a client comes back at a random moment of it.
    pub first: Duration,
    /// What each further window is longer by, as a factor (above 1, at most 4).
    pub growth: f64,
    /// The longest window.
    pub longest: Duration,
}

impl Default for Reconnect {
    /// 2 s, then 1.6 times more each, up to a minute.
    fn default() -> Self {
        Self { first: Duration::from_secs(2), growth: 1.6, longest: Duration::from_secs(60) }
    }
}

impl Reconnect {
    /// The same with another first window.
    #[must_use]
    pub fn first(mut self, first: Duration) -> Self {
        self.first = first;
        self
    }

    /// The same with another growth.
    #[must_use]
    pub fn growth(mut self, growth: f64) -> Self {
        self.growth = growth;
        self
    }

    /// The same with another longest window.
    #[must_use]
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }
}

/// The attempts of one client.
#[derive(Debug)]
pub(crate) struct Attempts {
    settings: Reconnect,
    /// The place within each window, from 0 to 1; none while all is well.
    place: Option<f64>,
    window: f64,
    connected: Option<Moment>,
}

impl Attempts {
    pub(crate) fn new(settings: Reconnect) -> Self {
        Self { settings, place: None, window: 0.0, connected: None }
    }

    /// A connection was made.
    pub(crate) fn succeeded(&mut self, now: Moment) {
        self.connected = Some(now);
    }

    /// Whether there is a connection that did not break at once: a broker that accepts and drops must not be stormed.
    pub(crate) fn has_lasted(&self, now: Moment) -> bool {
        self.connected.is_some_and(|since| now.since(since) > span(self.settings.first))
    }

    /// A connection broke or could not be made: the time to wait.
    pub(crate) fn failed(&mut self, now: Moment, random: &mut dyn Random) -> Span {
        if self.has_lasted(now) {
            self.place = None;
        }
        self.connected = None;
        let first = self.settings.first.as_secs_f64();
        let Some(place) = self.place else {
            let place = random.uniform();
            (self.place, self.window) = (Some(place), first);
            return Span::from_secs_f64(place * first);
        };
        let rest = (1.0 - place) * self.window;
        self.window =
            (self.window * self.settings.growth).min(self.settings.longest.as_secs_f64()).max(first);
        Span::from_secs_f64(rest + place * self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::random::Seeded;

    fn at(seconds: f64) -> Moment {
        Moment::from_secs_f64(seconds)
    }

    /// When each client gets in, if all lose their connection at 0 and the broker is back after `outage` seconds.
    fn herd(clients: u64, outage: f64, settings: Reconnect) -> Vec<f64> {
        let mut times: Vec<f64> = (0..clients)
            .map(|client| {
                let mut random = Seeded::stream(7, client);
                let (mut attempts, mut now) = (Attempts::new(settings), at(0.0));
                loop {
                    now += attempts.failed(now, &mut random);
                    if now >= at(outage) {
                        return now.as_secs_f64();
                    }
                }
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times
    }

    #[test]
    fn a_herd_of_ten_thousand_spreads_however_long_the_outage() {
        for outage in [0.0, 0.3, 1.0, 2.0, 2.5, 5.0, 5.3, 10.0, 30.0, 60.0, 100.0, 1000.0] {
            let times = herd(10_000, outage, Reconnect::default());
            let (first, last) = (times[0], times[times.len() - 1]);
            let spread = last - first;
            assert!(spread > 1.8, "outage {outage}: all within {spread} s");
            let mean = times.len() as f64 / spread;
            let mut peak = 0;
            for (index, start) in times.iter().enumerate() {
                peak = peak.max(times[index..].partition_point(|time| *time < start + 1.0));
            }
            assert!((peak as f64) < 2.0 * mean, "outage {outage}: {peak} in a second, {mean} on average");
        }
    }

    #[test]
    fn windows_grow_to_the_longest_and_start_again_after_a_good_connection() {
        let (mut attempts, mut random) = (Attempts::new(Reconnect::default()), Seeded::new(1));
        let mut now = at(0.0);
        for _ in 0..100 {
            let wait = attempts.failed(now, &mut random);
            assert!(wait <= Span::from_secs(120));
            now += wait;
        }
        assert_eq!(attempts.window, 60.0);
        attempts.succeeded(now);
        attempts.failed(now + Span::from_millis(10), &mut random);
        assert_eq!(attempts.window, 60.0, "a connection that broke at once is none");
        attempts.succeeded(now);
        attempts.failed(now + Span::from_secs(30), &mut random);
        assert_eq!(attempts.window, 2.0);
    }
}

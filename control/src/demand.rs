//! What publishers would send if nobody held them back, learned from what they do send.
//!
//! A publisher that nobody holds shows what it wants, and that is remembered. One that is held and uses all that it may
//! hides it: it wants more, nobody knows how much. One that is held and uses clearly less is held by nothing but its own
//! wish, and shows it again. [`Pressure`] tells the two apart, [`Demand`] remembers.

use crate::allocate::{MAX_RATE, sound};
use crate::time::{Moment, Span};

/// A publisher is judged by at least this much time.
const LEAST_TIME: Span = Span::from_secs(1);
/// And by no more than this much while nobody holds it.
const MOST_TIME: Span = Span::from_secs(10);
/// Messages that show the rate of a publisher that nobody holds.
const ENOUGH: u32 = 4;
/// Intervals that show whether a publisher uses the rate it may.
const INTERVALS: f64 = 5.0;
/// Who uses less than this share of what it may is not held by it.
const USED: f64 = 0.8;
/// What is taken for a demand that can't be seen, as a multiple of what comes.
const MORE: f64 = 2.0;

/// Whether a publisher uses all that it may.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    limit: f64,
    since: Moment,
    counted: Moment,
    sent: u32,
    /// How many messages the limit allowed since `since`.
    allowed: f64,
    pressed: bool,
}

impl Pressure {
    /// A publisher without a limit.
    pub fn new(now: Moment) -> Self {
        Self { limit: f64::INFINITY, since: now, counted: now, sent: 0, allowed: 0.0, pressed: false }
    }

    /// Takes in what it may send from now on, in messages a second; infinity is no limit.
    pub fn limit(&mut self, now: Moment, limit: f64) {
        let limit = if limit.is_nan() { 0.0 } else { limit.max(0.0) };
        let held = limit.is_finite();
        if held != self.limit.is_finite() {
            // What it did before says nothing about the time after; who is newly held is taken to feel it.
            (self.since, self.counted, self.sent, self.allowed) = (now, now, 0, 0.0);
            self.pressed = held;
        }
        self.count(now);
        self.limit = limit;
    }

    /// Takes in messages that it sent.
    pub fn sent(&mut self, now: Moment, count: u32) {
        self.sent = self.sent.saturating_add(count);
        self.settle(now);
    }

    /// Judges it when enough time has gone by.
    pub fn settle(&mut self, now: Moment) {
        if !self.limit.is_finite() {
            return;
        }
        self.count(now);
        if now.since(self.since) >= LEAST_TIME && self.allowed >= INTERVALS {
            // One message may have fallen just outside of the time.
            self.pressed = f64::from(self.sent) + 1.0 >= USED * self.allowed;
            (self.since, self.sent, self.allowed) = (now, 0, 0.0);
        }
    }

    /// Whether it would send more if it could, as far as can be seen.
    pub fn is_pressed(&self) -> bool {
        self.pressed
    }

    fn count(&mut self, now: Moment) {
        if self.limit.is_finite() {
            self.allowed += self.limit.min(MAX_RATE) * now.since(self.counted).as_secs_f64();
        }
        self.counted = self.counted.max(now);
    }
}

/// What one publisher wants to send to one queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    since: Moment,
    sent: u32,
    /// What it sent lately, held or not; none before anything is known.
    recent: Option<f64>,
    /// What it was last seen to want.
    own: f64,
    /// It was seen while nothing held it back.
    shown: bool,
}

impl Demand {
    /// A publisher that nothing is known of.
    pub fn new(now: Moment) -> Self {
        Self { since: now, sent: 0, recent: None, own: 0.0, shown: false }
    }

    /// Takes in messages that came from it.
    pub fn sent(&mut self, count: u32) {
        self.sent = self.sent.saturating_add(count);
    }

    /// Closes the account of the last while when that is long enough. `pressed` says that something held it back.
    pub fn settle(&mut self, now: Moment, pressed: bool) {
        let time = now.since(self.since);
        if time < LEAST_TIME || (self.sent < ENOUGH && time < MOST_TIME) {
            return;
        }
        let rate = f64::from(self.sent) / time.as_secs_f64();
        self.own = if pressed { self.own.max(rate) } else { rate };
        self.shown |= !pressed;
        self.recent = Some(rate);
        (self.since, self.sent) = (now, 0);
    }

    /// What came from it lately, in messages a second.
    pub fn recent(&self, now: Moment) -> f64 {
        let time = now.since(self.since).max(LEAST_TIME).as_secs_f64();
        let so_far = f64::from(self.sent) / time;
        match self.recent {
            // Few messages right after the last account prove nothing.
            Some(recent) if self.sent < ENOUGH => sound(recent),
            Some(recent) => sound(recent.max(so_far)),
            None => sound(so_far),
        }
    }

    /// What it wants, in messages a second: finite and never negative. While it is pressed that can't be seen, and more
    /// than what comes is taken for it. Nothing may come because it is pressed: of one that never showed what it wants, `share`
    /// is taken to come, what it would get if all wanted the same.
    pub fn rate(&self, now: Moment, pressed: bool, share: f64) -> f64 {
        let recent = self.recent(now);
        if !pressed {
            return recent;
        }
        let comes = if self.shown { recent } else { recent.max(sound(share)) };
        sound(self.own.max(MORE * comes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use proptest::prelude::*;

    const TICK: Span = Span::from_millis(100);
    const SHARE: f64 = 50.0;

    /// A publisher that wants `want` messages a second and gets `limit`, watched for so many ticks.
    struct Watched {
        now: Moment,
        pressure: Pressure,
        demand: Demand,
        owed: f64,
    }

    impl Watched {
        fn new() -> Self {
            let now = Moment::from_secs_f64(100.0);
            Self { now, pressure: Pressure::new(now), demand: Demand::new(now), owed: 0.0 }
        }

        fn run(&mut self, ticks: u32, want: f64, limit: f64) {
            self.pressure.limit(self.now, limit);
            for _ in 0..ticks {
                self.now += TICK;
                self.owed += want.min(limit) * TICK.as_secs_f64();
                let sent = self.owed as u32;
                self.owed -= f64::from(sent);
                self.pressure.sent(self.now, sent);
                self.demand.sent(sent);
                self.demand.settle(self.now, self.pressure.is_pressed());
            }
        }

        fn rate(&self) -> f64 {
            self.demand.rate(self.now, self.pressure.is_pressed(), SHARE)
        }
    }

    #[test]
    fn the_rate_of_a_free_publisher_is_its_demand() {
        for want in [0.5, 2.0, 100.0, 50_000.0] {
            let mut watched = Watched::new();
            watched.run(200, want, f64::INFINITY);
            assert!((watched.rate() / want - 1.0).abs() < 0.3, "{} for {want}", watched.rate());
        }
    }

    #[test]
    fn a_held_publisher_is_remembered_and_a_flooder_wants_more() {
        let mut watched = Watched::new();
        watched.run(100, 100.0, f64::INFINITY);
        watched.run(300, 100.0, 10.0);
        assert!(watched.pressure.is_pressed());
        assert!((watched.rate() - 100.0).abs() < 10.0, "{}", watched.rate());
        // Now it is let go further than it went before, and takes it all.
        watched.run(300, f64::INFINITY, 1000.0);
        assert!(watched.rate() >= 1900.0, "{}", watched.rate());
    }

    #[test]
    fn a_limit_that_is_not_used_shows_the_demand() {
        for (want, limit) in [(100.0, 10.0), (1.0, 0.2), (20.0, 15.0)] {
            let mut watched = Watched::new();
            watched.run(100, want, f64::INFINITY);
            watched.run(600, want, limit);
            assert!(watched.pressure.is_pressed(), "{want} over {limit}");
            watched.run(600, limit / 4.0, limit);
            assert!(!watched.pressure.is_pressed(), "{want} over {limit}");
            // Give or take one message in the longest time that is looked at.
            assert!((watched.rate() - limit / 4.0).abs() < 0.1 + 0.1 * limit, "{}", watched.rate());
        }
    }

    /// One that is held from the start can show nothing: it counts as one that wants more than its share, until it is seen to
    /// want less.
    #[test]
    fn who_was_never_free_wants_more_than_its_share() {
        let mut watched = Watched::new();
        watched.run(30, f64::INFINITY, 0.1);
        assert_eq!(watched.rate(), MORE * SHARE);
        watched.run(30, 3.0, 100.0);
        assert!(!watched.pressure.is_pressed());
        watched.run(1, 3.0, f64::INFINITY);
        watched.run(1, 3.0, 0.1);
        assert!(watched.pressure.is_pressed() && watched.rate() < 10.0, "{}", watched.rate());
    }

    #[test]
    fn who_is_newly_held_is_taken_to_feel_it() {
        let mut watched = Watched::new();
        watched.run(50, 30.0, f64::INFINITY);
        assert!(!watched.pressure.is_pressed());
        watched.run(1, 30.0, 29.0);
        assert!(watched.pressure.is_pressed());
        watched.run(1, 30.0, f64::INFINITY);
        assert!(!watched.pressure.is_pressed());
    }

    proptest! {
        /// Clockwork at any rate and phase: who uses all it may is never taken for content.
        #[test]
        fn who_uses_all_it_may_stays_pressed(limit in 0.05..500.0f64, owed in 0.0..1.0f64) {
            let mut watched = Watched::new();
            watched.owed = owed;
            watched.run(600, f64::INFINITY, limit);
            prop_assert!(watched.pressure.is_pressed());
        }

        #[test]
        fn wild_numbers_stay_sound(steps in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<f64>()), 0..60)) {
            let mut pressure = Pressure::new(Moment::START);
            let mut demand = Demand::new(Moment::START);
            for (at, count, limit) in steps {
                let now = Moment::from_nanos(at);
                pressure.limit(now, limit);
                pressure.sent(now, count);
                demand.sent(count);
                demand.settle(now, pressure.is_pressed());
                let rate = demand.rate(now, pressure.is_pressed(), limit);
                prop_assert!((0.0..=MAX_RATE).contains(&rate), "{rate}");
            }
        }
    }
}

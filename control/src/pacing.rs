//! A token bucket that answers with the time to wait (the generic cell rate algorithm, as a leaking debt).

use crate::invalid::{self, Invalid};
use crate::time::{Moment, Span};

/// Debts closer than this are the same: room for the rounding of nanoseconds.
const ROUNDING: f64 = 1e-6;

/// Whether a message may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// It may go now, and has been booked.
    Go,
    /// It may go after this time, if nothing else goes before; nothing has been booked.
    Wait(Span),
}

/// Lets messages pass at a rate, with so many at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    rate: f64,
    burst: f64,
    /// Messages that went and have not leaked away yet.
    debt: f64,
    updated: Moment,
}

impl Bucket {
    /// A bucket for `rate` messages a second, `burst` of them at once; refuses NaN, a negative rate and a burst under 1.
    pub fn new(now: Moment, rate: f64, burst: f64) -> Result<Self, Invalid> {
        let rate = invalid::not_negative("rate", rate)?;
        let burst = invalid::check("burst", burst, "a finite number of at least 1", burst >= 1.0)?;
        Ok(Self { rate, burst, debt: 0.0, updated: now })
    }

    /// Books one message if it may go now.
    pub fn take(&mut self, now: Moment) -> Pass {
        self.take_many(now, 1)
    }

    /// Books `count` messages if they may go now; more than a burst may go once no debt is left.
    pub fn take_many(&mut self, now: Moment, count: u64) -> Pass {
        self.settle(now);
        let wait = self.time_to(count);
        if !wait.is_zero() {
            return Pass::Wait(wait);
        }
        self.debt += count as f64;
        Pass::Go
    }

    /// The time until `count` messages may go, without booking them.
    pub fn wait(&self, now: Moment, count: u64) -> Span {
        let mut later = *self;
        later.settle(now);
        later.time_to(count)
    }

    /// Books messages that went whatever the bucket says, as for a publisher that is only watched.
    pub fn charge(&mut self, now: Moment, count: u64) {
        self.settle(now);
        self.debt = (self.debt + count as f64).min(f64::MAX);
    }

    /// Changes the rate from now on: what has leaked stays leaked and what is owed stays owed, so that a change neither
    /// lets a burst through nor makes a publisher start again. NaN and negative rates stop it; infinity lets all pass.
    pub fn set_rate(&mut self, now: Moment, rate: f64) {
        self.settle(now);
        self.rate = if rate > 0.0 { rate.min(f64::MAX) } else { 0.0 };
    }

    /// Changes how many may go at once; what is owed beyond it is forgiven, so that a smaller burst stops nobody for long.
    /// NaN and what is under 1 count as 1.
    pub fn set_burst(&mut self, now: Moment, burst: f64) {
        self.settle(now);
        self.burst = burst.clamp(1.0, f64::MAX).max(1.0);
        self.debt = self.debt.min(self.burst);
    }

    /// The rate in messages a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Messages that may pass at once.
    pub fn burst(&self) -> f64 {
        self.burst
    }

    fn settle(&mut self, now: Moment) {
        let leaked = self.rate * now.since(self.updated).as_secs_f64();
        self.debt = (self.debt - leaked).max(0.0);
        self.updated = self.updated.max(now);
    }

    fn time_to(&self, count: u64) -> Span {
        let excess = self.debt - (self.burst - count as f64).max(0.0);
        if excess <= ROUNDING {
            return Span::ZERO;
        }
        if self.rate <= 0.0 {
            return Span::MAX;
        }
        // Rounded up: who waits this long may go.
        Span::from_secs_f64(excess / self.rate) + Span::from_nanos(1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> Moment {
        Moment::from_secs_f64(seconds)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut bucket = Bucket::new(at(0.0), 10.0, 3.0).unwrap();
        for _ in 0..3 {
            assert_eq!(bucket.take(at(0.0)), Pass::Go);
        }
        let Pass::Wait(wait) = bucket.take(at(0.0)) else { panic!("the fourth must wait") };
        assert!((wait.as_secs_f64() - 0.1).abs() < 1e-6);
        assert_eq!(bucket.take(at(0.0) + wait), Pass::Go);
    }

    #[test]
    fn a_rate_change_keeps_what_is_owed() {
        let mut bucket = Bucket::new(at(0.0), 1.0, 1.0).unwrap();
        assert_eq!(bucket.take(at(0.0)), Pass::Go);
        // Half of the message has leaked away; at 10 a second the other half takes 0.05 s.
        bucket.set_rate(at(0.5), 10.0);
        assert!((bucket.wait(at(0.5), 1).as_secs_f64() - 0.05).abs() < 1e-6);
        bucket.set_rate(at(0.5), 0.0);
        assert_eq!(bucket.wait(at(0.6), 1), Span::MAX);
        bucket.set_rate(at(0.6), f64::NAN);
        assert_eq!(bucket.rate(), 0.0);
    }

    #[test]
    fn a_smaller_burst_forgives_what_is_owed_beyond_it() {
        let mut bucket = Bucket::new(at(0.0), 1.0, 100.0).unwrap();
        bucket.charge(at(0.0), 1000);
        bucket.set_burst(at(0.0), 3.0);
        assert!((bucket.wait(at(0.0), 1).as_secs_f64() - 1.0).abs() < 1e-6);
        for burst in [f64::NAN, -1.0, 0.0] {
            bucket.set_burst(at(0.0), burst);
            assert_eq!((bucket.burst, bucket.debt), (1.0, 1.0));
        }
        bucket.set_burst(at(0.0), f64::INFINITY);
        assert_eq!(bucket.take(at(0.0)), Pass::Go);
    }

    #[test]
    fn a_batch_over_the_burst_goes_once_nothing_is_owed() {
        let mut bucket = Bucket::new(at(0.0), 10.0, 2.0).unwrap();
        assert_eq!(bucket.take_many(at(0.0), 20), Pass::Go);
        assert!((bucket.wait(at(0.0), 20).as_secs_f64() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn bad_settings_are_refused() {
        assert!(Bucket::new(at(0.0), f64::NAN, 1.0).is_err());
        assert!(Bucket::new(at(0.0), -1.0, 1.0).is_err());
        assert!(Bucket::new(at(0.0), 1.0, 0.5).is_err());
        assert!(Bucket::new(at(0.0), f64::INFINITY, 1.0).is_err());
    }

    proptest! {
        /// Over any stretch of time no more passes than the rate allows plus one burst, through any rate changes.
        #[test]
        fn never_more_than_rate_and_burst(
            burst in 1.0..20.0f64,
            steps in proptest::collection::vec((0u64..500, 0.0..200.0f64, 0u8..3), 1..200),
        ) {
            let mut now = at(0.0);
            let mut bucket = Bucket::new(now, 10.0, burst).unwrap();
            let (mut passed, mut allowed) = (0u64, 0.0);
            // The most that any stretch may have passed up to now, over what the rate allowed in it.
            let mut excess: f64 = 0.0;
            for (ms, rate, what) in steps {
                let gap = Span::from_millis(ms);
                now += gap;
                allowed += bucket.rate() * gap.as_secs_f64();
                excess = (excess - bucket.rate() * gap.as_secs_f64()).max(0.0);
                match what {
                    0 => bucket.set_rate(now, rate),
                    _ => if bucket.take(now) == Pass::Go { passed += 1; excess += 1.0; },
                }
                prop_assert!(excess <= burst + 1e-3, "{} over a burst of {}", excess, burst);
                prop_assert!(passed as f64 <= allowed + burst + 1e-3);
            }
        }

        /// Who waits as long as told may go.
        #[test]
        fn the_wait_is_long_enough(rate in 1e-3..1e6f64, burst in 1.0..50.0f64, takes in 1u32..100) {
            let mut now = at(1.0);
            let mut bucket = Bucket::new(now, rate, burst).unwrap();
            for _ in 0..takes {
                if let Pass::Wait(wait) = bucket.take(now) {
                    now += wait;
                    prop_assert_eq!(bucket.take(now), Pass::Go);
                }
            }
        }

        #[test]
        fn wild_numbers_are_harmless(ops in proptest::collection::vec((any::<u64>(), any::<f64>(), any::<u64>()), 1..50)) {
            let mut bucket = Bucket::new(at(0.0), 1.0, 1.0).unwrap();
            for (time, rate, count) in ops {
                let now = Moment::from_nanos(time);
                bucket.set_rate(now, rate);
                bucket.charge(now, count);
                bucket.take_many(now, count);
                prop_assert!(bucket.rate().is_finite() && bucket.debt.is_finite());
            }
        }
    }
}

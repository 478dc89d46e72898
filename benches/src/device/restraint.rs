//! What a device that follows does not send because it is told so.

use std::ops::Range;

use crate::clock::{Nanos, SECOND};
use crate::record::Withheld;

/// Adds up what a device would have sent at its own rate, and what it sends less, in the measured part.
#[derive(Debug)]
pub(super) struct Restraint {
    own: f64,
    /// The rate in use, and since when; none while the device is not there.
    current: Option<(f64, Nanos)>,
    sum: Withheld,
}

impl Restraint {
    /// Of a device that would like to send this many messages a second.
    pub(super) fn new(own: f64) -> Self {
        Self { own, current: None, sum: Withheld::default() }
    }

    /// The device sends at this rate from now on; none if it goes.
    pub(super) fn change(&mut self, rate: Option<f64>, now: Nanos, measured: &Range<Nanos>) {
        let before = std::mem::replace(&mut self.current, rate.map(|rate| (rate, now)));
        let Some((rate, since)) = before else { return };
        let (from, until) = (since.max(measured.start), now.min(measured.end));
        let seconds = until.saturating_sub(from) as f64 / SECOND as f64;
        self.sum.add(&Withheld {
            wanted: self.own * seconds,
            messages: (self.own - rate).max(0.0) * seconds,
            connected: seconds,
            seconds: if rate < self.own { seconds } else { 0.0 },
        });
    }

    /// What it came to.
    pub(super) fn sum(&self) -> Withheld {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_less_than_its_own_rate_counts_and_only_while_it_is_there() {
        let measured = 10 * SECOND..20 * SECOND;
        let mut restraint = Restraint::new(4.0);
        let mut at = |rate: Option<f64>, second: u64| restraint.change(rate, second * SECOND, &measured);
        // Slower from 8 s to 12 s, away from 14 s to 15 s, silent from 18 s to 25 s.
        for (rate, second) in [
            (Some(4.0), 5),
            (Some(1.0), 8),
            (Some(4.0), 12),
            (None, 14),
            (Some(4.0), 15),
            (Some(0.0), 18),
            (None, 25),
        ] {
            at(rate, second);
        }
        let expected = Withheld { wanted: 36.0, messages: 6.0 + 8.0, connected: 9.0, seconds: 2.0 + 2.0 };
        assert_eq!(restraint.sum(), expected);
    }

    #[test]
    fn nothing_is_known_before_the_measured_part() {
        let mut restraint = Restraint::new(4.0);
        restraint.change(Some(0.0), 0, &(Nanos::MAX..Nanos::MAX));
        restraint.change(Some(0.0), SECOND, &(Nanos::MAX..Nanos::MAX));
        assert_eq!(restraint.sum(), Withheld::default());
    }
}

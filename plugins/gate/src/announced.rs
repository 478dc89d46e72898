//! What a publisher was told lately.

use tidegate_control::time::{Moment, Span};

/// Rates that are told apart. With more changes within one grace the earlier, higher rate counts for longer.
const REMEMBERED: usize = 4;

/// The highest rate that was announced within the last while: a publisher may not have heard of a lower one yet.
#[derive(Debug, Clone)]
pub struct Announced {
    /// Falling rates, each with the moment at which the one before it ended; the oldest first.
    rates: [(Moment, f64); REMEMBERED],
    count: usize,
}

impl Announced {
    /// A publisher that was told of no limit until now.
    pub fn new(now: Moment) -> Self {
        Self { rates: [(now, f64::INFINITY); REMEMBERED], count: 1 }
    }

    /// Takes in the rate of this moment; returns the highest one that counted at any time since `grace` ago.
    pub fn on_rate(&mut self, now: Moment, rate: f64, grace: Span) -> f64 {
        // Room is made first: only rates that still count may be told apart no longer.
        self.forget(now, grace);
        if self.rates[self.count - 1].1 != rate {
            self.add(now, rate);
            self.forget(now, grace);
        }
        self.rates[0].1
    }

    /// Drops the rates that ended longer than `grace` ago: each counted until the next one was announced.
    fn forget(&mut self, now: Moment, grace: Span) {
        while self.count > 1 && now.since(self.rates[1].0) >= grace {
            self.rates.copy_within(1..self.count, 0);
            self.count -= 1;
        }
    }

    fn add(&mut self, now: Moment, rate: f64) {
        let higher = self.rates[..self.count].iter().take_while(|(_, earlier)| *earlier > rate).count();
        let at = higher.min(REMEMBERED - 1);
        // Lower ones in between never mattered: what was higher ended when the first of them was announced.
        let since = if higher < self.count { self.rates[higher].0 } else { now };
        self.rates[at] = (since, rate);
        self.count = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRACE: Span = Span::from_secs(1);

    fn at(millis: u64) -> Moment {
        Moment::START + Span::from_millis(millis)
    }

    #[test]
    fn a_lower_rate_counts_after_the_grace_and_a_higher_one_at_once() {
        let mut announced = Announced::new(at(0));
        assert_eq!(announced.on_rate(at(0), 10.0, GRACE), f64::INFINITY);
        assert_eq!(announced.on_rate(at(999), 10.0, GRACE), f64::INFINITY);
        assert_eq!(announced.on_rate(at(1000), 10.0, GRACE), 10.0);
        assert_eq!(announced.on_rate(at(1500), 5.0, GRACE), 10.0);
        assert_eq!(announced.on_rate(at(2000), 7.0, GRACE), 10.0);
        assert_eq!(announced.on_rate(at(2500), 7.0, GRACE), 7.0, "10 ended at 1500, 5 was never the highest");
        assert_eq!(announced.on_rate(at(2600), 8.0, GRACE), 8.0);
    }

    #[test]
    fn a_rate_that_falls_all_the_time_is_still_enforced() {
        let mut announced = Announced::new(at(0));
        let mut in_force = f64::INFINITY;
        for step in 0..100 {
            in_force = announced.on_rate(at(step * 100), 1000.0 - step as f64, GRACE);
        }
        assert!(in_force < 1000.0, "{in_force}");
    }

    /// More falls than are told apart: what was merged ends one grace after the oldest of them at the latest.
    #[test]
    fn rates_told_apart_no_longer_still_end() {
        let mut announced = Announced::new(at(0));
        for (moment, rate) in
            [(1, 17.0), (1000, 16.0), (1001, 15.0), (1002, 0.0), (1834, 13.0), (2100, 12.0), (2602, 11.0)]
        {
            announced.on_rate(at(moment), rate, GRACE);
        }
        assert_eq!(announced.on_rate(at(3002), 11.0, GRACE), 13.0);
    }

    proptest! {
        /// Never under the highest rate of the last while, and never over the highest of the last two.
        #[test]
        fn it_is_the_highest_of_the_last_while(steps in proptest::collection::vec((1u64..400, 0u8..20), 1..200)) {
            let mut announced = Announced::new(at(0));
            let mut now = 0;
            // Every rate with the moment from which on it counted.
            let mut history = vec![(0, f64::INFINITY)];
            for (gap, rate) in steps {
                now += gap;
                let rate = f64::from(rate);
                let in_force = announced.on_rate(at(now), rate, GRACE);
                history.push((now, rate));
                let highest = |within: u64| {
                    let ended = |index: usize| history.get(index + 1).map_or(u64::MAX, |next| next.0);
                    let counted = history.iter().enumerate().filter(|(index, _)| ended(*index).saturating_add(within) > now);
                    counted.map(|(_, entry)| entry.1).fold(0.0, f64::max)
                };
                prop_assert!(in_force >= highest(1000), "{} at {}", in_force, now);
                prop_assert!(in_force <= highest(2000), "{} at {}", in_force, now);
            }
        }
    }
}

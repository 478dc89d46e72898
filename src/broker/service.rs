//! How fast a consumer takes messages while something waits for it.

use super::clock::Millis;

/// The processing rate of one queue's consumer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Service {
    /// Messages a millisecond; 0 is not known.
    rate: f64,
    /// Since when something waits without a break (0: nothing waits), and the departures then.
    busy_since: Millis,
    departed: u64,
}

/// The rate is taken over at least this long, and a new value counts this much.
const INTERVAL: Millis = 20;
const WEIGHT: f64 = 0.3;

impl Service {
    /// Something waits from now on; `departed` is the count of departures so far.
    pub fn busy(&mut self, now: Millis, departed: u64) {
        (self.busy_since, self.departed) = (now, departed);
    }

    /// The consumer took something; `empty` when nothing waits any more.
    pub fn took(&mut self, now: Millis, departed: u64, empty: bool) {
        let elapsed = now.saturating_sub(self.busy_since);
        if self.busy_since != 0 && elapsed >= INTERVAL {
            // what was given back may have lowered the count
            let rate = departed.saturating_sub(self.departed) as f64 / elapsed as f64;
            self.rate = if self.rate == 0.0 { rate } else { self.rate + WEIGHT * (rate - self.rate) };
            self.busy(now, departed);
        }
        if empty {
            self.busy_since = 0;
        }
    }

    /// Messages a second; 0 is not known.
    pub fn rate_per_second(&self) -> u64 {
        (self.rate * 1000.0) as u64
    }

    /// How many messages it takes within this time; no limit while the rate is not known.
    pub fn takes_within(&self, time: Millis) -> usize {
        if self.rate == 0.0 { usize::MAX } else { (self.rate * time as f64) as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_time_counts() {
        let mut service = Service::default();
        assert_eq!(service.takes_within(1), usize::MAX);
        service.busy(1, 0);
        service.took(21, 40, true);
        assert_eq!(service.takes_within(100), 200);
        // a long idle time, then two a millisecond again
        service.busy(10_000, 40);
        service.took(10_020, 80, false);
        assert_eq!(service.takes_within(100), 200);
        service.took(10_040, 80, false);
        assert_eq!(service.takes_within(100), 140);
    }
}

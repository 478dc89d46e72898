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
    /// What earlier busy times came to that were too short to tell: milliseconds and departures.
    short: (Millis, u64),
}

/// The rate is taken over at least this long, and a new value counts this much.
const INTERVAL: Millis = 20;
const WEIGHT: f64 = 0.3;
/// So many messages tell as well, however quickly they were taken.
const TELLING: u64 = 1000;
/// What a consumer is trusted to take before its rate is known.
const FIRST_DEPTH: usize = 32;

impl Service {
    /// Something waits from now on; `departed` is the count of departures so far.
    pub fn busy(&mut self, now: Millis, departed: u64) {
        (self.busy_since, self.departed) = (now, departed);
    }

    /// The consumer took something; `empty` when nothing waits any more.
    pub fn took(&mut self, now: Millis, departed: u64, empty: bool) {
        if self.busy_since == 0 {
            return;
        }
        let elapsed = self.short.0 + now.saturating_sub(self.busy_since);
        // what was given back may have lowered the count
        let count = self.short.1 + departed.saturating_sub(self.departed);
        if elapsed >= INTERVAL || count >= TELLING {
            let rate = count as f64 / elapsed.max(1) as f64;
            self.rate = if self.rate == 0.0 { rate } else { self.rate + WEIGHT * (rate - self.rate) };
            self.short = (0, 0);
            self.busy(now, departed);
        } else if empty {
            self.short = (elapsed, count);
        }
        if empty {
            self.busy_since = 0;
        }
    }

    /// Messages a second; 0 is not known.
    pub fn rate_per_second(&self) -> u64 {
        (self.rate * 1000.0) as u64
    }

    /// How many messages it takes within this time, as far as is known.
    pub fn takes_within(&self, time: Millis) -> usize {
        if self.rate == 0.0 { FIRST_DEPTH } else { (self.rate * time as f64) as usize }
    }

    /// Whether it takes so many messages within this time; whoever was not seen at work yet may.
    pub fn may_take(&self, count: usize, time: Millis) -> bool {
        self.rate == 0.0 || self.takes_within(time) >= count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_time_counts() {
        let mut service = Service::default();
        assert_eq!((service.takes_within(1), service.may_take(9999, 1)), (FIRST_DEPTH, true));
        service.busy(1, 0);
        service.took(21, 40, true);
        assert_eq!(service.takes_within(100), 200);
        // a long idle time, then two a millisecond again
        service.busy(10_000, 40);
        service.took(10_020, 80, false);
        assert_eq!(service.takes_within(100), 200);
        service.took(10_040, 80, false);
        assert_eq!(service.takes_within(100), 140);
        assert!(service.may_take(140, 100) && !service.may_take(141, 100));
    }

    /// A consumer that is quicker than anything waits is known all the same.
    #[test]
    fn short_busy_times_add_up() {
        let mut service = Service::default();
        for time in 1..=10 {
            service.busy(time * 1000, time * 100 - 100);
            service.took(time * 1000, time * 100, true);
        }
        assert_eq!(service.takes_within(1), 1000);
        let mut service = Service::default();
        for time in 1..=4 {
            service.busy(time * 1000, time * 10 - 10);
            service.took(time * 1000 + 5, time * 10, true);
        }
        assert_eq!(service.takes_within(10), 20);
    }
}

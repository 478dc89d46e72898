//! Waiting times in constant memory: count, mean, largest and quantiles.

/// Buckets for each doubling of the time: quantiles are exact to about 2%.
const PER_DOUBLING: u32 = 32;
const BUCKETS: usize = 64 * PER_DOUBLING as usize;

/// A summary of many waiting times.
#[derive(Debug, Clone)]
pub(super) struct Waits {
    count: u64,
    zero: u64,
    nanos: u128,
    max: u64,
    buckets: Vec<u64>,
}

impl Default for Waits {
    fn default() -> Self {
        Self { count: 0, zero: 0, nanos: 0, max: 0, buckets: vec![0; BUCKETS] }
    }
}

impl Waits {
    /// Takes in one waiting time, in nanoseconds.
    pub(super) fn add(&mut self, nanos: u64) {
        self.count += 1;
        if nanos == 0 {
            self.zero += 1;
            return;
        }
        self.nanos += u128::from(nanos);
        self.max = self.max.max(nanos);
        self.buckets[bucket(nanos)] += 1;
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// All of them together, in seconds.
    pub(super) fn total(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// The mean in seconds.
    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total() / self.count as f64 }
    }

    /// The largest in seconds.
    pub(super) fn max(&self) -> f64 {
        self.max as f64 / 1e9
    }

    /// The time that this share of them does not exceed, in seconds.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let mut left = (share * self.count as f64) as u64;
        if left < self.zero {
            return 0.0;
        }
        left -= self.zero;
        for (index, count) in self.buckets.iter().enumerate() {
            if left < *count {
                return upper_edge(index).min(self.max());
            }
            left -= count;
        }
        self.max()
    }
}

/// The bucket of a time: its power of two, and the next bits after its highest.
fn bucket(nanos: u64) -> usize {
    let power = nanos.ilog2();
    let fraction = ((u128::from(nanos) * u128::from(PER_DOUBLING)) >> power) as u32 - PER_DOUBLING;
    (power * PER_DOUBLING + fraction) as usize
}

/// The upper edge of a bucket in seconds.
fn upper_edge(index: usize) -> f64 {
    let (power, fraction) = (index as u32 / PER_DOUBLING, index as u32 % PER_DOUBLING);
    f64::from(1 + fraction + PER_DOUBLING) / f64::from(PER_DOUBLING) * 2f64.powi(power as i32) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut waits = Waits::default();
        for ms in 1..=1000u64 {
            waits.add(ms * 1_000_000);
        }
        assert!((waits.mean() - 0.5005).abs() < 1e-9);
        assert!((waits.quantile(0.95) / 0.95 - 1.0).abs() < 0.035);
        assert_eq!(waits.max(), 1.0);
        assert_eq!(waits.quantile(1.0), 1.0);
    }

    #[test]
    fn extremes_have_a_bucket() {
        let mut waits = Waits::default();
        assert_eq!((waits.mean(), waits.quantile(0.5)), (0.0, 0.0));
        for nanos in [0, 1, 2, u64::MAX] {
            waits.add(nanos);
        }
        assert_eq!(waits.count(), 4);
        assert!(waits.quantile(0.99) > 1e9);
    }
}

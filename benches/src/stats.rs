//! What all connections count together, and their latencies.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::clock::Nanos;
use crate::record::{Latency, Percentile};

/// Connections share a few histograms: one for each would take too much memory, one for all too many locks.
const SHARDS: usize = 8;
/// The longest latency that is told apart, in microseconds.
const LONGEST: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// Counters that only grow, and two levels.
#[derive(Debug, Default)]
#[allow(missing_docs)] // the fields are those of `record::Totals`, and explained there
pub struct Counts {
    pub sent: AtomicU64,
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub resent: AtomicU64,
    pub delivered: AtomicU64,
    pub foreign: AtomicU64,
    pub connects: AtomicU64,
    pub failed_connects: AtomicU64,
    pub disconnects: AtomicU64,
    /// Devices connected now.
    pub devices: AtomicU32,
    /// Consumers connected and subscribed now.
    pub consumers: AtomicU32,
    /// Messages that the generator sent too late though nobody held it up.
    pub late: AtomicU64,
    /// The worst of them.
    pub latest: AtomicU64,
    /// Batches that devices offered to their sockets.
    pub writes: AtomicU64,
    /// Of these, how many the socket did not take at once.
    pub blocked: AtomicU64,
    /// QoS 1 and 2: messages that wait for their acknowledgement.
    pub in_flight: AtomicU64,
    /// The sum of the rates that following devices use now, in thousandths.
    pub followed: AtomicU64,
    /// Devices that follow and are connected now.
    pub followers: AtomicU32,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Relaxed);
    }
}

/// Reads a counter.
pub fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

/// Latencies by class, taken away at the end of each interval.
pub struct Latencies {
    shards: Vec<Mutex<Vec<Histogram<u64>>>>,
    classes: usize,
}

/// Latencies of one class or of all.
pub type Distribution = Histogram<u64>;

/// An empty distribution of microseconds.
pub fn distribution() -> Distribution {
    // The bounds are constants that the constructor accepts: 1 is at least 1, and half of the highest.
    #[allow(clippy::expect_used)]
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("constant bounds")
}

impl Latencies {
    /// For so many classes.
    pub fn new(classes: usize) -> Self {
        let shard = || Mutex::new((0..classes).map(|_| distribution()).collect());
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), classes }
    }

    /// Records latencies of classes that one connection saw.
    pub fn record(&self, connection: usize, latencies: &[(u16, Nanos)]) {
        if latencies.is_empty() {
            return;
        }
        let mut shard = self.shards[connection % SHARDS].lock();
        for (class, nanos) in latencies {
            shard[usize::from(*class)].saturating_record((nanos / 1000).max(1));
        }
    }

    /// Takes away what was recorded, by class.
    pub fn take(&self) -> Vec<Distribution> {
        let mut taken: Vec<_> = (0..self.classes).map(|_| distribution()).collect();
        for shard in &self.shards {
            for (class, recorded) in shard.lock().iter_mut().enumerate() {
                if !recorded.is_empty() {
                    merge(&mut taken[class], recorded);
                    recorded.reset();
                }
            }
        }
        taken
    }
}

/// Adds one distribution to another.
pub fn merge(to: &mut Distribution, from: &Distribution) {
    // Both have the same bounds, so there is always room.
    let _ = to.add(from);
}

/// A distribution in short.
pub fn in_short(all: &Distribution) -> Latency {
    if all.is_empty() {
        return Latency::default();
    }
    let at = |quantile: f64| millis(all.value_at_quantile(quantile));
    Latency {
        count: all.len(),
        min: millis(all.min()),
        mean: all.mean() / 1000.0,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: millis(all.max()),
    }
}

/// A distribution as points, closer together towards its end.
pub fn percentiles(all: &Distribution) -> Vec<Percentile> {
    if all.is_empty() {
        return Vec::new();
    }
    let points = all.iter_quantiles(4).map(|point| Percentile {
        percentile: 100.0 * point.quantile_iterated_to(),
        latency: millis(point.value_iterated_to().min(all.max())),
        count: (point.quantile() * all.len() as f64).round() as u64,
    });
    points.collect()
}

/// Microseconds as milliseconds.
pub fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn what_connections_record_comes_together() {
        let latencies = Latencies::new(2);
        for connection in 0..100usize {
            latencies.record(connection, &[(0, (connection as u64 + 1) * 1_000_000), (1, 5_000_000)]);
        }
        let taken = latencies.take();
        let first = in_short(&taken[0]);
        assert_eq!((first.count, first.min, first.p50.round(), first.p99.round()), (100, 1.0, 50.0, 99.0));
        assert_eq!(in_short(&taken[1]).max.round(), 5.0);
        assert!(latencies.take()[0].is_empty(), "it was taken away");
        let points = percentiles(&taken[0]);
        assert!(points.is_sorted_by(|a, b| a.percentile <= b.percentile && a.latency <= b.latency));
        assert_eq!(points.last().unwrap().count, 100);
    }

    #[test]
    fn an_hour_and_more_is_not_a_panic() {
        let latencies = Latencies::new(1);
        latencies.record(0, &[(0, u64::MAX)]);
        assert_eq!(latencies.take()[0].len(), 1);
    }
}

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
    /// First deliveries.
    pub delivered: AtomicU64,
    /// Deliveries beyond the first.
    pub duplicates: AtomicU64,
    pub foreign: AtomicU64,
    pub announcements: AtomicU64,
    pub connects: AtomicU64,
    pub failed_connects: AtomicU64,
    pub disconnects: AtomicU64,
    /// Messages that were answered, or given to a connection that has lasted: QoS 0 is taken by any socket.
    pub taken: AtomicU64,
    /// Connections that lasted though nothing had come of their client's last one.
    pub lasting: AtomicU64,
    /// Consumers that were granted less than they asked for.
    pub downgraded: AtomicU64,
    /// Devices connected now.
    pub devices: AtomicU32,
    /// Consumers connected and subscribed now.
    pub consumers: AtomicU32,
    /// Consumers that the scenario has disconnected and that wait before they come back.
    pub dropped_consumers: AtomicU32,
    /// Messages that the generator sent too late though nobody held it up.
    pub late: AtomicU64,
    /// The worst of them.
    pub latest: AtomicU64,
    /// Batches that devices offered to their sockets.
    pub writes: AtomicU64,
    /// Of these, how many the socket did not take at once.
    pub blocked: AtomicU64,
    /// Messages that wait for their acknowledgement; with QoS 0, for room in their socket.
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

/// How long a message took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// Its class.
    pub class: u16,
    /// From the intended time of sending until a consumer took it.
    pub latency: Nanos,
    /// Whether it was meant to be sent in the measured part.
    pub measured: bool,
}

/// Latencies by class: those of an interval, taken away at its end, and those of the measured part.
pub struct Latencies {
    shards: Vec<Mutex<Shard>>,
    classes: usize,
}

struct Shard {
    interval: Vec<Distribution>,
    measured: Vec<Distribution>,
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
        let shard = || Mutex::new(Shard { interval: empty(classes), measured: empty(classes) });
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), classes }
    }

    /// Records latencies of classes that one connection saw.
    pub fn record(&self, connection: usize, latencies: &[Took]) {
        if latencies.is_empty() {
            return;
        }
        let mut shard = self.shards[connection % SHARDS].lock();
        for took in latencies {
            let (class, micros) = (usize::from(took.class), (took.latency / 1000).max(1));
            shard.interval[class].saturating_record(micros);
            if took.measured {
                shard.measured[class].saturating_record(micros);
            }
        }
    }

    /// Takes away what was recorded since this was last asked for, by class.
    pub fn take(&self) -> Vec<Distribution> {
        let mut taken = empty(self.classes);
        for shard in &self.shards {
            for (class, recorded) in shard.lock().interval.iter_mut().enumerate() {
                if !recorded.is_empty() {
                    merge(&mut taken[class], recorded);
                    recorded.reset();
                }
            }
        }
        taken
    }

    /// Those of messages that were meant to be sent in the measured part, by class.
    pub fn measured(&self) -> Vec<Distribution> {
        let mut all = empty(self.classes);
        for shard in &self.shards {
            all.iter_mut().zip(&shard.lock().measured).for_each(|(all, recorded)| merge(all, recorded));
        }
        all
    }
}

fn empty(classes: usize) -> Vec<Distribution> {
    (0..classes).map(|_| distribution()).collect()
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

    fn took(class: u16, latency: Nanos, measured: bool) -> Took {
        Took { class, latency, measured }
    }

    #[test]
    fn what_connections_record_comes_together() {
        let latencies = Latencies::new(2);
        for connection in 0..100usize {
            let own = (connection as u64 + 1) * 1_000_000;
            latencies.record(connection, &[took(0, own, connection < 50), took(1, 5_000_000, true)]);
        }
        let taken = latencies.take();
        let first = in_short(&taken[0]);
        assert_eq!((first.count, first.min, first.p50.round(), first.p99.round()), (100, 1.0, 50.0, 99.0));
        assert_eq!(in_short(&taken[1]).max.round(), 5.0);
        assert!(latencies.take()[0].is_empty(), "it was taken away");
        assert_eq!(in_short(&latencies.measured()[0]).count, 50);
        let points = percentiles(&taken[0]);
        assert!(points.is_sorted_by(|a, b| a.percentile <= b.percentile && a.latency <= b.latency));
        assert_eq!(points.last().unwrap().count, 100);
    }

    #[test]
    fn an_hour_and_more_is_not_a_panic() {
        let latencies = Latencies::new(1);
        latencies.record(0, &[took(0, u64::MAX, false)]);
        assert_eq!(latencies.take()[0].len(), 1);
    }
}

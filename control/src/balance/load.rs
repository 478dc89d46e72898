//! What a broker can do and how much of it is used.

use crate::invalid::{self, Invalid};
use core::ops::Add;

/// What can overload a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Input rate over downlink bandwidth.
    Downlink,
    /// Input rate over matching rate.
    Matching,
    /// Output rate over uplink bandwidth.
    Uplink,
    /// Messages that wait for the subscribers of a topic.
    QueueDepth,
}

/// What a broker can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    downlink: f64,
    matching: f64,
    uplink: f64,
}

impl Capacity {
    /// A broker with these bandwidths (bit/s) and this matching rate (messages a second).
    pub fn new(downlink: f64, matching: f64, uplink: f64) -> Result<Self, Invalid> {
        Ok(Self {
            downlink: invalid::positive("downlink", downlink)?,
            matching: invalid::positive("matching", matching)?,
            uplink: invalid::positive("uplink", uplink)?,
        })
    }

    /// The bandwidth to subscribers, in bit/s.
    pub fn uplink(&self) -> f64 {
        self.uplink
    }

    /// The messages a second that it can match.
    pub fn matching(&self) -> f64 {
        self.matching
    }

    /// The share of each capacity that a load asks for.
    pub fn utilization(&self, load: &Load) -> Utilization {
        Utilization {
            downlink: load.input / self.downlink,
            matching: load.matched / self.matching,
            uplink: load.output / self.uplink,
        }
    }
}

/// What a broker is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Input in bit/s.
    pub input: f64,
    /// Messages a second to match.
    pub matched: f64,
    /// Output in bit/s.
    pub output: f64,
}

impl Add for Load {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            matched: self.matched + other.matched,
            output: self.output + other.output,
        }
    }
}

/// The share of each capacity that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Utilization {
    /// Of the downlink bandwidth.
    pub downlink: f64,
    /// Of the matching rate.
    pub matching: f64,
    /// Of the uplink bandwidth.
    pub uplink: f64,
}

impl Utilization {
    /// The share that counts for a metric; a queue is deep because the uplink is full.
    pub fn of(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Downlink => self.downlink,
            Metric::Matching => self.matching,
            Metric::Uplink | Metric::QueueDepth => self.uplink,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn utilization_is_load_over_capacity() {
        let capacity = Capacity::new(4e6, 1000.0, 8e6).unwrap();
        let utilization = capacity.utilization(&Load { input: 1e6, matched: 500.0, output: 8.56e6 });
        assert_eq!(utilization, Utilization { downlink: 0.25, matching: 0.5, uplink: 1.07 });
        assert_eq!(utilization.of(Metric::QueueDepth), 1.07);
    }

    #[test]
    fn capacities_that_are_none_are_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Capacity::new(bad, 1.0, 1.0).unwrap_err().key, "downlink");
            assert_eq!(Capacity::new(1.0, bad, 1.0).unwrap_err().key, "matching");
            assert_eq!(Capacity::new(1.0, 1.0, bad).unwrap_err().key, "uplink");
        }
    }
}

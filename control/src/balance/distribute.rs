//! Which broker a new topic's subscribers go to.

use super::{Broker, Limits, LimitsConfig, Role, Topic};
use crate::invalid::{self, Invalid};
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Settings of [`Distribute`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistributeConfig {
    /// When a broker counts as loaded.
    pub limits: LimitsConfig,
    /// The correlation of two topics' rates from which they are kept apart (above 0 and at most 1).
    pub correlated: f64,
    /// Differences in free uplink below this share of the bandwidth count as none: the matching rate decides then.
    pub tolerance: f64,
}

impl Default for DistributeConfig {
    /// Topics that correlate by half are kept apart, and 2% is no difference.
    fn default() -> Self {
        Self { limits: LimitsConfig::default(), correlated: 0.5, tolerance: 0.02 }
    }
}

impl DistributeConfig {
    /// Makes the rule, or says which setting is wrong.
    pub fn build(&self) -> Result<Distribute, Invalid> {
        let good = self.correlated > 0.0 && self.correlated <= 1.0;
        invalid::check("correlated", self.correlated, "above 0 and at most 1", good)?;
        let good = (0.0..1.0).contains(&self.tolerance);
        invalid::check("tolerance", self.tolerance, "at least 0 and below 1", good)?;
        Ok(Distribute { config: *self, limits: self.limits.build()? })
    }
}

/// Same topic together; correlated topics apart; else to the broker with most free capacity.
#[derive(Debug, Clone)]
pub struct Distribute {
    config: DistributeConfig,
    limits: Limits,
}

impl Distribute {
    /// The index of the broker for a topic's new subscribers; none when there are no brokers.
    ///
    /// `correlation` answers how two topics' rates correlate, from -1 to 1; 0 where it is not known.
    pub fn place(
        &self,
        topic: &Topic,
        brokers: &[Broker],
        correlation: &dyn Fn(u64, u64) -> f64,
    ) -> Option<usize> {
        let serves = |broker: &Broker| broker.topics.iter().any(|served| served.id == topic.id);
        if let Some(same) = brokers.iter().position(serves) {
            return Some(same);
        }
        let all: Vec<usize> = (0..brokers.len()).collect();
        let roomy =
            prefer(all, |index| brokers.get(index).is_some_and(|broker| self.has_room(broker, topic)));
        let apart = prefer(roomy, |index| {
            let topics = brokers.get(index).map_or(&[][..], |broker| &broker.topics);
            !topics.iter().any(|served| correlation(served.id, topic.id) >= self.config.correlated)
        });
        apart.into_iter().reduce(|best, other| match (brokers.get(best), brokers.get(other)) {
            (Some(a), Some(b)) if self.compare(a, b) == Ordering::Less => other,
            _ => best,
        })
    }

    fn has_room(&self, broker: &Broker, topic: &Topic) -> bool {
        let used = broker.capacity.utilization(&(broker.load() + topic.load()));
        self.limits.is_under(Role::Edge, &used, self.limits.config().low)
    }

    /// Greater is freer.
    fn compare(&self, a: &Broker, b: &Broker) -> Ordering {
        let free = |broker: &Broker| broker.capacity.uplink() - broker.load().output;
        let noise = self.config.tolerance * a.capacity.uplink().max(b.capacity.uplink());
        let difference = free(a) - free(b);
        if difference.abs() > noise {
            return difference.total_cmp(&0.0);
        }
        let matching = |broker: &Broker| broker.capacity.matching() - broker.load().matched;
        matching(a).total_cmp(&matching(b))
    }
}

/// How two series of the same length correlate (Pearson), from -1 to 1; 0 when one of them never changes.
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let count = a.len().min(b.len()) as f64;
    let pairs = || a.iter().copied().zip(b.iter().copied());
    let (mean_a, mean_b) =
        (pairs().map(|p| p.0).sum::<f64>() / count, pairs().map(|p| p.1).sum::<f64>() / count);
    let sum =
        |term: &dyn Fn(f64, f64) -> f64| pairs().map(|(x, y)| term(x - mean_a, y - mean_b)).sum::<f64>();
    let spread = libm::sqrt(sum(&|x, _| x * x)) * libm::sqrt(sum(&|_, y| y * y));
    let value = sum(&|x, y| x * y) / spread;
    if value.is_finite() { value.clamp(-1.0, 1.0) } else { 0.0 }
}

/// Those that fit, or all when none does.
fn prefer(all: Vec<usize>, fits: impl Fn(usize) -> bool) -> Vec<usize> {
    let some: Vec<usize> = all.iter().copied().filter(|index| fits(*index)).collect();
    if some.is_empty() { all } else { some }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::balance::Capacity;
    use crate::time::Span;

    fn topic(id: u64, uplink: f64) -> Topic {
        Topic {
            id,
            subscribers: 10,
            origin: Default::default(),
            message_bits: 1000.0,
            input_rate: uplink / 10_000.0,
            output_rate: uplink / 1000.0,
            depth: 0.0,
            allowed: Span::from_secs(1),
        }
    }

    fn broker(uplink: f64, matching: f64, topics: &[Topic]) -> Broker {
        Broker { capacity: Capacity::new(1e9, matching, uplink).unwrap(), topics: topics.to_vec() }
    }

    fn place(id: u64, brokers: &[Broker], correlation: &dyn Fn(u64, u64) -> f64) -> Option<usize> {
        DistributeConfig::default().build().unwrap().place(&topic(id, 1e5), brokers, correlation)
    }

    #[test]
    fn same_topic_together_correlated_apart_else_the_freest() {
        let brokers = [
            broker(1e6, 1e4, &[topic(1, 5e5)]),
            broker(2e6, 1e4, &[topic(2, 5e5)]),
            broker(1.5e6, 1e4, &[topic(3, 5e5)]),
        ];
        let unknown = |_, _| 0.0;
        assert_eq!(place(1, &brokers, &unknown), Some(0));
        assert_eq!(place(9, &brokers, &unknown), Some(1));
        assert_eq!(place(9, &brokers, &|served, _| if served == 2 { 0.9 } else { -0.9 }), Some(2));
        assert_eq!(place(9, &brokers, &|_, _| 1.0), Some(1), "apart from all is not possible");
        assert_eq!(place(9, &[], &unknown), None);
    }

    #[test]
    fn a_near_tie_goes_to_the_broker_that_matches_more() {
        let brokers = [broker(1e6, 1e4, &[]), broker(0.99e6, 2e4, &[])];
        assert_eq!(place(9, &brokers, &|_, _| 0.0), Some(1));
    }

    #[test]
    fn correlation_of_series() {
        assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]) - 1.0).abs() < 1e-12);
        assert!((correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
        assert_eq!(correlation(&[], &[]), 0.0);
        assert_eq!(correlation(&[f64::NAN, 1.0], &[1.0, 2.0]), 0.0);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = DistributeConfig::default();
        for bad in [f64::NAN, -0.1, 1.1] {
            assert!(DistributeConfig { correlated: bad, ..good }.build().is_err());
            assert!(DistributeConfig { tolerance: bad, ..good }.build().is_err());
        }
    }
}

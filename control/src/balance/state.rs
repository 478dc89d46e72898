//! The load state of a broker.

use super::{Broker, Metric, Utilization};
use crate::invalid::{self, Invalid};
use crate::time::Span;

/// What a broker does in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Takes publishers and forwards to edges; it matches nothing.
    Head,
    /// Serves subscribers.
    Edge,
}

/// How loaded a broker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It may take more.
    Low,
    /// It may keep what it has.
    High,
    /// It must give something away.
    Overload,
}

/// Settings of [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitsConfig {
    /// The utilization under which a broker takes more (TH_low).
    pub low: f64,
    /// The utilization over which it must give away (TH_high).
    pub high: f64,
    /// As `high`, for the uplink of an edge; none: its queues say when it must give away.
    pub edge_uplink_high: Option<f64>,
    /// Whether a queue that is too deep overloads an edge.
    pub queue_depth: bool,
    /// What a migration costs in time (t_LB).
    pub migration_cost: Span,
}

impl Default for LimitsConfig {
    /// The thresholds of the paper and a migration of 0.1 s.
    fn default() -> Self {
        Self {
            low: 0.9,
            high: 0.95,
            edge_uplink_high: None,
            queue_depth: true,
            migration_cost: Span::from_millis(100),
        }
    }
}

impl LimitsConfig {
    /// Makes the limits, or says which setting is wrong.
    pub fn build(&self) -> Result<Limits, Invalid> {
        invalid::check("low", self.low, "above 0 and at most 1", self.low > 0.0 && self.low <= 1.0)?;
        invalid::check("high", self.high, "at least low", self.high >= self.low)?;
        if let Some(high) = self.edge_uplink_high {
            invalid::check("edge_uplink_high", high, "at least low", high >= self.low)?;
        }
        Ok(Limits { config: *self })
    }
}

/// Turns what was measured into a state.
#[derive(Debug, Clone)]
pub struct Limits {
    config: LimitsConfig,
}

impl Limits {
    /// The settings.
    pub fn config(&self) -> &LimitsConfig {
        &self.config
    }

    /// The state of a broker.
    pub fn state(&self, role: Role, broker: &Broker) -> State {
        let used = broker.utilization();
        if self.overloaded(role, broker).is_some() {
            State::Overload
        } else if self.is_under(role, &used, self.config.low) {
            State::Low
        } else {
            State::High
        }
    }

    /// What overloads a broker; none when it is not overloaded.
    pub fn overloaded(&self, role: Role, broker: &Broker) -> Option<Metric> {
        let used = broker.utilization();
        let too_deep = || broker.topics.iter().any(|topic| topic.is_too_deep(self.config.migration_cost));
        if role == Role::Edge && self.config.queue_depth && too_deep() {
            return Some(Metric::QueueDepth);
        }
        [Metric::Uplink, Metric::Downlink, Metric::Matching]
            .into_iter()
            .find(|metric| self.high(role, *metric).is_some_and(|high| used.of(*metric) > high))
    }

    /// Whether every metric of this role is under a limit.
    pub(super) fn is_under(&self, role: Role, used: &Utilization, limit: f64) -> bool {
        used.downlink < limit && used.uplink < limit && (role == Role::Head || used.matching < limit)
    }

    fn high(&self, role: Role, metric: Metric) -> Option<f64> {
        match (role, metric) {
            (Role::Head, Metric::Matching) | (_, Metric::QueueDepth) => None,
            (Role::Edge, Metric::Uplink) => self.config.edge_uplink_high,
            _ => Some(self.config.high),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::balance::{Capacity, Topic};

    /// A broker whose uplink is used to this share, with a queue of this depth.
    fn broker(uplink: f64, depth: f64) -> Broker {
        let topic = Topic {
            id: 1,
            subscribers: 10,
            origin: Default::default(),
            message_bits: 1000.0,
            input_rate: 100.0 * uplink,
            output_rate: 1000.0 * uplink.min(1.0),
            depth,
            allowed: Span::from_millis(1100),
        };
        Broker { capacity: Capacity::new(1e6, 1e6, 1e6).unwrap(), topics: alloc::vec![topic] }
    }

    #[test]
    fn the_three_states_of_an_edge() {
        let limits = LimitsConfig::default().build().unwrap();
        let state = |uplink, depth| limits.state(Role::Edge, &broker(uplink, depth));
        assert_eq!(state(0.89, 0.0), State::Low);
        assert_eq!(state(0.9, 0.0), State::High);
        assert_eq!(state(1.07, 0.0), State::High, "the uplink alone never overloads an edge");
        // (1.1 - 0.1) * 1000 - (1070 - 1000) = 930.
        assert_eq!(state(1.07, 930.0), State::High);
        assert_eq!(state(1.07, 931.0), State::Overload);
    }

    #[test]
    fn a_head_has_both_limits_and_static_limits_can_be_set_for_edges() {
        let limits = LimitsConfig::default().build().unwrap();
        assert_eq!(limits.overloaded(Role::Head, &broker(0.96, 0.0)), Some(Metric::Uplink));
        let config = LimitsConfig { edge_uplink_high: Some(0.95), queue_depth: false, ..Default::default() };
        let limits = config.build().unwrap();
        assert_eq!(limits.state(Role::Edge, &broker(0.96, 0.0)), State::Overload);
        assert_eq!(limits.state(Role::Edge, &broker(0.94, 1e9)), State::High);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = LimitsConfig::default();
        assert_eq!(LimitsConfig { low: f64::NAN, ..good }.build().unwrap_err().key, "low");
        assert_eq!(LimitsConfig { low: 1.1, ..good }.build().unwrap_err().key, "low");
        assert_eq!(LimitsConfig { high: 0.8, ..good }.build().unwrap_err().key, "high");
        let config = LimitsConfig { edge_uplink_high: Some(f64::NAN), ..good };
        assert_eq!(config.build().unwrap_err().key, "edge_uplink_high");
    }
}

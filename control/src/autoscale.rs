//! A threshold auto-scaler as a model, and the three ways to couple it with overload control.

use crate::flow::Reading;
use crate::invalid::{self, Invalid};
use crate::overload::Phase;
use crate::overload::capacity::Capacity;
use crate::time::{Moment, Span};

/// How an auto-scaler and an overload controller work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coupling {
    /// Neither knows of the other.
    #[default]
    Apart,
    /// The auto-scaler rests while publishers are held back.
    OverloadBased,
    /// The same, and publishers are held back only once the auto-scaler has reached its limit.
    StateAware,
    /// The auto-scaler follows the demand that is held back rather than the queue.
    DemandAware,
}

/// The settings of a threshold auto-scaler; the defaults are those of the paper's case study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalerConfig {
    /// An instance is added when more messages than this wait.
    pub upper: u64,
    /// An instance is removed when no more messages than this wait.
    pub lower: u64,
    /// The fewest instances.
    pub min: u32,
    /// The most instances.
    pub max: u32,
    /// The time between two changes.
    pub interval: Span,
    /// The share of its capacity that an instance is meant to use; for the demand-aware coupling.
    pub utilisation: f64,
    /// How it works together with overload control.
    pub coupling: Coupling,
}

impl Default for ScalerConfig {
    fn default() -> Self {
        Self {
            upper: 10,
            lower: 0,
            min: 1,
            max: 6,
            interval: Span::from_secs(2),
            utilisation: 0.9,
            coupling: Coupling::Apart,
        }
    }
}

/// What an auto-scaler is told.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Signals {
    /// Messages waiting.
    pub depth: u64,
    /// What the overload controller is doing.
    pub phase: Phase,
    /// What publishers would send if nobody held them back, in messages a second.
    pub demand: f64,
    /// What one instance processes, in messages a second, if it is known.
    pub instance_rate: Option<f64>,
}

impl ScalerConfig {
    /// Builds an auto-scaler that starts with the fewest instances, or says which setting makes no sense.
    pub fn build(&self) -> Result<Scaler, Invalid> {
        invalid::check("min", self.min.into(), "at least 1", self.min >= 1)?;
        invalid::check("max", self.max.into(), "at least min", self.max >= self.min)?;
        invalid::check("upper", self.upper as f64, "above lower", self.upper > self.lower)?;
        let share = self.utilisation;
        invalid::check("utilisation", share, "above 0 and at most 1", share > 0.0 && share <= 1.0)?;
        Ok(Scaler { config: *self, instances: self.min, changed: None })
    }
}

/// A threshold auto-scaler.
#[derive(Debug, Clone)]
pub struct Scaler {
    config: ScalerConfig,
    instances: u32,
    changed: Option<Moment>,
}

impl Scaler {
    /// Takes in the signals and returns how many instances there should be.
    pub fn on_signals(&mut self, now: Moment, signals: &Signals) -> u32 {
        let rested = self.changed.is_none_or(|changed| now.since(changed) >= self.config.interval);
        let wanted = self.wanted(signals).clamp(self.config.min, self.config.max);
        if rested && wanted != self.instances {
            self.instances = wanted;
            self.changed = Some(now);
        }
        self.instances
    }

    /// Instances asked for.
    pub fn instances(&self) -> u32 {
        self.instances
    }

    /// Whether no further instance can be had.
    pub fn is_saturated(&self) -> bool {
        self.instances >= self.config.max
    }

    fn wanted(&self, signals: &Signals) -> u32 {
        match self.config.coupling {
            Coupling::DemandAware => {
                self.for_demand(signals).unwrap_or_else(|| self.for_depth(signals.depth))
            }
            Coupling::OverloadBased | Coupling::StateAware if signals.phase != Phase::Idle => self.instances,
            _ => self.for_depth(signals.depth),
        }
    }

    fn for_depth(&self, depth: u64) -> u32 {
        if depth > self.config.upper {
            self.instances.saturating_add(1)
        } else if depth <= self.config.lower {
            self.instances.saturating_sub(1)
        } else {
            self.instances
        }
    }

    /// What the demand needs, which the queue does not show while publishers are held back.
    fn for_demand(&self, signals: &Signals) -> Option<u32> {
        desired(signals.demand, signals.instance_rate? * self.config.utilisation)
    }
}

/// What one instance processes, learned while instances are busy.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceRate {
    capacity: Capacity,
}

impl Default for InstanceRate {
    fn default() -> Self {
        Self { capacity: Capacity::new(Span::from_secs(20)) }
    }
}

impl InstanceRate {
    /// Takes in what a queue did while this many instances were at work.
    pub fn observe(&mut self, reading: &Reading, instances: u32) {
        self.capacity.set_consumers(instances);
        let shared = |span: Span| span.scale(f64::from(instances.max(1)));
        let (elapsed, busy_time) = (shared(reading.elapsed), shared(reading.busy_time));
        self.capacity.observe(&Reading { elapsed, busy_time, ..*reading });
    }

    /// Messages a second, once busy instances have been seen.
    pub fn rate(&self) -> Option<f64> {
        self.capacity.rate()
    }
}

/// Instances that a demand needs when each one is to process `instance_rate`; none when that rate is not a number above 0.
pub fn desired(demand: f64, instance_rate: f64) -> Option<u32> {
    // The cast saturates, and takes NaN for 0.
    (instance_rate > 0.0).then(|| libm::ceil(demand / instance_rate) as u32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn scaler(coupling: Coupling) -> Scaler {
        ScalerConfig { coupling, max: 4, ..ScalerConfig::default() }.build().unwrap()
    }

    /// Feeds the same signals for a minute.
    fn settle(scaler: &mut Scaler, from: u64, signals: Signals) -> u32 {
        for second in 0..60 {
            scaler.on_signals(Moment::START + Span::from_secs(from + second), &signals);
        }
        scaler.instances()
    }

    #[test]
    fn thresholds_add_and_remove_one_at_a_time_within_limits() {
        let mut scaler = scaler(Coupling::Apart);
        let long = Signals { depth: 11, ..Signals::default() };
        assert_eq!(scaler.on_signals(Moment::START, &long), 2);
        assert_eq!(scaler.on_signals(Moment::from_secs_f64(1.0), &long), 2, "it rests between two changes");
        assert_eq!(settle(&mut scaler, 10, long), 4);
        assert!(scaler.is_saturated());
        assert_eq!(settle(&mut scaler, 100, Signals { depth: 5, ..Signals::default() }), 4);
        assert_eq!(settle(&mut scaler, 200, Signals::default()), 1);
    }

    #[test]
    fn coupled_it_rests_while_publishers_are_held_back() {
        for coupling in [Coupling::OverloadBased, Coupling::StateAware] {
            let mut scaler = scaler(coupling);
            for phase in [Phase::Protect, Phase::Recover] {
                assert_eq!(settle(&mut scaler, 0, Signals { depth: 99, phase, ..Signals::default() }), 1);
            }
            assert_eq!(settle(&mut scaler, 100, Signals { depth: 99, ..Signals::default() }), 4);
        }
    }

    #[test]
    fn demand_aware_it_sees_what_an_empty_queue_hides() {
        let mut scaler = scaler(Coupling::DemandAware);
        let held =
            Signals { phase: Phase::Protect, demand: 14.0, instance_rate: Some(5.5), ..Signals::default() };
        assert_eq!(scaler.on_signals(Moment::START, &held), 3);
        assert_eq!(settle(&mut scaler, 100, Signals { demand: 1e300, ..held }), 4);
        assert_eq!(settle(&mut scaler, 200, Signals { demand: f64::NAN, ..held }), 1);
        assert_eq!(settle(&mut scaler, 300, Signals { instance_rate: None, depth: 99, ..held }), 4);
    }

    #[test]
    fn what_one_instance_processes_is_learned_while_instances_are_busy() {
        let mut rate = InstanceRate::default();
        assert_eq!(rate.rate(), None);
        let second = Span::from_secs(1);
        for instances in [2u32, 4, 6] {
            let departed = u64::from(instances) * 5;
            let (elapsed, busy_time) = (second, second);
            let reading =
                Reading { elapsed, departed, busy_time, busy_departed: departed, ..Reading::default() };
            rate.observe(&reading, instances);
            assert!((rate.rate().unwrap() - 5.0).abs() < 1e-9);
        }
        rate.observe(&Reading { elapsed: second, departed: 3, ..Reading::default() }, 6);
        assert!((rate.rate().unwrap() - 5.0).abs() < 1e-9, "idle instances teach nothing");
    }

    #[test]
    fn bad_settings_are_refused() {
        let good = ScalerConfig::default();
        assert!(ScalerConfig { min: 0, ..good }.build().is_err());
        assert!(ScalerConfig { max: 0, ..good }.build().is_err());
        assert!(ScalerConfig { upper: 0, ..good }.build().is_err());
        assert!(ScalerConfig { utilisation: f64::NAN, ..good }.build().is_err());
    }
}

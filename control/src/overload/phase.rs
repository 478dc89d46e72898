//! The paper's controller: idle, protect, recover.

use crate::invalid::{self, Invalid};
use crate::overload::capacity::Capacity;
use crate::overload::{Controller, Decision, Load, Phase};
use crate::time::{Moment, Span};

/// When a queue counts as overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// More messages than this wait.
    Depth(u64),
    /// The head has waited longer than this.
    Delay(Span),
}

/// The settings of the paper's controller; the defaults are those of its case study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseConfig {
    /// When the queue counts as overloaded.
    pub threshold: Threshold,
    /// What is left of the supported rate while protecting, so that the queue empties.
    pub protect: f64,
    /// The growth of the rate in each period while recovering.
    pub recover: f64,
    /// The time between two steps of growth.
    pub period: Span,
    /// How much busy time the estimated processing rate remembers.
    pub memory: Span,
    /// The least share of its own rate that a device is ever told, since a device told to stop can't be told to start.
    pub least_share: f64,
    /// Whether protection waits until the auto-scaler says that it has reached its limit.
    pub needs_saturation: bool,
}

impl Default for PhaseConfig {
    fn default() -> Self {
        Self {
            threshold: Threshold::Depth(1),
            protect: 0.98,
            recover: 1.1,
            period: Span::from_secs(1),
            memory: Span::from_secs(4),
            least_share: 0.01,
            needs_saturation: false,
        }
    }
}

impl PhaseConfig {
    /// Builds the controller, or says which setting makes no sense.
    pub fn build(&self) -> Result<PhaseController, Invalid> {
        let share =
            |key, value| invalid::check(key, value, "above 0 and at most 1", value > 0.0 && value <= 1.0);
        share("protect", self.protect)?;
        share("least_share", self.least_share)?;
        invalid::check("recover", self.recover, "a finite number above 1", self.recover > 1.0)?;
        invalid::positive("memory", self.memory.as_secs_f64())?;
        Ok(PhaseController {
            config: *self,
            capacity: Capacity::new(self.memory),
            phase: Phase::Idle,
            saturated: false,
            rate: 0.0,
            total: 0.0,
            grown: Moment::START,
        })
    }
}

/// The paper's controller.
#[derive(Debug, Clone)]
pub struct PhaseController {
    config: PhaseConfig,
    capacity: Capacity,
    phase: Phase,
    saturated: bool,
    /// What each device may send.
    rate: f64,
    total: f64,
    /// When the rate last grew.
    grown: Moment,
}

impl Controller for PhaseController {
    fn on_load(&mut self, now: Moment, load: &Load) {
        self.capacity.observe(&load.reading);
        let own_rate = if load.devices == 0 { 0.0 } else { load.sound_demand() / load.devices as f64 };
        let over = self.is_over(load);
        self.phase = match self.phase {
            Phase::Idle if over && (self.saturated || !self.config.needs_saturation) => Phase::Protect,
            Phase::Protect if !over => {
                self.grown = now;
                Phase::Recover
            }
            Phase::Recover if over => Phase::Protect,
            Phase::Recover if self.rate >= own_rate => Phase::Idle,
            same => same,
        };
        self.rate = self.next_rate(now, load, own_rate);
        self.total = (self.rate * load.devices as f64).min(load.sound_demand());
    }

    fn on_saturation(&mut self, saturated: bool) {
        self.saturated = saturated;
    }

    fn on_consumers(&mut self, count: u32) {
        self.capacity.set_consumers(count);
    }

    fn decision(&self) -> Decision {
        Decision { phase: self.phase, total: self.total }
    }

    fn processing_rate(&self) -> Option<f64> {
        self.capacity.rate()
    }
}

impl PhaseController {
    fn is_over(&self, load: &Load) -> bool {
        match self.config.threshold {
            Threshold::Depth(depth) => load.reading.depth > depth,
            Threshold::Delay(delay) => load.reading.delay > delay,
        }
    }

    fn next_rate(&mut self, now: Moment, load: &Load, own_rate: f64) -> f64 {
        let least = own_rate * self.config.least_share;
        match self.phase {
            Phase::Idle => own_rate,
            Phase::Protect => {
                let supported = self.capacity.rate_or_departures() / load.devices.max(1) as f64;
                (supported.min(own_rate) * self.config.protect).max(least)
            }
            Phase::Recover => {
                let due = now.since(self.grown) >= self.config.period;
                let factor = if due { self.config.recover } else { 1.0 };
                if due {
                    self.grown = now;
                }
                (self.rate * factor).max(least).min(own_rate)
            }
        }
    }
}

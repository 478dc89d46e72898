//! Overload control: what all publishers together may send, from what one queue does.
//!
//! A [`Controller`] is told about the queue's [`Load`] once in a control period and answers with a [`Decision`].
//! [`phase`] is the three-phase machine of the paper, [`drain`] the default that goes beyond it.

pub mod capacity;
pub mod drain;
pub mod excess;
pub mod phase;
pub mod standing;
pub mod turnover;

use alloc::boxed::Box;

pub use drain::DrainConfig;
pub use phase::PhaseConfig;

use crate::flow::Reading;
use crate::invalid::Invalid;
use crate::time::{Moment, Span};

/// What a controller is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nobody is held back.
    #[default]
    Idle,
    /// The queue is too long: publishers are held back until it is not.
    Protect,
    /// The queue is well: publishers get back to their own rates.
    Recover,
}

impl Phase {
    /// Whether a machine may go from this phase to that one; staying is allowed.
    pub fn may_become(self, next: Self) -> bool {
        self == next
            || matches!(
                (self, next),
                (Self::Idle, Self::Protect)
                    | (Self::Protect, Self::Recover)
                    | (Self::Recover, Self::Protect | Self::Idle)
            )
    }

    /// The name that is announced and printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Protect => "protect",
            Self::Recover => "recover",
        }
    }
}

/// What a controller is told once in a control period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// What the queue did since the last time.
    pub reading: Reading,
    /// Publishers that feed the queue.
    pub devices: u64,
    /// What those publishers would send together if nobody held them back, in messages a second.
    pub demand: f64,
}

impl Load {
    /// The demand as a number that can be counted on.
    pub(crate) fn sound_demand(&self) -> f64 {
        crate::allocate::sound(self.demand)
    }
}

/// What a controller wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// What the controller is doing.
    pub phase: Phase,
    /// What all publishers together may send, in messages a second: finite, never negative, never over the demand.
    pub total: f64,
}

/// An overload controller for one queue.
pub trait Controller {
    /// Takes in what the queue did during one control period.
    fn on_load(&mut self, now: Moment, load: &Load);

    /// Takes in whether the auto-scaler has reached its limit; does nothing unless the coupling needs to know.
    fn on_saturation(&mut self, _saturated: bool) {}

    /// Takes in how many consumers share the queue; does nothing unless the algorithm looks ahead.
    fn on_consumers(&mut self, _count: u32) {}

    /// Takes in for how long the queue itself has held publishers, again and again, so that fewer messages come than they were
    /// told to send; none when it holds nobody.
    fn on_held(&mut self, _held: Option<Span>) {}

    /// What is wanted now.
    fn decision(&self) -> Decision;

    /// The estimated processing rate, if consumers have been seen at work.
    fn processing_rate(&self) -> Option<f64>;
}

/// A choice of algorithm with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Config {
    /// The paper's phase machine.
    Phase(PhaseConfig),
    /// The drain controller.
    Drain(DrainConfig),
}

impl Default for Config {
    fn default() -> Self {
        Self::Drain(DrainConfig::default())
    }
}

impl Config {
    /// Builds the controller, or says which setting makes no sense.
    pub fn build(&self) -> Result<Box<dyn Controller + Send>, Invalid> {
        Ok(match self {
            Self::Phase(config) => Box::new(config.build()?),
            Self::Drain(config) => Box::new(config.build()?),
        })
    }
}

#[cfg(test)]
mod tests;

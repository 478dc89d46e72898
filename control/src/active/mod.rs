//! When a consumer checks for updates that it missed: strategies for the interval between two checks.
//!
//! A [`Strategy`] is told what each check found and answers with the interval to the next one. All of them obey
//! two rules: slowness is congestion and not loss, so a slow reply never shortens the interval; and what was lost
//! while the gateway held the client back is the gateway's choice, so it changes nothing.

mod bounds;
mod constant;
mod divided;
pub mod estimate;
mod history;
mod multiplicative;
mod random_choice;
mod regular;
mod self_tuning;
mod smoothed;
mod timer;

pub use bounds::Bounds;
pub use constant::{Constant, ConstantConfig};
pub use divided::{Divided, DividedConfig};
pub use history::History;
pub use multiplicative::{Multiplicative, MultiplicativeConfig};
pub use random_choice::{RandomChoice, RandomChoiceConfig};
pub use regular::{Regular, RegularConfig};
pub use self_tuning::{SelfTuning, SelfTuningConfig};
pub use smoothed::{Smoothed, SmoothedConfig};
pub use timer::{CheckTimer, Reply};

use crate::random::Random;
use crate::time::{Moment, Span};

/// A rule that turns what each check found into the interval to the next check.
pub trait Strategy {
    /// The interval in use now.
    fn interval(&self) -> Span;

    /// Takes what a check found and returns the interval to the next one.
    fn on_check(&mut self, check: &Check, random: &mut dyn Random) -> Span;
}

impl<S: Strategy + ?Sized> Strategy for alloc::boxed::Box<S> {
    fn interval(&self) -> Span {
        (**self).interval()
    }

    fn on_check(&mut self, check: &Check, random: &mut dyn Random) -> Span {
        (**self).on_check(check, random)
    }
}

/// What the gateway's load did to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pressure {
    /// The reply came in good time.
    #[default]
    None,
    /// The interval was lengthened because the gateway asked for it.
    Held,
    /// The reply was slow.
    Slow,
}

/// What one check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// When the check was made.
    pub at: Moment,
    /// Updates since the check before.
    pub updates: u32,
    /// Updates among them that were overwritten before the client saw them.
    pub lost: u32,
    /// When the newest update happened, where the reply says so.
    pub last_change: Option<Moment>,
    /// What the gateway's load did to this check.
    pub pressure: Pressure,
}

impl Check {
    /// A check that found so many updates: all but the last of them were overwritten.
    pub fn found(at: Moment, updates: u32) -> Self {
        Self { at, updates, lost: updates.saturating_sub(1), last_change: None, pressure: Pressure::None }
    }

    /// A check of a stream that counts its losses itself.
    pub fn lost(at: Moment, lost: u32) -> Self {
        Self { lost, ..Self::found(at, lost.saturating_add(1)) }
    }

    /// The same check with the time of the newest update.
    pub fn changed(self, last_change: Option<Moment>) -> Self {
        Self { last_change, ..self }
    }

    /// The same check under this pressure.
    pub fn under(self, pressure: Pressure) -> Self {
        Self { pressure, ..self }
    }
}

#[cfg(test)]
mod tests;

//! How a backoff is varied, so that clients that collided once don't collide again.

use crate::invalid::{self, Invalid};
use crate::random::Random;

/// The random part of a backoff.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Variation {
    /// The value times `1 + normal(0, deviation)`: the mean stays.
    Normal {
        /// The standard deviation as a share of the value (0 to 1).
        deviation: f64,
    },
    /// Anything between 0 and the value: half of it on average.
    FullJitter,
}

impl Default for Variation {
    /// A normal variation of 30%.
    fn default() -> Self {
        Self::Normal { deviation: 0.3 }
    }
}

impl Variation {
    /// Refuses a deviation outside 0 to 1.
    pub fn validate(&self) -> Result<(), Invalid> {
        match *self {
            Self::Normal { deviation } => {
                invalid::check("deviation", deviation, "0 to 1", (0.0..=1.0).contains(&deviation)).map(|_| ())
            }
            Self::FullJitter => Ok(()),
        }
    }

    /// A varied backoff.
    pub(super) fn apply(&self, value: f64, random: &mut dyn Random) -> f64 {
        match *self {
            Self::Normal { deviation } => (value * (1.0 + random.normal(0.0, deviation))).max(0.0),
            Self::FullJitter => random.uniform_in(0.0, value),
        }
    }

    /// A varied interval whose mean is the value: a rate that was asked for must be kept on average.
    pub(super) fn around(&self, value: f64, random: &mut dyn Random) -> f64 {
        match *self {
            Self::Normal { .. } => self.apply(value, random),
            Self::FullJitter => random.uniform_in(0.5 * value, 1.5 * value),
        }
    }
}

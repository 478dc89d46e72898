//! The smoothed decrease of paper 003: the more was lost, the shorter, but never shorter than a kept share.

use super::{Bounds, Check, Pressure, Strategy};
use crate::invalid::{self, Invalid};
use crate::random::Random;
use crate::time::Span;

/// Settings of [`Smoothed`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmoothedConfig {
    /// The first interval (t0).
    pub first: Span,
    /// What a check without loss adds (d).
    pub step: Span,
    /// The share of the interval that any number of losses leaves (a, between 0 and 1).
    pub kept: f64,
    /// Limits of the interval.
    pub bounds: Bounds,
}

impl Default for SmoothedConfig {
    /// The experiment of the paper: 20 s, 20 s, 0.5.
    fn default() -> Self {
        let twenty = Span::from_secs(20);
        Self { first: twenty, step: twenty, kept: 0.5, bounds: Bounds::default() }
    }
}

impl SmoothedConfig {
    /// Makes the strategy, or says which setting is wrong.
    pub fn build(&self) -> Result<Smoothed, Invalid> {
        self.bounds.validate()?;
        invalid::positive("step", self.step.as_secs_f64())?;
        invalid::check("kept", self.kept, "above 0 and below 1", self.kept > 0.0 && self.kept < 1.0)?;
        Ok(Smoothed { config: *self, seconds: self.bounds.admit("first", self.first)? })
    }
}

/// No loss: `t + d`; k losses: `t (1 + a k) / (k + 1)`.
#[derive(Debug, Clone)]
pub struct Smoothed {
    config: SmoothedConfig,
    seconds: f64,
}

impl Strategy for Smoothed {
    fn interval(&self) -> Span {
        Span::from_secs_f64(self.seconds)
    }

    fn on_check(&mut self, check: &Check, _random: &mut dyn Random) -> Span {
        let lost = f64::from(check.lost);
        let next = match check.pressure {
            Pressure::Held => self.seconds,
            Pressure::None if check.lost > 0 => self.seconds * (1.0 + self.config.kept * lost) / (lost + 1.0),
            Pressure::None | Pressure::Slow => self.seconds + self.config.step.as_secs_f64(),
        };
        self.seconds = self.config.bounds.clamp(next);
        self.interval()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::Seeded;
    use crate::time::Moment;

    fn after(lost: u32, pressure: Pressure) -> f64 {
        let mut strategy = SmoothedConfig::default().build().unwrap();
        let check = Check::lost(Moment::START, lost).under(pressure);
        strategy.on_check(&check, &mut Seeded::new(1)).as_secs_f64()
    }

    #[test]
    fn follows_formula_3() {
        assert_eq!(after(0, Pressure::None), 40.0);
        assert_eq!(after(1, Pressure::None), 15.0);
        assert_eq!(after(3, Pressure::None), 12.5);
    }

    #[test]
    fn a_slow_reply_and_a_held_client_never_speed_up() {
        assert_eq!(after(3, Pressure::Slow), 40.0);
        assert_eq!(after(3, Pressure::Held), 20.0);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = SmoothedConfig::default();
        for kept in [0.0, 1.0, -0.5, 2.0, f64::NAN] {
            assert_eq!(SmoothedConfig { kept, ..good }.build().unwrap_err().key, "kept");
        }
        assert!(SmoothedConfig { step: Span::ZERO, ..good }.build().is_err());
        assert!(SmoothedConfig { first: Span::ZERO, ..good }.build().is_err());
    }
}

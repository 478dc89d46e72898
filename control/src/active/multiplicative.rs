//! The multiplicative decrease that paper 003 compares with: shorten on any loss, else start again.

use super::{Bounds, Check, Pressure, Strategy};
use crate::invalid::{self, Invalid};
use crate::random::Random;
use crate::time::Span;

/// Settings of [`Multiplicative`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MultiplicativeConfig {
    /// The first interval, and the one after every check without loss (t0).
    pub first: Span,
    /// What a check with losses multiplies the interval by (between 0 and 1).
    pub factor: f64,
    /// Limits of the interval.
    pub bounds: Bounds,
}

impl Default for MultiplicativeConfig {
    /// The experiment of the paper: 20 s, halved.
    fn default() -> Self {
        Self { first: Span::from_secs(20), factor: 0.5, bounds: Bounds::default() }
    }
}

impl MultiplicativeConfig {
    /// Makes the strategy, or says which setting is wrong.
    pub fn build(&self) -> Result<Multiplicative, Invalid> {
        self.bounds.validate()?;
        invalid::check("factor", self.factor, "above 0 and below 1", self.factor > 0.0 && self.factor < 1.0)?;
        Ok(Multiplicative { config: *self, seconds: self.bounds.admit("first", self.first)? })
    }
}

/// No loss: `t0`; any loss: `t` times the factor.
#[derive(Debug, Clone)]
pub struct Multiplicative {
    config: MultiplicativeConfig,
    seconds: f64,
}

impl Strategy for Multiplicative {
    fn interval(&self) -> Span {
        Span::from_secs_f64(self.seconds)
    }

    fn on_check(&mut self, check: &Check, _random: &mut dyn Random) -> Span {
        let next = match check.pressure {
            Pressure::Held => self.seconds,
            Pressure::None if check.lost > 0 => self.seconds * self.config.factor,
            // The first interval is the longest that this strategy knows, so that going back never speeds up.
            Pressure::None | Pressure::Slow => self.config.first.as_secs_f64(),
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

    #[test]
    fn halves_on_loss_and_starts_again_without() {
        let mut strategy = MultiplicativeConfig::default().build().unwrap();
        let mut next =
            |lost| strategy.on_check(&Check::lost(Moment::START, lost), &mut Seeded::new(1)).as_secs_f64();
        assert_eq!([next(1), next(4), next(1), next(0), next(2)], [10.0, 5.0, 2.5, 20.0, 10.0]);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for factor in [0.0, 1.0, f64::NAN, -1.0] {
            assert!(MultiplicativeConfig { factor, ..Default::default() }.build().is_err());
        }
    }
}

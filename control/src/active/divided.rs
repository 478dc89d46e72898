//! The divided decrease of paper 001: additive growth, division on any loss, as in TCP.

use super::estimate::Estimate;
use super::{Bounds, Check, History, Pressure, Strategy};
use crate::invalid::Invalid;
use crate::random::Random;
use crate::time::Span;

/// Decreases to see before the growth is capped.
const TRUSTED: u32 = 5;

/// Settings of [`Divided`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DividedConfig {
    /// The first interval (t0).
    pub first: Span,
    /// What a check without loss adds (d).
    pub step: Span,
    /// What a check with losses divides by (a, above 1).
    pub divisor: f64,
    /// Whether growth stops at the interval at which losses are expected (T), as in algorithm 2 of paper 000.
    pub growth_cap: bool,
    /// Limits of the interval.
    pub bounds: Bounds,
}

impl Default for DividedConfig {
    /// The setting that the paper recommends: from 3 s, 0.5 s more, halved; growth is not capped.
    fn default() -> Self {
        Self {
            first: Span::from_secs(3),
            step: Span::from_millis(500),
            divisor: 2.0,
            growth_cap: false,
            bounds: Bounds::default(),
        }
    }
}

impl DividedConfig {
    /// Makes the strategy, or says which setting is wrong.
    pub fn build(&self) -> Result<Divided, Invalid> {
        self.bounds.validate()?;
        let step = self.step.as_secs_f64();
        Ok(Divided {
            config: *self,
            step,
            estimate: Estimate::new(step, self.divisor)?,
            seconds: self.bounds.admit("first", self.first)?,
            history: History::default(),
        })
    }
}

/// No loss: `t + d`; any loss: `t / a`.
#[derive(Debug, Clone)]
pub struct Divided {
    config: DividedConfig,
    step: f64,
    estimate: Estimate,
    seconds: f64,
    history: History,
}

impl Divided {
    /// What it remembers of its decreases.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The interval at which growth stops now, in seconds; none while it doesn't.
    pub fn cap(&self) -> Option<f64> {
        let known = self.config.growth_cap && self.history.decreases() >= TRUSTED;
        self.history.mean_s_so_far().filter(|_| known).map(|s| self.estimate.interval(s))
    }

    fn grown(&self) -> f64 {
        let next = self.seconds + self.step;
        if self.cap().is_some_and(|cap| next > cap) { self.seconds } else { next }
    }
}

impl Strategy for Divided {
    fn interval(&self) -> Span {
        Span::from_secs_f64(self.seconds)
    }

    fn on_check(&mut self, check: &Check, _random: &mut dyn Random) -> Span {
        if check.pressure == Pressure::None {
            self.history.record(self.seconds, check.lost);
        }
        let next = match check.pressure {
            Pressure::Held => self.seconds,
            // Not capped: T says where losses begin, and congestion is no loss.
            Pressure::Slow => self.seconds + self.step,
            Pressure::None if check.lost > 0 => self.seconds / self.config.divisor,
            Pressure::None => self.grown(),
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

    fn next(strategy: &mut Divided, lost: u32, pressure: Pressure) -> f64 {
        let check = Check::lost(Moment::START, lost).under(pressure);
        strategy.on_check(&check, &mut Seeded::new(1)).as_secs_f64()
    }

    #[test]
    fn follows_formula_4() {
        let mut strategy = DividedConfig::default().build().unwrap();
        assert_eq!(next(&mut strategy, 0, Pressure::None), 3.5);
        assert_eq!(next(&mut strategy, 0, Pressure::None), 4.0);
        assert_eq!(next(&mut strategy, 7, Pressure::None), 2.0);
        assert_eq!(next(&mut strategy, 7, Pressure::Slow), 2.5);
        assert_eq!(next(&mut strategy, 7, Pressure::Held), 2.5);
    }

    #[test]
    fn capped_growth_stops_where_losses_are_expected_and_resumes_when_they_stay_away() {
        let config = DividedConfig { growth_cap: true, ..Default::default() };
        let mut strategy = config.build().unwrap();
        for _ in 0..10 {
            while next(&mut strategy, 0, Pressure::None) < 4.0 {}
            next(&mut strategy, 1, Pressure::None);
        }
        let cap = strategy.cap().unwrap();
        assert!((cap - 4.0).abs() < 1e-9, "{cap}");
        for _ in 0..5 {
            assert!(next(&mut strategy, 0, Pressure::None) <= 4.0);
        }
        for _ in 0..200 {
            next(&mut strategy, 0, Pressure::None);
        }
        assert!(strategy.interval() > Span::from_secs(8), "a source that fell silent is asked less often");
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = DividedConfig::default();
        for divisor in [1.0, 0.5, f64::NAN, f64::INFINITY] {
            assert_eq!(DividedConfig { divisor, ..good }.build().unwrap_err().key, "divisor");
        }
        assert_eq!(DividedConfig { step: Span::ZERO, ..good }.build().unwrap_err().key, "step");
        assert_eq!(DividedConfig { first: Span::MAX, ..good }.build().unwrap_err().key, "first");
    }
}

//! An interval drawn anew each time, to compare with.

use super::{Bounds, Check, Pressure, Strategy};
use crate::invalid::Invalid;
use crate::random::Random;
use crate::time::Span;

/// Settings of [`RandomChoice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomChoiceConfig {
    /// The first interval.
    pub first: Span,
    /// The interval is drawn evenly from between these two.
    pub bounds: Bounds,
}

impl Default for RandomChoiceConfig {
    /// The experiment of paper 003: 20 s, then 10 s to 30 s.
    fn default() -> Self {
        let bounds = Bounds { shortest: Span::from_secs(10), longest: Span::from_secs(30) };
        Self { first: Span::from_secs(20), bounds }
    }
}

impl RandomChoiceConfig {
    /// Makes the strategy, or says which setting is wrong.
    pub fn build(&self) -> Result<RandomChoice, Invalid> {
        self.bounds.validate()?;
        Ok(RandomChoice { config: *self, seconds: self.bounds.admit("first", self.first)? })
    }
}

/// Any interval between the bounds, all of them as likely.
#[derive(Debug, Clone)]
pub struct RandomChoice {
    config: RandomChoiceConfig,
    seconds: f64,
}

impl Strategy for RandomChoice {
    fn interval(&self) -> Span {
        Span::from_secs_f64(self.seconds)
    }

    fn on_check(&mut self, check: &Check, random: &mut dyn Random) -> Span {
        let Bounds { shortest, longest } = self.config.bounds;
        let low = match check.pressure {
            Pressure::None => shortest.as_secs_f64(),
            Pressure::Held | Pressure::Slow => self.seconds,
        };
        self.seconds = self.config.bounds.clamp(random.uniform_in(low, longest.as_secs_f64()));
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
    fn draws_from_the_whole_range() {
        let mut strategy = RandomChoiceConfig::default().build().unwrap();
        let mut random = Seeded::new(1);
        let (mut low, mut high, mut sum) = (f64::MAX, f64::MIN, 0.0);
        for _ in 0..10_000 {
            let seconds = strategy.on_check(&Check::lost(Moment::START, 1), &mut random).as_secs_f64();
            (low, high, sum) = (low.min(seconds), high.max(seconds), sum + seconds);
        }
        assert!((10.0..10.1).contains(&low) && (29.9..=30.0).contains(&high), "{low} to {high}");
        assert!((19.8..20.2).contains(&(sum / 10_000.0)));
    }

    #[test]
    fn an_empty_range_is_refused() {
        let bounds = Bounds { shortest: Span::from_secs(30), longest: Span::from_secs(10) };
        assert!(RandomChoiceConfig { bounds, ..Default::default() }.build().is_err());
    }
}

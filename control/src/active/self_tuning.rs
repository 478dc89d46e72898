//! A divided decrease that chooses its own step and divisor from what it measured.

use super::{Bounds, Check, History, Pressure, Strategy, estimate};
use crate::invalid::{self, Invalid};
use crate::random::Random;
use crate::time::Span;

/// Settings of [`SelfTuning`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfTuningConfig {
    /// The first interval (t0).
    pub first: Span,
    /// The first step (d).
    pub step: Span,
    /// The losses to expect in the interval before a decrease (K, above 0 and at most 1).
    ///
    /// Lower: fewer losses, more checks.
    pub losses: f64,
    /// Limits of the interval.
    pub bounds: Bounds,
}

impl Default for SelfTuningConfig {
    /// From 3 s in steps of 0.5 s, half a loss.
    fn default() -> Self {
        Self {
            first: Span::from_secs(3),
            step: Span::from_millis(500),
            losses: 0.5,
            bounds: Bounds::default(),
        }
    }
}

impl SelfTuningConfig {
    /// Makes the strategy, or says which setting is wrong.
    pub fn build(&self) -> Result<SelfTuning, Invalid> {
        self.bounds.validate()?;
        let good = self.losses > 0.0 && self.losses <= 1.0;
        invalid::check("losses", self.losses, "above 0 and at most 1", good)?;
        Ok(SelfTuning {
            config: *self,
            seconds: self.bounds.admit("first", self.first)?,
            step: invalid::positive("step", self.step.as_secs_f64())?,
            divisor: 2.0,
            history: History::default(),
        })
    }
}

/// As [`super::Divided`], with d and a set again after each decrease so that K stays at the target.
#[derive(Debug, Clone)]
pub struct SelfTuning {
    config: SelfTuningConfig,
    seconds: f64,
    step: f64,
    divisor: f64,
    history: History,
}

impl SelfTuning {
    /// The step in use now, in seconds.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The divisor in use now.
    pub fn divisor(&self) -> f64 {
        self.divisor
    }

    /// The losses measured in the interval before a decrease (K); none before the second decrease.
    pub fn losses(&self) -> Option<f64> {
        let (lost, interval) = (self.history.mean_lost()?, self.history.mean_interval()?);
        Some(estimate::losses_poisson(lost, interval, self.history.mean_s()?))
    }

    /// Chooses d and a from T and K_bulk.
    ///
    /// `a = K_bulk + 1` brings the interval down to where one update is expected in it. Growth from T/a back to T
    /// takes N = T (a-1) / (a d) steps of about T (1 + 1/a) / 2 each, that is K = K_bulk T/S = K_bulk 2 a^2 d /
    /// ((a^2 - 1) T), and this gives d for the wanted K. What was measured corrects what this leaves out.
    fn tune(&mut self) {
        let (Some(interval), Some(lost)) = (self.history.mean_interval(), self.history.mean_lost()) else {
            return;
        };
        self.divisor = (lost + 1.0).clamp(1.5, 4.0);
        let squared = self.divisor * self.divisor;
        let wanted = self.config.losses * interval * (squared - 1.0) / (2.0 * squared * lost);
        let excess = self.losses().map_or(1.0, |losses| (losses / self.config.losses).max(1.0));
        // At most twofold each time: the means still remember the old step.
        self.step = (wanted / excess).clamp(self.step / 2.0, self.step * 2.0).max(self.least_step());
    }

    /// A step so small that nothing would change any more is of no use.
    fn least_step(&self) -> f64 {
        self.config.bounds.shortest.as_secs_f64() / 100.0
    }
}

impl Strategy for SelfTuning {
    fn interval(&self) -> Span {
        Span::from_secs_f64(self.seconds)
    }

    fn on_check(&mut self, check: &Check, _random: &mut dyn Random) -> Span {
        if check.pressure == Pressure::None {
            self.history.record(self.seconds, check.lost);
            if check.lost > 0 {
                self.tune();
            }
        }
        let next = match check.pressure {
            Pressure::Held => self.seconds,
            Pressure::None if check.lost > 0 => self.seconds / self.divisor,
            Pressure::None | Pressure::Slow => self.seconds + self.step,
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

    /// Checks updates drawn from `gap` for two hours; returns K, the share of updates lost and the check rate, all
    /// over the second hour.
    fn run(mut strategy: SelfTuning, seed: u64, gap: impl Fn(&mut Seeded) -> f64) -> (f64, f64, f64) {
        let mut random = Seeded::new(seed);
        let (mut now, mut update, mut losses) = (0.0, gap(&mut random), 0.0);
        let (mut updates, mut lost, mut checks) = (0u32, 0u32, 0u32);
        while now < 7200.0 {
            now += strategy.interval().as_secs_f64();
            let mut found = 0;
            while update <= now {
                found += 1;
                update += gap(&mut random);
            }
            let check = Check::found(Moment::from_secs_f64(now), found);
            strategy.on_check(&check, &mut random);
            if now > 3600.0 {
                (updates, lost, checks) = (updates + found, lost + check.lost, checks + 1);
                losses += strategy.losses().unwrap_or(0.0);
            }
        }
        (losses / f64::from(checks), f64::from(lost) / f64::from(updates), f64::from(checks) / 3600.0)
    }

    fn tuned(step: u64, losses: f64) -> SelfTuning {
        SelfTuningConfig { step: Span::from_millis(step), losses, ..Default::default() }.build().unwrap()
    }

    #[test]
    fn k_stays_at_or_under_one_from_any_first_step_and_for_any_source() {
        for step in [10, 500, 3_000, 30_000] {
            for losses in [0.3, 0.5, 1.0] {
                for seed in 1..=3 {
                    let sources: [&dyn Fn(&mut Seeded) -> f64; 4] = [
                        &|random| random.uniform_in(2.0, 4.0),
                        &|random| random.uniform_in(0.0, 3.0),
                        &|random| random.exponential(3.0),
                        &|_| 1.0,
                    ];
                    for (source, gap) in sources.into_iter().enumerate() {
                        let (k, ..) = run(tuned(step, losses), seed, gap);
                        let bound = (losses * 1.1).min(1.0);
                        assert!(k <= bound, "source {source}, step {step}: K {k} over {bound}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_lower_target_trades_checks_for_losses() {
        let gap = |random: &mut Seeded| random.uniform_in(2.0, 4.0);
        let (_, few_lost, many_checks) = run(tuned(500, 0.2), 1, gap);
        let (_, many_lost, few_checks) = run(tuned(500, 1.0), 1, gap);
        assert!(
            few_lost < many_lost && few_checks < many_checks,
            "{few_lost} {many_lost} {few_checks} {many_checks}"
        );
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = SelfTuningConfig::default();
        for losses in [0.0, -1.0, 1.1, f64::NAN] {
            assert_eq!(SelfTuningConfig { losses, ..good }.build().unwrap_err().key, "losses");
        }
        assert!(SelfTuningConfig { step: Span::ZERO, ..good }.build().is_err());
    }
}

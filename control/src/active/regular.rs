//! For sources with regular gaps: aim the check at where the next update is expected to have happened.

use super::{Bounds, Check, Divided, DividedConfig, Pressure, Strategy};
use crate::invalid::{self, Invalid};
use crate::random::Random;
use crate::time::{Moment, Span};
use alloc::vec::Vec;

/// Gaps that are remembered.
const MEMORY: usize = 64;
/// Checks in a row that find nothing before the source counts as changed.
const PATIENCE: u32 = 4;

/// Settings of [`Regular`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegularConfig {
    /// What is used until the gaps are known to be regular, and when they are not; its bounds hold for both.
    pub fallback: DividedConfig,
    /// The share of gaps that is over when the check comes (between 0 and 1).
    pub quantile: f64,
    /// The largest standard deviation of the gaps, as a share of their mean, that counts as regular.
    pub irregularity: f64,
    /// Gaps to see first (2 to 64).
    pub least_gaps: usize,
}

impl Default for RegularConfig {
    /// The 95% quantile, after 8 gaps that deviate by no more than 35%.
    fn default() -> Self {
        Self { fallback: DividedConfig::default(), quantile: 0.95, irregularity: 0.35, least_gaps: 8 }
    }
}

impl RegularConfig {
    /// Makes the strategy, or says which setting is wrong.
    pub fn build(&self) -> Result<Regular, Invalid> {
        let quantile = self.quantile;
        invalid::check("quantile", quantile, "above 0 and at most 1", quantile > 0.0 && quantile <= 1.0)?;
        invalid::not_negative("irregularity", self.irregularity)?;
        let good = (2..=MEMORY).contains(&self.least_gaps);
        invalid::check("least_gaps", self.least_gaps as f64, "2 to 64", good)?;
        let fallback = self.fallback.build()?;
        Ok(Regular {
            config: *self,
            interval: fallback.interval(),
            fallback,
            gaps: Vec::with_capacity(MEMORY),
            oldest: 0,
            last_change: None,
            misses: 0,
        })
    }
}

/// Last change plus a quantile of the gaps while they are regular; else a divided decrease.
#[derive(Debug, Clone)]
pub struct Regular {
    config: RegularConfig,
    fallback: Divided,
    gaps: Vec<f64>,
    /// Where the next gap goes once the memory is full.
    oldest: usize,
    last_change: Option<Moment>,
    misses: u32,
    interval: Span,
}

/// What the remembered gaps look like.
struct Gaps {
    quantile: f64,
    deviation: f64,
}

impl Regular {
    /// Whether the gaps are regular enough to aim at.
    pub fn is_aiming(&self) -> bool {
        self.measure().is_some()
    }

    fn learn(&mut self, check: &Check) {
        let Some(change) = check.last_change else { return };
        if check.updates == 0 {
            self.misses = self.misses.saturating_add(1);
            return;
        }
        if let Some(before) = self.last_change.filter(|before| *before < change) {
            self.remember(change.since(before).as_secs_f64() / f64::from(check.updates));
        }
        self.misses = 0;
        self.last_change = Some(change);
    }

    fn remember(&mut self, gap: f64) {
        if self.gaps.len() < MEMORY {
            self.gaps.push(gap);
        } else if let Some(place) = self.gaps.get_mut(self.oldest) {
            *place = gap;
            self.oldest = (self.oldest + 1) % MEMORY;
        }
    }

    /// The gaps' figures, if they are regular.
    fn measure(&self) -> Option<Gaps> {
        let count = self.gaps.len();
        if count < self.config.least_gaps || self.misses >= PATIENCE {
            return None;
        }
        let mean = self.gaps.iter().sum::<f64>() / count as f64;
        let squares = self.gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>();
        let deviation = libm::sqrt(squares / count as f64);
        if deviation > self.config.irregularity * mean {
            return None;
        }
        let mut sorted = self.gaps.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = libm::ceil(self.config.quantile * count as f64) as usize;
        let quantile = sorted.get(rank.saturating_sub(1)).copied()?;
        Some(Gaps { quantile, deviation })
    }

    /// The interval that ends at the last change plus the quantile; a deviation later when that is over.
    fn aim(&self, gaps: &Gaps, now: Moment) -> Option<f64> {
        let age = now.since(self.last_change?).as_secs_f64();
        Some((gaps.quantile - age).max(gaps.deviation))
    }
}

impl Strategy for Regular {
    fn interval(&self) -> Span {
        self.interval
    }

    fn on_check(&mut self, check: &Check, random: &mut dyn Random) -> Span {
        self.learn(check);
        let aimed = self.measure().and_then(|gaps| self.aim(&gaps, check.at));
        let next = match aimed {
            Some(seconds) => {
                let Bounds { shortest, longest } = self.config.fallback.bounds;
                Span::from_secs_f64(seconds).clamp(shortest, longest)
            }
            None => self.fallback.on_check(check, random),
        };
        self.interval = if check.pressure == Pressure::None { next } else { next.max(self.interval) };
        self.interval
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::Seeded;

    /// Share of updates lost and checks a second, over two hours of which the first minute doesn't count.
    fn run(strategy: &mut dyn Strategy, seed: u64, gap: impl Fn(&mut Seeded, f64) -> f64) -> (f64, f64) {
        let mut random = Seeded::new(seed);
        let (mut now, mut update, mut last_change) = (0.0, gap(&mut random, 0.0), None);
        let (mut updates, mut lost, mut checks) = (0u32, 0u32, 0u32);
        while now < 7200.0 {
            now += strategy.interval().as_secs_f64();
            let mut found = 0;
            while update <= now {
                found += 1;
                last_change = Some(Moment::from_secs_f64(update));
                update += gap(&mut random, update);
            }
            let check = Check::found(Moment::from_secs_f64(now), found).changed(last_change);
            strategy.on_check(&check, &mut random);
            if now > 60.0 {
                (updates, lost, checks) = (updates + found, lost + check.lost, checks + 1);
            }
        }
        (f64::from(lost) / f64::from(updates), f64::from(checks) / 7140.0)
    }

    #[test]
    fn beats_the_divided_decrease_on_a_near_periodic_source() {
        for seed in 1..=5 {
            let gap = |random: &mut Seeded, _| random.uniform_in(2.0, 4.0);
            let (lost, rate) = run(&mut RegularConfig::default().build().unwrap(), seed, gap);
            assert!(lost < 0.005, "lost {lost}");
            assert!((0.345..0.365).contains(&rate), "rate {rate}");
            let (lost, rate) = run(&mut DividedConfig::default().build().unwrap(), seed, gap);
            assert!((0.18..0.21).contains(&lost), "lost {lost}");
            assert!((0.315..0.335).contains(&rate), "rate {rate}");
        }
    }

    #[test]
    fn irregular_gaps_leave_it_to_the_fallback() {
        for seed in 1..=5 {
            let gap = |random: &mut Seeded, _| random.exponential(3.0);
            let mut strategy = RegularConfig::default().build().unwrap();
            let regular = run(&mut strategy, seed, gap);
            assert!(!strategy.is_aiming());
            let divided = run(&mut DividedConfig::default().build().unwrap(), seed, gap);
            assert!((regular.0 - divided.0).abs() < 0.03 && (regular.1 - divided.1).abs() < 0.03);
        }
    }

    #[test]
    fn finds_its_way_again_when_the_source_changes() {
        let mut strategy = RegularConfig::default().build().unwrap();
        let gap = |random: &mut Seeded, now: f64| {
            let slower = if now < 3600.0 { 1.0 } else { 5.0 };
            slower * random.uniform_in(2.0, 4.0)
        };
        let (lost, _) = run(&mut strategy, 1, gap);
        assert!(lost < 0.02, "lost {lost}");
        assert!(strategy.is_aiming());
    }

    #[test]
    fn without_times_of_change_it_is_the_fallback() {
        let mut regular = RegularConfig::default().build().unwrap();
        let mut divided = DividedConfig::default().build().unwrap();
        let mut random = Seeded::new(1);
        for step in 0..200u64 {
            let check = Check::found(Moment::from_secs_f64(step as f64), (step % 3) as u32);
            assert_eq!(regular.on_check(&check, &mut random), divided.on_check(&check, &mut random));
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let good = RegularConfig::default();
        for quantile in [0.0, 1.5, f64::NAN] {
            assert_eq!(RegularConfig { quantile, ..good }.build().unwrap_err().key, "quantile");
        }
        assert!(RegularConfig { irregularity: f64::NAN, ..good }.build().is_err());
        assert!(RegularConfig { least_gaps: 1, ..good }.build().is_err());
        assert!(RegularConfig { least_gaps: 65, ..good }.build().is_err());
    }
}

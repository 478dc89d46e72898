//! A constant interval, to compare with.

use super::{Bounds, Check, Strategy};
use crate::invalid::Invalid;
use crate::random::Random;
use crate::time::Span;

/// Settings of [`Constant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantConfig {
    /// The interval.
    pub interval: Span,
}

impl Default for ConstantConfig {
    /// The experiment of paper 003: 20 s.
    fn default() -> Self {
        Self { interval: Span::from_secs(20) }
    }
}

impl ConstantConfig {
    /// Makes the strategy, or refuses an interval of zero.
    pub fn build(&self) -> Result<Constant, Invalid> {
        Bounds { shortest: self.interval, longest: self.interval }
            .validate()
            .map_err(|error| Invalid { key: "interval", ..error })?;
        Ok(Constant { interval: self.interval })
    }
}

/// Always the same interval.
#[derive(Debug, Clone)]
pub struct Constant {
    interval: Span,
}

impl Strategy for Constant {
    fn interval(&self) -> Span {
        self.interval
    }

    fn on_check(&mut self, _check: &Check, _random: &mut dyn Random) -> Span {
        self.interval
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::Seeded;
    use crate::time::Moment;

    #[test]
    fn never_changes() {
        let mut strategy = ConstantConfig::default().build().unwrap();
        for lost in 0..5 {
            let next = strategy.on_check(&Check::lost(Moment::START, lost), &mut Seeded::new(1));
            assert_eq!(next, Span::from_secs(20));
        }
        assert_eq!(ConstantConfig { interval: Span::ZERO }.build().unwrap_err().key, "interval");
    }
}

//! How short and how long an interval may become.

use crate::invalid::{self, Invalid};
use crate::time::Span;

/// The shortest and the longest interval that a strategy may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The shortest interval.
    pub shortest: Span,
    /// The longest interval.
    pub longest: Span,
}

impl Default for Bounds {
    /// From a tenth of a second to an hour.
    fn default() -> Self {
        Self { shortest: Span::from_millis(100), longest: Span::from_secs(3600) }
    }
}

impl Bounds {
    /// Refuses a shortest interval of zero and a longest one below it.
    pub fn validate(&self) -> Result<(), Invalid> {
        let (shortest, longest) = (self.shortest.as_secs_f64(), self.longest.as_secs_f64());
        invalid::positive("shortest", shortest)?;
        invalid::check("longest", longest, "at least the shortest interval", self.longest >= self.shortest)?;
        Ok(())
    }

    /// The nearest interval within the bounds, in seconds; the longest for NaN.
    pub(super) fn clamp(&self, seconds: f64) -> f64 {
        seconds.min(self.longest.as_secs_f64()).max(self.shortest.as_secs_f64())
    }

    /// Refuses an interval outside the bounds.
    pub(super) fn admit(&self, key: &'static str, interval: Span) -> Result<f64, Invalid> {
        let seconds = interval.as_secs_f64();
        let good = self.shortest <= interval && interval <= self.longest;
        invalid::check(key, seconds, "between the shortest and the longest interval", good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_exclude_everything_are_refused() {
        let second = Span::from_secs(1);
        assert!(Bounds::default().validate().is_ok());
        assert!(Bounds { shortest: Span::ZERO, longest: second }.validate().is_err());
        assert!(Bounds { shortest: second, longest: Span::from_millis(999) }.validate().is_err());
    }

    #[test]
    fn nothing_escapes() {
        let bounds = Bounds { shortest: Span::from_secs(1), longest: Span::from_secs(9) };
        for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, 5.0, 1e300] {
            assert!((1.0..=9.0).contains(&bounds.clamp(seconds)));
        }
    }
}

//! Time as a value: a `Moment` on a clock that the caller owns, and the `Span` between two of them.
//!
//! Arithmetic saturates. A clock that stands still or runs backwards gives a span of zero, never a panic.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A length of time in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// A point in time, in nanoseconds since a start that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span there is, about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of so many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of so many whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SEC))
    }

    /// A span of so many seconds, rounded to the nanosecond; NaN and negative numbers give zero.
    pub fn from_secs_f64(seconds: f64) -> Self {
        // A cast from float to integer saturates and turns NaN into 0: exactly what is wanted.
        Self(libm::round(seconds * NANOS_PER_SEC as f64) as u64)
    }

    /// The time between two events that happen so many times a second; never for a rate of zero, NaN or less.
    pub fn from_rate(per_second: f64) -> Self {
        if per_second > 0.0 { Self::from_secs_f64(1.0 / per_second) } else { Self::MAX }
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// Whether this is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// This span times a factor; NaN and negative factors give zero.
    pub fn scale(self, factor: f64) -> Self {
        Self(libm::round(self.0 as f64 * factor) as u64)
    }

    /// This span less another, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Moment {
    /// The start of the caller's clock.
    pub const START: Self = Self(0);
    /// The last moment there is.
    pub const END: Self = Self(u64::MAX);

    /// The moment so many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment so many seconds after the start; NaN and negative numbers give the start.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(Span::from_secs_f64(seconds).0)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        Span(self.0).as_secs_f64()
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Add<Span> for Moment {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Moment {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Moment {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.3}s", self.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_numbers_become_zero_and_large_ones_saturate() {
        assert_eq!(Span::from_secs_f64(f64::NAN), Span::ZERO);
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
        assert_eq!(Span::from_secs_f64(f64::INFINITY), Span::MAX);
        assert_eq!(Span::from_rate(0.0), Span::MAX);
        assert_eq!(Span::from_rate(f64::NAN), Span::MAX);
        assert_eq!(Span::from_secs(u64::MAX), Span::MAX);
    }

    #[test]
    fn a_clock_that_runs_backwards_gives_zero() {
        let early = Moment::from_secs_f64(1.0);
        let late = Moment::from_secs_f64(2.5);
        assert_eq!(late.since(early), Span::from_millis(1500));
        assert_eq!(early.since(late), Span::ZERO);
        assert_eq!(Moment::END + Span::MAX, Moment::END);
        assert_eq!(early - Span::from_secs(5), Moment::START);
    }

    #[test]
    fn rates_and_spans_are_inverse() {
        assert_eq!(Span::from_rate(4.0), Span::from_millis(250));
        assert_eq!(Span::from_secs(3).scale(0.5), Span::from_millis(1500));
    }
}

//! What a validated constructor says when it refuses.

use core::fmt;

/// A setting that makes no sense, with what would be right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Invalid {
    /// The setting's name.
    pub key: &'static str,
    /// The value that was refused.
    pub value: f64,
    /// What would be right.
    pub need: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} = {} is refused: it must be {}", self.key, self.value, self.need)
    }
}

impl core::error::Error for Invalid {}

/// Refuses what is not a finite number above zero.
pub(crate) fn positive(key: &'static str, value: f64) -> Result<f64, Invalid> {
    check(key, value, "a finite number above 0", value > 0.0)
}

/// Refuses what is not a finite number of at least zero.
pub(crate) fn not_negative(key: &'static str, value: f64) -> Result<f64, Invalid> {
    check(key, value, "a finite number of at least 0", value >= 0.0)
}

/// Refuses a number that is not finite or fails the test that `need` describes.
pub(crate) fn check(key: &'static str, value: f64, need: &'static str, good: bool) -> Result<f64, Invalid> {
    if good && value.is_finite() { Ok(value) } else { Err(Invalid { key, value, need }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::string::ToString;

    #[test]
    fn the_message_names_key_value_and_need() {
        let error = positive("rate", f64::NAN).unwrap_err();
        assert_eq!(error.to_string(), "rate = NaN is refused: it must be a finite number above 0");
        assert!(positive("rate", f64::INFINITY).is_err());
        assert!(positive("rate", 0.0).is_err());
        assert!(not_negative("rate", -0.1).is_err());
        assert_eq!(not_negative("rate", 0.0), Ok(0.0));
    }
}

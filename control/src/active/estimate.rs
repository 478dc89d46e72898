//! What paper 001 lets a client predict about its own checks, from the mean time between two decreases.
//!
//! All of it holds for the divided decrease (`t + d` without loss, `t / a` with). S is the time between two
//! decreases without the interval of the first, T the interval in use when a decrease comes, N the number of
//! growths between two decreases and K the number of losses found in T. Every answer is finite: without a
//! usable S it is 0.

use crate::invalid::{self, Invalid};

/// The two settings of the divided decrease that the estimates need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    step: f64,
    divisor: f64,
}

impl Estimate {
    /// Estimates for a growth of `step` seconds and a division by `divisor`.
    pub fn new(step: f64, divisor: f64) -> Result<Self, Invalid> {
        invalid::positive("step", step)?;
        invalid::check("divisor", divisor, "above 1", divisor > 1.0)?;
        Ok(Self { step, divisor })
    }

    /// The upper bound of T, formula (7): `a sqrt(2 d S / (a^2 - 1))`.
    pub fn interval_bound(&self, mean_s: f64) -> f64 {
        let (a, d) = (self.divisor, self.step);
        finite(a * libm::sqrt(2.0 * d * usable(mean_s) / (a * a - 1.0)))
    }

    /// T itself, from the exact sum of the discrete steps: `a (sqrt(d^2 + 8 d S (a-1)/(a+1)) - d) / (2 (a-1))`.
    pub fn interval(&self, mean_s: f64) -> f64 {
        let (a, d) = (self.divisor, self.step);
        let root = libm::sqrt(d * d + 8.0 * d * usable(mean_s) * (a - 1.0) / (a + 1.0));
        finite(a * (root - d) / (2.0 * (a - 1.0)))
    }

    /// N for this T: `T (a-1) / (a d)`.
    pub fn growths(&self, interval: f64) -> f64 {
        finite(usable(interval) * (self.divisor - 1.0) / (self.divisor * self.step))
    }

    /// The upper bound of N that follows from (7): `sqrt(2 (a-1) S / (d (a+1)))`; the printed (8) is wrong.
    pub fn growths_bound(&self, mean_s: f64) -> f64 {
        let (a, d) = (self.divisor, self.step);
        finite(libm::sqrt(2.0 * (a - 1.0) * usable(mean_s) / (d * (a + 1.0))))
    }
}

/// The rate of checks: one for each of `growths` and one for the decrease, in each S.
pub fn check_rate(growths: f64, mean_s: f64) -> f64 {
    ratio(usable(growths) + 1.0, mean_s)
}

/// K for losses that come on their own: those that a mean S holds, spread evenly over it.
pub fn losses_poisson(losses_bulk: f64, interval: f64, mean_s: f64) -> f64 {
    ratio(usable(losses_bulk) * usable(interval), mean_s)
}

/// K when each update is lost with the probability `losses_total`, whatever happened to the others.
pub fn losses_bernoulli(check_rate: f64, interval: f64, losses_total: f64) -> f64 {
    finite(usable(check_rate) * usable(interval) * usable(losses_total))
}

/// K for losses that come in bulks (mu): `sum n p_n`, with the probability of n losses at index n.
pub fn losses_bulk(probabilities: &[f64]) -> f64 {
    finite(probabilities.iter().enumerate().map(|(losses, p)| losses as f64 * usable(*p)).sum())
}

fn ratio(value: f64, by: f64) -> f64 {
    if usable(by) > 0.0 { finite(value / by) } else { 0.0 }
}

/// A value from outside, or 0 when it is negative or no number.
fn usable(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// The largest number in place of an overflow.
fn finite(value: f64) -> f64 {
    value.min(f64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// d, a, E[S] and the printed T_pred and T_exp of table II of paper 001. Rows (3, 1.5) and (3, 2) are
    /// misprints; row (1, 4) was measured with another d, so that only its T_pred counts.
    const SOUND: [[f64; 5]; 10] = [
        [0.5, 1.5, 13.0, 4.84, 4.13],
        [1.0, 1.5, 10.36, 6.11, 4.79],
        [2.0, 1.5, 9.2, 8.14, 5.60],
        [0.5, 2.0, 14.96, 4.47, 4.02],
        [1.0, 2.0, 9.74, 5.10, 4.16],
        [2.0, 2.0, 6.50, 5.89, 4.17],
        [0.5, 4.0, 4.86, 2.28, 1.92],
        [2.0, 4.0, 5.96, 5.04, 3.76],
        [3.0, 4.0, 5.00, 5.66, 3.84],
        [1.0, 4.0, 4.84, 3.21, f64::NAN],
    ];

    #[test]
    fn formula_7_gives_the_printed_column() {
        for [d, a, s, predicted, _] in SOUND {
            let bound = Estimate::new(d, a).unwrap().interval_bound(s);
            assert!((bound - predicted).abs() < 0.01, "d {d}, a {a}: {bound} is not {predicted}");
        }
    }

    #[test]
    fn the_sharper_formula_gives_the_measured_column() {
        let (mut sharp, mut loose) = (0.0, 0.0);
        for [d, a, s, _, measured] in &SOUND[..9] {
            let estimate = Estimate::new(*d, *a).unwrap();
            let error = (estimate.interval(*s) / measured - 1.0).abs();
            assert!(error < 0.05, "d {d}, a {a}: off by {error}");
            sharp += error / 9.0;
            loose += (estimate.interval_bound(*s) / measured - 1.0) / 9.0;
        }
        assert!(sharp < 0.017, "mean error {sharp}");
        assert!((0.28..0.30).contains(&loose), "mean error of the bound {loose}");
    }

    #[test]
    fn a_deterministic_sawtooth_is_its_own_estimate() {
        // 2, 2.5, 3, 3.5, 4 and again: S excludes one interval of 4.
        let estimate = Estimate::new(0.5, 2.0).unwrap();
        let s = 2.0 + 2.5 + 3.0 + 3.5 + 4.0;
        assert!((estimate.interval(s) - 4.0).abs() < 1e-12);
        assert!((estimate.growths(4.0) - 4.0).abs() < 1e-12);
        assert!((check_rate(4.0, s) - 5.0 / 15.0).abs() < 1e-12);
    }

    #[test]
    fn losses_of_the_printed_rows() {
        // Row (2, 4): K_bulk 1.89, T_pred 5.04, S 5.96, lambda 0.40, K_tot 0.51.
        assert!((losses_poisson(1.89, 5.04, 5.96) - 1.60).abs() < 0.005);
        assert!((losses_bernoulli(0.40, 5.04, 0.51) - 1.02).abs() < 0.01);
        assert_eq!(losses_bulk(&[0.0, 0.5, 0.5]), 1.5);
        assert_eq!(losses_bulk(&[]), 0.0);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for (d, a) in [(0.0, 2.0), (f64::NAN, 2.0), (1.0, 1.0), (1.0, f64::NAN), (1.0, f64::INFINITY)] {
            assert!(Estimate::new(d, a).is_err());
        }
    }

    proptest! {
        #[test]
        fn every_answer_is_a_number(d in 1e-9..1e9f64, a in 1.000_001..1e6f64, s in any::<f64>(), k in any::<f64>()) {
            let estimate = Estimate::new(d, a).unwrap();
            let (bound, t) = (estimate.interval_bound(s), estimate.interval(s));
            let n = estimate.growths(t);
            for value in [bound, t, n, estimate.growths_bound(s), check_rate(n, s), losses_poisson(k, t, s),
                          losses_bernoulli(k, t, s), losses_bulk(&[k, s])] {
                prop_assert!(value.is_finite() && value >= 0.0, "{value}");
            }
        }

        #[test]
        fn the_bound_is_a_bound(d in 0.001..100.0f64, a in 1.01..10.0f64, s in 0.001..1e5f64) {
            let estimate = Estimate::new(d, a).unwrap();
            prop_assert!(estimate.interval(s) <= estimate.interval_bound(s) * (1.0 + 1e-9));
            prop_assert!(estimate.growths(estimate.interval(s)) <= estimate.growths_bound(s) * (1.0 + 1e-9));
        }
    }
}

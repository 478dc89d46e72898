//! How many devices are connected over time.
//!
//! A pattern is a line through points (time, share), both from 0 to 1. A scenario stretches it to its duration and
//! to the number of devices of each class.

use tidegate_control::random::{Random, Seeded};

/// A shape of workload over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    points: Vec<(f64, f64)>,
}

/// The shapes that have a name, with their points.
///
/// The case study is our reading: minor peaks and one major peak, as the paper says of a figure that has no numbers,
/// fitted to five printed figures: messages and queue length of the baseline, messages and mean and longest send
/// interval under overload protection.
const NAMED: [(&str, &[(f64, f64)]); 5] = [
    ("constant", &[(0.0, 1.0)]),
    (
        "case-study",
        &[
            (0.0, 0.05),
            (0.024, 0.05),
            (0.07, 0.35),
            (0.115, 0.05),
            (0.227, 0.05),
            (0.267, 0.25),
            (0.306, 0.05),
            (0.394, 0.05),
            (0.43, 0.175),
            (0.467, 0.05),
            (0.503, 0.075),
            (0.745, 1.0),
            (0.988, 0.05),
            (1.0, 0.05),
        ],
    ),
    (
        "early-peak",
        &[
            (0.0, 0.1),
            (0.03, 0.1),
            (0.12, 1.0),
            (0.3, 0.15),
            (0.6, 0.15),
            (0.7, 0.35),
            (0.8, 0.1),
            (1.0, 0.1),
        ],
    ),
    ("steep-peak", &[(0.0, 0.15), (0.45, 0.15), (0.46, 1.0), (0.52, 1.0), (0.53, 0.15), (1.0, 0.15)]),
    (
        "slow-swell",
        &[(0.0, 0.1), (0.15, 0.2), (0.35, 0.75), (0.5, 1.0), (0.65, 0.75), (0.85, 0.2), (1.0, 0.1)],
    ),
];

impl Pattern {
    /// The names that [`Pattern::named`] knows.
    pub fn names() -> Vec<&'static str> {
        NAMED.iter().map(|(name, _)| *name).chain(["random"]).collect()
    }

    /// A pattern by its name; `random` depends on the seed.
    pub fn named(name: &str, seed: u64) -> Option<Self> {
        if name == "random" {
            return Some(Self::random(seed));
        }
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, points)| Self { points: points.to_vec() })
    }

    /// A pattern through these points, or what is wrong with them.
    pub fn through(points: &[[f64; 2]]) -> Result<Self, String> {
        let points: Vec<(f64, f64)> = points.iter().map(|[time, share]| (*time, *share)).collect();
        let inside = |value: f64| (0.0..=1.0).contains(&value);
        if let Some((time, share)) = points.iter().find(|(time, share)| !inside(*time) || !inside(*share)) {
            return Err(format!(
                "the point [{time}, {share}] is refused: time and share must be from 0 to 1"
            ));
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[1].0 < pair[0].0) {
            return Err(format!(
                "the point at {} follows the one at {}: times must not fall",
                pair[1].0, pair[0].0
            ));
        }
        if points.is_empty() {
            return Err("there must be at least one point".to_owned());
        }
        Ok(Self { points })
    }

    /// The share of devices that are connected at this share of the duration.
    pub fn share(&self, time: f64) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at <= time);
        let Some(&(t1, y1)) = self.points.get(after) else { return self.points[self.points.len() - 1].1 };
        let Some(&(t0, y0)) = after.checked_sub(1).and_then(|before| self.points.get(before)) else {
            return y1;
        };
        y0 + (y1 - y0) * (time - t0) / (t1 - t0)
    }

    /// Between three and ten peaks of random height, steepness and width.
    fn random(seed: u64) -> Self {
        let mut random = Seeded::stream(seed, 0x7061_7474);
        let peaks = 3 + random.below(8);
        let mut points = vec![(0.0, random.uniform_in(0.05, 0.3))];
        for peak in 0..peaks {
            let start = peak as f64 / peaks as f64;
            let width = 1.0 / peaks as f64;
            let height = random.uniform_in(0.2, 1.0);
            let rise = random.uniform_in(0.02, 0.5);
            let stay = random.uniform_in(0.0, 0.3);
            points.push((start + width * 0.1, points[points.len() - 1].1));
            points.push((start + width * (0.1 + 0.5 * rise), height));
            points.push((start + width * (0.1 + 0.5 * rise + stay), height));
            points.push((start + width, random.uniform_in(0.05, 0.3)));
        }
        Self { points }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_line_through_points() {
        let pattern = Pattern::through(&[[0.2, 0.0], [0.4, 1.0], [0.4, 0.5]]).unwrap();
        assert_eq!(pattern.share(0.0), 0.0);
        assert!((pattern.share(0.3) - 0.5).abs() < 1e-12);
        assert_eq!(pattern.share(0.4), 0.5);
        assert_eq!(pattern.share(1.0), 0.5);
    }

    #[test]
    fn bad_points_are_refused() {
        assert!(Pattern::through(&[]).is_err());
        assert!(Pattern::through(&[[0.0, f64::NAN]]).is_err());
        assert!(Pattern::through(&[[0.0, 1.5]]).is_err());
        assert!(Pattern::through(&[[0.5, 1.0], [0.4, 1.0]]).is_err());
    }

    #[test]
    fn every_named_pattern_is_sound_and_random_ones_differ_by_seed() {
        for name in Pattern::names() {
            for seed in 0..50 {
                let pattern = Pattern::named(name, seed).unwrap();
                let points: Vec<[f64; 2]> = pattern.points.iter().map(|(t, y)| [*t, *y]).collect();
                assert_eq!(Pattern::through(&points).unwrap(), pattern, "{name}");
            }
        }
        assert_ne!(Pattern::named("random", 1), Pattern::named("random", 2));
        assert_eq!(Pattern::named("no-such", 1), None);
    }
}

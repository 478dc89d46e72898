//! How soon and how steadily the accepted rate follows what would be right.

use crate::record::Interval;

/// Within this share of the limit the rate is right.
const NEAR: f64 = 0.1;
/// A limit that moves by more than this share is another one.
const SAME: f64 = 0.02;
/// Seconds over which the rate is averaged.
const WINDOW: f64 = 1.0;
/// A limit that holds for less than this, in seconds, can't be judged.
const SHORTEST: f64 = 3.0;
/// Rounding of times.
const HAIR: f64 = 1e-6;

/// What became of the accepted rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Settling {
    /// Seconds until the rate, as a mean over a second, is within 10% of the limit and stays there until the limit changes;
    /// the longest over all limits. None if there is one at which it never was, or none that can be judged.
    pub settle: Option<f64>,
    /// Half of the distance between the highest and the lowest of these means after that, against the limit and as a share
    /// of what they are on average: the largest over all limits. Where the rate never settled it is that of the second half.
    pub swing: Option<f64>,
}

impl Settling {
    /// Looks at the intervals of a measured part of so many seconds.
    pub fn of(intervals: &[Interval], duration: f64) -> Self {
        let measured: Vec<&Interval> = intervals
            .iter()
            .filter(|one| one.t - one.length > -HAIR && one.t <= duration + HAIR && one.length > 0.0)
            .collect();
        let mut all: Option<Self> = None;
        for stretch in stretches(&measured) {
            let one = judge(stretch);
            all = Some(all.map_or(one, |all| Self {
                settle: all.settle.zip(one.settle).map(|(a, b)| a.max(b)),
                swing: all.swing.zip(one.swing).map(|(a, b)| a.max(b)),
            }));
        }
        all.unwrap_or_default()
    }
}

/// Parts of the run during which the limit is the same, if they are long enough.
fn stretches<'a>(intervals: &'a [&'a Interval]) -> impl Iterator<Item = &'a [&'a Interval]> {
    let same = |a: &&Interval, b: &&Interval| match (a.limit, b.limit) {
        (Some(a), Some(b)) => (a - b).abs() <= SAME * a.max(b),
        _ => false,
    };
    intervals.chunk_by(same).filter(|stretch| {
        let length: f64 = stretch.iter().map(|one| one.length).sum();
        length >= SHORTEST - HAIR && stretch[0].limit.is_some_and(|limit| limit > 0.0)
    })
}

fn judge(stretch: &[&Interval]) -> Settling {
    let length: f64 = stretch.iter().map(|one| one.length).sum();
    let means = means(stretch);
    let wrong = means.iter().rposition(|mean| (mean.ratio - 1.0).abs() > NEAR);
    let settled = match wrong {
        None => Some(0.0),
        Some(last) => means.get(last + 1).map(|mean| mean.since),
    };
    let from = settled.unwrap_or(length / 2.0);
    let after = || means.iter().filter(|mean| mean.since >= from - HAIR).map(|mean| mean.ratio);
    let (low, high) =
        after().fold((f64::MAX, 0.0f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    let mean = after().sum::<f64>() / after().count().max(1) as f64;
    Settling { settle: settled, swing: (mean > 0.0).then(|| (high - low) / 2.0 / mean) }
}

/// The rate over a second.
struct Mean {
    /// When the second begins, from the start of the stretch.
    since: f64,
    /// Against the limit.
    ratio: f64,
}

/// The rate over each second that lies in a stretch.
fn means(stretch: &[&Interval]) -> Vec<Mean> {
    let mut means = Vec::new();
    let mut since = 0.0;
    for (first, one) in stretch.iter().enumerate() {
        let (mut length, mut accepted, mut limit) = (0.0, 0.0, 0.0);
        for next in &stretch[first..] {
            length += next.length;
            accepted += next.accepted as f64;
            limit += next.limit.unwrap_or(0.0) * next.length;
            if length >= WINDOW - HAIR {
                means.push(Mean { since, ratio: accepted / limit });
                break;
            }
        }
        since += one.length;
    }
    means
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    /// Half seconds with these accepted messages and limits a second.
    fn series(values: impl IntoIterator<Item = (u64, f64)>) -> Vec<Interval> {
        let one = |(at, (accepted, limit)): (usize, (u64, f64))| Interval {
            t: 0.5 * (at + 1) as f64,
            length: 0.5,
            accepted,
            limit: Some(limit),
            ..Interval::default()
        };
        values.into_iter().enumerate().map(one).collect()
    }

    fn of(values: impl IntoIterator<Item = (u64, f64)>) -> Settling {
        let intervals = series(values);
        let duration = intervals.len() as f64 / 2.0;
        Settling::of(&intervals, duration)
    }

    fn constant(accepted: u64, limit: f64, count: usize) -> Vec<(u64, f64)> {
        vec![(accepted, limit); count]
    }

    #[test]
    fn a_rate_that_is_right_from_the_start_has_settled_at_once() {
        assert_eq!(of(constant(50, 100.0, 20)), Settling { settle: Some(0.0), swing: Some(0.0) });
    }

    #[test]
    fn the_time_until_the_rate_stays_near_the_limit() {
        let late = [constant(100, 100.0, 4), constant(51, 100.0, 16)].concat();
        let found = of(late);
        assert_eq!(found.settle, Some(2.0), "the second from 1.5 s on holds too much");
        assert!(found.swing.unwrap() < 0.01);
        let again = [constant(50, 100.0, 8), constant(100, 100.0, 2), constant(50, 100.0, 10)].concat();
        assert_eq!(of(again).settle, Some(5.0), "it was right before, and did not stay");
    }

    #[test]
    fn a_rate_that_never_settles_is_not_known_to_but_swings() {
        let wild = (0..20).map(|at| (if at / 4 % 2 == 0 { 80 } else { 20 }, 100.0));
        let found = of(wild);
        assert_eq!(found.settle, None);
        assert!((0.5..0.7).contains(&found.swing.unwrap()), "{found:?}");
    }

    #[test]
    fn each_limit_is_judged_on_its_own_and_the_worst_counts() {
        let steps = [
            constant(50, 100.0, 10),
            // Twice as much: followed after a second.
            constant(50, 200.0, 2),
            constant(100, 200.0, 10),
            // A stall, and a limit that is gone before anybody could follow.
            constant(0, 0.0, 10),
            constant(0, 50.0, 2),
            constant(50, 100.0, 10),
        ];
        let found = of(steps.concat());
        assert_eq!(found.settle, Some(1.0));
        assert!(found.swing.unwrap() < 1e-9);
    }

    #[test]
    fn what_is_not_measured_does_not_count() {
        let mut intervals = series(constant(50, 100.0, 20));
        for one in &mut intervals {
            one.t -= 2.0;
        }
        intervals[0].accepted = 500;
        intervals[19].accepted = 500;
        assert_eq!(Settling::of(&intervals, 7.5).settle, Some(0.0));
        assert_eq!(Settling::of(&[], 5.0), Settling::default());
        let unknown = vec![Interval { t: 1.0, length: 1.0, accepted: 5, ..Interval::default() }; 9];
        assert_eq!(Settling::of(&unknown, 9.0), Settling::default());
    }
}

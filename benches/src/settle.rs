//! How soon and how steadily the accepted rate follows what would be right.

use crate::record::{Interval, Settled};

/// Within this share of the limit the rate is right.
const NEAR: f64 = 0.1;
/// A rate that is off by more than this share after it was right had not settled; less than that is its swing.
const FAR: f64 = 0.2;
/// A limit that moves by more than this share is another one.
const SAME: f64 = 0.02;
/// Seconds over which the rate is averaged.
const WINDOW: f64 = 1.0;
/// A limit that holds for less than this, in seconds, can't be judged.
const SHORTEST: f64 = 3.0;
/// Seconds that must not overlap and be left after the rate was last wrong: one right second is no settling, and the swing of
/// one second is none.
const ENOUGH: usize = 3;
/// Rounding of times.
const HAIR: f64 = 1e-6;

/// What became of the accepted rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Settling {
    /// Seconds until the rate, as a mean over a second, is within 10% of the limit for three seconds, and never off by more
    /// than 20% until the limit changes; the longest over all limits. None if there is one at which it never was or for which that can't be told.
    pub settle: Option<f64>,
    /// Why it is not known, if it is not; none if it is not known what would be right.
    pub settled: Option<Settled>,
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
        let unknown = measured.iter().all(|one| one.limit.is_none());
        let nothing = Self { settled: (!unknown).then_some(Settled::NotMeasurable), ..Self::default() };
        let worst = |all: Self, one: Self| Self {
            settle: all.settle.zip(one.settle).map(|(a, b)| a.max(b)),
            settled: all.settled.max(one.settled),
            swing: all.swing.zip(one.swing).map(|(a, b)| a.max(b)),
        };
        stretches(&measured).map(judge).reduce(worst).unwrap_or(nothing)
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
    let right = settled(&means);
    if are_enough(right) {
        let settle = right.first().map(|mean| mean.since);
        return Settling { settle, settled: Some(Settled::Settled), swing: swing(right) };
    }
    // As much of the end as can be judged, and half of it if that is more.
    let from = (length / 2.0).min(length - ENOUGH as f64 * WINDOW);
    let last = &means[means.partition_point(|mean| mean.since < from - HAIR)..];
    let settled = if are_enough(last) && right.is_empty() { Settled::Never } else { Settled::NotMeasurable };
    Settling { settle: None, settled: Some(settled), swing: are_enough(last).then(|| swing(last)).flatten() }
}

/// From where on the rate is right: the first of enough means that are near the limit, with none after them far from it.
/// Those that are near at the end where there are not enough of them.
fn settled(means: &[Mean]) -> &[Mean] {
    let off = |mean: &Mean, share: f64| (mean.ratio - 1.0).abs() > share;
    let far = means.iter().rposition(|mean| off(mean, FAR));
    let mut rest = &means[far.map_or(0, |last| last + 1)..];
    while let Some(wrong) = rest.iter().position(|mean| off(mean, NEAR)) {
        if are_enough(&rest[..wrong]) {
            return rest;
        }
        rest = &rest[wrong + 1..];
    }
    rest
}

/// Whether these means tell anything about a rate that stays.
fn are_enough(means: &[Mean]) -> bool {
    let spread = match means {
        [first, .., last] => last.since - first.since,
        _ => 0.0,
    };
    means.len() >= ENOUGH && spread >= (ENOUGH - 1) as f64 * WINDOW - HAIR
}

/// Half of the distance between the highest and the lowest, as a share of the average; none if nothing was accepted.
fn swing(means: &[Mean]) -> Option<f64> {
    let ratios = || means.iter().map(|mean| mean.ratio);
    let (low, high) =
        ratios().fold((f64::MAX, 0.0f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    let mean = ratios().sum::<f64>() / means.len().max(1) as f64;
    (mean > 0.0).then(|| (high - low) / 2.0 / mean)
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
        let settled = Some(Settled::Settled);
        assert_eq!(of(constant(50, 100.0, 20)), Settling { settle: Some(0.0), settled, swing: Some(0.0) });
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
    fn a_small_dip_is_swing() {
        // one second of 88
        let dip = |before| {
            [
                constant(100, 100.0, 2),
                constant(50, 100.0, before),
                constant(44, 100.0, 2),
                constant(50, 100.0, 12),
            ]
        };
        let found = of(dip(10).concat());
        assert_eq!(found.settle, Some(1.0));
        assert!((0.05..0.07).contains(&found.swing.unwrap()), "{found:?}");
        assert_eq!(of(dip(4).concat()).settle, Some(3.5), "two seconds of the right rate are not enough");
    }

    #[test]
    fn a_rate_that_never_settles_is_not_known_to_but_swings() {
        let wild = (0..20).map(|at| (if at / 4 % 2 == 0 { 80 } else { 20 }, 100.0));
        let found = of(wild);
        assert_eq!((found.settle, found.settled), (None, Some(Settled::Never)));
        assert!((0.5..0.7).contains(&found.swing.unwrap()), "{found:?}");
    }

    #[test]
    fn a_single_window_is_no_proof() {
        // Wrong until the last second, or the last two: whether it stays is not known.
        for right in [2, 4] {
            let late = [constant(100, 100.0, 20 - right), constant(50, 100.0, right)].concat();
            let found = of(late);
            assert_eq!((found.settle, found.settled), (None, Some(Settled::NotMeasurable)), "{right}");
            assert!(found.swing.unwrap() > 0.1, "not the swing of one second: {found:?}");
        }
        // Three seconds are enough, and the two before belong to what was wrong.
        let late = [constant(100, 100.0, 14), constant(50, 100.0, 6)].concat();
        assert_eq!(of(late).settle, Some(7.0));
        // A limit that does not last, and intervals that are too long to see anything.
        let short = Settling { settled: Some(Settled::NotMeasurable), ..Settling::default() };
        assert_eq!(of(constant(50, 100.0, 5)), short);
        let long = Interval { length: 2.0, accepted: 200, limit: Some(100.0), ..Interval::default() };
        let coarse: Vec<Interval> = [2.0, 4.0].map(|t| Interval { t, ..long }).to_vec();
        assert_eq!(Settling::of(&coarse, 4.0), short);
        // One limit at which it can't be told spoils the answer for all.
        let both = [constant(50, 100.0, 10), constant(100, 300.0, 8), constant(150, 300.0, 2)].concat();
        assert_eq!(of(both).settle, None);
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

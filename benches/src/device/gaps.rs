//! The time between messages of a device, as the device lives it.

use std::ops::Range;

use crate::clock::{Nanos, SECOND};

/// Times between messages that were sent one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gaps {
    last: Option<Nanos>,
    /// Seconds between messages, all together.
    sum: f64,
    /// Their squares: a gap counts as long as it lasts.
    squares: f64,
    longest: f64,
}

impl Gaps {
    /// A message is sent now; the gap before it counts if it ends in the measured part.
    pub(super) fn send(&mut self, now: Nanos, measured: &Range<Nanos>) {
        if let Some(last) = self.last.replace(now).filter(|_| measured.contains(&now)) {
            let gap = now.saturating_sub(last) as f64 / SECOND as f64;
            self.sum += gap;
            self.squares += gap * gap;
            self.longest = self.longest.max(gap);
        }
    }

    /// The device is not to send: the time until it sends again is no gap.
    pub(super) fn pause(&mut self) {
        self.last = None;
    }

    /// The mean over the time of all these devices, and the longest, in seconds; none if no device sent twice.
    pub fn of<'a>(all: impl Iterator<Item = &'a Self>) -> Option<(f64, f64)> {
        let (sum, squares, longest) = all.fold((0.0, 0.0, 0.0f64), |(sum, squares, longest), one| {
            (sum + one.sum, squares + one.squares, longest.max(one.longest))
        });
        (sum > 0.0).then(|| (squares / sum, longest))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn sent(times: impl IntoIterator<Item = u64>) -> Gaps {
        let mut gaps = Gaps::default();
        times.into_iter().for_each(|second| gaps.send(second * SECOND, &(10 * SECOND..100 * SECOND)));
        gaps
    }

    #[test]
    fn a_gap_counts_for_as_long_as_it_lasts() {
        assert_eq!(Gaps::of([sent(10..50)].iter()), Some((1.0, 1.0)));
        // Ten seconds at 1 s, and thirty at 3 s.
        let (mean, longest) = Gaps::of([sent((10..20).chain((20..=50).step_by(3)))].iter()).unwrap();
        assert_eq!((mean, longest), (2.5, 3.0));
        let two = [sent(10..50), sent((10..50).step_by(3))];
        assert!((Gaps::of(two.iter()).unwrap().0 - 2.0).abs() < 0.01, "devices count alike");
    }

    #[test]
    fn what_is_not_measured_and_pauses_are_no_gaps() {
        assert_eq!(Gaps::of([sent(0..9), sent([10])].iter()), None);
        let mut gaps = sent([20, 21]);
        gaps.pause();
        gaps.send(60 * SECOND, &(10 * SECOND..100 * SECOND));
        assert_eq!(Gaps::of([gaps].iter()), Some((1.0, 1.0)));
    }
}

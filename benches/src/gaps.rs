//! The time between messages of a device, as devices live it.

use std::ops::Range;

use parking_lot::Mutex;

use crate::clock::{Nanos, SECOND};

/// Parts of a run that are kept at most.
const MOST_PARTS: f64 = 3600.0;

/// Times between messages of all devices, by the part of the measured time in which they end.
#[derive(Debug, Default)]
pub struct Gaps {
    /// The length of a part.
    length: Nanos,
    parts: Vec<Mutex<Part>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// Seconds between messages, all together.
    sum: f64,
    /// Their squares: a gap counts as long as it lasts.
    squares: f64,
    longest: f64,
}

impl Gaps {
    /// For a run of so many seconds.
    pub fn new(duration: f64) -> Self {
        let length = ((duration / MOST_PARTS).max(1.0) * SECOND as f64) as Nanos;
        let parts = (duration * SECOND as f64 / length as f64).ceil() as usize;
        Self { length, parts: (0..parts).map(|_| Mutex::default()).collect() }
    }

    /// A device sends now, and sent `last` before; the time between them counts if it ends in the measured part.
    pub fn add(&self, last: Nanos, now: Nanos, measured: &Range<Nanos>) {
        let (true, 1..) = (measured.contains(&now), now.saturating_sub(last)) else { return };
        let Some(part) = self.parts.get(((now - measured.start) / self.length.max(1)) as usize) else {
            return;
        };
        let gap = (now - last) as f64 / SECOND as f64;
        let mut part = part.lock();
        part.sum += gap;
        part.squares += gap * gap;
        part.longest = part.longest.max(gap);
    }

    /// The mean over time of what devices live with at each moment, and the longest, in seconds; none if no device sent twice.
    pub fn in_short(&self) -> Option<(f64, f64)> {
        let parts: Vec<Part> =
            self.parts.iter().map(|part| *part.lock()).filter(|part| part.sum > 0.0).collect();
        let means: f64 = parts.iter().map(|part| part.squares / part.sum).sum();
        let longest = parts.iter().map(|part| part.longest).fold(0.0, f64::max);
        (!parts.is_empty()).then(|| (means / parts.len() as f64, longest))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    const MILLI: Nanos = SECOND / 1000;

    /// A device that sends at these milliseconds after the start of the measured part.
    fn send(gaps: &Gaps, times: impl IntoIterator<Item = u64>) {
        let start = 10 * SECOND;
        let mut last = None;
        for time in times {
            let now = start + time * MILLI;
            if let Some(last) = last.replace(now) {
                gaps.add(last, now, &(start..start + 20 * SECOND));
            }
        }
    }

    fn near(found: Option<(f64, f64)>, mean: f64, longest: f64) {
        let (found, most) = found.unwrap();
        assert!((found - mean).abs() < 1e-9 && (most - longest).abs() < 1e-9, "{found} {most}");
    }

    #[test]
    fn every_second_counts_alike_and_a_gap_as_long_as_it_lasts() {
        let gaps = Gaps::new(20.0);
        assert_eq!(gaps.in_short(), None);
        send(&gaps, (0..=20_000).step_by(100));
        near(gaps.in_short(), 0.1, 0.1);
        let gaps = Gaps::new(20.0);
        send(&gaps, (0..10_000).step_by(100).chain((10_000..20_000).step_by(500)));
        near(gaps.in_short(), (10.0 * 0.1 + 9.0 * 0.5 + (0.01 + 0.25) / 0.6) / 20.0, 0.5);
        // In the second half there are ten times as many devices: that half counts no more than the other.
        let gaps = Gaps::new(20.0);
        send(&gaps, (0..10_000).step_by(100));
        (0..10).for_each(|_| send(&gaps, (10_000..20_000).step_by(200)));
        near(gaps.in_short(), 0.15, 0.2);
    }

    #[test]
    fn what_is_not_measured_does_not_count() {
        let gaps = Gaps::new(20.0);
        gaps.add(0, SECOND, &(10 * SECOND..30 * SECOND));
        gaps.add(29 * SECOND, 31 * SECOND, &(10 * SECOND..30 * SECOND));
        gaps.add(12 * SECOND, 12 * SECOND, &(10 * SECOND..30 * SECOND));
        gaps.add(SECOND, 2 * SECOND, &(Nanos::MAX..Nanos::MAX));
        assert_eq!(gaps.in_short(), None);
        assert!(Gaps::new(86_400.0).parts.len() <= 3600);
    }
}

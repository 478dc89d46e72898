//! When messages were meant to be sent: remembered so that what never arrives still has an age.

use std::ops::Range;

use crate::clock::{Nanos, SECOND};
use crate::stats::Distribution;

/// A stretch of unsent messages is recorded in no more pieces than this.
const PIECES: u64 = 1000;

/// The intended times of one flow's messages, to within a grain, so that long runs need little memory.
#[derive(Debug, Clone, Default)]
pub struct Intents {
    grain: Nanos,
    /// The first message of each stretch, and when it was meant to be sent.
    marks: Vec<(u64, Nanos)>,
    next: u64,
}

impl Intents {
    /// For a run of so many seconds.
    pub fn new(duration: f64) -> Self {
        let grain = ((duration * SECOND as f64 / 10_000.0) as Nanos).max(SECOND / 1000);
        Self { grain, marks: Vec::new(), next: 0 }
    }

    /// Takes in the next message.
    pub fn push(&mut self, intended: Nanos) {
        let is_known = |(_, mark): &(u64, Nanos)| intended < mark.saturating_add(self.grain);
        if !self.marks.last().is_some_and(is_known) {
            self.marks.push((self.next, intended));
        }
        self.next += 1;
    }

    /// Messages from this number on, in stretches with a time before which all of the stretch were meant to be sent.
    pub fn since(&self, first: u64) -> impl Iterator<Item = (Range<u64>, Nanos)> {
        let from = self.marks.partition_point(|(number, _)| *number <= first).saturating_sub(1);
        let ends = self.marks.iter().skip(from + 1).map(|(number, _)| *number).chain([self.next]);
        self.marks.iter().skip(from).zip(ends).filter_map(move |((start, intended), end)| {
            let range = first.max(*start)..end;
            (!range.is_empty()).then_some((range, intended.saturating_add(self.grain)))
        })
    }
}

/// Messages of one flow that were due and never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsent {
    /// The flow.
    pub flow: u32,
    /// When the first of them was meant to be sent.
    pub first: Nanos,
    /// The time between two of them.
    pub step: Nanos,
    /// How many they are.
    pub count: u64,
    /// When the device gave up.
    pub until: Nanos,
}

impl Unsent {
    /// Records how long those that were due in this time had waited at least, each `weight` times.
    pub fn record(&self, due: &Range<Nanos>, weight: u64, to: &mut Distribution) {
        let step = self.step.max(1);
        let skipped = due.start.saturating_sub(self.first).div_ceil(step);
        let last = due.end.saturating_sub(self.first).div_ceil(step).min(self.count);
        let piece = last.saturating_sub(skipped).div_ceil(PIECES).max(1);
        let mut number = skipped;
        while number < last {
            let end = (number + piece).min(last);
            let youngest = self.first.saturating_add((end - 1).saturating_mul(step));
            let waited = self.until.saturating_sub(youngest);
            to.saturating_record_n((waited / 1000).max(1), (end - number) * weight);
            number = end;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::stats::distribution;

    const MILLI: Nanos = SECOND / 1000;

    #[test]
    fn every_message_is_remembered_a_little_younger_than_it_is() {
        let mut intents = Intents::new(5.0);
        let times: Vec<Nanos> = (0..1000).map(|number| number * 300_000).collect();
        times.iter().for_each(|time| intents.push(*time));
        for first in [0, 1, 3, 500, 999] {
            let mut next = first;
            for (range, before) in intents.since(first) {
                assert_eq!(range.start, next, "nothing is left out");
                next = range.end;
                for number in range {
                    let time = times[number as usize];
                    assert!(time < before && before <= time + 2 * MILLI, "{number}: {time} {before}");
                }
            }
            assert_eq!(next, 1000);
        }
        assert_eq!(intents.since(1000).count(), 0);
        assert_eq!(Intents::default().since(0).count(), 0);
        assert!(intents.marks.len() < 400, "{}", intents.marks.len());
    }

    #[test]
    fn unsent_messages_count_with_the_time_that_they_waited() {
        let unsent = Unsent { flow: 0, first: SECOND, step: MILLI, count: 5000, until: 6 * SECOND };
        let mut recorded = distribution();
        unsent.record(&(2 * SECOND..6 * SECOND), 3, &mut recorded);
        assert_eq!(recorded.len(), 3 * 4000, "those due before are not measured");
        let (min, max) = (recorded.min(), recorded.max());
        assert!(min <= 5_000 && (3_980_000..=4_004_000).contains(&max), "{min} {max}");
        let mut recorded = distribution();
        unsent.record(&(7 * SECOND..9 * SECOND), 1, &mut recorded);
        assert_eq!(recorded.len(), 0);
    }
}

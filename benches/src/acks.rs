//! When messages were acknowledged: remembered so that the time in a broker's queue can be told from the time before.

use std::ops::Range;

use crate::clock::{Nanos, SECOND};

/// The times of one flow's acknowledgements, to within a grain, so that long runs need little memory.
#[derive(Debug, Clone, Default)]
pub struct Acks {
    grain: Nanos,
    /// The first message of each stretch, and when that was acknowledged.
    marks: Vec<(u64, Nanos)>,
    next: u64,
}

impl Acks {
    /// For a run of so many seconds.
    pub fn new(duration: f64) -> Self {
        let grain = ((duration * SECOND as f64 / 60_000.0) as Nanos).max(SECOND / 1000);
        Self { grain, marks: Vec::new(), next: 0 }
    }

    /// A message was acknowledged. One that comes after a later one counts with those around it.
    pub fn push(&mut self, number: u64, at: Nanos) {
        if number < self.next {
            return;
        }
        if self.marks.last().is_none_or(|(_, mark)| at >= mark.saturating_add(self.grain)) {
            self.marks.push((self.next, at));
        }
        self.next = number + 1;
    }

    /// When a message was acknowledged; none if it was not yet.
    pub fn of(&self, number: u64) -> Option<Nanos> {
        if number >= self.next {
            return None;
        }
        let after = self.marks.partition_point(|(first, _)| *first <= number);
        self.marks.get(after.checked_sub(1)?).map(|(_, at)| *at)
    }

    /// Messages from this number on that were acknowledged, in stretches with their time.
    pub fn since(&self, first: u64) -> impl Iterator<Item = (Range<u64>, Nanos)> {
        let from = self.marks.partition_point(|(number, _)| *number <= first).saturating_sub(1);
        let ends = self.marks.iter().skip(from + 1).map(|(number, _)| *number).chain([self.next]);
        self.marks.iter().skip(from).zip(ends).filter_map(move |((start, at), end)| {
            let range = first.max(*start)..end;
            (!range.is_empty()).then_some((range, *at))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    const MILLI: Nanos = SECOND / 1000;

    #[test]
    fn each_message_has_the_time_of_its_acknowledgement_to_within_a_grain() {
        let mut acks = Acks::new(5.0);
        assert_eq!(acks.of(0), None);
        let times: Vec<Nanos> = (0..1000).map(|number| number * 300_000).collect();
        times.iter().enumerate().for_each(|(number, time)| acks.push(number as u64, *time));
        for (number, time) in times.iter().enumerate() {
            let known = acks.of(number as u64).unwrap();
            assert!(known <= *time && time - known < MILLI, "{number}: {time} {known}");
        }
        assert_eq!(acks.of(1000), None);
        assert!(acks.marks.len() <= 300, "{}", acks.marks.len());
        for first in [0, 1, 500, 999] {
            let mut next = first;
            for (range, at) in acks.since(first) {
                assert_eq!((range.start, acks.of(range.start)), (next, Some(at)));
                next = range.end;
            }
            assert_eq!(next, 1000, "nothing is left out");
        }
        assert_eq!(acks.since(1000).count(), 0);
    }

    #[test]
    fn gaps_and_latecomers_count_with_those_around_them() {
        let mut acks = Acks::new(5.0);
        acks.push(2, 10 * MILLI);
        acks.push(7, 20 * MILLI);
        acks.push(4, 30 * MILLI);
        assert_eq!(
            [0, 2, 3, 4, 7, 8].map(|number| acks.of(number).map(|at| at / MILLI)),
            [Some(10), Some(10), Some(20), Some(20), Some(20), None]
        );
    }
}

//! Spaces publishers out: those that were held back together would else go on sending in step, for as long as they are
//! held back.

use crate::time::{Moment, Span};

/// How much earlier than its own interval says a publisher may be asked to send, as a share of that interval: little, so
/// that nobody sends much faster than it was told when some others send nothing.
const EARLY: f64 = 0.1;
/// How much later it may be asked to send.
const LATE: f64 = 0.5;

/// Gives each publisher that asks the next place in an even row, for the acknowledgement that tells it how long to wait.
///
/// Each place is one gap after the last one given, so the row as a whole keeps to its rate, while each publisher
/// waits for about its own interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    last: Moment,
}

impl Spread {
    /// How long a publisher that has just sent waits, where `members` of them may send `rate` messages a second each.
    pub fn wait(&mut self, now: Moment, rate: f64, members: u64) -> Span {
        let interval = Span::from_rate(rate);
        let gap = interval.scale(1.0 / members.max(1) as f64);
        let next = self.last + gap;
        // A row that has fallen behind begins anew, with nobody sending before its time.
        let begins = next < now + interval.scale(1.0 - EARLY);
        self.last = if begins { now + interval } else { next.min(now + interval.scale(1.0 + LATE)) };
        self.last.since(now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// When each of so many publishers sends, all of them starting within `start` seconds, for some rounds.
    fn rounds(members: usize, rate: f64, start: f64, rounds: usize) -> Vec<Moment> {
        let mut spread = Spread::default();
        let mut due: Vec<Moment> = (0..members)
            .map(|index| Moment::from_secs_f64(10.0 + start * index as f64 / members as f64))
            .collect();
        let mut sent = Vec::new();
        for _ in 0..rounds * members {
            let next = due.iter().copied().enumerate().min_by_key(|(_, at)| *at).unwrap();
            sent.push(next.1);
            due[next.0] = next.1 + spread.wait(next.1, rate, members as u64);
        }
        sent
    }

    #[test]
    fn publishers_in_step_are_spread_within_four_rounds() {
        let sent = rounds(40, 0.5, 0.1, 10);
        let gaps: Vec<f64> =
            sent[160..].windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
        assert!(gaps.iter().all(|gap| (gap - 0.05).abs() < 0.01), "{gaps:?}");
    }

    #[test]
    fn the_row_as_a_whole_keeps_to_its_rate() {
        let sent = &rounds(40, 0.5, 2.0, 50)[160..];
        let rate = (sent.len() - 1) as f64 / sent[sent.len() - 1].since(sent[0]).as_secs_f64();
        assert!((rate / 20.0 - 1.0).abs() < 1e-3, "{rate}");
    }

    proptest! {
        /// Whatever the clock and the rates do, nobody waits much less than its interval or much more.
        #[test]
        fn a_wait_is_about_an_interval(
            asks in proptest::collection::vec((any::<u64>(), 1e-3..1e6f64, any::<u64>()), 1..50),
        ) {
            let mut spread = Spread::default();
            for (now, rate, members) in asks {
                let (now, interval) = (Moment::from_nanos(now / 2), Span::from_rate(rate));
                let wait = spread.wait(now, rate, members);
                prop_assert!(wait >= interval.scale(1.0 - EARLY) && wait <= interval.scale(1.0 + LATE), "{} of {}", wait, interval);
            }
        }

        /// A rate that makes no sense holds for ever and nothing overflows.
        #[test]
        fn bad_rates_stop(now in any::<u64>(), members in any::<u64>()) {
            for rate in [0.0, -1.0, f64::NAN] {
                let wait = Spread::default().wait(Moment::from_nanos(now), rate, members);
                prop_assert!(Moment::from_nanos(now) + wait >= Moment::from_nanos(now / 2 + u64::MAX / 2));
            }
        }
    }
}

//! What the broker itself says of a queue, where it can be asked.

use std::collections::VecDeque;

use super::{Queue, State};
use crate::broker::clock::Millis;

/// Stretches of time that are remembered.
const MOST: usize = 128;
/// Milliseconds of one: together they are longer than any word is old.
const STRETCH: Millis = 50;

/// No queue is longer, whatever a broker says: counts stay far from the bounds of a number.
const LONGEST: u64 = 1 << 40;

/// What is known of what the broker says.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Until when its word counts.
    until: Millis,
    /// When stretches of time began, with the fewest and the most messages in each, as far as could be seen.
    seen: VecDeque<(Millis, u64, u64)>,
}

/// The broker's word.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct Word {
    /// Messages that wait, and those that consumers have.
    pub(in crate::proxy) length: u64,
    /// How old that may be, in milliseconds.
    pub(in crate::proxy) age: Millis,
    /// Until when it counts.
    pub(in crate::proxy) until: Millis,
}

impl Queue {
    /// The broker says how many messages it has; `true` when the ledger must be told of the queue.
    ///
    /// It says so of some moment that is not long ago. If there were as many then as far as could be seen, all is well. Else
    /// what is too much was lost, and what is too little came without being seen.
    pub(in crate::proxy) fn hear_broker(&self, now: Millis, word: Word) -> bool {
        let mut state = self.at(now);
        state.remember_depth(now);
        state.told.until = word.until;
        // the last one before that time counts, too: it may have lasted
        let seen = &state.told.seen;
        let from = seen.partition_point(|(when, ..)| when + STRETCH + word.age < now);
        if from == 0 && seen.len() == MOST {
            return false; // older than anything that is remembered
        }
        let lately = seen.iter().skip(from.saturating_sub(1));
        let (least, most) =
            lately.fold((u64::MAX, 0), |(least, most), seen| (least.min(seen.1), most.max(seen.2)));
        let length = word.length.min(LONGEST);
        let (missing, surplus) = (length.saturating_sub(most), least.saturating_sub(length));
        // of several nodes one mends it for all, the one that the others go by
        if missing == 0 && surplus == 0 || state.keeper().is_some() {
            return false;
        }
        let lost_before = state.own.lost;
        state.base += missing as i64;
        state.lose(now, surplus);
        let lost = state.own.lost - lost_before;
        // what was seen before was off by as much: the broker may say the same again
        for (_, least, most) in &mut state.told.seen {
            (*least, *most) =
                ((*least + missing).saturating_sub(lost), (*most + missing).saturating_sub(lost));
        }
        !std::mem::replace(&mut state.listed, true)
    }
}

impl State {
    /// Whether the broker says itself what there is.
    pub(super) fn is_told(&self, now: Millis) -> bool {
        now < self.told.until
    }

    /// Remembers how many messages there are as far as can be seen, where the broker may say so itself.
    pub(super) fn note_depth(&mut self, now: Millis) {
        if self.is_told(now) {
            self.remember_depth(now);
        }
    }

    fn remember_depth(&mut self, now: Millis) {
        let depth = self.upstream.depth() + self.all_in_flight();
        match self.told.seen.back_mut() {
            Some((when, least, most)) if now < *when + STRETCH => {
                (*least, *most) = ((*least).min(depth), (*most).max(depth));
            }
            _ => {
                if self.told.seen.len() >= MOST {
                    self.told.seen.pop_front();
                }
                self.told.seen.push_back((now, depth, depth));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::*;
    use super::Word;

    fn queue() -> Queue {
        let queue = Queue::new(1, "c".into(), None, Bounds { window: 50, ..Bounds::default() }, 1);
        queue.join(1, u64::MAX);
        queue
    }

    fn word(length: u64, until: Millis) -> Word {
        Word { length, age: 1_000, until }
    }

    #[test]
    fn what_is_not_as_the_broker_says_is_mended() {
        let queue = queue();
        queue.arrive(1, 7, QoS::AtLeastOnce, 10);
        assert!(!queue.hear_broker(2, word(10, 5_000)));
        queue.hear_broker(3, word(14, 5_000));
        let seen = queue.measure(moment(4)).unwrap();
        assert_eq!((seen.waiting, seen.lost), (14, 0), "four came without being seen");
        queue.hear_broker(5, word(12, 5_000));
        let seen = queue.measure(moment(6)).unwrap();
        assert_eq!((seen.waiting, seen.lost), (12, 2), "two are gone");
    }

    /// A figure that is a second old is no mistake while the queue had that length within the second.
    #[test]
    fn an_old_figure_is_no_mistake() {
        let queue = queue();
        queue.hear_broker(1, word(0, 5_000));
        queue.arrive(100, 7, QoS::AtLeastOnce, 10);
        queue.measure(moment(100)).unwrap();
        queue.hear_broker(900, word(0, 5_000));
        assert_eq!(queue.measure(moment(901)).unwrap().waiting, 10);
        queue.hear_broker(1_200, word(0, 5_000));
        assert_eq!(queue.measure(moment(1_201)).unwrap().waiting, 0, "nothing was there for a second");
    }

    /// What waits although consumers have nothing to do is lost, unless the broker says that it is there.
    #[test]
    fn a_silent_broker_is_not_waited_for() {
        let queue = queue();
        queue.arrive(1, 7, QoS::AtLeastOnce, 10);
        queue.hear_broker(2, word(10, 2_000));
        assert_eq!(queue.measure(moment(1_900)).unwrap().waiting, 10);
        assert_eq!(queue.measure(moment(2_100)).unwrap().waiting, 10, "nobody has looked yet");
        assert_eq!(queue.measure(moment(2_400)).unwrap().waiting, 0);
    }
}

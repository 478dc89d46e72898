//! What is in a queue by the counts of all nodes before the broker, and the curves that follow it.
//!
//! Each node counts for itself: messages of its publishers, messages that its consumers have or are done with, messages
//! that it found to be lost. What is there is the sum over all nodes, and a `base` that stands for what nodes that are gone
//! have counted, and for what the broker says beside that. All nodes go by the base of the one that knows the queue for
//! longest, so that they agree however late some of them came.
//!
//! Messages come out that no node counted: they were there before any of them, or somebody publishes without a gateway. They
//! count as strangers at once, so that nothing that comes later is mistaken for them. Should a node tell of them late, they
//! are strangers no longer.

use std::collections::VecDeque;

use super::State;
use super::elsewhere::Other;
use crate::broker::clock::{Millis, moment};

/// Stretches of time in which strangers came that are remembered, and milliseconds of one: nodes are rarely silent for longer.
const MOST: usize = 64;
const STRETCH: Millis = 50;

/// No node has so many more publishers' messages than consumers' ones since it knows a queue, nor is there so much beside what
/// nodes count: sums over all nodes stay far from the bounds of a number, whatever nodes say.
pub(in crate::proxy) const MOST_THERE: i64 = 1 << 48;

/// What one node counted of a queue since it knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Counts {
    /// Messages that its publishers sent.
    pub(in crate::proxy) arrived: u64,
    /// Messages that its consumers are done with.
    pub(in crate::proxy) done: u64,
    pub(in crate::proxy) lost: u64,
    /// Messages that consumers got and that no node had counted.
    pub(in crate::proxy) strangers: u64,
}

impl Counts {
    /// Messages that came in by this node and did not leave by it. No count comes near the bounds of a number.
    pub(in crate::proxy) fn there(&self) -> i64 {
        (self.arrived + self.strangers) as i64 - (self.done + self.lost) as i64
    }
}

/// When strangers came: whoever speaks late may turn out to have sent them.
#[derive(Debug, Default)]
pub(super) struct Strangers(VecDeque<(Millis, u64)>);

impl Strangers {
    fn come(&mut self, now: Millis, count: u64) {
        match self.0.back_mut() {
            Some((when, sum)) if now < *when + STRETCH => *sum += count,
            _ => {
                if self.0.len() >= MOST {
                    self.0.pop_front();
                }
                self.0.push_back((now, count));
            }
        }
    }

    /// Those that came since then.
    fn since(&self, since: Millis) -> u64 {
        self.0.iter().filter(|(when, _)| when + STRETCH > since).map(|(_, sum)| sum).sum()
    }

    /// Takes back as many as were counted after all, of those that came since then; how many these are.
    fn take_back(&mut self, since: Millis, counted: u64) -> u64 {
        let mut left = counted;
        for (_, sum) in self.0.iter_mut().filter(|(when, _)| when + STRETCH > since) {
            let taken = left.min(*sum);
            (*sum, left) = (*sum - taken, left - taken);
        }
        counted - left
    }
}

impl State {
    /// Messages in the broker and in the hands of consumers, by all counts; negative when some were not told of yet.
    fn sum(&self) -> i64 {
        self.base + self.own.there() + self.others.iter().map(Other::there).sum::<i64>()
    }

    /// Messages that consumers at other nodes have or can get, as far as is known.
    pub(super) fn for_others(&self) -> u64 {
        if self.hearsay().is_some() {
            return u64::MAX;
        }
        (self.sum() - self.in_flight as i64).max(0) as u64
    }

    /// Consumers of this node got messages, at most so many of which are strangers: all that no node counted, nor is taken to
    /// have sent. What other nodes were done with since they last spoke is not known for sure, and proves nothing.
    pub(super) fn meet_strangers(&mut self, now: Millis, most: u64) {
        if self.hearsay().is_some() {
            return;
        }
        let counted = self.others.iter().map(Other::there_for_sure).sum::<i64>();
        let uncounted = self.all_in_flight() as i64 - self.base - self.own.there() - counted;
        let strangers = (uncounted.max(0) as u64).min(most);
        if strangers > 0 {
            self.own.strangers += strangers;
            self.strangers.come(now, strangers);
            self.others.iter_mut().for_each(Other::meet_strangers);
        }
    }

    /// A node tells of messages that came by it since then: some of them may have been taken for strangers. How many were.
    pub(super) fn know_strangers(&mut self, since: Millis, counted: u64) -> u64 {
        let known = self.strangers.take_back(since, counted);
        self.own.strangers -= known;
        known
    }

    /// What this node counted, without strangers that others may still tell of.
    pub(super) fn settled(&self) -> Counts {
        let fresh = self.strangers.since(self.oldest_word());
        Counts { strangers: self.own.strangers - fresh, ..self.own }
    }

    /// Messages in the broker and in the hands of consumers.
    fn all(&self) -> u64 {
        if let Some(waiting) = self.hearsay() {
            return waiting + self.all_in_flight();
        }
        self.sum().max(self.all_in_flight() as i64) as u64
    }

    /// Brings the curves to what the counts say, after consumers became done with so many messages.
    pub(super) fn balance(&mut self, now: Millis, done: u64, soonest: u64) {
        let (at, there) = (moment(now), self.all());
        let waiting = there.saturating_sub(self.all_in_flight());
        let (known, all) = (self.account.depth(), there + self.leaving + done);
        self.account.arrive(at, all.saturating_sub(known));
        let too_many = known.saturating_sub(all);
        self.account.take_back(at, too_many);
        let before = self.upstream.depth();
        self.upstream.arrive(at, waiting.saturating_sub(before));
        let fewer = before.saturating_sub(waiting);
        let undone = self.upstream.undo(at, fewer.min(too_many));
        let left = self.upstream.depart(at, fewer - undone);
        self.backlog = self.backlog.saturating_sub(left).min(self.upstream.depth());
        if done > 0 {
            self.account.depart(at, done, soonest);
        }
        self.note_depth(now);
    }

    /// Messages that wait in the broker are lost.
    pub(super) fn lose(&mut self, now: Millis, count: u64) {
        let lost = self.account.lose(moment(now), count.min(self.upstream.depth()));
        self.own.lost += lost;
        self.balance(now, 0, u64::MAX);
    }
}

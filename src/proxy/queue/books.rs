//! What is in a queue by the counts of all nodes before the broker, and the curves that follow it.
//!
//! Each node counts for itself: messages of its publishers, messages that its consumers have or are done with, messages
//! that it found to be lost. What is there is the sum over all nodes, and a `base` that stands for whatever no node
//! counts: what waited before any of them was there, and what clients publish without a gateway. All nodes go by the base
//! of the one that knows the queue for longest, so that they agree however late some of them came.

use super::State;
use crate::broker::clock::{Millis, moment};

/// For how long consumers must have had messages that nobody spoke of, before these count as published without a gateway.
/// A node that says nothing for so long is not believed any more either.
const UNTOLD: Millis = 3_000;

/// What one node counted of a queue since it knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Counts {
    /// Messages that its publishers sent.
    pub(in crate::proxy) arrived: u64,
    /// Messages that its consumers are done with.
    pub(in crate::proxy) done: u64,
    pub(in crate::proxy) lost: u64,
}

impl Counts {
    /// Messages that came in by this node and did not leave by it. No count comes near the bounds of a number.
    pub(super) fn there(&self) -> i64 {
        self.arrived as i64 - self.done as i64 - self.lost as i64
    }
}

/// Since when consumers have had too many messages all the time, and the least number of them.
#[derive(Debug, Default)]
pub(super) struct Untold(Option<(Millis, u64)>);

impl Untold {
    /// Takes in how many there are now; those that were there for long enough.
    fn observe(&mut self, now: Millis, count: u64) -> u64 {
        if count == 0 {
            self.0 = None;
            return 0;
        }
        let (since, least) = self.0.map_or((now, count), |(since, least)| (since, least.min(count)));
        let over = now >= since + UNTOLD;
        self.0 = if over { None } else { Some((since, least)) };
        if over { least } else { 0 }
    }
}

impl State {
    /// Messages in the broker and in the hands of consumers, by all counts; negative when some were not told of yet.
    fn sum(&self) -> i64 {
        self.base + self.own.there() + self.others.iter().map(|other| other.there()).sum::<i64>()
    }

    /// Looks for messages that came from nowhere: without other nodes nobody will tell of them, and else not after a while.
    /// Only the node whose base counts says so.
    fn find_strangers(&mut self, now: Millis) {
        let untold = (self.all_in_flight() as i64 - self.sum()).max(0) as u64;
        let strangers = if self.alone { untold } else { self.untold.observe(now, untold) };
        if self.keeper().is_none() {
            self.base += strangers as i64;
        }
    }

    /// Messages in the broker and in the hands of consumers.
    fn all(&mut self, now: Millis) -> u64 {
        if let Some(waiting) = self.hearsay() {
            return waiting + self.all_in_flight();
        }
        self.find_strangers(now);
        self.sum().max(self.all_in_flight() as i64) as u64
    }

    /// Brings the curves to what the counts say, after consumers became done with so many messages.
    pub(super) fn balance(&mut self, now: Millis, done: u64, soonest: u64) {
        let (at, there) = (moment(now), self.all(now));
        let waiting = there.saturating_sub(self.all_in_flight());
        let before = self.upstream.depth();
        self.upstream.arrive(at, waiting.saturating_sub(before));
        let left = self.upstream.depart(at, before.saturating_sub(waiting));
        self.backlog = self.backlog.saturating_sub(left);
        let (known, all) = (self.account.depth(), there + self.leaving + done);
        self.account.arrive(at, all.saturating_sub(known));
        self.account.take_back(at, known.saturating_sub(all));
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

//! What other nodes before the same broker say of a queue: what their publishers sent to it, and what their consumers took.
//!
//! Each node says how many messages it has seen so far. Between two such messages a node is taken to go on as it did, so
//! that every node knows the whole queue at any time and not only as it was.

use tidegate_plugin::Crowd;

use super::State;
use crate::broker::clock::{Millis, moment};

/// Longer than so many intervals a node that says nothing is not taken to go on.
const GOES_ON: u64 = 3;
/// Messages in one interval beyond which what a node says is not believed.
const MOST_AT_ONCE: u64 = 50_000_000;

/// What one node says of a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::proxy) struct Heard {
    /// Messages that its publishers sent so far, and those that its consumers are done with.
    pub(in crate::proxy) arrived: u64,
    pub(in crate::proxy) done: u64,
    /// Messages that its consumers have.
    pub(in crate::proxy) in_flight: u64,
    pub(in crate::proxy) consumers: u32,
    /// Messages that wait in the broker, as far as it knows.
    pub(in crate::proxy) waiting: u64,
    /// Milliseconds of its quickest acknowledgement lately.
    pub(in crate::proxy) soonest: Option<u64>,
    /// It must not hold publishers.
    pub(in crate::proxy) never: bool,
    pub(in crate::proxy) crowds: Vec<Crowd>,
}

/// When something was heard, and how long it holds.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct Hearing {
    /// The number of the node.
    pub(in crate::proxy) node: u64,
    pub(in crate::proxy) now: Millis,
    /// Milliseconds between two messages of the node.
    pub(in crate::proxy) interval: Millis,
    pub(in crate::proxy) until: Millis,
}

/// What is known of one node.
#[derive(Debug)]
pub(super) struct Other {
    node: u64,
    last: Heard,
    at: Millis,
    interval: Millis,
    until: Millis,
    arrived: Reckoned,
    done: Reckoned,
}

/// A count that is known at some moments and taken to go on as it did in between.
#[derive(Debug, Default)]
struct Reckoned {
    /// In messages a millisecond.
    rate: f64,
    last: u64,
    booked: u64,
}

impl Reckoned {
    fn from(count: u64) -> Self {
        Self { rate: 0.0, last: count, booked: count }
    }

    /// The count as of now, so many milliseconds after the last time. False when that cannot be.
    fn hear(&mut self, count: u64, millis: u64) -> bool {
        let Some(more) = count.checked_sub(self.last).filter(|more| *more <= MOST_AT_ONCE) else {
            return false;
        };
        self.rate = more as f64 / millis.max(1) as f64;
        self.last = count;
        true
    }

    /// How many more there are than were booked, so many milliseconds after it was last heard of.
    fn due(&mut self, millis: u64) -> u64 {
        let count = self.last + (self.rate * millis as f64) as u64;
        let due = count.saturating_sub(self.booked);
        self.booked += due;
        due
    }
}

/// Messages that were seen on their way out before anybody said that they came in. Old ones were published by clients that
/// use no gateway, and nobody will.
#[derive(Debug, Default)]
pub(super) struct Debt {
    now: u64,
    before: u64,
    since: Millis,
}

impl Debt {
    const MEMORY: Millis = 1_000;

    pub(super) fn add(&mut self, now: Millis, count: u64) {
        self.age(now);
        self.now += count;
    }

    /// How many of these messages are known already.
    fn pay(&mut self, now: Millis, count: u64) -> u64 {
        self.age(now);
        let old = self.before.min(count);
        let new = self.now.min(count - old);
        (self.before, self.now) = (self.before - old, self.now - new);
        old + new
    }

    fn age(&mut self, now: Millis) {
        if now >= self.since + Self::MEMORY {
            let recent = now < self.since + 2 * Self::MEMORY;
            (self.before, self.now, self.since) = (if recent { self.now } else { 0 }, 0, now);
        }
    }
}

impl State {
    /// Takes in what a node says.
    pub(super) fn hear(&mut self, hearing: Hearing, heard: Heard) {
        self.reckon(hearing.now);
        let Hearing { node, now, interval, until } = hearing;
        let known = self.others.iter_mut().find(|other| other.node == node);
        let sound = match known {
            Some(other) => {
                let millis = now - other.at;
                let sound = other.arrived.hear(heard.arrived, millis) && other.done.hear(heard.done, millis);
                let before = std::mem::replace(&mut other.last, heard);
                (other.at, other.interval, other.until) = (now, interval, until);
                let (more, less) = (other.last.in_flight, before.in_flight);
                if sound {
                    self.shift(now, more, less);
                }
                sound
            }
            None => {
                self.meet(now, &heard);
                let (arrived, done) = (Reckoned::from(heard.arrived), Reckoned::from(heard.done));
                self.others.push(Other { node, last: heard, at: now, interval, until, arrived, done });
                true
            }
        };
        if !sound {
            // it has started again: what it counted before is of no use
            self.part_from(now, |other| other.node == node);
        }
        self.reckon(now);
    }

    /// A node that is new to us may know more of the queue than we do.
    fn meet(&mut self, now: Millis, heard: &Heard) {
        self.take(now, heard.in_flight);
        let missing = heard.waiting.min(MOST_AT_ONCE).saturating_sub(self.upstream.depth());
        self.upstream.arrive(moment(now), missing);
        self.account.arrive(moment(now), missing);
    }

    /// The consumers of a node have more messages than before, or fewer: these wait again.
    fn shift(&mut self, now: Millis, more: u64, less: u64) {
        self.take(now, more.saturating_sub(less));
        self.upstream.arrive(moment(now), less.saturating_sub(more));
    }

    /// Books what the other nodes did until now, as far as is known.
    pub(super) fn reckon(&mut self, now: Millis) {
        if self.others.is_empty() {
            return;
        }
        self.part_from(now, |other| other.until <= now);
        let (mut arrived, mut done) = (0, 0);
        for other in &mut self.others {
            let millis = now.saturating_sub(other.at).min(GOES_ON * other.interval);
            arrived += other.arrived.due(millis);
            done += other.done.due(millis);
        }
        let at = moment(now);
        let new = arrived - self.debt.pay(now, arrived);
        self.upstream.arrive(at, new);
        self.account.arrive(at, new);
        self.since_idle += new;
        if done > 0 {
            self.take(now, done);
            self.account.depart(at, done, u64::MAX);
            self.moved = now;
            self.at_work(now);
        }
    }

    /// Messages leave the broker; those that nobody spoke of come in at the same time.
    pub(super) fn take(&mut self, now: Millis, count: u64) {
        let at = moment(now);
        let short = count - self.upstream.depart(at, count);
        self.account.arrive(at, short);
        if !self.others.is_empty() {
            self.debt.add(now, short);
        }
    }

    /// Nodes are gone: the broker has again what their consumers had.
    pub(super) fn part_from(&mut self, now: Millis, gone: impl Fn(&Other) -> bool) {
        let back: u64 =
            self.others.iter().filter(|other| gone(other)).map(|other| other.last.in_flight).sum();
        self.others.retain(|other| !gone(other));
        self.upstream.arrive(moment(now), back);
    }

    /// Forgets what a node said.
    pub(super) fn forget_node(&mut self, now: Millis, node: u64) {
        self.reckon(now);
        self.part_from(now, |other| other.node == node);
    }

    /// Consumers at all nodes.
    pub(super) fn all_consumers(&self) -> u32 {
        self.others.iter().fold(self.consumers, |sum, other| sum.saturating_add(other.last.consumers))
    }

    /// Messages that consumers have, at all nodes.
    pub(super) fn all_in_flight(&self) -> u64 {
        self.others.iter().fold(self.in_flight, |sum, other| sum.saturating_add(other.last.in_flight))
    }

    /// Whether some node says that it must not hold publishers.
    pub(super) fn must_not_hold(&self) -> bool {
        self.never || self.others.iter().any(|other| other.last.never)
    }

    /// Milliseconds of the quickest acknowledgement, here or elsewhere.
    pub(super) fn soonest(&self, own: Option<u64>) -> Option<u64> {
        self.others.iter().filter_map(|other| other.last.soonest).chain(own).min()
    }

    /// How much later other nodes tell of something, in milliseconds.
    pub(super) fn news_takes(&self) -> Millis {
        self.others.iter().map(|other| other.interval).max().unwrap_or(0)
    }

    /// Who feeds it at other nodes.
    pub(super) fn crowds(&self) -> Vec<Crowd> {
        self.others.iter().flat_map(|other| other.last.crowds.iter().cloned()).collect()
    }
}

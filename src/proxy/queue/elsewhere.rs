//! What other nodes before the same broker say of a queue: what their publishers sent to it, and what their consumers took.
//!
//! Each node says how many messages it has seen so far. Between two such messages a node is taken to go on as it did, so
//! that every node knows the whole queue at any time and not only as it was. Nothing that was said is counted twice: all
//! counts are sums since a node met the queue.

use tidegate_plugin::Crowd;

use super::books::{Counts, MOST_THERE};
use super::{Rank, State};
use crate::broker::clock::Millis;

/// Longer than so many intervals a node that says nothing is not taken to go on.
const GOES_ON: u64 = 8;
/// Messages in one interval beyond which what a node says is not believed.
const MOST_AT_ONCE: u64 = 50_000_000;
/// Nodes whose counts are kept though they are gone.
const MOST_GONE: usize = 64;

/// What one node says of a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::proxy) struct Heard {
    pub(in crate::proxy) counts: Counts,
    /// Messages that its consumers got, that no node has counted, and that others may still tell of.
    pub(in crate::proxy) fresh: u64,
    /// What is there beside what nodes count, and which nodes these are.
    pub(in crate::proxy) base: i64,
    pub(in crate::proxy) among: u32,
    /// Messages that its consumers have.
    pub(in crate::proxy) in_flight: u64,
    pub(in crate::proxy) consumers: u32,
    /// Messages that they all can be at work on.
    pub(in crate::proxy) window: u64,
    /// Messages that wait in the broker, as far as it knows.
    pub(in crate::proxy) waiting: u64,
    /// Milliseconds of its quickest acknowledgement lately.
    pub(in crate::proxy) soonest: Option<u64>,
    /// It must not hold publishers.
    pub(in crate::proxy) never: bool,
    pub(in crate::proxy) crowds: Vec<Crowd>,
}

/// Who said something, when it was heard, and how long it holds.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct Hearing {
    /// Since when the node knows the queue, and its number.
    pub(in crate::proxy) rank: Rank,
    /// The same of this node.
    pub(in crate::proxy) own: Rank,
    pub(in crate::proxy) now: Millis,
    /// How long it was on its way, in milliseconds.
    pub(in crate::proxy) age: Millis,
    /// When it was said, in milliseconds by the node's own clock, which may be wrong.
    pub(in crate::proxy) said: u64,
    /// Milliseconds between two messages of the node.
    pub(in crate::proxy) interval: Millis,
    pub(in crate::proxy) until: Millis,
}

impl Hearing {
    /// When it was said by the clock of this node.
    fn spoken(&self) -> Millis {
        self.now.saturating_sub(self.age)
    }
}

/// What is known of one node.
#[derive(Debug)]
pub(super) struct Other {
    rank: Rank,
    last: Heard,
    /// When that was heard, and when it was said.
    at: Millis,
    spoken: Millis,
    /// When it said that by its own clock, and the same without leaps.
    said: u64,
    time: Millis,
    interval: Millis,
    until: Millis,
    arrived: Reckoned,
    done: Reckoned,
    /// What its publishers were taken to have sent when the first stranger came since it spoke.
    at_stranger: Option<u64>,
    /// It is silent: its consumers have nothing any more, and what it counted stays.
    gone: bool,
}

impl Other {
    fn new(hearing: &Hearing, heard: Heard) -> Self {
        Self {
            rank: hearing.rank,
            at: hearing.now,
            spoken: hearing.spoken(),
            said: hearing.said,
            time: 0,
            interval: hearing.interval,
            until: hearing.until,
            arrived: Reckoned::from(heard.counts.arrived),
            done: Reckoned::from(heard.counts.done),
            last: heard,
            at_stranger: None,
            gone: false,
        }
    }

    /// Messages that came in by this node and did not leave by it.
    pub(super) fn there(&self) -> i64 {
        if self.gone {
            return self.last.counts.there();
        }
        Counts { arrived: self.arrived.booked, done: self.done.booked, ..self.last.counts }.there()
    }

    /// The same without what it was done with since it last spoke, and with what it takes for strangers so far: that is not for
    /// others to account for.
    pub(super) fn there_for_sure(&self) -> i64 {
        Counts { arrived: self.arrived(), ..self.last.counts }.there() + self.last.fresh as i64
    }

    /// Messages that its publishers sent until now, as far as is known.
    fn arrived(&self) -> u64 {
        if self.gone { self.last.counts.arrived } else { self.arrived.booked }
    }

    /// A message came that no node had counted.
    pub(super) fn meet_strangers(&mut self) {
        self.at_stranger = self.at_stranger.or(Some(self.arrived()));
    }

    /// Takes in what it says; false when that cannot be.
    fn hear(&mut self, hearing: &Hearing, heard: Heard) -> bool {
        let time = self.time + self.since_then(hearing);
        let sound = heard.counts.lost >= self.last.counts.lost
            && self.arrived.hear(heard.counts.arrived, time, hearing)
            && self.done.hear(heard.counts.done, time, hearing);
        if sound {
            (self.said, self.time, self.spoken) = (hearing.said, time, hearing.spoken());
            (self.at, self.interval, self.until) = (hearing.now, hearing.interval, hearing.until);
            self.last = heard;
            self.arrived.shown = self.arrived.shown.min(self.last.counts.arrived);
            if std::mem::take(&mut self.gone) {
                self.time = 0;
                self.arrived = Reckoned::from(self.last.counts.arrived);
                self.done = Reckoned::from(self.last.counts.done);
            }
        }
        sound
    }

    /// Milliseconds between what it says and what it said before. Its own clock knows that best: news come early, and two
    /// messages that were held up on their way come at the same time. Clocks that leap are not believed.
    fn since_then(&self, hearing: &Hearing) -> Millis {
        let heard = hearing.now.saturating_sub(self.at);
        let most = heard + GOES_ON * hearing.interval;
        let said = hearing.said.checked_sub(self.said).filter(|said| (1..=most).contains(said));
        said.unwrap_or(heard.max(hearing.interval))
    }

    fn leave(&mut self) {
        self.gone = true;
        (self.last.in_flight, self.last.consumers, self.last.window, self.last.fresh) = (0, 0, 0, 0);
        (self.last.soonest, self.last.never) = (None, false);
        self.last.crowds.clear();
    }
}

/// A count that is known at some moments and taken to go on as it did in between. It is right whenever it is heard of, and so
/// neither ahead nor behind on average.
#[derive(Debug, Default)]
struct Reckoned {
    /// As it was last heard of, and in messages a millisecond by then.
    last: u64,
    rate: f64,
    /// What it was at two earlier times: rates are taken over an interval or a little less at the least, however soon
    /// something is heard again.
    marks: [Mark; 2],
    /// As it is now. When it is heard of again, that may be fewer than before.
    booked: u64,
    /// How many fewer that is than its rate says, as there were no more.
    missed: u64,
    /// The most that was made known.
    shown: u64,
    /// How many more than that it turned out to be when it was last heard of.
    behind: u64,
}

/// A count at some time.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    count: u64,
    time: Millis,
}

impl Reckoned {
    /// A count that is first heard of at time 0.
    fn from(count: u64) -> Self {
        let marks = [Mark { count, time: 0 }; 2];
        Self { last: count, marks, booked: count, shown: count, ..Self::default() }
    }

    /// The count as of this time, by a clock without leaps. False when that cannot be.
    fn hear(&mut self, count: u64, time: Millis, hearing: &Hearing) -> bool {
        if count.checked_sub(self.last).is_none_or(|more| more > MOST_AT_ONCE) {
            return false;
        }
        self.rate = self.rate_by(count, time, hearing.interval);
        (self.last, self.booked, self.missed) = (count, count, 0);
        self.behind = (count + self.in_time(hearing.age, hearing.interval)).saturating_sub(self.shown);
        true
    }

    /// In messages a millisecond lately.
    fn rate_by(&mut self, count: u64, time: Millis, interval: u64) -> f64 {
        if time - self.marks[1].time >= interval * 3 / 4 {
            self.marks = [self.marks[1], Mark { count, time }];
        }
        let since = self.marks[0];
        (count - since.count) as f64 / (time - since.time).max(interval * 3 / 4).max(1) as f64
    }

    /// By how many more it grows in so many milliseconds.
    fn in_time(&self, millis: u64, interval: u64) -> u64 {
        (self.rate * millis.min(GOES_ON * interval) as f64) as u64
    }

    /// Goes on until so many milliseconds after that was said, by `most` at the most; by how many it did.
    fn go_on(&mut self, millis: u64, interval: u64, most: u64) -> u64 {
        let more = (self.last + self.in_time(millis, interval)).saturating_sub(self.booked + self.missed);
        // what could not happen is not made up for, until it is heard of again
        self.missed += more.saturating_sub(most);
        self.booked += more.min(most);
        more.min(most)
    }

    /// How many more there are than were made known.
    fn due(&mut self) -> u64 {
        let shown = self.booked.max(self.shown);
        shown - std::mem::replace(&mut self.shown, shown)
    }

    /// The same, so many milliseconds after it was last heard of. What it turned out to be more by then is shown little by
    /// little until the next time: it did not happen all at once.
    fn due_evenly(&mut self, millis: u64, interval: u64) -> u64 {
        let left = interval.saturating_sub(millis) as f64 / interval.max(1) as f64;
        let still = (self.behind as f64 * left) as u64;
        let shown = self.booked.saturating_sub(still).max(self.shown);
        shown - std::mem::replace(&mut self.shown, shown)
    }
}

impl State {
    /// Takes in what a node says.
    pub(super) fn hear(&mut self, hearing: &Hearing, heard: Heard) {
        self.reckon(hearing.now);
        self.rank = hearing.own;
        let number = hearing.rank.1;
        let arrived = heard.counts.arrived;
        // a node that is new here has sent all that since it met the queue
        let met = hearing.spoken().saturating_sub(hearing.said.saturating_sub(hearing.rank.0));
        let mut before = (met, 0);
        let known = self.others.iter_mut().find(|other| other.rank == hearing.rank);
        let goes_on = known.is_some_and(|other| {
            before = (other.spoken, other.at_stranger.take().unwrap_or(arrived));
            other.hear(hearing, heard.clone())
        });
        let known = self.know_strangers(before.0, arrived.saturating_sub(before.1));
        if !goes_on {
            // it has started again, or met the queue again: what it counted before stays
            self.fold(|other| other.rank.1 == number);
            self.others.push(Other::new(hearing, heard));
        }
        self.follow_base();
        self.reckon(hearing.now);
        // whom all that is known by now does not account for is a stranger still
        self.meet_strangers(hearing.now, known);
        self.balance(hearing.now, 0, u64::MAX);
    }

    /// Books what the other nodes did until now, as far as is known.
    pub(super) fn reckon(&mut self, now: Millis) {
        self.reckoned = now;
        if self.others.is_empty() {
            return;
        }
        self.part_from(now, |other| other.until <= now);
        let (mut arrived, mut done) = (0, 0);
        for other in self.others.iter_mut().filter(|other| !other.gone) {
            other.arrived.go_on(now.saturating_sub(other.spoken), other.interval, u64::MAX);
            arrived += other.arrived.due();
        }
        // consumers elsewhere are done with no more than there is
        let mut left = self.for_others();
        for other in self.others.iter_mut().filter(|other| !other.gone) {
            left -= other.done.go_on(now.saturating_sub(other.spoken), other.interval, left);
            done += other.done.due_evenly(now.saturating_sub(other.at), other.interval);
        }
        self.idle.arrived(now, arrived);
        self.balance(now, done, u64::MAX);
        if done > 0 {
            self.moved = now;
            self.at_work(now);
        }
    }

    /// Nodes are gone: the broker has again what their consumers had.
    fn part_from(&mut self, now: Millis, leaves: impl Fn(&Other) -> bool) {
        for other in self.others.iter_mut().filter(|other| !other.gone && leaves(other)) {
            other.leave();
        }
        if self.others.iter().filter(|other| other.gone).count() > MOST_GONE {
            self.fold(|other| other.gone);
        }
        self.balance(now, 0, u64::MAX);
    }

    /// Forgets nodes, but not what they counted.
    fn fold(&mut self, goes: impl Fn(&Other) -> bool) {
        let folded = self.others.iter().filter(|other| goes(other)).map(|other| other.last.counts.there());
        self.base = (self.base + folded.sum::<i64>()).clamp(-MOST_THERE, MOST_THERE);
        self.others.retain(|other| !goes(other));
    }

    /// Forgets what a node said.
    pub(super) fn forget_node(&mut self, now: Millis, number: u64) {
        self.reckon(now);
        self.part_from(now, |other| other.rank.1 == number);
    }

    /// The node that knows the queue for longer than all others that are there, this one included.
    pub(super) fn keeper(&self) -> Option<&Other> {
        self.there().min_by_key(|other| other.rank).filter(|other| other.rank < self.rank)
    }

    /// Goes by the base of the node that knows the queue for longest, which counts those who are gone in it. It means
    /// something to those who count the same nodes.
    fn follow_base(&mut self) {
        let others = self.there().fold(0, |among, other| among ^ mark(other.rank));
        let Some((rank, base, among)) =
            self.keeper().map(|keeper| (keeper.rank, keeper.last.base, keeper.last.among))
        else {
            self.base_of = self.rank;
            return;
        };
        if among == others || among == others ^ mark(self.rank) {
            (self.base, self.base_of) = (base - self.of_the_gone(), rank);
        } else if rank >= self.base_of {
            // the one before is gone: what it said goes on
            self.base_of = rank;
        }
    }

    /// What waits as far as the node knows that knows the queue for longest, while this one does not know its base.
    pub(super) fn hearsay(&self) -> Option<u64> {
        self.keeper()
            .filter(|keeper| keeper.rank < self.base_of)
            .map(|keeper| keeper.last.waiting.min(MOST_AT_ONCE))
    }

    /// What other nodes are told: the base, and which nodes are counted beside it.
    pub(super) fn told_base(&self) -> (i64, u32) {
        let among = self.there().fold(mark(self.rank), |among, other| among ^ mark(other.rank));
        ((self.base + self.of_the_gone()).clamp(-MOST_THERE, MOST_THERE), among)
    }

    fn there(&self) -> impl Iterator<Item = &Other> {
        self.others.iter().filter(|other| !other.gone)
    }

    fn of_the_gone(&self) -> i64 {
        self.others.iter().filter(|other| other.gone).map(Other::there).sum()
    }

    /// Consumers at all nodes.
    pub(super) fn all_consumers(&self) -> u32 {
        self.others.iter().fold(self.consumers, |sum, other| sum.saturating_add(other.last.consumers))
    }

    /// Messages that consumers can be at work on, at all nodes.
    pub(super) fn all_windows(&self) -> u64 {
        self.others.iter().fold(self.window, |sum, other| sum.saturating_add(other.last.window))
    }

    /// Messages that consumers have, at all nodes.
    pub(super) fn all_in_flight(&self) -> u64 {
        self.others.iter().fold(self.in_flight, |sum, other| sum.saturating_add(other.last.in_flight))
    }

    /// Whether some node says that it must not hold publishers.
    pub(super) fn must_not_hold(&self) -> bool {
        self.terms.never > 0 || self.others.iter().any(|other| other.last.never)
    }

    /// Milliseconds of the quickest acknowledgement, here or elsewhere.
    pub(super) fn soonest(&self, own: Option<u64>) -> Option<u64> {
        self.others.iter().filter_map(|other| other.last.soonest).chain(own).min()
    }

    /// When the node that has been silent for longest last spoke. Where none has spoken, all may have been silent so far.
    pub(super) fn oldest_word(&self) -> Millis {
        self.there().map(|other| other.spoken).min().unwrap_or(0)
    }

    /// How much later other nodes tell of something, in milliseconds.
    pub(super) fn news_takes(&self) -> Millis {
        self.there().map(|other| other.interval).max().unwrap_or(0)
    }

    /// Who feeds it at other nodes.
    pub(super) fn crowds(&self) -> Vec<Crowd> {
        self.others.iter().flat_map(|other| other.last.crowds.iter().cloned()).collect()
    }
}

/// A number by which sets of nodes are told apart.
fn mark(rank: Rank) -> u32 {
    let mixed = (rank.0 ^ rank.1.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests;

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
    /// Messages that it found to be lost so far.
    pub(in crate::proxy) lost: u64,
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
    /// How many it were since the time before.
    more: u64,
    booked: u64,
}

impl Reckoned {
    fn from(count: u64) -> Self {
        Self { rate: 0.0, last: count, more: 0, booked: count }
    }

    /// The count as of now, so many milliseconds after the last time, or a little less. False when that cannot be.
    fn hear(&mut self, count: u64, millis: u64) -> bool {
        let Some(more) = count.checked_sub(self.last).filter(|more| *more <= MOST_AT_ONCE) else {
            return false;
        };
        self.rate = more as f64 / millis.max(1) as f64;
        (self.last, self.more) = (count, more);
        true
    }

    /// What was booked, is not there, and will not be soon: as much as just came is about to come.
    fn surplus(&mut self) -> u64 {
        let surplus = self.booked.saturating_sub(self.last + self.more);
        self.booked -= surplus;
        surplus
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
/// use no gateway, and nobody will. Long enough for nodes that are held up, since what is forgotten too soon counts twice.
#[derive(Debug, Default)]
pub(super) struct Debt {
    now: u64,
    before: u64,
    since: Millis,
}

impl Debt {
    const MEMORY: Millis = 10_000;

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
                // two that were held up on their way come at the same time
                let millis = (now - other.at).max(interval);
                let sound = other.arrived.hear(heard.arrived, millis) && other.done.hear(heard.done, millis);
                let before = std::mem::replace(&mut other.last, heard);
                (other.at, other.interval, other.until) = (now, interval, until);
                let (more, less) = (other.last.in_flight, before.in_flight);
                let lost = other.last.lost.saturating_sub(before.lost);
                if sound {
                    let surplus = (other.arrived.surplus(), other.done.surplus());
                    self.take_back(now, surplus.0);
                    self.give_back(now, surplus.1);
                    self.shift(now, more, less);
                    self.reckon(now);
                    self.book_lost(moment(now), lost);
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
        self.at_work(now);
    }

    /// Fewer messages came than a node was taken to send.
    fn take_back(&mut self, now: Millis, count: u64) {
        let taken = self.upstream.discard(moment(now), count);
        self.account.take_back(moment(now), taken);
        self.debt.add(now, count - taken);
    }

    /// Fewer messages were done than a node was taken to do: they are still there.
    fn give_back(&mut self, now: Millis, count: u64) {
        let new = self.put(now, count);
        self.account.arrive(moment(now), new);
    }

    /// The consumers of a node have more messages than before, or fewer: these wait again.
    fn shift(&mut self, now: Millis, more: u64, less: u64) {
        self.take(now, more.saturating_sub(less));
        self.wait_again(now, less.saturating_sub(more));
    }

    /// Messages that consumers had wait again.
    pub(super) fn wait_again(&mut self, now: Millis, count: u64) {
        let known = count - self.put(now, count);
        self.account.take_back(moment(now), known);
    }

    /// Messages wait in the broker, but for those that were seen on their way out already; how many do.
    pub(super) fn put(&mut self, now: Millis, count: u64) -> u64 {
        let new = count - self.debt.pay(now, count);
        self.upstream.arrive(moment(now), new);
        new
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
        let new = self.put(now, arrived);
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
        let left = self.upstream.depart(at, count);
        self.backlog = self.backlog.saturating_sub(left);
        let short = count - left;
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
        self.wait_again(now, back);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use tidegate_plugin::QueueReport;

    use crate::broker::clock::{Millis, moment};
    use crate::ledger::Measured;
    use crate::proxy::queue::{Bounds, Heard, Hearing, Queue};
    use crate::wire::QoS;

    const BOUNDS: Bounds =
        Bounds { limit: 0, window: 50, messages: 100, delay: 1_000, progress: 10_000, nodes: true };

    fn queue() -> Queue {
        let queue = Queue::new(1, "w".into(), Some("w".into()), BOUNDS, 1);
        queue.subscribed("t", QoS::AtLeastOnce, false);
        queue
    }

    fn report(queue: &Queue, now: Millis) -> QueueReport {
        queue.measure(moment(now)).unwrap()
    }

    /// A node that speaks every 100 milliseconds and is believed for 1,000.
    fn hear(queue: &Queue, now: Millis, heard: Heard) {
        queue.hear(Hearing { node: 7, now, interval: 100, until: now + 1_000 }, heard);
    }

    fn counts(arrived: u64, done: u64, in_flight: u64) -> Heard {
        Heard { arrived, done, in_flight, consumers: 1, window: 50, ..Heard::default() }
    }

    /// What others publish and take counts as what happens here.
    #[test]
    fn all_nodes_make_up_one_queue() {
        let queue = queue();
        hear(&queue, 100, counts(0, 0, 0));
        queue.arrive(150, 9, QoS::AtLeastOnce, 30);
        hear(&queue, 200, counts(50, 0, 20));
        let seen = report(&queue, 200);
        assert_eq!((seen.waiting, seen.in_flight, seen.reading.depth), (60, 20, 80));
        hear(&queue, 300, counts(50, 10, 20));
        let seen = report(&queue, 300);
        assert_eq!((seen.waiting, seen.in_flight, seen.reading.depth, seen.consumers), (50, 20, 70, 1));
        let own = queue.own();
        assert_eq!((own.arrived, own.done, own.in_flight, own.consumers), (30, 0, 0, 0));
    }

    /// Between two messages a node goes on as it did; what it did not send after all is taken back.
    #[test]
    fn a_node_goes_on_as_it_did_until_it_says_otherwise() {
        let queue = queue();
        hear(&queue, 100, counts(0, 0, 0));
        hear(&queue, 200, counts(100, 0, 0));
        assert_eq!(report(&queue, 250).waiting, 150);
        assert_eq!(report(&queue, 900).waiting, 400, "but not for ever");
        hear(&queue, 901, counts(120, 0, 0));
        assert_eq!(report(&queue, 901).waiting, 140, "as many as came are about to come");
        hear(&queue, 1_000, counts(120, 0, 0));
        let seen = report(&queue, 1_000);
        assert_eq!((seen.waiting, seen.reading.depth, seen.dropped, seen.lost), (120, 120, 0, 0));
    }

    /// What comes out here before another node says that it went in is counted once.
    #[test]
    fn what_is_seen_before_it_is_told_counts_once() {
        let queue = queue();
        queue.join(1, u64::MAX);
        hear(&queue, 100, counts(0, 0, 0));
        (0..5).for_each(|_| {
            queue.deliver(150, QoS::AtLeastOnce, false);
        });
        assert_eq!(report(&queue, 160).reading.depth, 5);
        hear(&queue, 200, counts(5, 0, 0));
        let seen = report(&queue, 200);
        assert_eq!((seen.waiting, seen.in_flight, seen.reading.depth), (0, 5, 5));
        // after a while nobody will tell of it any more: it was published without a gateway
        queue.deliver(210, QoS::AtLeastOnce, false);
        for turn in 1..=60 {
            hear(&queue, turn * 500, counts(5, 0, 0));
        }
        hear(&queue, 30_100, counts(8, 0, 0));
        assert_eq!(report(&queue, 30_100).waiting, 3);
    }

    /// A silent node counts until its time is over; then the broker has what its consumers had.
    #[test]
    fn a_silent_node_is_forgotten() {
        let queue = queue();
        let crowds = vec![tidegate_plugin::Crowd { class: "default".into(), publishers: 3, wants: 5.0 }];
        hear(&queue, 100, Heard { crowds, waiting: 4, ..counts(100, 50, 6) });
        let seen = report(&queue, 1_099);
        assert_eq!((seen.waiting, seen.in_flight, seen.consumers), (4, 6, 1));
        assert_eq!(seen.elsewhere.unwrap().len(), 1);
        let seen = report(&queue, 1_100);
        assert_eq!((seen.waiting, seen.in_flight, seen.consumers), (10, 0, 0));
        assert_eq!(seen.elsewhere.unwrap().len(), 0);
    }

    /// Counts that fall are those of a node that has started again.
    #[test]
    fn a_node_that_starts_again_is_met_again() {
        let queue = queue();
        hear(&queue, 100, counts(1_000, 900, 0));
        hear(&queue, 200, counts(3, 0, 0));
        hear(&queue, 300, counts(3, 0, 2));
        hear(&queue, 400, counts(13, 0, 2));
        let seen = report(&queue, 400);
        assert_eq!((seen.waiting, seen.in_flight, seen.reading.depth), (10, 2, 12));
    }

    proptest! {
        /// Whatever happens at two nodes, both know what waits once they have heard of each other.
        #[test]
        fn nodes_agree(events in prop::collection::vec((0..4_u8, any::<bool>(), 1..40_u64), 1..200)) {
            let queues = [queue(), queue()];
            queues.iter().for_each(|queue| queue.join(1, u64::MAX));
            let (mut now, mut waiting, mut in_flight) = (100, 0, [0, 0]);
            let talk = |now: Millis| {
                for (from, to) in [(0, 1), (1, 0)] {
                    let until = now + 100_000;
                    queues[to].hear(Hearing { node: 7, now, interval: 100, until }, queues[from].own());
                }
                queues.iter().for_each(|queue| { queue.measure(moment(now)); });
            };
            talk(now);
            for (event, second, count) in events {
                let here = usize::from(second);
                now += 10;
                match event {
                    0 => {
                        queues[here].arrive(now, 1, QoS::AtLeastOnce, count as u32);
                        waiting += count;
                    }
                    1 => {
                        let count = count.min(waiting).min(20 - in_flight[here]);
                        (0..count).for_each(|_| { queues[here].deliver(now, QoS::AtLeastOnce, false); });
                        waiting -= count;
                        in_flight[here] += count;
                    }
                    2 => {
                        let count = count.min(in_flight[here]);
                        if count > 0 {
                            queues[here].finish(now, count, true, 1);
                        }
                        in_flight[here] -= count;
                    }
                    _ => talk(now),
                }
            }
            // at rest: what was taken to go on is taken back
            (1..4).for_each(|turn| talk(now + turn));
            for queue in &queues {
                let seen = report(queue, now + 4);
                prop_assert_eq!((seen.waiting, seen.in_flight, seen.lost), (waiting, in_flight.iter().sum(), 0));
                prop_assert_eq!(seen.reading.depth, waiting + in_flight.iter().sum::<u64>());
            }
        }
    }
}

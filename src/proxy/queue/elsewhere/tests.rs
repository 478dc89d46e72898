#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tidegate_plugin::{Crowd, QueueReport};

use crate::broker::clock::{Millis, moment};
use crate::ledger::Measured;
use crate::proxy::queue::{Bounds, Counts, Heard, Hearing, Queue, Rank};
use crate::wire::QoS;

const BOUNDS: Bounds =
    Bounds { limit: 0, window: 50, messages: 100, delay: 1_000, progress: 10_000, nodes: true };
/// This node, one that knows the queue for longer, and one that does for less long.
const OWN: Rank = (50, 1);
const OLDER: Rank = (40, 7);
const YOUNGER: Rank = (60, 7);

fn queue() -> Queue {
    let queue = Queue::new(1, "w".into(), Some("w".into()), BOUNDS, 1);
    queue.subscribed("t", QoS::AtLeastOnce, false, false);
    queue
}

fn report(queue: &Queue, now: Millis) -> QueueReport {
    queue.measure(moment(now)).unwrap()
}

/// A node that speaks every 100 milliseconds and is believed for 1,000.
fn hear_from(queue: &Queue, rank: Rank, now: Millis, heard: Heard) {
    queue.hear(Hearing { rank, own: OWN, now, age: 0, said: now, interval: 100, until: now + 1_000 }, heard);
}

fn hear(queue: &Queue, now: Millis, heard: Heard) {
    hear_from(queue, YOUNGER, now, heard);
}

fn counts(arrived: u64, done: u64, in_flight: u64) -> Heard {
    let counts = Counts { arrived, done, ..Counts::default() };
    Heard { counts, in_flight, consumers: 1, window: 50, ..Heard::default() }
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
    let own = queue.own(OWN);
    assert_eq!((own.counts.arrived, own.counts.done, own.in_flight, own.consumers), (30, 0, 0, 0));
}

/// Between two messages a node goes on as it did; what it did not send after all is taken back.
#[test]
fn a_node_goes_on_as_it_did_until_it_says_otherwise() {
    let queue = queue();
    hear(&queue, 100, counts(0, 0, 0));
    hear(&queue, 200, counts(100, 0, 0));
    assert_eq!(report(&queue, 250).waiting, 150);
    assert_eq!(report(&queue, 900).waiting, 800);
    assert_eq!(report(&queue, 1_150).waiting, 900, "but not for ever");
    hear(&queue, 1_151, counts(120, 0, 0));
    assert_eq!(report(&queue, 1_151).waiting, 120);
    hear(&queue, 1_250, counts(120, 0, 0));
    let seen = report(&queue, 1_250);
    assert_eq!((seen.waiting, seen.reading.depth, seen.dropped, seen.lost), (120, 120, 0, 0));
}

/// What is new is said early: that makes nobody slower. Nor does a clock that leaps.
#[test]
fn early_news_change_no_rate() {
    let say = |queue: &Queue, now, said, arrived| {
        let hearing =
            Hearing { rank: YOUNGER, own: OWN, now, age: 0, said, interval: 100, until: now + 1_000 };
        queue.hear(hearing, counts(arrived, 0, 0));
    };
    for leap in [0, 1 << 40] {
        let queue = queue();
        // one message a millisecond
        for (now, said) in [(100, 5_100), (200, 5_200), (300, 5_300), (320, 5_320), (340, 5_340)] {
            say(&queue, now, said, now - 100);
        }
        assert_eq!(report(&queue, 390).waiting, 290);
        // held up on their way
        say(&queue, 520, 5_440, 340);
        say(&queue, 520, 5_520, 420);
        assert_eq!(report(&queue, 570).waiting, 470);
        for now in [620, 720] {
            say(&queue, now, 5_000 + now + leap, now - 100);
            assert_eq!(report(&queue, now + 50).waiting, now - 50);
        }
    }
}

/// What consumers elsewhere turn out to be done with did not happen all at once, so that they do not look faster than they are.
#[test]
fn what_was_done_meanwhile_is_shown_little_by_little() {
    let queue = queue();
    hear(&queue, 100, counts(1_000, 0, 20));
    hear(&queue, 200, counts(1_000, 0, 20));
    report(&queue, 200);
    hear(&queue, 300, counts(1_000, 40, 20));
    let seen = report(&queue, 300);
    assert_eq!((seen.reading.depth, seen.reading.departed), (960, 0), "what is there is known at once");
    // 40 more are reckoned with until the next time
    let departed: Vec<_> = (1..=4).map(|step| report(&queue, 300 + step * 25).reading.departed).collect();
    assert_eq!(departed, [20, 20, 20, 20]);
    let seen = report(&queue, 400);
    assert_eq!((seen.reading.depth, seen.reading.arrived, seen.lost, seen.dropped), (920, 0, 0, 0));
}

/// What consumers elsewhere are done with counts whenever something comes, not only when the queue is looked at.
#[test]
fn what_is_done_elsewhere_counts_at_once() {
    let queue = queue();
    hear(&queue, 100, counts(0, 0, 0));
    queue.arrive(100, 9, QoS::AtLeastOnce, 150);
    hear(&queue, 200, counts(0, 100, 0));
    queue.arrive(250, 9, QoS::AtLeastOnce, 30);
    assert_eq!(queue.waiting(), 30, "50 more are done by now");
    queue.arrive(260, 9, QoS::AtLeastOnce, 5);
    assert_eq!(queue.waiting(), 25);
}

/// Consumers elsewhere that have nothing to do get nothing done, and do not make up for it.
#[test]
fn no_more_is_done_than_there_is() {
    let queue = queue();
    hear(&queue, 100, counts(0, 0, 0));
    queue.arrive(100, 9, QoS::AtLeastOnce, 150);
    hear(&queue, 200, counts(0, 100, 0));
    assert_eq!(report(&queue, 280).waiting, 0, "50 were there, and 80 might have been done");
    queue.arrive(280, 9, QoS::AtLeastOnce, 30);
    assert_eq!(queue.waiting(), 30);
    queue.arrive(290, 9, QoS::AtLeastOnce, 5);
    assert_eq!(queue.waiting(), 25);
}

/// What was on its way for a while tells of that moment: a node has gone on since.
#[test]
fn news_are_as_old_as_they_are() {
    let queue = queue();
    for (now, arrived) in [(140, 100), (240, 200), (340, 300)] {
        let (said, until) = (now - 40, now + 1_000);
        let hearing = Hearing { rank: YOUNGER, own: OWN, now, age: 40, said, interval: 100, until };
        queue.hear(hearing, counts(arrived, 0, 0));
    }
    assert_eq!(report(&queue, 340).waiting, 340);
    assert_eq!(report(&queue, 370).waiting, 370);
}

/// What is uneven evens out: on average a node is taken to have sent what it sent.
#[test]
fn what_is_reckoned_is_right_on_average() {
    let queue = queue();
    let (mut told, mut sum, mut truth) = (0, 0, 0);
    for turn in 0..200 {
        hear(&queue, 100 + turn * 100, counts(told, 0, 0));
        let sent = [5, 35, 20, 20, 0, 40][turn as usize % 6];
        for step in 1..=10 {
            sum += report(&queue, 100 + turn * 100 + step * 10 - 1).waiting;
            truth += told + sent * step / 10;
        }
        told += sent;
    }
    let error = (sum as f64 - truth as f64) / 2_000.0;
    assert!(error.abs() < 2.0, "off by {error} messages where 20 come between two reports");
}

/// What comes out here before another node says that it went in is counted once.
#[test]
fn what_is_seen_before_it_is_told_counts_once() {
    let queue = queue();
    queue.join(1, u64::MAX);
    (0..5).for_each(|_| {
        queue.deliver(150, QoS::AtLeastOnce, false);
    });
    assert_eq!(report(&queue, 160).reading.depth, 5);
    hear(&queue, 200, counts(300, 0, 0));
    let seen = report(&queue, 200);
    assert_eq!((seen.waiting, seen.in_flight, seen.reading.depth), (295, 5, 300), "also the first time");
}

/// What comes out and was not counted is not made up for by what comes in later.
#[test]
fn what_nobody_tells_of_was_published_without_a_gateway() {
    let queue = queue();
    queue.join(1, u64::MAX);
    hear(&queue, 100, counts(0, 0, 0));
    (0..5).for_each(|_| {
        queue.deliver(110, QoS::AtLeastOnce, false);
    });
    queue.arrive(120, 9, QoS::AtLeastOnce, 3);
    assert_eq!(report(&queue, 130).waiting, 3, "at once");
    assert_eq!(queue.own(OWN).counts.strangers, 0, "the other node may have sent them");
    hear(&queue, 200, counts(0, 0, 0));
    assert_eq!(queue.own(OWN).counts.strangers, 5, "it has not");
    let seen = report(&queue, 210);
    assert_eq!((seen.waiting, seen.in_flight), (3, 5));
}

/// A node that says nothing for a while sends more than it was taken to, and some of that comes out meanwhile.
#[test]
fn what_is_told_late_was_no_stranger() {
    let queue = queue();
    queue.join(1, u64::MAX);
    (0..3).for_each(|turn| hear(&queue, 100 + turn * 100, counts(turn * 10, turn * 10, 0)));
    (0..60).for_each(|_| {
        queue.deliver(310, QoS::AtLeastOnce, false);
    });
    // by now it would have sent 50 more
    assert_eq!(report(&queue, 800).reading.depth, 60);
    hear(&queue, 800, counts(100, 20, 0));
    let seen = report(&queue, 800);
    assert_eq!((seen.waiting, seen.in_flight), (20, 60));
    assert_eq!(queue.own(OWN).counts.strangers, 0);
}

/// What consumers of another node have is there, though nobody counted how it came.
#[test]
fn what_consumers_elsewhere_have_is_there() {
    let queue = queue();
    for turn in 0..50 {
        let mut heard = counts(0, 300 + turn * 20, 40);
        // those that it just got may still be told of by somebody else
        heard.counts.strangers = 300 + turn * 20;
        hear(&queue, 100 + turn * 100, heard);
        let seen = report(&queue, 100 + turn * 100);
        let depth = (seen.waiting, seen.in_flight, seen.reading.depth);
        assert_eq!(depth, (0, 40, 40), "consumers are busy: turn {turn}");
    }
}

/// A node that comes late goes by what those say who know the queue for longer.
#[test]
fn who_comes_late_goes_by_the_base_of_the_others() {
    let old = queue();
    old.arrive(2, 9, QoS::AtLeastOnce, 40);
    let new = queue();
    new.arrive(95, 9, QoS::AtLeastOnce, 2);
    // it counts a node that we have not heard of yet
    let told = Heard { base: -900, waiting: 30, among: 1, ..counts(1_000, 0, 0) };
    hear_from(&new, OLDER, 100, told);
    assert_eq!(report(&new, 100).waiting, 30, "hearsay");
    let told = Heard { base: 7, ..old.own(OLDER) };
    hear_from(
        &new,
        OLDER,
        200,
        Heard { counts: Counts { arrived: 1_000, done: 960, ..Counts::default() }, ..told },
    );
    assert_eq!(report(&new, 200).waiting, 49);
    // the old one is gone: what it counted stays, and others are told
    assert_eq!(report(&new, 1_300).waiting, 49);
    assert_eq!(new.own(OWN).base, 47);
    hear_from(&new, (70, 7), 1_400, counts(5, 0, 0));
    assert_eq!(report(&new, 1_400).waiting, 54, "it has started again");
}

/// A silent node counts until its time is over; then the broker has what its consumers had.
#[test]
fn a_silent_node_is_forgotten() {
    let queue = queue();
    let crowds = vec![Crowd { class: "default".into(), publishers: 3, wants: 5.0 }];
    hear(&queue, 100, Heard { crowds, ..counts(60, 50, 6) });
    let seen = report(&queue, 1_099);
    assert_eq!((seen.waiting, seen.in_flight, seen.consumers), (4, 6, 1));
    assert_eq!(seen.elsewhere.unwrap().len(), 1);
    let seen = report(&queue, 1_100);
    assert_eq!((seen.waiting, seen.in_flight, seen.consumers), (10, 0, 0));
    assert_eq!(seen.elsewhere.unwrap().len(), 0);
    hear(&queue, 2_000, counts(65, 50, 6));
    let seen = report(&queue, 2_000);
    assert_eq!((seen.waiting, seen.in_flight), (9, 6), "nothing counts twice when it is back");
}

/// Two nodes before a broker in which so much waits, and what their consumers have.
struct World {
    queues: [Queue; 2],
    ranks: [Rank; 2],
    waiting: u64,
    in_flight: [u64; 2],
    now: Millis,
}

impl World {
    fn new() -> Self {
        let queues = [queue(), queue()];
        queues.iter().for_each(|queue| queue.join(1, u64::MAX));
        Self { queues, ranks: [(100, 1), (100, 2)], waiting: 0, in_flight: [0, 0], now: 100 }
    }

    fn talk(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let until = self.now + 100_000;
            let (rank, own) = (self.ranks[from], self.ranks[to]);
            let heard = self.queues[from].own(rank);
            let hearing = Hearing { rank, own, now: self.now, age: 0, said: self.now, interval: 10, until };
            self.queues[to].hear(hearing, heard);
        }
        self.queues.iter().for_each(|queue| {
            queue.measure(moment(self.now));
        });
    }

    fn happen(&mut self, event: u8, here: usize, count: u64) {
        let (queue, now) = (&self.queues[here], self.now);
        match event {
            0 => {
                queue.arrive(now, 1, QoS::AtLeastOnce, count as u32);
                self.waiting += count;
            }
            1 => {
                let count = count.min(self.waiting).min(20 - self.in_flight[here]);
                (0..count).for_each(|_| {
                    queue.deliver(now, QoS::AtLeastOnce, false);
                });
                self.waiting -= count;
                self.in_flight[here] += count;
            }
            2 => {
                let count = count.min(self.in_flight[here]);
                if count > 0 {
                    queue.finish(now, count, true, 1);
                }
                self.in_flight[here] -= count;
            }
            // it starts again, and knows nothing; the broker has again what its consumers had
            3 if count < 5 => {
                self.talk();
                self.queues[here] = self::queue();
                self.queues[here].join(now, u64::MAX);
                self.ranks[here].0 = now;
                self.waiting += std::mem::take(&mut self.in_flight[here]);
                self.talk();
            }
            _ => self.talk(),
        }
    }
}

proptest! {
    /// Whatever happens at two nodes, both know what waits once they have heard of each other.
    #[test]
    fn nodes_agree(events in prop::collection::vec((0..5_u8, any::<bool>(), 1..40_u64), 1..200)) {
        let mut world = World::new();
        for (event, second, count) in events {
            // within less time than it takes until what does not come counts as lost
            world.now += 1;
            world.happen(event, second.into(), count);
        }
        // at rest: what was taken to go on is taken back
        for _ in 1..5 {
            world.now += 10;
            world.talk();
        }
        let in_flight = world.in_flight.iter().sum();
        for queue in &world.queues {
            let seen = report(queue, world.now + 1);
            prop_assert_eq!((seen.waiting, seen.in_flight, seen.lost), (world.waiting, in_flight, 0));
            prop_assert_eq!(seen.reading.depth, world.waiting + in_flight);
        }
    }
}

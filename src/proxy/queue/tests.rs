#![allow(clippy::unwrap_used)]

use super::*;

const BOUNDS: Bounds =
    Bounds { limit: 0, window: 50, messages: 100, delay: 1_000, progress: 10_000, nodes: false };

#[test]
fn a_queue_knows_its_filters_and_is_called_after_the_first() {
    let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
    for filter in ["$SYS/#", "billing/#", "debug/#", "billing/#"] {
        queue.subscribed(filter, QoS::AtLeastOnce, false, false);
    }
    let told = report(&queue, 1);
    assert_eq!((&*told.name, told.filters.len()), ("client/c:billing/#", 3));
    queue.unsubscribed("billing/#");
    assert_eq!(&*report(&queue, 2).name, "client/c:debug/#");
    assert_eq!(*report(&queue, 3).filters, ["$SYS/#".into(), "debug/#".into()]);
}

/// Who has nothing left is called as before, until it subscribes again: then what it had counts no longer.
#[test]
fn the_last_filter_makes_way_for_the_next() {
    let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
    queue.subscribed("billing/#", QoS::AtLeastOnce, false, false);
    queue.unsubscribed("other");
    queue.subscribed("debug/#", QoS::AtLeastOnce, false, false);
    assert_eq!(report(&queue, 1).filters.len(), 2);
    queue.unsubscribed("billing/#");
    queue.unsubscribed("debug/#");
    assert_eq!(&*report(&queue, 2).name, "client/c:debug/#");
    queue.subscribed("new/#", QoS::AtLeastOnce, false, false);
    assert_eq!(*report(&queue, 3).filters, ["new/#".into()]);
    queue.unsubscribed("new/#");
    queue.subscribed("new/#", QoS::AtLeastOnce, false, false);
    queue.subscribed("late/#", QoS::AtLeastOnce, false, false);
    assert_eq!(*report(&queue, 4).filters, ["new/#".into(), "late/#".into()]);
}

fn report(queue: &Queue, now: Millis) -> QueueReport {
    queue.measure(moment(now)).unwrap()
}

#[test]
fn what_waits_in_sockets_waits() {
    let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
    queue.join(1, u64::MAX);
    (0..60).for_each(|_| {
        queue.deliver(1, QoS::AtLeastOnce, false);
    });
    let seen = report(&queue, 301);
    assert_eq!((seen.waiting, seen.in_flight, seen.age), (10, 50, Span::from_millis(300)));
}

#[test]
fn what_does_not_come_is_lost_once_there_was_nothing_to_do() {
    let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
    queue.join(1, u64::MAX);
    assert!(queue.arrive(1, 7, QoS::AtLeastOnce, 10));
    for _ in 0..4 {
        queue.deliver(2, QoS::AtLeastOnce, false);
    }
    let seen = report(&queue, 2_000);
    assert_eq!((seen.reading.depth, seen.waiting, seen.in_flight, seen.lost), (10, 6, 4, 0), "it is at work");
    queue.finish(2_000, 4, true, 5);
    assert_eq!(report(&queue, 2_100).waiting, 6);
    queue.arrive(2_240, 7, QoS::AtLeastOnce, 1);
    let seen = report(&queue, 2_250);
    assert_eq!((seen.waiting, seen.lost), (1, 6), "the one that just came may be on its way");
    assert_eq!(report(&queue, 2_500).lost, 1, "it did not come either");
}

#[test]
fn what_is_over_the_limit_is_lost_at_once() {
    let queue = Queue::new(1, "c".into(), None, Bounds { limit: 7, window: 2, ..BOUNDS }, 1);
    queue.arrive(1, 7, QoS::AtLeastOnce, 8);
    let seen = report(&queue, 2);
    assert_eq!((seen.waiting, seen.lost, seen.reading.depth), (5, 3, 5));
    queue.arrive(3, 7, QoS::AtMostOnce, 1);
    assert_eq!(report(&queue, 4).waiting, 5, "QoS 0 is not kept for a consumer that is away");
    queue.join(5, u64::MAX);
    queue.arrive(6, 7, QoS::AtLeastOnce, 8);
    let seen = report(&queue, 7);
    assert_eq!((seen.waiting, seen.lost), (7, 6), "one that is there has some in flight");
    queue.part(8, u64::MAX, 0, 0, false);
    queue.arrive(9, 7, QoS::AtLeastOnce, 1);
    let seen = report(&queue, 10);
    assert_eq!((seen.waiting, seen.lost), (7, 1), "what was there stays");
}

#[test]
fn what_a_consumer_had_comes_again() {
    let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
    queue.join(1, u64::MAX);
    queue.arrive(1, 7, QoS::AtLeastOnce, 3);
    (0..3).for_each(|_| {
        queue.deliver(2, QoS::AtLeastOnce, false);
    });
    queue.part(3, u64::MAX, 3, 0, false);
    let seen = report(&queue, 5_000);
    assert_eq!((seen.reading.depth, seen.waiting, seen.in_flight, seen.lost), (3, 3, 0, 0));
    queue.join(5_000, u64::MAX);
    (0..3).for_each(|_| {
        queue.deliver(5_001, QoS::AtLeastOnce, false);
    });
    queue.finish(5_002, 3, true, 1);
    assert_eq!(report(&queue, 5_003).reading.depth, 0);
}

#[test]
fn what_others_published_counts_when_it_is_seen() {
    let queue = Queue::new(1, "c".into(), None, BOUNDS, 1);
    queue.join(1, u64::MAX);
    queue.deliver(2, QoS::AtLeastOnce, false);
    assert_eq!(report(&queue, 3).reading.depth, 1);
    queue.finish(4, 1, true, 2);
    assert_eq!(report(&queue, 5).reading.depth, 0);
}

//! Two lanes, whatever happens: urgent first, each in its order, ordinary dropped first, nothing lost.

#![allow(clippy::unwrap_used)]
use std::collections::VecDeque;

use proptest::prelude::*;
use tidegate_control::time::Span;

use super::tests::{in_lane, limits, take};
use super::*;

const ORDINARY: bool = false;
const URGENT: bool = true;

fn some(urgent: bool, numbers: std::ops::Range<u64>, since: Millis) -> Vec<Entry> {
    numbers.map(|number| in_lane(urgent, QoS::AtLeastOnce, since, number)).collect()
}

fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.message.ordinal).collect()
}

fn connected() -> Queue {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.connect(1);
    queue
}

#[test]
fn an_urgent_message_is_next_whatever_waits() {
    let queue = connected();
    queue.push(some(ORDINARY, 0..5, 1), 1, &limits());
    queue.push(some(URGENT, 10..12, 2), 2, &limits());
    assert_eq!(numbers(&take(&queue, 3, 3)), [10, 11, 0]);
    queue.push(some(URGENT, 12..13, 4), 4, &limits());
    assert_eq!(numbers(&take(&queue, 9, 5)), [12, 1, 2, 3, 4]);
}

#[test]
fn what_is_given_back_goes_to_the_front_of_its_lane() {
    let queue = connected();
    queue.push([some(ORDINARY, 0..4, 1), some(URGENT, 10..14, 1)].concat(), 1, &limits());
    let taken = take(&queue, 6, 2);
    assert_eq!(numbers(&taken), [10, 11, 12, 13, 0, 1]);
    queue.push_front(taken[2..].to_vec(), 3);
    assert_eq!(numbers(&take(&queue, 9, 4)), [12, 13, 0, 1, 2, 3]);
}

#[test]
fn the_age_is_that_of_the_oldest_though_others_overtake_it() {
    let queue = connected();
    queue.push(some(ORDINARY, 0..3, 1), 1, &limits());
    for now in 2..=50 {
        queue.push(some(URGENT, now..now + 1, now), now, &limits());
        take(&queue, 1, now);
        queue.finished(Finished { count: 1, soonest: 1 }, now);
    }
    let stated = queue.statement(moment(51), 1, 0).unwrap();
    assert_eq!((stated.waiting, stated.statement.reading.depth), (3, 3));
    assert_eq!((stated.age, stated.statement.reading.delay), (Span::from_millis(50), Span::from_millis(50)));
}

/// What overtakes a backlog does not stand for a part of it.
#[test]
fn a_backlog_holds_nobody_though_others_overtake_it() {
    let limits = Limits { offline_messages: 90, ..limits() };
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.push([some(ORDINARY, 0..70, 1), some(URGENT, 100..120, 1)].concat(), 1, &limits);
    queue.connect(60_000);
    for now in 60_001..60_090 {
        assert!(!queue.push(some(URGENT, now..now + 1, now), now, &limits).over, "{now}");
        take(&queue, 1, now);
    }
    assert_eq!(queue.depth(), 90);
}

#[test]
fn an_absent_consumer_keeps_the_urgent() {
    let queue = Queue::new(HoldPolicy::WhileProgress);
    queue.push(some(URGENT, 0..4, 1), 1, &limits());
    assert_eq!(queue.push(some(ORDINARY, 10..30, 1), 1, &limits()).dropped, 14);
    assert_eq!(queue.push(some(URGENT, 4..13, 1), 1, &limits()).dropped, 9);
    assert_eq!(queue.push(some(ORDINARY, 30..31, 1), 1, &limits()).dropped, 1);
    queue.connect(2);
    assert_eq!(numbers(&take(&queue, 99, 2)), (3..13).collect::<Vec<_>>());
}

#[test]
fn an_urgent_message_leaves_no_memory_behind() {
    let queue = connected();
    queue.push(some(URGENT, 0..1, 1), 1, &limits());
    assert!(queue.0.lock().entries.has_urgent_lane());
    take(&queue, 1, 1);
    assert!(!queue.0.lock().entries.has_urgent_lane());
}

#[derive(Debug, Clone)]
enum Step {
    Push(bool, u8),
    /// Takes so many, as far as this window goes.
    Take(usize, usize),
    /// A member of a group gives back the last ones that it took.
    GiveBack(usize),
    Connect,
    Disconnect,
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (any::<bool>(), 0..8_u8).prop_map(|(urgent, count)| Step::Push(urgent, count)),
        4 => (0..12_usize, 0..12_usize).prop_map(|(most, window)| Step::Take(most, window)),
        2 => (0..8_usize).prop_map(Step::GiveBack),
        1 => Just(Step::Connect),
        1 => Just(Step::Disconnect),
        1 => (0..15_000_u64).prop_map(Step::Tick),
    ]
}

/// What should wait: number and moment of each message, the urgent ones in the second lane.
#[derive(Default)]
struct Model {
    lanes: [VecDeque<(u64, Millis)>; 2],
    bounded: bool,
}

impl Model {
    fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    fn take(&mut self, most: usize) -> Vec<u64> {
        let next = |lanes: &mut [VecDeque<_>; 2]| lanes[1].pop_front().or_else(|| lanes[0].pop_front());
        (0..most).map_while(|_| next(&mut self.lanes)).map(|(number, _): (u64, _)| number).collect()
    }

    fn drop_oldest(&mut self) -> u64 {
        let excess = if self.bounded { self.len().saturating_sub(limits().offline_messages) } else { 0 };
        for _ in 0..excess {
            self.lanes[0].pop_front().or_else(|| self.lanes[1].pop_front()).unwrap();
        }
        excess as u64
    }
}

proptest! {
    #[test]
    fn each_lane_is_in_order_and_urgent_ones_are_first(steps in prop::collection::vec(step(), 1..120)) {
        let queue = Queue::new(HoldPolicy::WhileProgress);
        let mut model = Model { bounded: true, ..Model::default() };
        let mut taken: Vec<Entry> = Vec::new();
        let (mut now, mut number, mut connected) = (1, 0, false);
        for step in steps {
            match step {
                Step::Push(urgent, count) => {
                    let first = number;
                    number += u64::from(count);
                    model.lanes[usize::from(urgent)].extend((first..number).map(|number| (number, now)));
                    let pushed = queue.push(some(urgent, first..number, now), now, &limits());
                    prop_assert_eq!(pushed.dropped, model.drop_oldest());
                }
                Step::Take(most, window) => {
                    let mut out = Vec::new();
                    queue.pop(&mut out, most, usize::MAX, window, now, &limits());
                    prop_assert_eq!(numbers(&out), model.take(most.min(window)));
                    model.bounded &= out.is_empty() || !connected;
                    taken.extend(out);
                }
                Step::GiveBack(count) => {
                    let back = taken.split_off(taken.len().saturating_sub(count));
                    for entry in back.iter().rev() {
                        let known = (entry.message.ordinal, entry.since);
                        model.lanes[usize::from(entry.message.urgent)].push_front(known);
                    }
                    queue.push_front(back, now);
                }
                Step::Connect => {
                    queue.connect(now);
                    (connected, model.bounded) = (true, false);
                }
                Step::Disconnect => {
                    (connected, model.bounded) = (false, true);
                    let (back, dropped) = queue.disconnect(&limits(), |_| true);
                    prop_assert_eq!((back.len(), dropped), (0, model.drop_oldest()));
                }
                Step::Tick(time) => {
                    now += time;
                    model.bounded |= queue.check_progress(now, &limits());
                }
            }
            let flow = queue.flow();
            prop_assert_eq!(queue.depth(), model.len());
            prop_assert_eq!(flow.arrived, flow.departed + flow.dropped + model.len() as u64);
            let weight = in_lane(true, QoS::AtLeastOnce, 1, 0).message.weight();
            prop_assert_eq!(queue.bytes(), weight * model.len());
            let oldest = model.lanes.iter().filter_map(|lane| lane.front()).map(|(_, since)| *since).min();
            prop_assert_eq!(queue.0.lock().entries.oldest(|_| true), oldest);
        }
        prop_assert_eq!(numbers(&take(&queue, usize::MAX, now)), model.take(usize::MAX));
    }
}

//! Instances that take messages off the queue, one at a time each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tidegate_control::random::{Random, Seeded};

/// When each instance is free again, in nanoseconds.
#[derive(Debug)]
enum Free {
    /// All messages take the same time, so who began first is free first.
    InOrder(VecDeque<u64>),
    /// Whoever is free first.
    Any(BinaryHeap<Reverse<u64>>),
}

/// The instances that consume from one queue.
#[derive(Debug)]
pub(super) struct Consumers {
    free: Free,
    /// The time that a message takes, in nanoseconds.
    service: f64,
    exponential: bool,
    /// Where random processing times come from.
    random: Seeded,
}

impl Consumers {
    /// This many instances, each processing `rate` messages a second, in equal or in random times; `steady` when the rate
    /// never changes.
    pub(super) fn new(instances: u32, rate: f64, exponential: bool, steady: bool, random: Seeded) -> Self {
        let free = if exponential || !steady {
            Free::Any((0..instances).map(|_| Reverse(0)).collect())
        } else {
            Free::InOrder((0..instances).map(|_| 0).collect())
        };
        Self { free, service: 1e9 / rate, exponential, random }
    }

    /// Instances at work.
    pub(super) fn len(&self) -> u32 {
        match &self.free {
            Free::InOrder(line) => line.len() as u32,
            Free::Any(heap) => heap.len() as u32,
        }
    }

    /// Adds an instance that is ready now.
    pub(super) fn add(&mut self, now: u64) {
        match &mut self.free {
            Free::InOrder(line) => line.insert(line.partition_point(|free| *free <= now), now),
            Free::Any(heap) => heap.push(Reverse(now)),
        }
    }

    /// Removes the instance that is free first; it finishes what it has in hand.
    pub(super) fn remove(&mut self) {
        match &mut self.free {
            Free::InOrder(line) => drop(line.pop_front()),
            Free::Any(heap) => drop(heap.pop()),
        }
    }

    /// Changes what one instance processes a second.
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.service = 1e9 / rate;
    }

    /// When the next message can be taken, if there is an instance at all.
    pub(super) fn next_free(&self) -> Option<u64> {
        match &self.free {
            Free::InOrder(line) => line.front().copied(),
            Free::Any(heap) => heap.peek().map(|Reverse(free)| *free),
        }
    }

    /// Gives a message to the instance that is free first.
    pub(super) fn take(&mut self, start: u64) {
        let factor = if self.exponential { self.random.exponential(1.0) } else { 1.0 };
        let end = start.saturating_add((self.service * factor) as u64);
        match &mut self.free {
            Free::InOrder(line) => {
                line.pop_front();
                line.push_back(end);
            }
            Free::Any(heap) => {
                heap.pop();
                heap.push(Reverse(end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    /// Messages that start before `end` when there is always one to take.
    fn started(consumers: &mut Consumers, end: u64) -> usize {
        let mut count = 0;
        while let Some(free) = consumers.next_free().filter(|free| *free < end) {
            consumers.take(free);
            count += 1;
        }
        count
    }

    #[test]
    fn instances_process_at_their_rate() {
        let second = 1_000_000_000;
        let mut equal = Consumers::new(4, 5.0, false, true, Seeded::new(1));
        assert_eq!(started(&mut equal, 10 * second), 200);
        let mut random = Consumers::new(4, 5.0, true, true, Seeded::new(1));
        let count = started(&mut random, 1000 * second);
        assert!((19_400..20_600).contains(&count), "{count}");
    }

    #[test]
    fn instances_come_and_go() {
        let second = 1_000_000_000;
        for steady in [true, false] {
            let mut consumers = Consumers::new(1, 5.0, false, steady, Seeded::new(1));
            started(&mut consumers, 10 * second);
            consumers.add(10 * second);
            assert_eq!(started(&mut consumers, 20 * second), 100);
            consumers.remove();
            assert_eq!(consumers.len(), 1);
            assert_eq!(started(&mut consumers, 30 * second), 50);
            consumers.remove();
            assert_eq!(consumers.next_free(), None);
        }
    }
}

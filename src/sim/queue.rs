//! The queue between devices and consumers.

use std::collections::VecDeque;

use tidegate_control::flow::{Flow, Reading};
use tidegate_control::time::{Moment, Span};

use super::consumers::Consumers;
use super::outcome::Sums;

/// The class of a message sits above its arrival time; scenarios are shorter than 2^56 ns.
const CLASS_SHIFT: u32 = 56;

/// Messages that wait, and who takes them.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<u64>,
    limit: usize,
    flow: Flow,
    /// Who takes messages.
    pub(super) consumers: Consumers,
}

impl Queue {
    /// An empty queue.
    pub(super) fn new(limit: usize, consumers: Consumers) -> Self {
        Self { waiting: VecDeque::new(), limit, flow: Flow::new(Moment::START), consumers }
    }

    /// Takes in a message of a class, or drops it when the queue is full.
    pub(super) fn arrive(&mut self, now: Moment, class: usize, sums: &mut Sums) {
        self.serve(now, sums);
        if self.waiting.len() >= self.limit {
            sums.dropped += 1;
            return;
        }
        self.flow.arrive(now, 1);
        self.waiting.push_back(now.as_nanos() | (class as u64) << CLASS_SHIFT);
        self.serve(now, sums);
        sums.max_depth = sums.max_depth.max(self.waiting.len() as u64);
    }

    /// Lets consumers take what they can up to now.
    pub(super) fn serve(&mut self, now: Moment, sums: &mut Sums) {
        while let Some(&message) = self.waiting.front() {
            let (arrived, class) = (message & ((1 << CLASS_SHIFT) - 1), (message >> CLASS_SHIFT) as usize);
            let Some(free) = self.consumers.next_free() else { return };
            let start = free.max(arrived);
            if start > now.as_nanos() {
                return;
            }
            self.waiting.pop_front();
            self.consumers.take(start);
            self.flow.depart(Moment::from_nanos(start), 1);
            sums.waits.add(start - arrived);
            sums.classes[class].processed += 1;
        }
    }

    /// Messages waiting.
    pub(super) fn depth(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// What happened since the last reading.
    pub(super) fn read(&mut self, now: Moment) -> Reading {
        self.flow.read(now)
    }

    /// How long what still waits has waited, all together, in seconds.
    pub(super) fn still_waited(&self, now: Moment) -> f64 {
        let waited = |message: &u64| now.since(Moment::from_nanos(message & ((1 << CLASS_SHIFT) - 1)));
        self.waiting.iter().map(waited).map(Span::as_secs_f64).sum()
    }
}

//! What is booked for one consumer queue.

use std::collections::HashMap;

use tidegate_control::flow::{Flow, Reading, Totals};
use tidegate_control::time::Moment;
use tidegate_plugin::Delays;

/// Publishers that are told apart in one turn; messages of others count, who sent them does not.
const MAX_FEEDERS: usize = 100_000;

/// The account of a queue. Whoever owns the queue keeps it under the queue's own lock.
#[derive(Debug)]
pub struct Account {
    flow: Flow,
    delays: Delays,
    feeders: HashMap<u64, u32>,
    last: Totals,
    /// Turns in a row in which nothing happened.
    quiet: u32,
}

/// What an account says of one turn.
#[derive(Debug)]
pub struct Statement {
    /// What the curves say.
    pub reading: Reading,
    /// How long messages waited that left.
    pub delays: Delays,
    /// Who fed it.
    pub feeders: Vec<(u64, u32)>,
    /// Messages thrown away on purpose.
    pub dropped: u64,
    /// Messages that went missing.
    pub lost: u64,
    /// Turns in a row in which nothing happened, this one included.
    pub quiet: u32,
}

impl Account {
    /// An account of an empty queue.
    pub fn open(now: Moment) -> Self {
        Self {
            flow: Flow::new(now),
            delays: Delays::default(),
            feeders: HashMap::new(),
            last: Totals::default(),
            quiet: 0,
        }
    }

    /// Messages entered the queue.
    pub fn arrive(&mut self, now: Moment, count: u64) {
        self.flow.arrive(now, count);
    }

    /// So many of the messages that entered came from this publisher.
    pub fn fed_by(&mut self, publisher: u64, count: u32) {
        if self.feeders.len() < MAX_FEEDERS || self.feeders.contains_key(&publisher) {
            let fed = self.feeders.entry(publisher).or_default();
            *fed = fed.saturating_add(count);
        }
    }

    /// A message that is about to leave has waited this many milliseconds.
    pub fn waited(&mut self, millis: u64) {
        self.delays.add(millis);
    }

    /// A consumer took messages.
    pub fn depart(&mut self, now: Moment, count: u64) {
        self.flow.depart(now, count);
    }

    /// Messages were thrown away on purpose.
    pub fn discard(&mut self, now: Moment, count: u64) {
        self.flow.discard(now, count);
    }

    /// What happened since the last statement.
    pub fn statement(&mut self, now: Moment) -> Statement {
        let reading = self.flow.read(now);
        let totals = self.flow.totals();
        let (dropped, lost) =
            (totals.dropped.wrapping_sub(self.last.dropped), totals.lost.wrapping_sub(self.last.lost));
        self.last = totals;
        let idle = reading.depth == 0 && reading.arrived == 0 && reading.departed == 0;
        self.quiet = if idle { self.quiet.saturating_add(1) } else { 0 };
        Statement {
            reading,
            delays: std::mem::take(&mut self.delays),
            feeders: std::mem::take(&mut self.feeders).into_iter().collect(),
            dropped,
            lost,
            quiet: self.quiet,
        }
    }
}

//! What is booked for one consumer queue.

use std::collections::HashMap;

use tidegate_control::flow::{Flow, Reading, Totals};
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::Delays;

/// Publishers that are told apart in one turn; messages of others count, who sent them does not.
const MAX_FEEDERS: usize = 100_000;

/// Turns after which what is not there is written off.
const WRITE_OFF_TURNS: u32 = 10;

/// The account of a queue. Whoever owns the queue keeps it under the queue's own lock.
#[derive(Debug)]
pub struct Account {
    flow: Flow,
    delays: Delays,
    feeders: HashMap<u64, u32>,
    last: Totals,
    /// Milliseconds of the quickest acknowledgement.
    soonest: u64,
    /// Messages that are booked and not there, at the least in so many turns in a row.
    surplus: u64,
    surplus_turns: u32,
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
    /// Milliseconds of the quickest acknowledgement.
    pub soonest: Option<u64>,
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
            soonest: u64::MAX,
            surplus: 0,
            surplus_turns: 0,
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

    /// A message that is sent to a consumer has waited this many milliseconds.
    pub fn waited(&mut self, millis: u64) {
        self.delays.add(millis);
    }

    /// Consumers are done with messages; the quickest acknowledgement took so many milliseconds.
    pub fn depart(&mut self, now: Moment, count: u64, soonest: u64) {
        self.flow.depart(now, count);
        self.soonest = self.soonest.min(soonest);
    }

    /// Messages were thrown away on purpose.
    pub fn discard(&mut self, now: Moment, count: u64) {
        self.flow.discard(now, count);
    }

    /// Messages that were said to have entered did not, the last ones first: those that enter next stand for them.
    pub fn take_back(&mut self, now: Moment, count: u64) {
        self.flow.undo(now, count);
    }

    /// Messages that are there.
    pub fn depth(&self) -> u64 {
        self.flow.depth()
    }

    /// How long the oldest message is there.
    pub fn delay(&self, now: Moment) -> Span {
        self.flow.delay(now)
    }

    /// Messages went missing; how many of them were really there.
    pub fn lose(&mut self, now: Moment, count: u64) -> u64 {
        self.flow.lose(now, count)
    }

    /// Books what is not there as dropped, once it has been missing for long: such as what a consumer had and took along
    /// when its session ended. A short difference only means that something moved while we looked.
    fn write_off(&mut self, now: Moment, there: u64) {
        let surplus = self.flow.depth().saturating_sub(there);
        self.surplus = if self.surplus_turns == 0 { surplus } else { self.surplus.min(surplus) };
        self.surplus_turns = if self.surplus == 0 { 0 } else { self.surplus_turns + 1 };
        if self.surplus_turns >= WRITE_OFF_TURNS {
            self.flow.discard(now, self.surplus);
            self.surplus_turns = 0;
        }
    }

    /// What happened since the last statement. Consumers count as busy while more messages than these are there.
    /// `there` is how many messages the queue and its consumers have as far as can be seen.
    pub fn statement(&mut self, now: Moment, consumers: u32, there: u64) -> Statement {
        self.write_off(now, there);
        self.flow.set_window(consumers.into());
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
            soonest: Some(std::mem::replace(&mut self.soonest, u64::MAX))
                .filter(|soonest| *soonest != u64::MAX),
            quiet: self.quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was booked too early is no other message when it comes.
    #[test]
    fn what_is_taken_back_did_not_arrive() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let mut account = Account::open(at(1));
        account.arrive(at(1), 10);
        assert_eq!(account.statement(at(100), 1, u64::MAX).reading.arrived, 10);
        account.take_back(at(101), 4);
        let after = account.statement(at(200), 1, u64::MAX);
        assert_eq!((after.reading.arrived, after.reading.depth, after.dropped), (0, 6, 0));
        account.arrive(at(201), 3);
        assert_eq!(account.statement(at(300), 1, u64::MAX).reading.arrived, 0);
        account.arrive(at(301), 3);
        let after = account.statement(at(400), 1, u64::MAX);
        assert_eq!((after.reading.arrived, after.reading.depth), (2, 12));
    }

    /// What a consumer took along is written off after a while; what is only on its way is not.
    #[test]
    fn what_is_not_there_is_written_off() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let mut account = Account::open(at(1));
        account.arrive(at(1), 10);
        for turn in 0..9 {
            assert_eq!(account.statement(at(100 * turn), 1, 7).reading.depth, 10);
        }
        assert_eq!(account.statement(at(900), 1, 10).reading.depth, 10, "it was there after all");
        let mut dropped = 0;
        for turn in 0..10 {
            dropped += account.statement(at(1000 + 100 * turn), 1, 6 + turn % 2).dropped;
        }
        assert_eq!(dropped, 3);
        assert_eq!(account.statement(at(3000), 1, 7).reading.depth, 7);
    }
}

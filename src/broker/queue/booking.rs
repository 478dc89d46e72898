//! What a queue books for the ledger, where queues are measured.

use tidegate_control::time::{Moment, Span};

use super::{HoldPolicy, Queue};
use crate::broker::clock::{Millis, moment};
use crate::ledger::{Account, QUIET_TURNS, Statement};

/// Messages that a consumer is done with.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// How many.
    pub count: u64,
    /// Milliseconds from sending the one that was acknowledged soonest; the greatest number when none was.
    pub soonest: Millis,
}

/// What was booked, beside what the queue knows exactly.
#[derive(Debug)]
pub struct Stated {
    /// What was booked since the last time.
    pub statement: Statement,
    /// Messages waiting; for a session those of its groups too.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub age: Span,
    /// Publishers that are held.
    pub held: u32,
    /// It must not hold any.
    pub never_holds: bool,
}

impl Queue {
    /// The consumer is done with messages that it took.
    pub fn finished(&self, done: Finished, now: Millis) {
        let mut inner = self.0.lock();
        inner.made_progress(now);
        if let Some(account) = &mut inner.account {
            account.depart(moment(now), done.count, done.soonest);
        }
    }

    /// What was booked since the last time, with so many consumers at work. `None` when there is no account, or
    /// when the account was quiet for long and is closed, unless consumers have something.
    pub fn statement(&self, now: Moment, consumers: u32, in_flight: u64) -> Option<Stated> {
        let mut inner = self.0.lock();
        let held = inner.held.as_ref().map_or(0, |held| held.len());
        let oldest = inner.entries.oldest(|entry| !entry.of_group());
        let age = oldest.map_or(Span::ZERO, |since| now.since(moment(since)));
        let waiting = inner.entries.len() as u64;
        let mut statement = inner.account.as_mut()?.statement(now, consumers, waiting + in_flight);
        // the curves take what was overtaken for newer than it is
        statement.reading.delay = statement.reading.delay.max(age);
        if statement.quiet > QUIET_TURNS && in_flight == 0 {
            inner.account = None;
            return None;
        }
        let never_holds = inner.policy == HoldPolicy::Never;
        Some(Stated { statement, waiting, age, held: held as u32, never_holds })
    }
}

/// Arrivals of one push, collected so that a run of messages of one publisher is booked in one go.
#[derive(Default)]
pub(super) struct Arrivals {
    count: u64,
    run: (u64, u32),
}

impl Arrivals {
    pub(super) fn add(&mut self, publisher: u64, account: &mut Account) {
        self.count += 1;
        if self.run.0 != publisher {
            self.end_run(account);
            self.run.0 = publisher;
        }
        self.run.1 += 1;
    }

    fn end_run(&mut self, account: &mut Account) {
        let (publisher, count) = std::mem::take(&mut self.run);
        // 0 is the broker itself, which nobody holds back
        if publisher != 0 {
            account.fed_by(publisher, count);
        }
    }

    pub(super) fn book(mut self, account: &mut Account, now: Millis) {
        self.end_run(account);
        account.arrive(moment(now), self.count);
    }
}

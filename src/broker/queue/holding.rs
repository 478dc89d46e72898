//! When a queue holds publishers, which, and when it lets them go.

use std::sync::Arc;

use super::{Inner, Limits, Queue};
use crate::broker::clock::Millis;
use crate::hold::{Gate, HeldGates, Released, Room};

/// Whom a queue over its bound may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPolicy {
    /// Its publishers, while its consumer makes progress.
    WhileProgress,
    /// Its publishers, for a few milliseconds.
    Briefly,
    /// Nobody.
    Never,
}

/// What came of holding publishers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Publishers that were not held before.
    pub count: u64,
    /// Whether nobody was held before.
    pub began: bool,
}

/// A queue that is shorter than this is never late enough to hold anybody.
const MIN_DEPTH: usize = 8;
/// A QoS 0 consumer may hold publishers if it empties a full queue within so many holds.
const FAST_HOLDS: u64 = 10;

impl Queue {
    /// Closes these publishers' gates until the queue is short again. Called after a push that was over.
    pub fn hold(
        &self,
        publishers: impl Iterator<Item = (u64, Arc<Gate>)>,
        now: Millis,
        limits: &Limits,
    ) -> Holding {
        let mut inner = self.0.lock();
        let mut holding = Holding { count: 0, began: false };
        if !inner.may_hold(now, limits) || !inner.over(now, limits) {
            return holding;
        }
        if inner.policy == HoldPolicy::Briefly {
            holding.count = inner.hold_briefly(publishers, now, limits);
            return holding;
        }
        holding.began = !inner.holds_lasting();
        let only_late = !inner.is_full(limits);
        for (publisher, gate) in publishers {
            if !(only_late && gate.publisher.is_exempt()) {
                holding.count += u64::from(inner.hold_one(publisher, gate));
            }
        }
        holding
    }

    /// Closes the gate of a publisher that is about to send to this queue, if it holds its publishers; whether it does.
    pub fn hold_newcomer(&self, publisher: u64, gate: &Arc<Gate>, now: Millis, limits: &Limits) -> bool {
        let mut inner = self.0.lock();
        if !inner.holds_lasting() || !inner.may_hold(now, limits) {
            return false;
        }
        inner.hold_one(publisher, Arc::clone(gate));
        true
    }

    /// Called now and then for a queue that holds publishers: gives others in line their turn, should those who had it
    /// have sent nothing.
    pub fn go_on(&self, now: Millis, limits: &Limits) -> Released {
        let mut inner = self.0.lock();
        inner.granted = 0;
        inner.release_if_short(now, limits, 0)
    }

    /// Called now and then for a queue that holds publishers: lets them go when the consumer makes no progress.
    /// Returns whether it just stalled.
    pub fn check_progress(&self, now: Millis, limits: &Limits) -> bool {
        let mut inner = self.0.lock();
        if let Some(held) = &mut inner.held {
            held.forget_gone();
        }
        let stuck = inner.connected && !inner.stalled && now.saturating_sub(inner.progress) > limits.progress;
        if !stuck || inner.entries.is_empty() {
            return false;
        }
        inner.stalled = true;
        let held = inner.held.take();
        drop(inner);
        Released::all(held).open();
        true
    }

    /// Whether it holds publishers now.
    pub fn holds(&self) -> bool {
        self.0.lock().held.is_some()
    }

    /// Whether publishers wait for their turn.
    pub fn holds_lasting(&self) -> bool {
        self.0.lock().holds_lasting()
    }

    /// Changes whom it may hold; who may not be held any more is let go.
    pub fn set_policy(&self, policy: HoldPolicy) {
        let mut inner = self.0.lock();
        let changed = inner.policy != policy;
        inner.policy = policy;
        let held = if changed { inner.held.take() } else { None };
        drop(inner);
        Released::all(held).open();
    }
}

impl Inner {
    pub(super) fn over(&self, now: Millis, limits: &Limits) -> bool {
        self.is_full(limits) || self.is_late(now, limits.delay, limits.delay)
    }

    /// Whether the oldest in the queue has waited for longer than `age`, or the last will wait for longer than `wait`.
    pub(super) fn is_late(&self, now: Millis, age: Millis, wait: Millis) -> bool {
        let fresh = self.entries.fresh();
        let late = |since: Millis| now.saturating_sub(since) > age;
        self.policy == HoldPolicy::WhileProgress
            && fresh > MIN_DEPTH
            && (self.entries.oldest_fresh().is_some_and(late) || fresh > self.service.takes_within(wait))
    }

    pub(super) fn may_hold(&self, now: Millis, limits: &Limits) -> bool {
        if !self.connected || self.stalled {
            return false;
        }
        match self.policy {
            HoldPolicy::WhileProgress => true,
            HoldPolicy::Never => false,
            // only a fast consumer, which may hesitate for a moment: a slow or dead one must not slow a fleet
            HoldPolicy::Briefly => {
                now.saturating_sub(self.progress) <= limits.progress
                    && self.service.may_take(limits.messages, FAST_HOLDS * limits.brief)
            }
        }
    }

    /// Over its bounds in messages or bytes, not only late.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        self.entries.len() > limits.messages || self.entries.bytes() > limits.bytes
    }

    pub(super) fn holds_lasting(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_lasting())
    }

    pub(super) fn hold_one(&mut self, publisher: u64, gate: Arc<Gate>) -> bool {
        // a publisher that is held has something to send: it counts as one that feeds the queue
        if let Some(account) = &mut self.account {
            account.fed_by(publisher, 0);
        }
        self.held.get_or_insert_default().hold(publisher, gate)
    }

    pub(super) fn hold_briefly(
        &mut self,
        publishers: impl Iterator<Item = (u64, Arc<Gate>)>,
        now: Millis,
        limits: &Limits,
    ) -> u64 {
        if self.brief_until <= now {
            self.brief_until = now + limits.brief;
        }
        let held = self.held.get_or_insert_default();
        let mut count = 0;
        for (publisher, gate) in publishers.filter(|(_, gate)| !gate.has_left()) {
            gate.hold_until(self.brief_until);
            count += u64::from(held.brief.insert(publisher, gate).is_none());
        }
        count
    }

    /// Lets publishers go if the queue is short: all of them, or those whose turn it is; `taken` messages were just taken. The
    /// exempt go as soon as it is not full.
    pub(super) fn release_if_short(&mut self, now: Millis, limits: &Limits, taken: usize) -> Released {
        if self.held.is_none() {
            return Released::default();
        }
        let (messages, bytes) = (limits.messages / 4 * 3, limits.bytes / 4 * 3);
        let room = Room {
            fresh: self.entries.fresh(),
            in_time: self.service.takes_within(limits.delay).max(MIN_DEPTH),
            full: limits.messages,
            late: self.is_late(now, limits.delay, limits.delay / 2),
            crowded: self.entries.len() > messages || self.entries.bytes() > bytes,
            over: self.over(now, limits),
            taken,
            strict: false,
        };
        let released = HeldGates::let_go(&mut self.held, &mut self.granted, &room);
        if self.held.is_none() {
            self.brief_until = 0;
        }
        released
    }
}

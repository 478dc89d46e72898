//! A consumer's queue: what waits for one session, or for one shared group.
//!
//! Its depth and the age of its head are exact. Over its bound it closes the gates of the publishers that feed it,
//! if it may: a queue that is meant to (QoS 1 or 2, or a group) while its consumer makes progress; a QoS 0 queue
//! only briefly, then its oldest messages go. Nothing is dropped without being counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use tidegate_control::time::{Moment, Span};

use super::clock::{Millis, moment};
use super::group::Group;
use super::message::Message;
use super::service::Service;
use crate::config::QueueSettings;
pub use crate::hold::{Gate, HeldGates, Released, Room};
use crate::ledger::Statement;
use crate::ledger::{Account, QUIET_TURNS};
use crate::wire::QoS;

/// A message in a queue, with what depends on the receiver.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The message.
    pub message: Arc<Message>,
    /// Subscription identifiers and group, where there are any.
    pub extra: Option<Arc<Extra>>,
    /// When it was put here.
    pub since: Millis,
    /// The QoS to deliver with.
    pub qos: QoS,
    /// The retain flag to deliver with.
    pub retain: bool,
}

/// What few entries have.
#[derive(Debug)]
pub struct Extra {
    /// Subscription identifiers that matched.
    pub identifiers: Box<[u32]>,
    /// The shared group that it came through.
    pub group: Option<Arc<Group>>,
}

impl Entry {
    /// Whether it came to a session through a shared group, in whose account it is booked.
    fn of_group(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.group.is_some())
    }
}

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

/// The bounds of queues, in the units the queue uses.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Messages before publishers are held.
    pub messages: usize,
    /// Bytes before publishers are held.
    pub bytes: usize,
    /// Age of the head before publishers are held.
    pub delay: Millis,
    /// Longest hold by a QoS 0 queue.
    pub brief: Millis,
    /// No progress for this long and the queue holds nobody.
    pub progress: Millis,
    /// Messages for a consumer that is away.
    pub offline_messages: usize,
    /// Bytes for a consumer that is away.
    pub offline_bytes: usize,
    /// Whether queues keep accounts for the ledger.
    pub measured: bool,
}

/// A queue that is shorter than this is never late enough to hold anybody.
const MIN_DEPTH: usize = 8;
/// A queue may overshoot its bound in bytes this many times before its oldest messages go. What is in flight in
/// the spine when the publishers are held always fits (see `Broker::start`).
pub const OVERSHOOT: usize = 4;

impl From<&QueueSettings> for Limits {
    fn from(settings: &QueueSettings) -> Self {
        Self {
            messages: settings.max_messages,
            bytes: settings.max_bytes,
            delay: settings.max_delay_ms,
            brief: settings.qos0_hold_ms,
            progress: settings.progress_timeout * 1000,
            offline_messages: settings.offline_messages,
            offline_bytes: settings.offline_bytes,
            measured: false,
        }
    }
}

/// Monotonic counts of a queue: arrived = departed + dropped + waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Put in; once more for each time that a member of a group gave it back.
    pub arrived: u64,
    /// Taken out to be sent.
    pub departed: u64,
    /// Thrown away on purpose.
    pub dropped: u64,
}

/// Messages that a consumer is done with.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// How many.
    pub count: u64,
    /// Milliseconds from sending the one that was acknowledged soonest; the greatest number when none was.
    pub soonest: Millis,
}

/// What a push came to.
#[derive(Debug, Default)]
pub struct Pushed {
    /// Messages dropped to stay within bounds.
    pub dropped: u64,
    /// Messages of QoS 0 for a consumer that is away.
    pub unwanted: u64,
    /// The publishers of what was pushed must be held, see [`Queue::hold`].
    pub over: bool,
    /// Wake the consumer.
    pub wake: Option<Waker>,
    /// The queue opened an account: it is to be entered into the ledger.
    pub opened: bool,
}

/// What came of holding publishers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Publishers that were not held before.
    pub count: u64,
    /// Whether nobody was held before.
    pub began: bool,
}

/// What was booked, beside what the queue knows exactly.
#[derive(Debug)]
pub struct Stated {
    /// What was booked since the last time.
    pub statement: Statement,
    /// Messages waiting; for a session those of its groups too.
    pub waiting: u64,
    /// How long the first of them has waited.
    pub age: Span,
    /// Publishers that are held.
    pub held: u32,
}

/// A queue at one moment, for people.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "read through Debug, by people")]
pub struct QueueState {
    depth: usize,
    bytes: usize,
    taken_per_second: u64,
    idle_ms: Millis,
    connected: bool,
}

/// The queue of one consumer.
#[derive(Debug)]
pub struct Queue(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    entries: VecDeque<Entry>,
    bytes: usize,
    waker: Option<Waker>,
    connected: bool,
    /// The consumer is gone for good.
    gone: bool,
    policy: HoldPolicy,
    held: Option<Box<HeldGates>>,
    /// When the consumer last took or acknowledged something while something waited.
    progress: Millis,
    /// No progress for too long: holds nobody, the rules for absent consumers apply.
    stalled: bool,
    flow: Flow,
    /// When the last brief hold ends.
    brief_until: Millis,
    service: Service,
    /// What waited when the consumer came back: old through no fault of its, so it makes nobody wait.
    backlog: usize,
    /// Messages that publishers were let go for, and that have not come yet.
    granted: usize,
    /// What is booked, where queues are measured and something happened lately.
    account: Option<Box<Account>>,
}

/// A QoS 0 consumer may hold publishers if it empties a full queue within so many holds.
const FAST_HOLDS: u64 = 10;

impl Queue {
    /// An empty queue whose consumer is away.
    pub fn new(policy: HoldPolicy) -> Self {
        Self(Mutex::new(Inner {
            entries: VecDeque::new(),
            bytes: 0,
            waker: None,
            connected: false,
            gone: false,
            policy,
            held: None,
            progress: 0,
            stalled: false,
            flow: Flow::default(),
            brief_until: 0,
            service: Service::default(),
            backlog: 0,
            granted: 0,
            account: None,
        }))
    }

    /// Appends entries. Entries of QoS 0 for a consumer that is away are dropped.
    pub fn push(&self, entries: impl IntoIterator<Item = Entry>, now: Millis, limits: &Limits) -> Pushed {
        let mut inner = self.0.lock();
        let mut pushed = Pushed::default();
        inner.begin_if_empty(now);
        let mut arrivals = Arrivals::default();
        let before = inner.entries.len();
        for entry in entries {
            inner.flow.arrived += 1;
            let unwanted = inner.gone || !inner.connected && entry.qos == QoS::AtMostOnce;
            if limits.measured && !unwanted && !entry.of_group() {
                let account = inner.account.get_or_insert_with(|| {
                    pushed.opened = true;
                    Box::new(Account::open(moment(now)))
                });
                arrivals.add(entry.message.publisher, account);
            }
            if unwanted {
                pushed.unwanted += 1;
                continue;
            }
            inner.bytes += entry.message.weight();
            inner.entries.push_back(entry);
        }
        inner.granted = inner.granted.saturating_sub(inner.entries.len() - before);
        pushed.dropped += inner.trim(limits);
        inner.flow.dropped += pushed.dropped + pushed.unwanted;
        if let Some(account) = &mut inner.account {
            arrivals.book(account, now);
            account.discard(moment(now), pushed.dropped);
        }
        pushed.over = inner.may_hold(now, limits) && inner.over(now, limits);
        pushed.wake = inner.waker.take();
        pushed
    }

    /// Puts entries back at the front, in their order.
    pub fn push_front(&self, entries: Vec<Entry>, now: Millis) -> Option<Waker> {
        let mut inner = self.0.lock();
        inner.begin_if_empty(now);
        inner.flow.arrived += entries.len() as u64;
        for entry in entries.into_iter().rev() {
            inner.bytes += entry.message.weight();
            inner.entries.push_front(entry);
        }
        inner.waker.take()
    }

    /// Takes entries out to be sent: at most `most`, about `bytes` of them, and `window` of QoS 1 or 2.
    pub fn pop(
        &self,
        out: &mut Vec<Entry>,
        most: usize,
        mut bytes: usize,
        mut window: usize,
        now: Millis,
        limits: &Limits,
    ) {
        let mut guard = self.0.lock();
        let inner = &mut *guard;
        let before = out.len();
        while out.len() - before < most && bytes > 0 {
            match inner.entries.front() {
                Some(entry) if entry.qos == QoS::AtMostOnce => {}
                Some(_) if window > 0 => window -= 1,
                _ => break,
            }
            let Some(entry) = inner.entries.pop_front() else { break };
            let weight = entry.message.weight();
            inner.bytes -= weight;
            bytes = bytes.saturating_sub(weight);
            out.push(entry);
        }
        let taken = out.len() - before;
        if taken > 0 {
            if let Some(account) = &mut inner.account {
                let own = out[before..].iter().filter(|entry| !entry.of_group());
                own.for_each(|entry| account.waited(now.saturating_sub(entry.since)));
            }
            inner.flow.departed += taken as u64;
            inner.backlog = inner.backlog.saturating_sub(taken);
            inner.made_progress(now);
            let (departed, empty) = (inner.flow.departed, inner.entries.is_empty());
            inner.service.took(now, departed, empty);
        }
        let released = inner.release_if_short(now, limits);
        inner.give_memory_back();
        drop(guard);
        released.open();
    }

    /// Remembers whom to wake when something comes; `false` when something is there already that a consumer
    /// with this much window can take.
    pub fn wait(&self, waker: &Waker, window: usize) -> bool {
        let mut inner = self.0.lock();
        if !inner.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            inner.waker = Some(waker.clone());
        }
        inner.entries.front().is_none_or(|head| head.qos != QoS::AtMostOnce && window == 0)
    }

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
        inner.release_if_short(now, limits)
    }

    /// The consumer is done with messages that it took.
    pub fn finished(&self, done: Finished, now: Millis) {
        let mut inner = self.0.lock();
        inner.made_progress(now);
        if let Some(account) = &mut inner.account {
            account.depart(moment(now), done.count, done.soonest);
        }
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

    /// The consumer connected.
    pub fn connect(&self, now: Millis) {
        let mut inner = self.0.lock();
        if !inner.connected {
            inner.backlog = inner.entries.len();
            // what waited while nobody was there says nothing of how fast it is
            let (departed, since) = (inner.flow.departed, if inner.entries.is_empty() { 0 } else { now });
            inner.service.busy(since, departed);
        }
        inner.connected = true;
        inner.stalled = false;
        inner.progress = now;
    }

    /// The consumer is away: publishers go on, QoS 0 entries go, and those that `keep` refuses are given back.
    pub fn disconnect(&self, limits: &Limits, keep: impl Fn(&Entry) -> bool) -> (Vec<Entry>, u64) {
        let mut inner = self.0.lock();
        inner.connected = false;
        inner.waker = None;
        inner.brief_until = 0;
        let held = inner.held.take();
        let mut rest = VecDeque::new();
        let mut given_back = Vec::new();
        let mut dropped = 0;
        for entry in std::mem::take(&mut inner.entries) {
            if !keep(&entry) {
                given_back.push(entry);
            } else if entry.qos == QoS::AtMostOnce {
                dropped += 1;
            } else {
                rest.push_back(entry);
            }
        }
        inner.bytes = rest.iter().map(|entry| entry.message.weight()).sum();
        inner.entries = rest;
        dropped += inner.trim(limits);
        inner.flow.dropped += dropped;
        if let Some(account) = &mut inner.account {
            account.discard(Moment::START, dropped);
        }
        inner.flow.departed += given_back.len() as u64;
        drop(inner);
        Released::all(held).open();
        (given_back, dropped)
    }

    /// The consumer is gone for good: throws everything away and lets everybody go; the number thrown away.
    ///
    /// A dispatcher that saw the consumer before may still push: that is thrown away too.
    pub fn clear(&self) -> u64 {
        let mut inner = self.0.lock();
        inner.connected = false;
        inner.gone = true;
        inner.account = None;
        let dropped = inner.entries.len() as u64;
        inner.entries = VecDeque::new();
        inner.bytes = 0;
        inner.flow.dropped += dropped;
        inner.waker = None;
        let held = inner.held.take();
        drop(inner);
        Released::all(held).open();
        dropped
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

    /// Wakes the consumer's connection, for something other than a message.
    pub fn nudge(&self) {
        let waker = self.0.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What was booked since the last time, with so many consumers at work. `None` when there is no account, or
    /// when the account was quiet for long and is closed, unless consumers have something.
    pub fn statement(&self, now: Moment, consumers: u32, in_flight: u64) -> Option<Stated> {
        let mut inner = self.0.lock();
        let held = inner.held.as_ref().map_or(0, |held| held.len());
        let head = inner.entries.iter().find(|entry| !entry.of_group());
        let age = head.map_or(Span::ZERO, |head| now.since(moment(head.since)));
        let waiting = inner.entries.len() as u64;
        let statement = inner.account.as_mut()?.statement(now, consumers, waiting + in_flight);
        if statement.quiet > QUIET_TURNS && in_flight == 0 {
            inner.account = None;
            return None;
        }
        Some(Stated { statement, waiting, age, held: held as u32 })
    }

    /// Whether a consumer is there.
    pub fn is_connected(&self) -> bool {
        self.0.lock().connected
    }

    /// Messages waiting.
    pub fn depth(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// What the log says of it.
    pub fn state(&self, now: Millis) -> QueueState {
        let inner = self.0.lock();
        QueueState {
            depth: inner.entries.len(),
            bytes: inner.bytes,
            taken_per_second: inner.service.rate_per_second(),
            idle_ms: now.saturating_sub(inner.progress),
            connected: inner.connected,
        }
    }

    /// What they weigh.
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Counts so far.
    #[cfg(test)]
    pub fn flow(&self) -> Flow {
        self.0.lock().flow
    }
}

/// Arrivals of one push, collected so that a run of messages of one publisher is booked in one go.
#[derive(Default)]
struct Arrivals {
    count: u64,
    run: (u64, u32),
}

impl Arrivals {
    fn add(&mut self, publisher: u64, account: &mut Account) {
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

    fn book(mut self, account: &mut Account, now: Millis) {
        self.end_run(account);
        account.arrive(moment(now), self.count);
    }
}

impl Inner {
    fn over(&self, now: Millis, limits: &Limits) -> bool {
        self.is_full(limits) || self.is_late(now, limits.delay, limits.delay)
    }

    /// Whether the first in the queue has waited for longer than `age`, or the last will wait for longer than `wait`.
    fn is_late(&self, now: Millis, age: Millis, wait: Millis) -> bool {
        let fresh = self.fresh();
        let late = |head: &Entry| self.backlog == 0 && now.saturating_sub(head.since) > age;
        self.policy == HoldPolicy::WhileProgress
            && fresh > MIN_DEPTH
            && (self.entries.front().is_some_and(late) || fresh > self.service.takes_within(wait))
    }

    /// What came while the consumer was there.
    fn fresh(&self) -> usize {
        self.entries.len().saturating_sub(self.backlog)
    }

    fn may_hold(&self, now: Millis, limits: &Limits) -> bool {
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

    /// From now on something waits.
    fn begin_if_empty(&mut self, now: Millis) {
        if self.entries.is_empty() {
            self.progress = now;
            self.service.busy(now, self.flow.departed);
        }
    }

    fn made_progress(&mut self, now: Millis) {
        self.progress = now;
        self.stalled = false;
    }

    /// Drops the oldest entries over the bound that applies now; how many. What a group gave stays: it is no more
    /// than the window, the group counts on it, and another member gets it when this one leaves.
    fn trim(&mut self, limits: &Limits) -> u64 {
        let (messages, bytes) = if !self.connected || self.stalled {
            (limits.offline_messages, limits.offline_bytes)
        } else {
            (usize::MAX, limits.bytes * OVERSHOOT)
        };
        let mut dropped = 0;
        let mut kept = Vec::new();
        while self.entries.len() > messages || self.bytes > bytes {
            let Some(entry) = self.entries.pop_front() else { break };
            self.bytes -= entry.message.weight();
            if entry.of_group() {
                kept.push(entry);
            } else {
                dropped += 1;
            }
        }
        self.backlog = self.backlog.saturating_sub(dropped as usize);
        for entry in kept.into_iter().rev() {
            self.bytes += entry.message.weight();
            self.entries.push_front(entry);
        }
        dropped
    }

    /// Over its bounds in messages or bytes, not only late.
    fn is_full(&self, limits: &Limits) -> bool {
        self.entries.len() > limits.messages || self.bytes > limits.bytes
    }

    fn holds_lasting(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_lasting())
    }

    fn hold_one(&mut self, publisher: u64, gate: Arc<Gate>) -> bool {
        // a publisher that is held has something to send: it counts as one that feeds the queue
        if let Some(account) = &mut self.account {
            account.fed_by(publisher, 0);
        }
        self.held.get_or_insert_default().hold(publisher, gate)
    }

    fn hold_briefly(
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

    /// Lets publishers go if the queue is short: all of them, or those whose turn it is. The exempt go as soon as it is
    /// not full.
    fn release_if_short(&mut self, now: Millis, limits: &Limits) -> Released {
        let (messages, bytes) = (limits.messages / 4 * 3, limits.bytes / 4 * 3);
        if self.held.is_none() || self.entries.len() > messages || self.bytes > bytes {
            return Released::default();
        }
        let room = Room {
            fresh: self.fresh(),
            in_time: self.service.takes_within(limits.delay).max(MIN_DEPTH),
            full: limits.messages,
            late: self.is_late(now, limits.delay, limits.delay / 2),
        };
        let released = HeldGates::let_go(&mut self.held, &mut self.granted, &room);
        if self.held.is_none() {
            self.brief_until = 0;
        }
        released
    }

    /// A burst must not leave its memory with an idle consumer.
    fn give_memory_back(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > MIN_DEPTH {
            self.entries = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests;

//! A consumer's queue: what waits for one session, or for one shared group.
//!
//! Its depth and the age of its head are exact. Over its bound it closes the gates of the publishers that feed it,
//! if it may: a queue that is meant to (QoS 1 or 2, or a group) while its consumer makes progress; a QoS 0 queue
//! only briefly, then its oldest messages go. Nothing is dropped without being counted. Urgent messages overtake others.

mod booking;
mod holding;
mod lanes;

use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use tidegate_control::time::Moment;

use self::booking::Arrivals;
pub use self::booking::{Finished, Stated};
pub use self::holding::HoldPolicy;
use self::lanes::Lanes;
use super::clock::{Millis, moment};
use super::group::Group;
use super::message::Message;
use super::service::Service;
use crate::config::QueueSettings;
use crate::hold::{HeldGates, Released};
use crate::ledger::Account;
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
            progress: settings.progress_timeout.saturating_mul(1000),
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
    entries: Lanes,
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
    /// Messages that publishers were let go for, and that have not come yet.
    granted: usize,
    /// What is booked, where queues are measured and something happened lately.
    account: Option<Box<Account>>,
}

impl Queue {
    /// An empty queue whose consumer is away.
    pub fn new(policy: HoldPolicy) -> Self {
        Self(Mutex::new(Inner {
            entries: Lanes::default(),
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
            granted: 0,
            account: None,
        }))
    }

    /// Appends entries to their lanes. Entries of QoS 0 for a consumer that is away are dropped.
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

    /// Puts entries back at the front of their lanes, in their order.
    pub fn push_front(&self, entries: Vec<Entry>, now: Millis) -> Option<Waker> {
        let mut inner = self.0.lock();
        inner.begin_if_empty(now);
        inner.flow.arrived += entries.len() as u64;
        for entry in entries.into_iter().rev() {
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
            bytes = bytes.saturating_sub(entry.message.weight());
            out.push(entry);
        }
        let taken = out.len() - before;
        if taken > 0 {
            if let Some(account) = &mut inner.account {
                let own = out[before..].iter().filter(|entry| !entry.of_group());
                own.for_each(|entry| account.waited(now.saturating_sub(entry.since)));
            }
            inner.flow.departed += taken as u64;
            inner.made_progress(now);
            let (departed, empty) = (inner.flow.departed, inner.entries.is_empty());
            inner.service.took(now, departed, empty);
        }
        let released = inner.release_if_short(now, limits, taken);
        inner.entries.give_memory_back();
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

    /// The consumer connected.
    pub fn connect(&self, now: Millis) {
        let mut inner = self.0.lock();
        if !inner.connected {
            inner.entries.consumer_is_back();
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
        let mut rest = Lanes::default();
        let mut given_back = Vec::new();
        let mut dropped = 0;
        for entry in std::mem::take(&mut inner.entries).into_entries() {
            if !keep(&entry) {
                given_back.push(entry);
            } else if entry.qos == QoS::AtMostOnce {
                dropped += 1;
            } else {
                rest.push_back(entry);
            }
        }
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
        inner.entries = Lanes::default();
        inner.flow.dropped += dropped;
        inner.waker = None;
        let held = inner.held.take();
        drop(inner);
        Released::all(held).open();
        dropped
    }

    /// Wakes the consumer's connection, for something other than a message.
    pub fn nudge(&self) {
        let waker = self.0.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
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
            bytes: inner.entries.bytes(),
            taken_per_second: inner.service.rate_per_second(),
            idle_ms: now.saturating_sub(inner.progress),
            connected: inner.connected,
        }
    }

    /// What they weigh.
    pub fn bytes(&self) -> usize {
        self.0.lock().entries.bytes()
    }

    /// How often it holds this gate.
    #[cfg(test)]
    pub fn holds_gate(&self, gate: &Arc<crate::hold::Gate>) -> usize {
        self.0.lock().held.as_ref().map_or(0, |held| held.holds(gate))
    }

    /// Counts so far.
    #[cfg(test)]
    pub fn flow(&self) -> Flow {
        self.0.lock().flow
    }
}

impl Inner {
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

    /// Drops the oldest entries over the bound that applies now; how many.
    fn trim(&mut self, limits: &Limits) -> u64 {
        let (messages, bytes) = if !self.connected || self.stalled {
            (limits.offline_messages, limits.offline_bytes)
        } else {
            (usize::MAX, limits.bytes * OVERSHOOT)
        };
        self.entries.trim(messages, bytes)
    }
}

#[cfg(test)]
mod lane_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

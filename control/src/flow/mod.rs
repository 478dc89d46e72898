//! A queue as two cumulative curves: what arrived and what left.
//!
//! Their vertical gap is the depth, their horizontal gap the delay at the head, their slopes the rates.
//! Memory is constant, and so is the time of every call, however long the queue becomes.

mod curve;

use crate::time::{Moment, Span};
use curve::Curve;

/// Counts of one queue since its start, which always conserve: arrived = departed + dropped + lost + waiting.
///
/// Counters wrap at 2^64 and the equation holds modulo 2^64. What is taken back has not arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Messages that entered the queue.
    pub arrived: u64,
    /// Messages that consumers took.
    pub departed: u64,
    /// Messages thrown away on purpose.
    pub dropped: u64,
    /// Messages that went missing.
    pub lost: u64,
}

impl Totals {
    /// Messages in the queue now.
    pub fn waiting(&self) -> u64 {
        self.arrived.wrapping_sub(self.gone())
    }

    fn gone(&self) -> u64 {
        self.departed.wrapping_add(self.dropped).wrapping_add(self.lost)
    }
}

/// What one queue did since the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Time since the last reading.
    pub elapsed: Span,
    /// Messages waiting now.
    pub depth: u64,
    /// The fewest messages that waited at any time since the last reading.
    pub least_depth: u64,
    /// How long the message at the head has waited.
    pub delay: Span,
    /// Messages that arrived.
    pub arrived: u64,
    /// Messages that departed.
    pub departed: u64,
    /// Time during which consumers had more than they could take, as far as the queue was busy when it was last read.
    ///
    /// A busy time that begins and ends between two readings says little: a message has to wait just when all
    /// consumers happen to be in the middle of one.
    pub busy_time: Span,
    /// Messages that departed during `busy_time`.
    pub busy_departed: u64,
}

impl Reading {
    /// Messages a second that arrived; zero when no time went by.
    pub fn arrival_rate(&self) -> f64 {
        per_second(self.arrived, self.elapsed)
    }

    /// Messages a second that departed, busy or not; zero when no time went by.
    pub fn departure_rate(&self) -> f64 {
        per_second(self.departed, self.elapsed)
    }

    /// Messages a second that busy consumers take; none when they always had to wait for one.
    pub fn processing_rate(&self) -> Option<f64> {
        (!self.busy_time.is_zero()).then(|| per_second(self.busy_departed, self.busy_time))
    }
}

/// The curves of one queue.
#[derive(Debug, Clone)]
pub struct Flow {
    totals: Totals,
    curve: Curve,
    now: Moment,
    /// The queue is busy while more than this many messages wait.
    busy_above: u64,
    /// From when busy time is still to be counted, while consumers are busy.
    busy_from: Option<Moment>,
    busy_time: Span,
    busy_departed: u64,
    least_depth: u64,
    last: Totals,
    last_at: Moment,
    /// Messages that readings told of and that did not arrive.
    undone: u64,
}

impl Flow {
    /// An empty queue whose departures are counted when a consumer takes a message.
    pub fn new(now: Moment) -> Self {
        Self::with_window(now, 0)
    }

    /// An empty queue whose departures are counted when a consumer acknowledges: `window` messages can be in the
    /// hands of consumers, so that only a deeper queue says that they are busy.
    pub fn with_window(now: Moment, window: u64) -> Self {
        Self {
            totals: Totals::default(),
            curve: Curve::default(),
            now,
            busy_above: window,
            busy_from: None,
            busy_time: Span::ZERO,
            busy_departed: 0,
            least_depth: 0,
            last: Totals::default(),
            last_at: now,
            undone: 0,
        }
    }

    /// Says how many messages can be in the hands of consumers from now on.
    pub fn set_window(&mut self, window: u64) {
        self.busy_above = window;
        if self.totals.waiting() <= window {
            self.busy_from = None;
        }
    }

    /// Books messages that entered the queue.
    pub fn arrive(&mut self, now: Moment, count: u64) {
        if count == 0 {
            return;
        }
        let now = self.advance(now);
        // A queue can't hold more than a counter can count.
        let count = count.min(u64::MAX - self.totals.waiting());
        let start = self.totals.arrived;
        self.totals.arrived = start.wrapping_add(count);
        self.curve.push(now, start, self.totals.arrived);
    }

    /// Takes back messages that were booked and did not arrive, the last ones first, and returns how many of them were there.
    /// Those that arrive next stand for them in readings, so that what arrived is right over time.
    pub fn undo(&mut self, now: Moment, count: u64) -> u64 {
        self.advance(now);
        let count = count.min(self.totals.waiting());
        for arrived in [&mut self.totals.arrived, &mut self.last.arrived] {
            *arrived = arrived.wrapping_sub(count);
        }
        self.undone = self.undone.saturating_add(count);
        self.curve.cut(self.totals.arrived);
        self.left();
        count
    }

    /// Books messages that consumers took, and returns how many of them were really there.
    pub fn depart(&mut self, now: Moment, count: u64) -> u64 {
        let now = self.advance(now);
        let count = count.min(self.totals.waiting());
        if count == 0 {
            return 0;
        }
        if self.busy_from.is_some() {
            self.count_busy(now);
            self.busy_departed = self.busy_departed.saturating_add(count);
        }
        self.totals.departed = self.totals.departed.wrapping_add(count);
        self.left();
        count
    }

    /// Books waiting messages that were thrown away on purpose, and returns how many were really there.
    pub fn discard(&mut self, now: Moment, count: u64) -> u64 {
        self.advance(now);
        let count = count.min(self.totals.waiting());
        self.totals.dropped = self.totals.dropped.wrapping_add(count);
        self.left();
        count
    }

    /// Books waiting messages that went missing, and returns how many were really there.
    pub fn lose(&mut self, now: Moment, count: u64) -> u64 {
        self.advance(now);
        let count = count.min(self.totals.waiting());
        self.totals.lost = self.totals.lost.wrapping_add(count);
        self.left();
        count
    }

    /// Books all that still waits as lost, for when a consumer has room to spare and nothing comes.
    pub fn found_empty(&mut self, now: Moment) -> u64 {
        self.lose(now, u64::MAX)
    }

    /// Messages waiting now.
    pub fn depth(&self) -> u64 {
        self.totals.waiting()
    }

    /// How long the message at the head has waited; zero for an empty queue.
    pub fn delay(&self, now: Moment) -> Span {
        self.curve.head(self.totals.gone()).map_or(Span::ZERO, |arrived| now.max(self.now).since(arrived))
    }

    /// All counts since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What happened since the last reading; the next one starts here.
    pub fn read(&mut self, now: Moment) -> Reading {
        let now = self.advance(now);
        self.count_busy(now);
        let arrived = self.totals.arrived.wrapping_sub(self.last.arrived);
        let undone = self.undone.min(arrived);
        // where nothing is left that was told of too early, what comes later does not stand for it
        self.undone = if self.depth() == 0 { 0 } else { self.undone - undone };
        let reading = Reading {
            elapsed: now.since(self.last_at),
            depth: self.depth(),
            least_depth: self.least_depth,
            delay: self.delay(now),
            arrived: arrived - undone,
            departed: self.totals.departed.wrapping_sub(self.last.departed),
            busy_time: core::mem::take(&mut self.busy_time),
            busy_departed: core::mem::take(&mut self.busy_departed),
        };
        self.last = self.totals;
        self.last_at = now;
        self.busy_from = (self.depth() > self.busy_above).then_some(now);
        self.least_depth = reading.depth;
        reading
    }

    /// Time never runs backwards in here, whatever the caller's clock does.
    fn advance(&mut self, now: Moment) -> Moment {
        self.now = self.now.max(now);
        self.now
    }

    /// Cleans up after messages left.
    fn left(&mut self) {
        self.curve.pop(self.totals.gone(), self.totals.waiting());
        self.least_depth = self.least_depth.min(self.totals.waiting());
        if self.totals.waiting() <= self.busy_above {
            self.busy_from = None;
        }
    }

    fn count_busy(&mut self, now: Moment) {
        if let Some(from) = self.busy_from {
            self.busy_time += now.since(from);
            self.busy_from = Some(now);
        }
    }
}

fn per_second(count: u64, time: Span) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests;

//! What waits in a queue, in two lanes: urgent messages are taken before all others.
//!
//! Whether a message is urgent depends on its publisher and its topic only. So messages of one publisher on one topic
//! are in the same lane and stay in order, which is all the order that MQTT asks for.

use std::collections::VecDeque;

use super::Entry;
use crate::broker::clock::Millis;

/// An empty queue keeps memory for no more entries than these.
const KEPT: usize = 8;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    ordinary: Lane,
    /// Boxed, and there only while it is used: most queues never have an urgent message.
    urgent: Option<Box<Lane>>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Lane {
    entries: VecDeque<Entry>,
    /// How many waited when the consumer came back: old through no fault of its, so they make nobody wait.
    backlog: usize,
}

impl Lanes {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.ordinary.entries.len() + self.urgent.as_ref().map_or(0, |lane| lane.entries.len())
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What they weigh.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many came while the consumer was there.
    pub(super) fn fresh(&self) -> usize {
        self.lanes().map(|lane| lane.entries.len().saturating_sub(lane.backlog)).sum()
    }

    /// The consumer came back: what waits now did so without it.
    pub(super) fn consumer_is_back(&mut self) {
        for lane in [Some(&mut self.ordinary), self.urgent.as_deref_mut()].into_iter().flatten() {
            lane.backlog = lane.entries.len();
        }
    }

    /// Adds one behind all others of its lane.
    pub(super) fn push_back(&mut self, entry: Entry) {
        self.bytes += entry.message.weight();
        self.lane_of(&entry).entries.push_back(entry);
    }

    /// Adds one before all others of its lane.
    pub(super) fn push_front(&mut self, entry: Entry) {
        self.bytes += entry.message.weight();
        self.lane_of(&entry).entries.push_front(entry);
    }

    /// The one that is taken next.
    pub(super) fn front(&self) -> Option<&Entry> {
        self.lanes().find_map(|lane| lane.entries.front())
    }

    /// Takes that one.
    pub(super) fn pop_front(&mut self) -> Option<Entry> {
        let urgent = self.urgent.as_deref_mut().and_then(Lane::pop_front);
        let entry = urgent.or_else(|| self.ordinary.pop_front())?;
        self.bytes -= entry.message.weight();
        Some(entry)
    }

    /// Since when the oldest one waits, of those that count.
    pub(super) fn oldest(&self, counts: impl Fn(&Entry) -> bool) -> Option<Millis> {
        let first = |lane: &Lane| lane.entries.iter().find(|entry| counts(entry)).map(|entry| entry.since);
        self.lanes().filter_map(first).min()
    }

    /// Since when the oldest one waits, but for a lane in which some waited before the consumer came back.
    pub(super) fn oldest_fresh(&self) -> Option<Millis> {
        let fresh = self.lanes().filter(|lane| lane.backlog == 0);
        fresh.filter_map(|lane| lane.entries.front()).map(|entry| entry.since).min()
    }

    /// Drops the oldest ones over these bounds, urgent ones only when no others are left; how many. What a group gave
    /// stays: it is no more than the window, the group counts on it, and another member gets it when this one leaves.
    pub(super) fn trim(&mut self, messages: usize, bytes: usize) -> u64 {
        let mut excess = Excess {
            messages: self.len().saturating_sub(messages),
            bytes: self.bytes.saturating_sub(bytes),
            dropped_bytes: 0,
        };
        let mut dropped = 0;
        for lane in [Some(&mut self.ordinary), self.urgent.as_deref_mut()].into_iter().flatten() {
            dropped += lane.trim(&mut excess);
        }
        self.bytes -= excess.dropped_bytes;
        dropped as u64
    }

    /// Takes all, each lane in its order.
    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        let urgent = self.urgent.map(|lane| lane.entries).unwrap_or_default();
        urgent.into_iter().chain(self.ordinary.entries)
    }

    /// A burst must not leave its memory with an idle consumer.
    pub(super) fn give_memory_back(&mut self) {
        if self.urgent.as_ref().is_some_and(|lane| lane.entries.is_empty()) {
            self.urgent = None;
        }
        if self.ordinary.entries.is_empty() && self.ordinary.entries.capacity() > KEPT {
            self.ordinary.entries = VecDeque::new();
        }
    }

    /// Whether there is memory for urgent ones.
    #[cfg(test)]
    pub(super) fn has_urgent_lane(&self) -> bool {
        self.urgent.is_some()
    }

    /// In the order in which they are taken from.
    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.urgent.as_deref().into_iter().chain([&self.ordinary])
    }

    fn lane_of(&mut self, entry: &Entry) -> &mut Lane {
        if entry.message.urgent { self.urgent.get_or_insert_default() } else { &mut self.ordinary }
    }
}

/// How much is too much.
struct Excess {
    messages: usize,
    bytes: usize,
    dropped_bytes: usize,
}

impl Lane {
    fn pop_front(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.backlog = self.backlog.saturating_sub(1);
        Some(entry)
    }

    /// Drops the oldest ones as long as there is too much; how many.
    fn trim(&mut self, excess: &mut Excess) -> usize {
        let mut dropped = 0;
        let mut kept = Vec::new();
        while excess.messages > 0 || excess.bytes > 0 {
            let Some(entry) = self.entries.pop_front() else { break };
            let weight = entry.message.weight();
            excess.messages = excess.messages.saturating_sub(1);
            excess.bytes = excess.bytes.saturating_sub(weight);
            if entry.of_group() {
                kept.push(entry);
            } else {
                dropped += 1;
                excess.dropped_bytes += weight;
            }
        }
        self.backlog = self.backlog.saturating_sub(dropped);
        for entry in kept.into_iter().rev() {
            self.entries.push_front(entry);
        }
        dropped
    }
}

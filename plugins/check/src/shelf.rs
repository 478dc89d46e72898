//! One part of the history, behind one lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The bounds of one shelf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) topics: usize,
    pub(crate) updates_each: usize,
    pub(crate) bytes: usize,
    pub(crate) payload: usize,
}

/// The last messages of one topic.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) head: u64,
    /// The number before its first one.
    pub(crate) start: u64,
    /// Oldest first; there may be gaps where a payload was too large.
    pub(crate) kept: VecDeque<(u64, Arc<[u8]>)>,
    /// Whether it was written to since it was last looked at as one that might go.
    used: bool,
}

/// Topics and their messages.
#[derive(Debug)]
pub(crate) struct Shelf {
    bounds: Bounds,
    lines: HashMap<Arc<str>, Line>,
    /// What is kept, in the order in which it came; some of it may be gone.
    order: VecDeque<(Arc<str>, u64)>,
    bytes: usize,
    /// All topics, the one to look at first when one must go in front.
    turns: VecDeque<Arc<str>>,
    /// New topics are numbered from after this: one that was forgotten and comes back must not count down, or consumers would
    /// take what is new for what they know.
    start: u64,
}

impl Shelf {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            lines: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            turns: VecDeque::new(),
            start: 0,
        }
    }

    /// Numbers a message and keeps it.
    pub(crate) fn write(&mut self, topic: &str, payload: &[u8]) -> u64 {
        let name = self.name(topic);
        let start = self.start;
        let fresh = || Line { head: start, start, ..Line::default() };
        let line = self.lines.entry(name.clone()).or_insert_with(fresh);
        line.used = line.head > line.start;
        line.head += 1;
        let seq = line.head;
        if payload.len() <= self.bounds.payload {
            line.kept.push_back((seq, payload.into()));
            self.bytes += payload.len();
            if line.kept.len() > self.bounds.updates_each
                && let Some((_, oldest)) = line.kept.pop_front()
            {
                self.bytes -= oldest.len();
            }
            self.order.push_back((name, seq));
        }
        self.shrink();
        seq
    }

    /// One topic.
    pub(crate) fn line(&self, topic: &str) -> Option<&Line> {
        self.lines.get(topic)
    }

    /// The names of all topics.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.lines.keys().cloned().collect()
    }

    /// Bytes of payloads.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many topics there are.
    pub(crate) fn topics(&self) -> usize {
        self.lines.len()
    }

    /// The shared name of a topic; a new one may cost another that was silent for long.
    fn name(&mut self, topic: &str) -> Arc<str> {
        if let Some((name, _)) = self.lines.get_key_value(topic) {
            return name.clone();
        }
        while self.lines.len() >= self.bounds.topics && self.forget_one() {}
        let name: Arc<str> = topic.into();
        self.turns.push_back(name.clone());
        name
    }

    /// Forgets the first topic that was not written to since it last had its turn. Whoever was, has a turn more: so one
    /// that must go is found without looking at all of them.
    fn forget_one(&mut self) -> bool {
        while let Some(name) = self.turns.pop_front() {
            if let Some(line) = self.lines.get_mut(&name)
                && std::mem::take(&mut line.used)
            {
                self.turns.push_back(name);
            } else if let Some(gone) = self.lines.remove(&name) {
                self.bytes -= gone.kept.iter().map(|(_, payload)| payload.len()).sum::<usize>();
                self.start = self.start.max(gone.head);
                return true;
            }
        }
        false
    }

    /// Lets the oldest go until the bounds hold, also for the notes about what is gone already.
    fn shrink(&mut self) {
        let notes = self.bounds.topics.saturating_mul(self.bounds.updates_each);
        while self.bytes > self.bounds.bytes || self.order.len() > notes {
            let Some((topic, seq)) = self.order.pop_front() else { return };
            let Some(line) = self.lines.get_mut(&topic) else { continue };
            if line.kept.front().is_some_and(|(oldest, _)| *oldest <= seq)
                && let Some((_, payload)) = line.kept.pop_front()
            {
                self.bytes -= payload.len();
            }
        }
    }
}

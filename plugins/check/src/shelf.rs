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

/// What a topic, or a note about one of its messages, takes beside payloads: its name, which a note may be the last to hold,
/// and about so much more.
fn cost(name: &str) -> usize {
    const ENTRY: usize = 64;
    name.len() + ENTRY
}

/// Topics and their messages.
#[derive(Debug)]
pub(crate) struct Shelf {
    bounds: Bounds,
    lines: HashMap<Arc<str>, Line>,
    /// What is kept, in the order in which it came; some of it may be gone.
    order: VecDeque<(Arc<str>, u64)>,
    /// Of payloads, of topics and of the notes in `order`, each within the same bound.
    bytes: usize,
    topic_bytes: usize,
    note_bytes: usize,
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
            topic_bytes: 0,
            note_bytes: 0,
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
            self.note_bytes += cost(&name);
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
        let room = |shelf: &Self| {
            shelf.lines.len() < shelf.bounds.topics && shelf.topic_bytes + cost(topic) <= shelf.bounds.bytes
        };
        while !room(self) && self.forget_one() {}
        let name: Arc<str> = topic.into();
        self.topic_bytes += cost(topic);
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
                self.topic_bytes -= cost(&name);
                self.start = self.start.max(gone.head);
                return true;
            }
        }
        false
    }

    /// Lets the oldest go until the bounds hold, also for the notes about what is gone already.
    fn shrink(&mut self) {
        let notes = self.bounds.topics.saturating_mul(self.bounds.updates_each);
        while self.bytes > self.bounds.bytes
            || self.note_bytes > self.bounds.bytes
            || self.order.len() > notes
        {
            let Some((topic, seq)) = self.order.pop_front() else { return };
            self.note_bytes -= cost(&topic);
            let Some(line) = self.lines.get_mut(&topic) else { continue };
            if line.kept.front().is_some_and(|(oldest, _)| *oldest <= seq)
                && let Some((_, payload)) = line.kept.pop_front()
            {
                self.bytes -= payload.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ever_new_topics_with_long_names_and_nothing_in_them_stay_within_bounds() {
        let bounds = Bounds { topics: 1_000, updates_each: 32, bytes: 100_000, payload: 100 };
        let mut shelf = Shelf::new(bounds);
        for n in 0..2_000 {
            shelf.write(&format!("{n}{}", "x".repeat(1_000)), b"");
        }
        let notes: usize = shelf.order.iter().map(|(name, _)| cost(name)).sum();
        let topics: usize = shelf.lines.keys().map(|name| cost(name)).sum();
        assert_eq!((shelf.note_bytes, shelf.topic_bytes), (notes, topics));
        assert!(notes <= 100_000 && topics <= 100_000, "{notes} {topics}");
        assert!(shelf.turns.len() <= 1_000);
    }
}

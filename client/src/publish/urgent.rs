//! Alarms: in order, bounded, kept until they are acknowledged.

use std::collections::VecDeque;

use tidegate_control::time::{Moment, Span};

use super::Message;

/// The queue of urgent messages.
///
/// One goes at a time: only so does the order hold when one is refused and the next would not be.
#[derive(Debug)]
pub(crate) struct Urgent {
    waiting: VecDeque<Message>,
    /// The bytes of all that are here, the one under way included.
    bytes: usize,
    /// How many are here, the one under way included.
    count: usize,
    under_way: bool,
    most: usize,
    most_bytes: usize,
    /// How long one is kept after it was acknowledged.
    memory: Span,
    /// Those that were acknowledged lately, oldest first, and their bytes; within the same bounds.
    remembered: VecDeque<(Moment, Message)>,
    remembered_bytes: usize,
    /// Those among them that go again, before all others.
    repeats: VecDeque<Message>,
}

impl Urgent {
    pub(crate) fn new(most: usize, most_bytes: usize, memory: Span) -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            count: 0,
            under_way: false,
            most,
            most_bytes,
            memory,
            remembered: VecDeque::new(),
            remembered_bytes: 0,
            repeats: VecDeque::new(),
        }
    }

    /// Appends a message; false when there is no room.
    pub(crate) fn push(&mut self, message: Message) -> bool {
        if self.count >= self.most || self.bytes + message.payload.len() > self.most_bytes {
            return false;
        }
        self.bytes += message.payload.len();
        self.count += 1;
        self.waiting.push_back(message);
        true
    }

    /// Whether one may go now.
    pub(crate) fn is_ready(&self) -> bool {
        let some = !self.waiting.is_empty() || !self.repeats.is_empty();
        some && !self.under_way
    }

    /// The next one, which is then under way.
    pub(crate) fn take(&mut self) -> Option<Message> {
        if self.under_way {
            return None;
        }
        let message = self.repeats.pop_front().or_else(|| self.waiting.pop_front())?;
        self.under_way = true;
        Some(message)
    }

    /// The one under way did not get there.
    pub(crate) fn put_back(&mut self, message: Message) {
        self.under_way = false;
        let to = if message.repeated { &mut self.repeats } else { &mut self.waiting };
        to.push_front(message);
    }

    /// The one under way is done.
    pub(crate) fn done(&mut self, message: &Message) {
        self.under_way = false;
        if !message.repeated {
            self.bytes -= message.payload.len().min(self.bytes);
            self.count -= 1.min(self.count);
        }
    }

    /// One was acknowledged: a broker that loses its memory soon after has perhaps not handed it on.
    pub(crate) fn remember(&mut self, message: &Message, now: Moment) {
        if self.memory.is_zero() {
            return;
        }
        self.remembered_bytes += message.payload.len();
        self.remembered.push_back((now, Message { repeated: true, ..message.clone() }));
        self.forget(now);
    }

    /// The broker was heard: it still has its memory.
    pub(crate) fn forget(&mut self, now: Moment) {
        let (most, most_bytes, memory) = (self.most, self.most_bytes, self.memory);
        while let Some((at, oldest)) = self.remembered.front()
            && (*at + memory < now || self.remembered.len() > most || self.remembered_bytes > most_bytes)
        {
            self.remembered_bytes -= oldest.payload.len();
            self.remembered.pop_front();
        }
    }

    /// The broker has lost its memory: what it acknowledged lately goes again, in order, before what waits.
    pub(crate) fn repeat(&mut self) {
        self.remembered_bytes = 0;
        let lately = std::mem::take(&mut self.remembered).into_iter().map(|(_, message)| message);
        // Those that were to go again, and did not, come after.
        let later = std::mem::take(&mut self.repeats);
        self.repeats = lately.chain(later).collect();
    }

    /// How many go again.
    pub(crate) fn repeats(&self) -> u64 {
        self.repeats.len() as u64
    }

    /// How many are not done.
    pub(crate) fn count(&self) -> u64 {
        self.count as u64
    }
}

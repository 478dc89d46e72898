//! Alarms: in order, bounded, kept until they are acknowledged.

use std::collections::VecDeque;

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
}

impl Urgent {
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, count: 0, under_way: false, most, most_bytes }
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
        !self.under_way && !self.waiting.is_empty()
    }

    /// The next one, which is then under way.
    pub(crate) fn take(&mut self) -> Option<Message> {
        if self.under_way {
            return None;
        }
        let message = self.waiting.pop_front()?;
        self.under_way = true;
        Some(message)
    }

    /// The one under way did not get there.
    pub(crate) fn put_back(&mut self, message: Message) {
        self.under_way = false;
        self.waiting.push_front(message);
    }

    /// The one under way is done.
    pub(crate) fn done(&mut self, message: &Message) {
        self.under_way = false;
        self.bytes -= message.payload.len().min(self.bytes);
        self.count -= 1.min(self.count);
    }

    /// How many are not done.
    pub(crate) fn count(&self) -> u64 {
        self.count as u64
    }
}

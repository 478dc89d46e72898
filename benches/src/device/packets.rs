//! Packets that are made once and then only stamped, and the window of those that wait for an answer.

use crate::check::{HEADER, Stamp};
use crate::codec::{self, Version, kind};
use crate::scenario::Class;

/// A PUBLISH of one flow, ready but for its numbers.
pub(super) struct Template {
    packet: Vec<u8>,
    /// Where the packet identifier stands; QoS 0 has none.
    id_at: Option<usize>,
    payload_at: usize,
    next: u64,
}

impl Template {
    pub(super) fn new(class: &Class, version: Version, topic: &str) -> Self {
        let mut body = Vec::new();
        codec::put_text(topic, &mut body);
        let id_at = body.len();
        if class.qos > 0 {
            body.extend([0, 0]);
        }
        if version == Version::V5 {
            body.push(0);
        }
        let payload_at = body.len();
        // Bytes that no broker is likely to compress or to take for text.
        body.extend((0..class.payload.max(HEADER)).map(|at| (at % 251) as u8));
        let mut packet = Vec::new();
        codec::put_packet(kind::PUBLISH << 4 | class.qos << 1 | u8::from(class.retain), &body, &mut packet);
        let head = packet.len() - body.len();
        Self {
            packet,
            id_at: (class.qos > 0).then_some(head + id_at),
            payload_at: head + payload_at,
            next: 0,
        }
    }

    /// The number of the next message.
    pub(super) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Writes a message.
    pub(super) fn put(&self, stamp: &Stamp, id: u16, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend_from_slice(&self.packet);
        let packet = &mut to[start..];
        if let Some(at) = self.id_at {
            packet[at..at + 2].copy_from_slice(&id.to_be_bytes());
        }
        stamp.write(&mut packet[self.payload_at..]);
    }

    /// Writes a message that was sent before.
    pub(super) fn put_again(&self, stamp: &Stamp, id: u16, to: &mut Vec<u8>) {
        let start = to.len();
        self.put(stamp, id, to);
        to[start] |= codec::AGAIN;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Waits for PUBACK or PUBREC.
    Sent,
    /// QoS 2: waits for PUBCOMP.
    Released,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    turn: u32,
    number: u64,
    intended: u64,
}

/// Messages that wait for an answer. The packet identifier is the place in the window.
pub(super) struct Window {
    slots: Vec<Slot>,
    free: Vec<u16>,
    size: usize,
    limit: usize,
    was_full: bool,
    /// A buffer for PUBREL, kept for its memory.
    pub(super) releases: Vec<u8>,
}

/// What an answer of the broker meant.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The message that the broker has taken.
    pub(super) accepted: Option<(u32, u64)>,
    /// The message that the broker has refused.
    pub(super) refused: Option<(u32, u64)>,
    /// There is room for another one.
    pub(super) freed: bool,
    /// PUBREL is to be sent.
    pub(super) release: bool,
}

impl Window {
    pub(super) fn new(size: u16) -> Self {
        let size = usize::from(size);
        Self { slots: Vec::new(), free: Vec::new(), size, limit: size, was_full: false, releases: Vec::new() }
    }

    /// Never more than the broker allows.
    pub(super) fn limit(&mut self, maximum: u16) {
        self.limit = self.size.min(maximum.into());
    }

    pub(super) fn in_flight(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    pub(super) fn has_room(&self) -> bool {
        self.slots.len() - self.free.len() < self.limit
    }

    /// Whether it was full since this was last asked.
    pub(super) fn was_full(&mut self) -> bool {
        std::mem::take(&mut self.was_full)
    }

    /// Books a message and gives its packet identifier; only when there is room.
    pub(super) fn take(&mut self, turn: u32, number: u64, intended: u64) -> u16 {
        let slot = Slot { state: State::Sent, turn, number, intended };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[usize::from(index)] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u16
            }
        };
        self.was_full |= !self.has_room();
        index + 1
    }

    /// Takes in PUBACK, PUBREC or PUBCOMP; one that nobody waits for means nothing.
    pub(super) fn answer(&mut self, kind: u8, id: u16, reason: u8) -> Answer {
        let index = usize::from(id).wrapping_sub(1);
        let Some(slot) = self.slots.get_mut(index) else { return Answer::default() };
        let message = Some((slot.turn, slot.number));
        match (kind, slot.state) {
            (kind::PUBREC, State::Sent) if reason < 0x80 => {
                slot.state = State::Released;
                Answer { accepted: message, release: true, ..Answer::default() }
            }
            // Asked for a second time, answered a second time.
            (kind::PUBREC, State::Released) => Answer { release: true, ..Answer::default() },
            (kind::PUBACK, State::Sent) if reason < 0x80 => {
                self.release(index);
                Answer { accepted: message, freed: true, ..Answer::default() }
            }
            (kind::PUBACK | kind::PUBREC, State::Sent) => {
                self.release(index);
                Answer { refused: message, freed: true, ..Answer::default() }
            }
            (kind::PUBCOMP, State::Released) => {
                self.release(index);
                Answer { freed: true, ..Answer::default() }
            }
            _ => Answer::default(),
        }
    }

    /// What the broker has not answered: packet identifier, turn, number, intended time; in the order of sending.
    pub(super) fn unanswered(&self) -> Vec<(u16, u32, u64, u64)> {
        let waiting = self.slots.iter().enumerate().filter(|(_, slot)| slot.state == State::Sent);
        let mut all: Vec<_> =
            waiting.map(|(index, slot)| (index as u16 + 1, slot.turn, slot.number, slot.intended)).collect();
        all.sort_by_key(|(_, turn, number, _)| (*number, *turn));
        all
    }

    /// A new session knows nothing of messages whose release was on its way; the broker has taken them.
    pub(super) fn forget_released(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].state == State::Released {
                self.release(index);
            }
        }
    }

    fn release(&mut self, index: usize) {
        self.slots[index].state = State::Free;
        self.free.push(index as u16);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_window_never_holds_more_than_it_may() {
        let mut window = Window::new(3);
        window.limit(2);
        let (first, second) = (window.take(0, 0, 0), window.take(0, 1, 0));
        assert!(!window.has_room() && window.was_full());
        assert_eq!(window.answer(kind::PUBACK, first, 0).accepted, Some((0, 0)));
        assert!(window.has_room());
        assert_eq!(window.answer(kind::PUBACK, first, 0), Answer::default(), "a second answer means nothing");
        assert_eq!(window.answer(kind::PUBACK, 9, 0), Answer::default());
        assert_eq!(window.answer(kind::PUBACK, 0, 0), Answer::default());
        assert_eq!(window.answer(kind::PUBACK, second, 0x97).refused, Some((0, 1)));
        assert_eq!(window.in_flight(), 0);
    }

    #[test]
    fn qos_2_is_accepted_once_and_free_when_complete() {
        let mut window = Window::new(3);
        let id = window.take(4, 7, 0);
        let answer = window.answer(kind::PUBREC, id, 0);
        assert_eq!((answer.accepted, answer.release, answer.freed), (Some((4, 7)), true, false));
        assert_eq!(window.answer(kind::PUBREC, id, 0), Answer { release: true, ..Answer::default() });
        assert_eq!(window.unanswered(), []);
        assert!(window.answer(kind::PUBCOMP, id, 0).freed);
    }
}

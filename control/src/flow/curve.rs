//! When did message number k arrive? Answered in constant memory.

use crate::time::Moment;

/// Pieces that the curve is made of. A piece lasts at most an eighth of the time that the queue spans.
const PIECES: usize = 32;
/// How long a piece may last when pieces first become scarce, in nanoseconds.
const FIRST_LENGTH: u64 = 1_000_000;

/// A straight piece of the arrival curve: messages `start..end` arrived evenly between `from` and `to`.
#[derive(Debug, Clone, Copy, Default)]
struct Piece {
    from: Moment,
    to: Moment,
    start: u64,
    end: u64,
}

/// The arrival curve from the head of the queue to its tail.
#[derive(Debug, Clone, Default)]
pub(super) struct Curve {
    pieces: [Piece; PIECES],
    first: usize,
    len: usize,
    /// How many nanoseconds a piece may last; 0 gives every instant a piece of its own, which is exact.
    length: u64,
}

impl Curve {
    /// Adds messages `start..end`, which arrived now.
    pub(super) fn push(&mut self, now: Moment, start: u64, end: u64) {
        let length = self.length;
        if let Some(last) = self.last_mut()
            && now.since(last.from).as_nanos() <= length
        {
            last.to = now;
            last.end = end;
            return;
        }
        if self.len == PIECES {
            self.thin_out();
        }
        let slot = self.slot(self.len);
        self.pieces[slot] = Piece { from: now, to: now, start, end };
        self.len += 1;
    }

    /// Forgets what is before the head, message number `gone`, when `waiting` messages are left.
    pub(super) fn pop(&mut self, gone: u64, waiting: u64) {
        if waiting == 0 {
            self.len = 0;
            self.length = 0;
        }
        // Message numbers wrap: a piece that ends in the queue ends within `waiting` of its head.
        while self.len > 0 && self.pieces[self.first].end.wrapping_sub(gone).wrapping_sub(1) >= waiting {
            self.first = self.slot(1);
            self.len -= 1;
        }
    }

    /// Forgets what is at the tail, from message number `end` on.
    pub(super) fn cut(&mut self, end: u64) {
        while let Some(last) = self.last_mut() {
            let (all, over) = (last.end.wrapping_sub(last.start), last.end.wrapping_sub(end));
            if over < all {
                // the others came evenly before those
                let steps = (all - over).saturating_sub(1) as f64 / all.saturating_sub(1).max(1) as f64;
                (last.to, last.end) = (last.from + last.to.since(last.from).scale(steps), end);
                return;
            }
            self.len -= 1;
        }
    }

    /// When the head, message number `gone`, arrived.
    pub(super) fn head(&self, gone: u64) -> Option<Moment> {
        if self.len == 0 {
            return None;
        }
        let piece = self.pieces[self.first];
        let steps = piece.end.wrapping_sub(piece.start).saturating_sub(1).max(1);
        let done = gone.wrapping_sub(piece.start).min(steps);
        Some(piece.from + piece.to.since(piece.from).scale(done as f64 / steps as f64))
    }

    fn slot(&self, index: usize) -> usize {
        (self.first + index) % PIECES
    }

    fn last_mut(&mut self) -> Option<&mut Piece> {
        let last = self.len.checked_sub(1)?;
        let slot = self.slot(last);
        Some(&mut self.pieces[slot])
    }

    /// Makes room: lets pieces last longer and joins neighbours, until one is free.
    fn thin_out(&mut self) {
        while self.len == PIECES && self.length < u64::MAX {
            self.length = self.length.saturating_mul(2).max(FIRST_LENGTH);
            self.join();
        }
    }

    /// Joins neighbours that together last no longer than a piece may.
    fn join(&mut self) {
        let mut kept = 0;
        for index in 1..self.len {
            let next = self.pieces[self.slot(index)];
            let slot = self.slot(kept);
            if next.to.since(self.pieces[slot].from).as_nanos() <= self.length {
                self.pieces[slot].to = next.to;
                self.pieces[slot].end = next.end;
            } else {
                kept += 1;
                let slot = self.slot(kept);
                self.pieces[slot] = next;
            }
        }
        self.len = kept + 1;
    }
}

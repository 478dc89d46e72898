//! A timing wheel: what is due next among millions, in constant time.

/// The fewest and the most slots of a wheel; powers of two.
const SLOTS: (usize, usize) = (64, 8192);

/// Something that is due: when, who, and for which life of who.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    /// When, in nanoseconds on the wheel's own clock.
    pub(super) at: u64,
    /// Who.
    pub(super) device: u32,
    /// Which connection of that device; an entry of an earlier one is stale.
    pub(super) life: u32,
}

/// Entries by time, coarsely sorted into slots and finely within the slot that is being emptied.
#[derive(Debug)]
pub(super) struct Wheel {
    slots: Vec<Vec<Due>>,
    /// The slot width as a power of two, in nanoseconds.
    shift: u32,
    /// The slot being emptied, counted from the start of time.
    turn: u64,
    /// What is left of the current slot, latest first.
    current: Vec<Due>,
    len: usize,
    /// Entries looked at, moved or compared so far.
    steps: u64,
}

impl Wheel {
    /// A wheel for about so many entries that are usually due within this many nanoseconds.
    pub(super) fn new(entries: usize, horizon: u64) -> Self {
        let slots = entries.next_power_of_two().clamp(SLOTS.0, SLOTS.1);
        let width = (horizon / slots as u64).max(1);
        let shift = width.next_power_of_two().trailing_zeros();
        Self { slots: vec![Vec::new(); slots], shift, turn: 0, current: Vec::new(), len: 0, steps: 0 }
    }

    /// Adds an entry; one that is due in the past comes next.
    pub(super) fn push(&mut self, due: Due) {
        self.len += 1;
        self.steps += 1;
        let turn = due.at >> self.shift;
        if turn > self.turn {
            let slot = self.slot(turn);
            self.slots[slot].push(due);
            return;
        }
        let place = self.current.partition_point(|other| *other > due);
        self.steps += (self.current.len() - place) as u64;
        self.current.insert(place, due);
    }

    /// The next entry, if it is due before `end`.
    pub(super) fn peek_before(&mut self, end: u64) -> Option<Due> {
        loop {
            if let Some(due) = self.current.last() {
                return (due.at < end).then_some(*due);
            }
            if self.len == 0 || self.turn >= end >> self.shift {
                return None;
            }
            self.turn += 1;
            self.steps += 1;
            self.open_slot();
        }
    }

    /// Takes out the entry that `peek_before` showed.
    pub(super) fn pop(&mut self) -> Option<Due> {
        let due = self.current.pop()?;
        self.len -= 1;
        Some(due)
    }

    /// Entries looked at, moved or compared so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    fn slot(&self, turn: u64) -> usize {
        turn as usize & (self.slots.len() - 1)
    }

    /// Moves the entries of this turn out of its slot; those of later rounds stay.
    fn open_slot(&mut self) {
        let (turn, shift) = (self.turn, self.shift);
        let slot = self.slot(turn);
        let slot = &mut self.slots[slot];
        self.steps += slot.len() as u64;
        self.current.extend(slot.extract_if(.., |due| due.at >> shift <= turn));
        let steps = &mut self.steps;
        self.current.sort_unstable_by(|a, b| {
            *steps += 1;
            b.cmp(a)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::random::{Random, Seeded};

    #[test]
    fn entries_come_out_in_order_whatever_their_distance() {
        let mut random = Seeded::new(1);
        let mut wheel = Wheel::new(5_000, 1_000_000);
        let mut expected = Vec::new();
        for device in 0..5_000 {
            let due = Due { at: random.below(50_000_000), device, life: 0 };
            wheel.push(due);
            expected.push(due);
        }
        expected.sort();
        let mut seen = Vec::new();
        for end in (0..=50_000_000).step_by(123_456).chain([50_000_000]) {
            while let Some(due) = wheel.peek_before(end) {
                assert!(due.at < end);
                assert_eq!(wheel.pop(), Some(due));
                seen.push(due);
            }
        }
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_entry_in_the_past_comes_next() {
        let mut wheel = Wheel::new(5_000, 1_000_000);
        wheel.push(Due { at: 900_000, device: 1, life: 0 });
        assert_eq!(wheel.peek_before(800_000), None);
        wheel.push(Due { at: 100, device: 2, life: 0 });
        assert_eq!(wheel.peek_before(800_000).map(|due| due.device), Some(2));
    }
}

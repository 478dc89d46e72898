//! Loss, duplicates and order, by the number that every message carries.
//!
//! A *flow* is what one device sends to one topic; its messages are numbered from 0. A *stream* is who should get each
//! message once: a consumer on its own, or a shared group as a whole.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::clock::Nanos;

/// Bytes that every payload starts with.
pub const HEADER: usize = 24;

/// What a payload says about its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The run, so that messages of another one are not counted.
    pub run: u32,
    /// The flow.
    pub flow: u32,
    /// The number in the flow.
    pub number: u64,
    /// When it was meant to be sent.
    pub intended: Nanos,
}

impl Stamp {
    /// Writes it at the front of a payload of at least [`HEADER`] bytes.
    pub fn write(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.run.to_be_bytes());
        payload[4..8].copy_from_slice(&self.flow.to_be_bytes());
        payload[8..16].copy_from_slice(&self.number.to_be_bytes());
        payload[16..24].copy_from_slice(&self.intended.to_be_bytes());
    }

    /// Reads it; none if the payload is too short.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (header, _) = payload.split_first_chunk::<HEADER>()?;
        let half = |at: usize| u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| header[at + byte]));
        let first = half(0);
        Some(Self { run: (first >> 32) as u32, flow: first as u32, number: half(8), intended: half(16) })
    }
}

/// A set of numbers that is dense: a bit for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    words: Vec<u64>,
}

impl Numbers {
    /// Adds one; false if it was there.
    pub fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Whether one is there.
    pub fn contains(&self, number: u64) -> bool {
        self.words.get((number / 64) as usize).is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many there are in this range.
    pub fn count_within(&self, range: &Range<u64>) -> u64 {
        let end = range.end.min(64 * self.words.len() as u64);
        (range.start..end).filter(|number| self.contains(*number)).count() as u64
    }

    /// Those that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let theirs = other.words.iter().copied().chain(std::iter::repeat(0));
        Self { words: self.words.iter().zip(theirs).map(|(mine, theirs)| mine & !theirs).collect() }
    }

    /// How many of these are not in `other`.
    pub fn missing_in(&self, other: &Self) -> u64 {
        let theirs = other.words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter().zip(theirs).map(|(mine, theirs)| u64::from((mine & !theirs).count_ones())).sum()
    }

    /// Leaves only numbers from the first to the last of `other`.
    pub fn within(&self, other: &Self) -> Self {
        let (Some(first), Some(last)) = (other.first(), other.last()) else { return Self::default() };
        let mut words = self.words.clone();
        words.truncate((last / 64) as usize + 1);
        for (index, word) in words.iter_mut().enumerate() {
            let base = index as u64 * 64;
            *word &=
                upwards_from(first.saturating_sub(base)) & !upwards_from((last + 1).saturating_sub(base));
        }
        Self { words }
    }

    fn first(&self) -> Option<u64> {
        let word = self.words.iter().position(|word| *word != 0)?;
        Some(word as u64 * 64 + u64::from(self.words[word].trailing_zeros()))
    }

    fn last(&self) -> Option<u64> {
        let word = self.words.iter().rposition(|word| *word != 0)?;
        Some(word as u64 * 64 + 63 - u64::from(self.words[word].leading_zeros()))
    }
}

/// All bits from this one on.
fn upwards_from(bit: u64) -> u64 {
    if bit >= 64 { 0 } else { u64::MAX << bit }
}

/// What has been sent: how many messages of each flow, so that a number out of the blue is not believed.
#[derive(Debug, Default)]
pub struct Sent {
    next: Vec<AtomicU64>,
}

impl Sent {
    /// For so many flows.
    pub fn new(flows: usize) -> Self {
        Self { next: (0..flows).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The messages of a flow up to this number may be on their way.
    pub fn up_to(&self, flow: u32, next: u64) {
        self.next[flow as usize].store(next, Relaxed);
    }

    /// Whether this message may exist.
    pub fn knows(&self, stamp: &Stamp) -> bool {
        self.next.get(stamp.flow as usize).is_some_and(|next| stamp.number < next.load(Relaxed))
    }
}

/// What a stream has got.
#[derive(Debug, Default)]
pub struct Stream {
    seen: HashMap<u32, Numbers>,
    /// How often nobody was there to get anything.
    absences: u32,
    /// Flows that it has got something of, with the absences before the last of it; empty if there were none.
    heard: HashMap<u32, u32>,
    /// What was sent around an absence: from the last message before it to the first one after it.
    missed: HashMap<u32, Numbers>,
    /// Messages that a broker may deliver once more, and how often.
    allowed: HashMap<(u32, u64), u32>,
    /// When the last message came that it did not have; 0 if none did.
    pub last_new: Nanos,
    /// Deliveries, duplicates included.
    pub delivered: u64,
    /// Deliveries beyond the first for which the generator is no reason.
    pub duplicates: u64,
    /// Deliveries beyond the first of messages that the generator has sent or asked for again.
    pub repeated: u64,
    /// How often each of the latter came again.
    copies: HashMap<(u32, u64), u32>,
    /// Deliveries after a later message of the same flow on the same connection.
    pub out_of_order: u64,
}

/// What a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The first one.
    First,
    /// A further one, because the generator had sent the message or asked for it again.
    Repeated,
    /// A further one for no reason of the generator's.
    Duplicate,
}

/// Which messages were sent again after a reconnect, and how often: a broker that delivers each copy is not to blame.
#[derive(Debug, Default)]
pub struct Resent {
    copies: Mutex<HashMap<(u32, u64), u32>>,
}

impl Resent {
    /// A message is sent once more.
    pub fn add(&self, flow: u32, number: u64) {
        *self.copies.lock().entry((flow, number)).or_default() += 1;
    }

    /// How often a message was sent after the first time.
    pub fn of(&self, flow: u32, number: u64) -> u32 {
        self.copies.lock().get(&(flow, number)).copied().unwrap_or(0)
    }
}

/// The last number of each flow on one connection.
#[derive(Debug, Default)]
pub struct Order {
    last: HashMap<u32, u64>,
}

impl Stream {
    /// Takes in a delivery on a connection; `copies` says how many further ones the generator itself is the reason for.
    pub fn take(&mut self, order: &mut Order, flow: u32, number: u64, copies: impl FnOnce() -> u32) -> Taken {
        self.delivered += 1;
        if self.absences > 0 {
            self.excuse(flow, number);
        }
        if !self.seen.entry(flow).or_default().insert(number) {
            let allowed = self.allowed.get(&(flow, number)).copied().unwrap_or(0);
            return self.take_again(flow, number, copies().saturating_add(allowed));
        }
        let last = order.last.entry(flow).or_insert(number);
        if number < *last {
            self.out_of_order += 1;
        }
        *last = number.max(*last);
        Taken::First
    }

    fn take_again(&mut self, flow: u32, number: u64, copies: u32) -> Taken {
        if copies > 0 {
            let came = self.copies.entry((flow, number)).or_default();
            if *came < copies {
                *came += 1;
                self.repeated += 1;
                return Taken::Repeated;
            }
        }
        self.duplicates += 1;
        Taken::Duplicate
    }

    /// Nobody is there from now on until something comes: what is sent meanwhile is owed to nobody.
    pub fn be_away(&mut self) {
        self.absences += 1;
    }

    /// The broker may not know that this message was taken, for a reason of the generator's: it may deliver it once more.
    pub fn allow_again(&mut self, flow: u32, number: u64) {
        *self.allowed.entry((flow, number)).or_default() += 1;
    }

    /// Notes what is missing before the first message of a flow after an absence.
    fn excuse(&mut self, flow: u32, number: u64) {
        let next = self.next_of(flow);
        if number < next {
            return;
        }
        let heard = self.heard.insert(flow, self.absences).unwrap_or(0);
        if heard < self.absences && next > 0 {
            let missed = self.missed.entry(flow).or_default();
            for number in next..number {
                missed.insert(number);
            }
        }
    }

    /// The number after the last one of a flow that it has got.
    pub fn next_of(&self, flow: u32) -> u64 {
        self.seen.get(&flow).and_then(Numbers::last).map_or(0, |last| last + 1)
    }

    /// Compares with what was accepted of a flow that this stream should have got.
    ///
    /// A stream that came later or left earlier than the flow is asked only for what lies between the first and the last
    /// message that it got, and not for what was sent while it was away. Of one that was `still_getting` messages in the end, what comes after the last one that it got is
    /// not called lost.
    pub fn verdict(&self, flow: u32, accepted: &Numbers, always_there: bool, still_getting: bool) -> Verdict {
        let nothing = Numbers::default();
        let seen = self.seen.get(&flow).unwrap_or(&nothing);
        let bounded;
        let owed = if always_there {
            accepted
        } else {
            let missed = self.missed.get(&flow).unwrap_or(&nothing).without(seen);
            bounded = accepted.within(seen).without(&missed);
            &bounded
        };
        let undelivered = if still_getting { owed.count_within(&(self.next_of(flow)..u64::MAX)) } else { 0 };
        Verdict {
            expected: owed.count(),
            lost: owed.missing_in(seen) - undelivered,
            undelivered,
            unaccepted: seen.missing_in(accepted),
        }
    }
}

/// What a stream should have got of a flow, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Accepted messages that it should have got.
    pub expected: u64,
    /// Of these, never delivered.
    pub lost: u64,
    /// Of these, not delivered yet when waiting ended.
    pub undelivered: u64,
    /// Delivered, but never accepted.
    pub unaccepted: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn numbers(all: impl IntoIterator<Item = u64>) -> Numbers {
        let mut set = Numbers::default();
        all.into_iter().for_each(|number| assert!(set.insert(number)));
        set
    }

    #[test]
    fn a_stamp_survives_the_way() {
        let stamp = Stamp { run: 7, flow: 0xFFFF_0001, number: 1 << 40, intended: u64::MAX };
        let mut payload = [9; 30];
        stamp.write(&mut payload);
        assert_eq!(Stamp::read(&payload), Some(stamp));
        assert_eq!(Stamp::read(&payload[..HEADER - 1]), None);
    }

    #[test]
    fn drops_repeats_and_swaps_are_told_apart() {
        let (mut stream, mut order) = (Stream::default(), Order::default());
        for number in [0, 1, 3, 2, 2, 6, 5] {
            stream.take(&mut order, 9, number, || 0);
        }
        assert_eq!((stream.delivered, stream.duplicates, stream.out_of_order), (7, 1, 2));
        let accepted = numbers((0..9).filter(|number| *number != 6));
        let verdict = stream.verdict(9, &accepted, true, false);
        assert_eq!(
            verdict,
            Verdict { expected: 8, lost: 3, undelivered: 0, unaccepted: 1 },
            "4, 7 and 8 are lost, 6 was a gift"
        );
        let verdict = stream.verdict(9, &accepted, false, false);
        assert_eq!(verdict, Verdict { expected: 6, lost: 1, undelivered: 0, unaccepted: 1 });
        let verdict = stream.verdict(1, &accepted, true, false);
        assert_eq!(verdict.lost, 8, "a flow that never came is lost as a whole");
    }

    #[test]
    fn only_what_is_missing_at_the_end_may_still_be_on_its_way() {
        let (mut stream, mut order) = (Stream::default(), Order::default());
        for number in [0, 1, 3] {
            stream.take(&mut order, 9, number, || 0);
        }
        let accepted = numbers(0..9);
        let verdict = stream.verdict(9, &accepted, true, true);
        assert_eq!(verdict, Verdict { expected: 9, lost: 1, undelivered: 5, unaccepted: 0 }, "2 is lost");
        let verdict = stream.verdict(9, &accepted, false, true);
        assert_eq!(verdict, Verdict { expected: 4, lost: 1, undelivered: 0, unaccepted: 0 });
    }

    #[test]
    fn copies_that_the_generator_sent_are_not_the_brokers_duplicates() {
        let (mut stream, mut order, resent) = (Stream::default(), Order::default(), Resent::default());
        resent.add(3, 7);
        let taken = [7, 7, 7, 8, 8].map(|number| stream.take(&mut order, 3, number, || resent.of(3, number)));
        use Taken::{Duplicate, First, Repeated};
        assert_eq!(taken, [First, Repeated, Duplicate, First, Duplicate]);
        assert_eq!((stream.delivered, stream.repeated, stream.duplicates), (5, 1, 2));
    }

    #[test]
    fn what_is_sent_while_nobody_is_there_is_owed_to_nobody() {
        let (mut stream, accepted) = (Stream::default(), numbers(0..40));
        let take = |stream: &mut Stream, numbers: &[u64]| {
            for number in numbers {
                stream.take(&mut Order::default(), 7, *number, || 0);
            }
        };
        stream.be_away();
        take(&mut stream, &[5, 6, 8]);
        stream.be_away();
        stream.be_away();
        // An old one comes again first, and later ones change places.
        take(&mut stream, &[6, 20, 19, 21, 23]);
        let verdict = stream.verdict(7, &accepted, false, false);
        // 5 to 8, 20 to 23 and 19, which was there though nobody asked for it; 7 and 22 are lost.
        assert_eq!(verdict, Verdict { expected: 4 + 4 + 1, lost: 2, undelivered: 0, unaccepted: 0 });
        assert_eq!((stream.delivered, stream.duplicates), (8, 1));
    }

    #[test]
    fn a_message_that_the_broker_could_not_know_to_be_taken_may_come_once_more() {
        let (mut stream, mut order) = (Stream::default(), Order::default());
        stream.take(&mut order, 1, 4, || 0);
        stream.allow_again(1, 4);
        let taken = [4, 4, 5, 5].map(|number| stream.take(&mut order, 1, number, || 0));
        assert_eq!(taken, [Taken::Repeated, Taken::Duplicate, Taken::First, Taken::Duplicate]);
    }

    #[test]
    fn order_is_that_of_a_connection() {
        let mut stream = Stream::default();
        let (mut one, mut other) = (Order::default(), Order::default());
        stream.take(&mut one, 0, 5, || 0);
        stream.take(&mut other, 0, 2, || 0);
        assert_eq!(stream.out_of_order, 0);
        stream.take(&mut other, 0, 1, || 0);
        assert_eq!(stream.out_of_order, 1);
    }

    #[test]
    fn bounds_of_a_set_may_lie_on_any_bit() {
        for (first, last) in [(0, 0), (63, 64), (64, 127), (5, 300)] {
            let within =
                numbers(0..400).within(&numbers(if first == last { vec![first] } else { vec![first, last] }));
            assert_eq!(within, numbers(first..=last), "{first} to {last}");
        }
        assert_eq!(numbers(0..9).within(&Numbers::default()).count(), 0);
        assert_eq!(numbers([3, 64, 70]).count_within(&(4..9000)), 2);
    }

    #[test]
    fn a_number_out_of_the_blue_is_not_believed() {
        let sent = Sent::new(2);
        sent.up_to(1, 10);
        let stamp = Stamp { run: 0, flow: 1, number: 9, intended: 0 };
        assert!(sent.knows(&stamp));
        assert!(!sent.knows(&Stamp { number: 10, ..stamp }));
        assert!(!sent.knows(&Stamp { flow: 2, ..stamp }));
    }
}

//! Several samples in one message.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Added, Aggregate, Merged};
use crate::sample::Sample;

/// Samples in their order, one on each line, up to a number and a size; see [`super::Policy::Batch`].
#[derive(Debug)]
pub struct Batch {
    waiting: VecDeque<Bytes>,
    /// The length of the message, line ends included.
    length: usize,
    samples: usize,
    bytes: usize,
}

impl Batch {
    /// A batch of at most so many samples and bytes; at least one sample always fits.
    pub fn new(samples: usize, bytes: usize) -> Self {
        Self { waiting: VecDeque::new(), length: 0, samples: samples.max(1), bytes }
    }

    fn over(&self) -> bool {
        self.waiting.len() > self.samples || (self.length > self.bytes && self.waiting.len() > 1)
    }
}

impl Aggregate for Batch {
    fn add(&mut self, sample: Sample) -> Added {
        let line = sample.into_bytes();
        // A line end within a sample would make two of it.
        if line.len() > self.bytes || line.contains(&b'\n') {
            return Added::Refused;
        }
        self.length += line.len() + 1;
        self.waiting.push_back(line);
        let mut dropped = 0;
        while self.over() {
            if let Some(oldest) = self.waiting.pop_front() {
                self.length -= oldest.len() + 1;
                dropped += 1;
            }
        }
        if dropped == 0 { Added::Kept } else { Added::Dropped(dropped) }
    }

    fn take(&mut self) -> Option<Merged> {
        let samples = self.waiting.len() as u64;
        let mut payload = BytesMut::with_capacity(self.length);
        for (number, line) in self.waiting.drain(..).enumerate() {
            if number > 0 {
                payload.put_u8(b'\n');
            }
            payload.put(line);
        }
        self.length = 0;
        (samples > 0).then(|| Merged { payload: payload.freeze(), samples })
    }

    fn size(&self) -> usize {
        self.length
    }

    fn grows_by(&self, sample: &Sample) -> usize {
        let line = sample.clone().into_bytes().len() + 1;
        let full = self.waiting.len() >= self.samples;
        let oldest = self.waiting.front().filter(|_| full).map_or(0, |oldest| oldest.len() + 1);
        let length = (self.length - oldest + line).min(self.bytes.max(line));
        length.saturating_sub(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(batch: &mut Batch) -> Option<(String, u64)> {
        let merged = batch.take()?;
        Some((String::from_utf8_lossy(&merged.payload).into_owned(), merged.samples))
    }

    #[test]
    fn lines_in_order_up_to_the_number() {
        let mut batch = Batch::new(3, 100);
        for n in 1..=3 {
            assert_eq!(batch.add(n.into()), Added::Kept);
        }
        assert_eq!(batch.add(4.into()), Added::Dropped(1));
        assert_eq!(taken(&mut batch), Some(("2\n3\n4".into(), 3)));
        assert_eq!((taken(&mut batch), batch.size()), (None, 0));
    }

    #[test]
    fn the_size_is_a_bound_too() {
        let mut batch = Batch::new(100, 10);
        assert_eq!(batch.add("12345678901".into()), Added::Refused);
        assert_eq!(batch.add("a\nb".into()), Added::Refused);
        assert_eq!(batch.add("1234".into()), Added::Kept);
        assert_eq!(batch.add("5678".into()), Added::Kept);
        assert_eq!(batch.add("901234".into()), Added::Dropped(2));
        assert_eq!(batch.add("1234567890".into()), Added::Dropped(1));
        assert_eq!(taken(&mut batch), Some(("1234567890".into(), 1)));
    }
}

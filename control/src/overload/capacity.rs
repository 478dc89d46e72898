//! How fast consumers are, learned from what leaves the queue while they are busy.

use crate::flow::Reading;
use crate::time::Span;

/// Busy seconds that must have been seen before they are believed.
const LEAST_BUSY: f64 = 0.5;
/// Departures that say enough about a busy time, however short it was.
const ENOUGH_DEPARTED: u64 = 20;

/// The processing rate of whoever empties the queue.
///
/// It is departures over busy time, with the past forgotten at an even pace. An idle queue teaches nothing, except
/// that a departure rate over the estimate proves the estimate too low.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    memory: Span,
    departed: f64,
    busy: f64,
    /// The highest departure rate seen, which consumers are at least able to: all there is until they are seen busy.
    seen: f64,
}

impl Capacity {
    /// An estimate that remembers about this much busy time.
    pub fn new(memory: Span) -> Self {
        Self { memory, departed: 0.0, busy: 0.0, seen: 0.0 }
    }

    /// Takes in one reading.
    pub fn observe(&mut self, reading: &Reading) {
        if is_telling(reading) {
            self.learn(reading.busy_departed as f64, reading.busy_time.as_secs_f64());
        }
        self.refine(reading.departed, reading.elapsed);
        self.seen = self.seen.max(reading.departure_rate());
    }

    /// Messages a second, once busy consumers have been seen.
    pub fn rate(&self) -> Option<f64> {
        (self.busy >= LEAST_BUSY).then(|| self.departed / self.busy).filter(|rate| rate.is_finite())
    }

    /// The rate, or as long as it is unknown the highest rate of departures so far.
    pub fn rate_or_departures(&self) -> f64 {
        self.rate().unwrap_or(self.seen)
    }

    /// Takes it that consumers have become this many times as fast.
    pub fn scale(&mut self, factor: f64) {
        self.departed *= factor;
    }

    fn learn(&mut self, departed: f64, busy: f64) {
        let keep = libm::exp(-busy / self.memory.as_secs_f64().max(1e-9));
        self.departed = self.departed * keep + departed;
        self.busy = self.busy * keep + busy;
    }

    /// Raises the estimate at once to the least rate that a count proves, allowing for chance.
    fn refine(&mut self, departed: u64, time: Span) {
        let count = departed as f64;
        let proven = count - libm::sqrt(count);
        if let Some(rate) = self.rate()
            && proven > rate * time.as_secs_f64()
            && !time.is_zero()
        {
            self.departed = self.busy * proven / time.as_secs_f64();
        }
    }
}

/// Whether a busy time says how fast consumers are. One that lasted for a message or two says when those happened to be
/// in the middle of something; devices that send like clockwork would have it repeated for ever.
fn is_telling(reading: &Reading) -> bool {
    let half = reading.elapsed.scale(0.5);
    !reading.busy_time.is_zero() && (reading.busy_time >= half || reading.busy_departed >= ENOUGH_DEPARTED)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn second(departed: u64, busy: bool) -> Reading {
        let elapsed = Span::from_secs(1);
        let (busy_time, busy_departed) = if busy { (elapsed, departed) } else { (Span::ZERO, 0) };
        Reading { elapsed, departed, busy_time, busy_departed, ..Reading::default() }
    }

    fn learned(seconds: u32, departed: u64) -> Capacity {
        let mut capacity = Capacity::new(Span::from_secs(4));
        (0..seconds).for_each(|_| capacity.observe(&second(departed, true)));
        capacity
    }

    #[test]
    fn only_busy_time_teaches() {
        let mut capacity = Capacity::new(Span::from_secs(4));
        capacity.observe(&second(7, false));
        assert_eq!(capacity.rate(), None);
        assert_eq!(capacity.rate_or_departures(), 7.0);
        let mut capacity = learned(5, 33);
        capacity.observe(&second(7, false));
        assert!((capacity.rate().unwrap() - 33.0).abs() < 1e-9);
    }

    #[test]
    fn a_busy_time_of_a_message_or_two_says_nothing() {
        let mut capacity = Capacity::new(Span::from_secs(4));
        let short = Reading { busy_time: Span::from_millis(80), busy_departed: 1, ..second(12, false) };
        (0..100).for_each(|_| capacity.observe(&short));
        assert_eq!(capacity.rate(), None);
        let many = Reading { busy_departed: 2000, ..short };
        (0..10).for_each(|_| capacity.observe(&many));
        assert!((capacity.rate().unwrap() - 25_000.0).abs() < 1.0);
    }

    #[test]
    fn until_they_are_busy_consumers_are_able_to_what_they_did() {
        let mut capacity = Capacity::new(Span::from_secs(4));
        for departed in [3, 9, 5] {
            capacity.observe(&second(departed, false));
        }
        assert_eq!(capacity.rate_or_departures(), 9.0);
    }

    #[test]
    fn a_faster_consumer_is_seen_at_once_and_a_slower_one_soon() {
        let mut capacity = learned(10, 1000);
        capacity.observe(&second(2000, false));
        assert!(capacity.rate().unwrap() > 1900.0, "even when it was idle for a part of the time");
        (0..12).for_each(|_| capacity.observe(&second(500, true)));
        assert!((capacity.rate().unwrap() / 500.0 - 1.0).abs() < 0.2, "three times its memory later");
    }

    #[test]
    fn chance_is_no_proof() {
        let mut capacity = learned(10, 100);
        capacity.observe(&second(109, false));
        assert!((capacity.rate().unwrap() - 100.0).abs() < 1e-9);
    }
}

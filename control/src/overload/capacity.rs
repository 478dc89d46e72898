//! How fast consumers are, learned from what leaves the queue while they are busy.

use crate::flow::Reading;
use crate::time::Span;

/// Busy seconds that must have been seen before they are believed.
const LEAST_BUSY: f64 = 0.5;
/// Seconds over which departures are counted, at least, that prove an estimate too low: consumers may pause for a moment and catch
/// up, or acknowledge many messages at a time, and are no faster for that.
const LEAST_PROOF: f64 = 1.0;
/// Departures that say enough about a busy time, however short it was.
const ENOUGH_DEPARTED: u64 = 20;

/// The processing rate of whoever empties the queue.
///
/// It is departures over busy time, with the past forgotten at an even pace. An idle queue teaches nothing, except
/// that a departure rate over the estimate proves the estimate too low.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    memory: Span,
    /// Who shares the queue; 0 when nobody knows.
    consumers: u32,
    departed: f64,
    busy: f64,
    /// Departures and seconds, busy or not, since they were last compared with the estimate.
    recent: (f64, f64),
    /// The highest departure rate seen, which consumers are at least able to: all there is until they are seen busy.
    seen: f64,
}

impl Capacity {
    /// An estimate that remembers about this much busy time.
    pub fn new(memory: Span) -> Self {
        Self { memory, consumers: 0, departed: 0.0, busy: 0.0, recent: (0.0, 0.0), seen: 0.0 }
    }

    /// Takes in one reading.
    pub fn observe(&mut self, reading: &Reading) {
        if is_telling(reading) {
            self.learn(reading.busy_departed as f64, reading.busy_time.as_secs_f64());
        }
        self.refine(reading.departed, reading.elapsed);
        self.seen = self.seen.max(reading.departure_rate());
    }

    /// Says how many consumers share the queue.
    pub fn set_consumers(&mut self, count: u32) {
        self.consumers = count;
    }

    /// Messages a second, once busy consumers have been seen.
    pub fn rate(&self) -> Option<f64> {
        // As long as nothing left, all may still be in the middle of their first message.
        let departed =
            if self.departed > 0.0 { self.departed } else { self.in_hand().min(self.seen * self.busy) };
        (self.busy >= LEAST_BUSY).then(|| departed / self.busy).filter(|rate| rate.is_finite())
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
        // A time in which nothing left yet is not forgotten: it says more the longer it is.
        let keep =
            if self.departed > 0.0 { libm::exp(-busy / self.memory.as_secs_f64().max(1e-9)) } else { 1.0 };
        self.departed = self.departed * keep + departed;
        self.busy = self.busy * keep + busy;
    }

    /// Raises the estimate to the least rate that a count proves, allowing for chance.
    ///
    /// The count is over the time of a message: in less, all consumers may happen to finish one, or to begin one when they
    /// were idle, so that one message of each proves nothing.
    fn refine(&mut self, departed: u64, time: Span) {
        let Some(rate) = self.rate() else { return };
        self.recent.0 += departed as f64;
        self.recent.1 += time.as_secs_f64();
        let (count, seconds) = self.recent;
        if seconds < LEAST_PROOF {
            return;
        }
        let complete = rate * seconds >= self.in_hand();
        let proven = count - libm::sqrt(count) - if complete { 0.0 } else { self.in_hand() };
        let higher = proven > rate * seconds;
        if higher {
            self.departed = self.busy * proven / seconds;
        }
        if complete || higher {
            self.recent = (0.0, 0.0);
        }
    }

    /// Messages that consumers have in hand while they are busy.
    fn in_hand(&self) -> f64 {
        f64::from(self.consumers)
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

    use alloc::vec::Vec;

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

    /// 40 at a time, five times a second, busy or so idle that nothing else is learned: that is 200 a second and not 400.
    #[test]
    fn who_acknowledges_many_at_a_time_is_no_faster() {
        let mut capacity = learned(5, 200);
        for tick in 0..100 {
            let departed = if tick % 2 == 0 { 40 } else { 0 };
            let elapsed = Span::from_millis(100);
            capacity.observe(&Reading { elapsed, departed, ..Reading::default() });
            assert!((capacity.rate().unwrap() - 200.0).abs() < 20.0, "{:?} after {tick}", capacity.rate());
        }
        // over a second that is a proof
        for _ in 0..20 {
            let elapsed = Span::from_millis(100);
            capacity.observe(&Reading { elapsed, departed: 40, ..Reading::default() });
        }
        assert!(capacity.rate().unwrap() > 300.0, "{:?}", capacity.rate());
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

    /// Half seconds of 20 consumers that take 2 s for a message and all began at once, so many half seconds ago.
    fn in_step(capacity: &mut Capacity, begun: u32, halves: u32) -> Vec<f64> {
        let elapsed = Span::from_millis(500);
        let reading = |departed| Reading {
            elapsed,
            departed,
            busy_time: elapsed,
            busy_departed: departed,
            ..Reading::default()
        };
        let mut rates = Vec::new();
        for half in 1..=halves {
            capacity.observe(&reading(if (begun + half).is_multiple_of(4) { 20 } else { 0 }));
            rates.extend(capacity.rate());
        }
        rates
    }

    #[test]
    fn consumers_that_finish_in_step_are_no_faster_for_it() {
        for begun in 0..4 {
            let mut capacity = Capacity::new(Span::from_secs(4));
            capacity.set_consumers(20);
            in_step(&mut capacity, begun, 40);
            let rates = in_step(&mut capacity, begun, 400);
            assert!(rates.iter().all(|rate| (7.0..13.0).contains(rate)), "not 10 a second: {rates:?}");
            (0..3).for_each(|_| capacity.observe(&second(0, false)));
            let (before, elapsed) = (capacity.rate(), Span::from_millis(500));
            capacity.observe(&Reading { elapsed, departed: 20, ..Reading::default() });
            assert_eq!(capacity.rate(), before, "after a pause all begin at once");
            capacity.observe(&second(100, false));
            assert!(capacity.rate().unwrap() > 30.0, "more than one message of each is a proof");
        }
    }

    #[test]
    fn a_slow_first_message_is_no_standstill() {
        let mut capacity = Capacity::new(Span::from_secs(4));
        capacity.set_consumers(20);
        capacity.observe(&second(20, false));
        assert!(in_step(&mut capacity, 0, 3).iter().all(|rate| *rate > 10.0));
        let stopped = in_step(&mut Capacity::new(Span::from_secs(4)), 0, 3);
        assert!(stopped.iter().all(|rate| *rate == 0.0), "nothing was ever taken: {stopped:?}");
        (0..100).for_each(|_| capacity.observe(&second(0, true)));
        assert!(capacity.rate().unwrap() < 0.5, "but in the end it is one");
    }

    #[test]
    fn chance_is_no_proof() {
        let mut capacity = learned(10, 100);
        capacity.observe(&second(109, false));
        assert!((capacity.rate().unwrap() - 100.0).abs() < 1e-9);
    }
}

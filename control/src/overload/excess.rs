//! What arrives without having been asked for.

use crate::flow::Reading;

/// Follows by how much arrivals differ from what publishers were told to send, as when some of them don't listen.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Excess {
    /// What a publisher goes by now, as far as it has heard.
    told: f64,
    rate: f64,
}

impl Excess {
    /// Takes in one reading: `told` is what each of `devices` was told last, `lag` the seconds that they take to hear of
    /// it, `memory` the seconds over which the answer is averaged.
    pub fn observe(&mut self, reading: &Reading, devices: u64, told: f64, lag: f64, memory: f64) {
        let period = reading.elapsed.as_secs_f64();
        // Each heard at its last message, between nothing and a whole lag ago.
        self.told += (told - self.told) * passed(period, lag / 2.0);
        let expected = self.told * devices as f64;
        self.rate += (reading.arrival_rate() - expected - self.rate) * passed(period, memory);
    }

    /// Starts again with publishers that go by their own rate.
    pub fn reset(&mut self, own_rate: f64) {
        *self = Self { told: own_rate, rate: 0.0 };
    }

    /// Forgets that fewer messages came than were asked for.
    pub fn forgive(&mut self) {
        self.rate = self.rate.max(0.0);
    }

    /// Messages a second over what was asked for; negative when fewer came.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

/// The share of an old average that a time replaces.
fn passed(time: f64, memory: f64) -> f64 {
    if memory > 0.0 { 1.0 - libm::exp(-time / memory) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn second(arrived: u64) -> Reading {
        Reading { elapsed: Span::from_secs(1), arrived, ..Reading::default() }
    }

    #[test]
    fn publishers_that_do_not_listen_are_seen() {
        let mut excess = Excess::default();
        excess.reset(2.0);
        (0..60).for_each(|_| excess.observe(&second(50), 40, 1.0, 0.0, 10.0));
        assert!((excess.rate() - 10.0).abs() < 0.1, "{}", excess.rate());
    }

    #[test]
    fn only_what_is_missing_is_forgiven() {
        let (mut few, mut many) = (Excess::default(), Excess::default());
        few.reset(2.0);
        many.reset(2.0);
        few.observe(&second(40), 40, 2.0, 0.0, 1.0);
        many.observe(&second(120), 40, 2.0, 0.0, 1.0);
        let before = (few.rate(), many.rate());
        few.forgive();
        many.forgive();
        assert!(before.0 < 0.0 && few.rate() == 0.0);
        assert!(before.1 > 0.0 && many.rate() == before.1);
    }

    #[test]
    fn publishers_that_have_not_heard_yet_are_no_excess() {
        // 40 publishers go from 2 a second to 1, one after the other within 20 s.
        let (mut blind, mut knowing) = (Excess::default(), Excess::default());
        let mut most = (0.0, 0.0);
        blind.reset(2.0);
        knowing.reset(2.0);
        for second_of in 0..20u64 {
            let reading = second(80 - 2 * second_of);
            blind.observe(&reading, 40, 1.0, 0.0, 10.0);
            knowing.observe(&reading, 40, 1.0, 20.0, 10.0);
            most = (f64::max(most.0, blind.rate()), f64::max(most.1, knowing.rate()));
        }
        assert!(most.1 < 0.3 * most.0, "{most:?}");
    }
}

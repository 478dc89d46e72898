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

    /// Messages a second over what was asked for; negative when fewer came.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

/// The share of an old average that a time replaces.
fn passed(time: f64, memory: f64) -> f64 {
    if memory > 0.0 { 1.0 - libm::exp(-time / memory) } else { 1.0 }
}

//! How fast publishers come and go.

/// Seconds over which leaving is averaged: short, since a publisher told too much hears again soon.
const LEAVING_MEMORY: f64 = 0.1;
/// Seconds over which joining is averaged, at least: long, since a publisher told too little hears late.
const JOINING_MEMORY: f64 = 2.0;

/// Follows the number of publishers, to tell how many there will be when all have heard of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Turnover {
    devices: Option<u64>,
    joining: f64,
    leaving: f64,
}

impl Turnover {
    /// Takes in how many publishers there are now, `period` seconds after the last time; `lag` is the time they take to
    /// hear.
    pub fn observe(&mut self, devices: u64, period: f64, lag: f64) {
        let before = self.devices.replace(devices).unwrap_or(devices);
        if period <= 0.0 {
            return;
        }
        let joined = devices.saturating_sub(before) as f64 / period;
        let left = before.saturating_sub(devices) as f64 / period;
        let share = |memory: f64| 1.0 - libm::exp(-period / memory);
        self.joining += (joined - self.joining) * share(lag.max(JOINING_MEMORY));
        self.leaving += (left - self.leaving) * share(LEAVING_MEMORY);
    }

    /// By what share the number of publishers grows within this many seconds, if all goes on as it does; at least 0.01.
    pub fn growth(&self, seconds: f64) -> f64 {
        let devices = self.devices.unwrap_or(0).max(1) as f64;
        (1.0 + (self.joining - self.leaving) * seconds / devices).clamp(0.01, 1.25)
    }
}

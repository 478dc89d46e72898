//! How fast publishers come and go.

/// Seconds over which leaving is averaged: short, since a publisher told too much hears again soon.
const LEAVING_MEMORY: f64 = 0.1;
/// No more are taken to leave than so many times those who left lately: many who left at once are no sign that as many leave
/// in each moment to come.
const MOST_LEAVING: f64 = 6.0;
/// Seconds over which joining is averaged, at least: long, since a publisher told too little hears late.
const JOINING_MEMORY: f64 = 2.0;
/// No more are taken to join than so many times those who joined within that time: a crowd that came at once is no sign that
/// as many come in each moment to come.
const MOST_JOINING: f64 = 2.0;

/// The least growth that is prepared for: those who have left count no more, and more may stay than it seems.
pub const LEAST_GROWTH: f64 = 0.25;
/// The most growth that is prepared for: rates that are told are sticky, and an almost-zero rate would stay for long.
pub const MOST_GROWTH: f64 = 1.25;

/// Follows the number of publishers, to tell how many there will be when all have heard of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Turnover {
    devices: Option<u64>,
    joining: f64,
    leaving: f64,
    /// Joining over its least time, and leaving over the time that publishers take to hear.
    joined_lately: f64,
    left_lately: f64,
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
        self.joined_lately += (joined - self.joined_lately) * share(JOINING_MEMORY);
        self.leaving += (left - self.leaving) * share(LEAVING_MEMORY);
        self.left_lately += (left - self.left_lately) * share(lag.max(LEAVING_MEMORY));
    }

    /// How many times as many publishers there will be after this many seconds, if all goes on as it does: from
    /// [`LEAST_GROWTH`] to [`MOST_GROWTH`].
    pub fn growth(&self, seconds: f64) -> f64 {
        let devices = self.devices.unwrap_or(0).max(1) as f64;
        let leaving = self.leaving.min(MOST_LEAVING * self.left_lately);
        let joining = self.joining.min(MOST_JOINING * self.joined_lately);
        (1.0 + (joining - leaving) * seconds / devices).clamp(LEAST_GROWTH, MOST_GROWTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(counts: &[u64]) -> Turnover {
        let mut turnover = Turnover::default();
        counts.iter().for_each(|devices| turnover.observe(*devices, 0.5, 2.0));
        turnover
    }

    #[test]
    fn a_number_that_stays_does_not_grow() {
        assert_eq!(after(&[40; 10]).growth(5.0), 1.0);
        assert_eq!(Turnover::default().growth(5.0), 1.0);
    }

    /// All came in the first moment, and take long to hear: soon nobody is expected to follow them.
    #[test]
    fn a_crowd_that_came_at_once_is_soon_complete() {
        let mut turnover = Turnover::default();
        turnover.observe(10, 0.1, 12.5);
        turnover.observe(2000, 0.1, 12.5);
        assert_eq!(turnover.growth(12.5), MOST_GROWTH);
        (0..140).for_each(|_| turnover.observe(2000, 0.1, 12.5));
        assert!(turnover.growth(12.5) < 1.05, "{}", turnover.growth(12.5));
        // One that goes on coming is not.
        (1..=200).for_each(|more| turnover.observe(2000 + 2 * more, 0.1, 12.5));
        assert!((1.06..1.15).contains(&turnover.growth(12.5)), "{}", turnover.growth(12.5));
    }

    #[test]
    fn leaving_is_seen_at_once_and_joining_with_care() {
        let leaving = after(&[40, 38, 36, 34, 32]).growth(2.0);
        assert!((0.73..0.8).contains(&leaving), "4 a second of 32 leave: {leaving}");
        let joining = after(&[40, 45]).growth(2.0);
        assert!((1.05..1.2).contains(&joining), "{joining}");
        let joining_on = after(&[20, 22, 24, 26, 28, 30, 32, 34, 36]).growth(2.0);
        assert!((1.15..1.23).contains(&joining_on), "4 a second of 36 join: {joining_on}");
    }

    /// Those who are gone are gone: nobody is told to make up for as many in each moment to come.
    #[test]
    fn many_who_leave_at_once_leave_once() {
        let (mut turnover, lag) = (Turnover::default(), 9.0);
        turnover.observe(2000, 0.1, lag);
        turnover.observe(1900, 0.1, lag);
        let growth = turnover.growth(lag);
        assert!((0.65..1.0).contains(&growth), "{growth}");
        (0..200).for_each(|_| turnover.observe(1900, 0.1, lag));
        assert!(turnover.growth(lag) > 0.99);
    }

    #[test]
    fn growth_has_bounds() {
        assert_eq!(after(&[u64::MAX, 0]).growth(1e9), LEAST_GROWTH);
        assert_eq!(after(&[0, u64::MAX]).growth(1e9), MOST_GROWTH);
        let mut still = Turnover::default();
        still.observe(40, 0.0, 0.0);
        still.observe(10, 0.0, 0.0);
        assert_eq!(still.growth(1.0), 1.0, "no time went by");
    }
}

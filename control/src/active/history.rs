//! What a client remembers of its own decreases, in constant memory.

/// Running means over the decreases of a check interval: S, T, K and N of [`super::estimate`], as measured.
///
/// The first decreases count in full; later ones by a fixed share, so that the means follow a source that changes.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Time since the last decrease; none before the first.
    since: Option<f64>,
    growths: f64,
    /// Completed times between two decreases.
    periods: u32,
    decreases: u32,
    mean_s: f64,
    mean_interval: f64,
    mean_lost: f64,
    mean_growths: f64,
}

/// The least share of a new value in a mean: the memory is about 16 decreases.
const SHARE: f64 = 1.0 / 16.0;

impl History {
    /// Records an interval that ended with so many losses; any loss counts as a decrease.
    pub fn record(&mut self, interval: f64, lost: u32) {
        if let Some(since) = &mut self.since {
            *since += interval;
        }
        if lost > 0 {
            self.record_decrease(interval, f64::from(lost));
        } else {
            self.growths += 1.0;
        }
    }

    /// How many decreases were seen.
    pub fn decreases(&self) -> u32 {
        self.decreases
    }

    /// The mean time between two decreases (`E[S]`); none before the second.
    pub fn mean_s(&self) -> Option<f64> {
        (self.periods > 0).then_some(self.mean_s)
    }

    /// As [`History::mean_s`], but at least the time that went by since the last decrease.
    ///
    /// A source that falls silent makes no decrease, and its mean would stay as it was for ever.
    pub fn mean_s_so_far(&self) -> Option<f64> {
        self.mean_s().map(|mean| mean.max(self.since.unwrap_or(0.0)))
    }

    /// The mean interval at a decrease (T); none before the first.
    pub fn mean_interval(&self) -> Option<f64> {
        (self.decreases > 0).then_some(self.mean_interval)
    }

    /// The mean number of losses at a decrease (K_bulk); none before the first.
    pub fn mean_lost(&self) -> Option<f64> {
        (self.decreases > 0).then_some(self.mean_lost)
    }

    /// The mean number of growths between two decreases (N); none before the second.
    pub fn mean_growths(&self) -> Option<f64> {
        (self.periods > 0).then_some(self.mean_growths)
    }

    fn record_decrease(&mut self, interval: f64, lost: f64) {
        self.decreases = self.decreases.saturating_add(1);
        blend(&mut self.mean_interval, interval, self.decreases);
        blend(&mut self.mean_lost, lost, self.decreases);
        if let Some(since) = self.since {
            self.periods = self.periods.saturating_add(1);
            blend(&mut self.mean_s, since, self.periods);
            blend(&mut self.mean_growths, self.growths, self.periods);
        }
        self.since = Some(0.0);
        self.growths = 0.0;
    }
}

/// Moves a mean towards its `count`th value.
fn blend(mean: &mut f64, value: f64, count: u32) {
    let share = (1.0 / f64::from(count)).max(SHARE);
    *mean += (value - *mean) * share;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_a_sawtooth() {
        let mut history = History::default();
        assert_eq!((history.mean_s(), history.mean_interval()), (None, None));
        for _ in 0..3 {
            for (interval, lost) in [(2.0, 0), (3.0, 0), (4.0, 2)] {
                history.record(interval, lost);
            }
        }
        assert_eq!(history.decreases(), 3);
        assert_eq!(history.mean_s(), Some(9.0));
        assert_eq!(history.mean_interval(), Some(4.0));
        assert_eq!(history.mean_lost(), Some(2.0));
        assert_eq!(history.mean_growths(), Some(2.0));
    }

    #[test]
    fn silence_lengthens_the_estimate() {
        let mut history = History::default();
        for lost in [1, 1, 0, 0, 0] {
            history.record(5.0, lost);
        }
        assert_eq!(history.mean_s(), Some(5.0));
        assert_eq!(history.mean_s_so_far(), Some(15.0));
    }

    #[test]
    fn follows_a_change() {
        let mut history = History::default();
        for _ in 0..100 {
            history.record(10.0, 1);
        }
        for _ in 0..100 {
            history.record(2.0, 1);
        }
        assert!(history.mean_s().is_some_and(|s| (2.0..2.1).contains(&s)));
    }
}

//! Figures of many runs.

use super::Row;

/// The fewest runs from which a deviation is taken, whatever number was asked for: a band from fewer is worth nothing.
pub(super) const FEWEST_RUNS: usize = 100;

/// The same figure from many runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    values: Vec<f64>,
}

impl Sample {
    pub(super) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        Self { values: values.into_iter().collect() }
    }

    pub(super) fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// The mean; not a number of nothing, which agrees with no band.
    pub(super) fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// The standard deviation from run to run; not a number when there are fewer than two.
    pub(super) fn deviation(&self) -> f64 {
        if self.values.len() < 2 {
            return f64::NAN;
        }
        let mean = self.mean();
        let squares = self.values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        (squares / (self.values.len() as f64 - 1.0)).sqrt()
    }

    /// The highest figure; not a number of nothing.
    pub(super) fn highest(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The value below which this share of all values lies; not a number of nothing.
    pub(super) fn quantile(mut self, share: f64) -> f64 {
        self.values.sort_by(f64::total_cmp);
        let rank = (share * self.values.len() as f64).ceil() as usize;
        self.values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// How far one run may be from the mean in 99 of 100 cases: what a figure from a single run is worth.
    pub(super) fn single_run(&self) -> f64 {
        2.58 * self.deviation()
    }

    /// The band for an expected mean: the tolerance itself, or more when there are too few runs for it.
    pub(super) fn tolerance(&self, tolerance: f64) -> f64 {
        tolerance.max(4.0 * self.deviation() / (self.values.len().max(1) as f64).sqrt())
    }
}

/// A column of a table in which the paper prints what a single run gave.
pub(super) struct Column<R> {
    pub(super) name: &'static str,
    /// The column's figure of one run of ours.
    pub(super) figure: fn(&R) -> f64,
    /// What printing it with so few digits may have changed.
    pub(super) rounding: f64,
}

impl<R> Column<R> {
    /// The column's cell in one row: ours is the mean, and it agrees when a single run may give what is printed.
    pub(super) fn cell(&self, [paper, table, row]: [&str; 3], printed: f64, runs: &[R]) -> Row {
        let sample = Sample::new(runs.iter().map(self.figure));
        let tolerance = sample.single_run() + self.rounding;
        Row::near([paper, table, row, self.name], printed, sample.mean(), tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_sample() {
        let sample = Sample::new((1..=100).map(f64::from));
        assert_eq!((sample.mean(), sample.highest()), (50.5, 100.0));
        assert!((sample.deviation() - 29.011).abs() < 0.001);
        assert_eq!(sample.clone().quantile(0.95), 95.0);
        assert_eq!(sample.clone().quantile(0.0), 1.0);
        assert_eq!(sample.quantile(1.0), 100.0);
    }

    #[test]
    fn nothing_agrees_with_no_band() {
        let nothing = Sample::default();
        for ours in [nothing.mean(), nothing.highest(), nothing.clone().quantile(0.5), nothing.deviation()] {
            assert!(ours.is_nan());
            assert!(!Row::within(["000", "I", "row", "column"], None, ours, 0.0, 1.0).agrees);
        }
        let column = Column { name: "column", figure: |run: &f64| *run, rounding: 0.1 };
        assert!(!column.cell(["000", "I", "row"], 0.0, &[]).agrees);
        assert!(!column.cell(["000", "I", "row"], 1.0, &[1.0]).agrees, "one run has no deviation");
    }

    #[test]
    fn few_runs_widen_the_band() {
        let sample = Sample::new([1.0, 3.0, 1.0, 3.0]);
        assert!((sample.tolerance(0.1) - 2.309).abs() < 0.001);
        assert_eq!(sample.tolerance(5.0), 5.0);
    }
}

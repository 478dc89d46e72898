//! Figures of many runs.

use super::Row;

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

    /// The mean; 0 of nothing.
    pub(super) fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len().max(1) as f64
    }

    /// The standard deviation from run to run.
    pub(super) fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares = self.values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        (squares / self.values.len().max(1) as f64).sqrt()
    }

    /// The highest figure.
    pub(super) fn highest(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The value below which this share of all values lies; 0 of nothing.
    pub(super) fn quantile(mut self, share: f64) -> f64 {
        self.values.sort_by(f64::total_cmp);
        let rank = (share * self.values.len() as f64).ceil() as usize;
        self.values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
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
        assert!((sample.deviation() - 28.866).abs() < 0.001);
        assert_eq!(sample.clone().quantile(0.95), 95.0);
        assert_eq!(sample.clone().quantile(0.0), 1.0);
        assert_eq!(sample.quantile(1.0), 100.0);
        assert_eq!(Sample::default().quantile(0.5), 0.0);
        assert_eq!(Sample::default().mean(), 0.0);
    }

    #[test]
    fn few_runs_widen_the_band() {
        let sample = Sample::new([1.0, 3.0, 1.0, 3.0]);
        assert_eq!(sample.tolerance(0.1), 2.0);
        assert_eq!(sample.tolerance(5.0), 5.0);
    }
}

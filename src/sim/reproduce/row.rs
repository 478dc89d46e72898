//! One printed figure beside ours.

use serde::{Deserialize, Serialize};

/// One cell of a paper's table beside what we get for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The paper's number, such as `002`.
    pub paper: String,
    /// The table or figure in it, such as `II`.
    pub table: String,
    /// The row of that table.
    pub row: String,
    /// The column of that table.
    pub column: String,
    /// The figure in the paper; none where the paper prints none and only our own expectation is shown.
    pub printed: Option<f64>,
    /// The figure that we get.
    pub ours: f64,
    /// The lowest figure that counts as agreement.
    pub low: f64,
    /// The highest figure that counts as agreement.
    pub high: f64,
    /// Whether ours lies between low and high.
    pub agrees: bool,
    /// Why it does not, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Row {
    /// A row that agrees when ours is within `tolerance` (absolute) of the printed figure.
    pub fn near(place: [&str; 4], printed: f64, ours: f64, tolerance: f64) -> Self {
        Self::within(place, Some(printed), ours, printed - tolerance, printed + tolerance)
    }

    /// A row that agrees when ours is between `low` and `high`; `place` is paper, table, row, column.
    pub fn within(place: [&str; 4], printed: Option<f64>, ours: f64, low: f64, high: f64) -> Self {
        let [paper, table, row, column] = place.map(str::to_owned);
        let agrees = low <= ours && ours <= high;
        Self { paper, table, row, column, printed, ours, low, high, agrees, reason: None }
    }

    /// The same row with the reason why it differs, should it differ.
    pub fn because(self, reason: &str) -> Self {
        let reason = (!self.agrees).then(|| reason.to_owned());
        Self { reason, ..self }
    }
}

/// All rows of one paper, with what a reader has to know to read them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Runs behind each figure.
    pub runs: usize,
    /// The figures, in the paper's order.
    pub rows: Vec<Row>,
    /// One line for each place where the paper contradicts itself or was read in a certain way.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_agrees_inside_its_band_only() {
        let place = ["003", "II", "adaptive", "t_avg"];
        assert!(Row::near(place, 28.8, 28.0, 1.0).agrees);
        assert!(!Row::near(place, 28.8, 26.2, 1.0).agrees);
        assert!(!Row::within(place, None, f64::NAN, 0.0, 1.0).agrees);
        assert_eq!(Row::near(place, 28.8, 28.0, 1.0).because("misprint").reason, None);
        assert_eq!(Row::near(place, 28.8, 26.2, 1.0).because("misprint").reason.as_deref(), Some("misprint"));
    }
}

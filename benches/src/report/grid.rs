//! The table of a study as words: a row for each measure, a column for each variant.

use super::{finding, words};
use crate::compare::{Measure, measures_of};
use crate::record::{BrokerResult, ScenarioComparison};

/// Head and rows.
pub fn rows(part: &ScenarioComparison) -> Vec<Vec<String>> {
    let with = |first: &str, cell: &dyn Fn(&BrokerResult) -> String| -> Vec<String> {
        std::iter::once(first.to_owned()).chain(part.brokers.iter().map(cell)).collect()
    };
    let mut rows = vec![
        with("", &|result| result.broker.label()),
        with("messages", &|result| {
            let finding = finding::finding(&result.runs);
            finding.limits.map_or(finding.short.clone(), |limits| format!("{}, {limits}", finding.short))
        }),
    ];
    for measure in measures_of(part.brokers.iter().flat_map(|result| &result.runs)) {
        if is_worth_a_row(part, &measure) {
            let unit = if measure.unit.is_empty() { String::new() } else { format!(", {}", measure.unit) };
            rows.push(with(&format!("{}{unit}", measure.title), &|result| cell(part, result, &measure)));
        }
    }
    rows
}

/// What the figures are.
pub fn behind(part: &ScenarioComparison) -> String {
    match part.brokers.iter().map(|result| result.runs.len()).max() {
        None | Some(0 | 1) => "One run each".to_owned(),
        Some(runs) => format!("Medians of {}, with their range in brackets", words::plural(runs, "run")),
    }
}

/// What nobody knows, and what never happened, needs no row; but that nothing was lost is worth one.
fn is_worth_a_row(part: &ScenarioComparison, measure: &Measure) -> bool {
    let mut known = part.brokers.iter().filter_map(|result| result.measures.get(measure.name.as_ref()));
    // Not to have settled is worth a row too.
    let is_told = |result: &BrokerResult| {
        let name = measure.name.as_ref();
        !result.measures.contains_key(name) && words::instead(name, &result.runs).is_some()
    };
    part.brokers.iter().any(is_told)
        || known.any(|summary| summary.high != 0.0 || !words::is_counted(measure) || measure.name == "lost")
}

fn cell(part: &ScenarioComparison, result: &BrokerResult, measure: &Measure) -> String {
    let ours = result.measures.get(measure.name.as_ref()).map(|summary| {
        let range = words::range(summary).map(|range| format!(" [{range}]")).unwrap_or_default();
        format!("{}{range}", words::median(measure, summary))
    });
    let ours = ours.unwrap_or_else(|| words::unknown(measure, &result.runs).to_owned());
    match words::reference(part, &result.broker, measure) {
        Some(reference) => format!("{ours} ({reference})"),
        None => ours,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use std::collections::BTreeMap;

    use super::*;
    use crate::compare::summarise;
    use crate::record::{Broker, Control, Rates, Reference, Run, Totals};

    fn result(variant: &str, delivered: [f64; 2]) -> BrokerResult {
        let broker = Broker { name: "tidegate".to_owned(), variant: variant.to_owned(), ..Broker::default() };
        let run = |delivered: f64| Run {
            broker: broker.clone(),
            duration: 10.0,
            rates: Rates { delivered, ..Rates::default() },
            totals: Totals { sent: 5, delivered: 5, expected: 5, ..Totals::default() },
            control: Control { mean_depth: Some(7.0), settle: Some(0.0), ..Control::default() },
            ..Run::default()
        };
        let runs = delivered.map(run).to_vec();
        BrokerResult { broker, measures: summarise(&runs, None), runs }
    }

    #[test]
    fn a_row_for_each_measure_with_the_figures_from_elsewhere_beside_ours() {
        let values = BTreeMap::from([("with".to_owned(), BTreeMap::from([("mean_depth".to_owned(), 6.5)]))]);
        let reference = Reference { name: "paper".to_owned(), about: String::new(), values };
        let brokers = vec![result("without", [10.0, 20.0]), result("with", [30.0, 30.0])];
        let part =
            ScenarioComparison { brokers, reference: Some(reference), ..ScenarioComparison::default() };
        let rows = rows(&part);
        let row = |name: &str| rows.iter().find(|row| row[0].starts_with(name)).map(|row| row[1..].to_vec());
        assert_eq!(rows[0], ["", "without", "with"]);
        assert_eq!(row("delivered, /s").unwrap(), ["15 [10 to 20]", "30"]);
        assert_eq!(row("mean queue length").unwrap(), ["7", "7 (paper: 6.5)"]);
        assert_eq!(row("messages lost").unwrap(), ["none", "none"]);
        assert_eq!(row("time to settle").unwrap(), ["0", "0"], "at once is not never");
        assert_eq!(
            (row("duplicates"), row("swing")),
            (None, None),
            "what never happened, and what nobody knows"
        );
        assert!(behind(&part).contains("2 runs"));
    }
}

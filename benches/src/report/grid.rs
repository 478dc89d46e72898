//! The table of a study as words: a row for each measure, a column for each variant.

use super::words;
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
            let finding = words::finding(&result.runs);
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
    known.any(|summary| summary.high != 0.0 || measure.name == "lost")
}

fn cell(part: &ScenarioComparison, result: &BrokerResult, measure: &Measure) -> String {
    let ours = result.measures.get(measure.name.as_ref()).map(|summary| {
        let range = words::range(summary).map(|range| format!(" [{range}]")).unwrap_or_default();
        format!("{}{range}", words::median(measure, summary))
    });
    let ours = ours.unwrap_or_else(|| "not known".to_owned());
    match words::reference(part, &result.broker, measure) {
        Some(reference) => format!("{ours} ({reference})"),
        None => ours,
    }
}

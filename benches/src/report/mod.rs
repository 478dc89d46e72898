//! Reports for people: markdown and one self-contained HTML page.

use crate::record::{Comparison, Run};

/// A page about one run.
pub fn run_html(run: &Run) -> String {
    format!("<!doctype html><title>{}</title>", run.scenario)
}

/// A page about several brokers.
pub fn html(comparison: &Comparison) -> String {
    format!("<!doctype html><title>{} scenarios</title>", comparison.scenarios.len())
}

/// A table of one run.
pub fn run_markdown(run: &Run) -> String {
    format!("## {}\n", run.scenario)
}

/// Tables about several brokers.
pub fn markdown(comparison: &Comparison) -> String {
    let names = comparison.scenarios.iter().map(|part| format!("## {}\n", part.scenario));
    names.collect()
}

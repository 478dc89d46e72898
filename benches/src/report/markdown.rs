//! Tables for a README.

use tidegate::sim::plot::svg::put;

use super::{finding, grid, single, words};
use crate::compare::{MEASURES, Measure};
use crate::record::{BrokerResult, Comparison, Machine, Run, ScenarioComparison};

/// Figures that are worth a column in a README; the HTML page has all.
const COLUMNS: [&str; 11] = [
    "accepted",
    "delivered",
    "p50",
    "p99",
    "queue_wait_p99",
    "withheld_share",
    "lost",
    "undelivered",
    "waiting",
    "cpu",
    "rss",
];

/// A table of one run.
pub fn run_markdown(run: &Run) -> String {
    let mut out = format!(
        "## {} on {} {}\n\n",
        plain(&run.scenario),
        plain(&run.broker.name),
        plain(&run.broker.version)
    );
    let finding = finding::finding(std::slice::from_ref(run));
    put(&mut out, format_args!("{}\n\n{}\n\n", plain(&run.about), plain(&finding.long)));
    warn(&mut out, std::iter::once(run), "");
    out.push_str("| | |\n|---|---|\n");
    for (name, value) in single::rows(run) {
        put(&mut out, format_args!("| {name} | {} |\n", plain(&value)));
    }
    put(
        &mut out,
        format_args!("\n{} Seed {}. {}\n", machine(&run.machine), run.seed, generator(&run.generator)),
    );
    out
}

/// Tables about several brokers.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = String::new();
    if let Some(words) = &comparison.unfinished {
        put(&mut out, format_args!("**Not finished**: {}\n\n", plain(words)));
    }
    for failure in &comparison.failures {
        put(&mut out, format_args!("- **Not as expected**: {}\n", plain(failure)));
    }
    if !comparison.failures.is_empty() {
        out.push('\n');
    }
    for missing in &comparison.missing {
        put(
            &mut out,
            format_args!("**{}**: {}\n\n", plain(&words::missing(missing)), plain(&missing.reason)),
        );
    }
    for part in &comparison.scenarios {
        scenario(&mut out, part);
    }
    put(
        &mut out,
        format_args!(
            "{} {} Started {}, took {}.\n",
            machine(&comparison.machine),
            generator(&comparison.generator),
            plain(&comparison.started),
            words::duration(comparison.seconds)
        ),
    );
    out
}

fn scenario(out: &mut String, part: &ScenarioComparison) {
    put(out, format_args!("### {}\n\n{}\n\n", plain(&part.scenario), plain(&part.about)));
    if part.brokers.iter().any(|result| !result.broker.variant.is_empty()) {
        variants(out, part);
    } else {
        side_by_side(out, part);
    }
    for result in &part.brokers {
        warn(out, result.runs.iter(), &format!("{}: ", plain(&result.broker.label())));
    }
}

/// A row for each measure, a column for each variant.
fn variants(out: &mut String, part: &ScenarioComparison) {
    for (index, row) in grid::rows(part).into_iter().enumerate() {
        put(
            out,
            format_args!("| {} |\n", row.iter().map(|cell| plain(cell)).collect::<Vec<_>>().join(" | ")),
        );
        if index == 0 {
            put(out, format_args!("|---|{}\n", "---:|".repeat(row.len() - 1)));
        }
    }
    put(out, format_args!("\n{}. {}.\n\n", grid::behind(part), words::seeds(part)));
    if let Some(reference) = part.reference.as_ref().filter(|reference| !reference.about.is_empty()) {
        put(out, format_args!("{}: {}\n\n", plain(&reference.name), plain(&reference.about)));
    }
}

/// A row for each broker, a column for each of the most important measures.
fn side_by_side(out: &mut String, part: &ScenarioComparison) {
    let known = |name: &&str| part.brokers.iter().any(|result| result.measures.contains_key(*name));
    let column = |name: &str| MEASURES.iter().find(|measure| measure.name == name);
    let columns: Vec<&Measure> =
        COLUMNS.iter().filter(|name| known(name)).filter_map(|name| column(name)).collect();
    out.push_str("| broker |");
    for measure in &columns {
        let unit = if measure.unit.is_empty() { String::new() } else { format!(", {}", measure.unit) };
        put(out, format_args!(" {}{unit} |", measure.title));
    }
    put(out, format_args!(" messages |\n|---|{}---|\n", "---:|".repeat(columns.len())));
    for result in &part.brokers {
        row(out, result, &columns);
    }
    let runs = part.brokers.iter().map(|result| result.runs.len()).max().unwrap_or(0);
    if let Some(first) = part.brokers.first() {
        put(
            out,
            format_args!(
                "\nMedians of {}, with their range in brackets and the ratio to {}. {}.\n\n",
                words::plural(runs, "run"),
                plain(&first.broker.name),
                words::seeds(part)
            ),
        );
    }
}

fn row(out: &mut String, result: &BrokerResult, columns: &[&Measure]) {
    let name = format!("{} {}", result.broker.name, result.broker.version);
    put(out, format_args!("| {} |", plain(name.trim_end())));
    for measure in columns {
        let Some(summary) = result.measures.get(measure.name.as_ref()) else {
            put(out, format_args!(" {} |", words::unknown(measure, &result.runs)));
            continue;
        };
        put(out, format_args!(" {}", words::median(measure, summary)));
        if let Some(range) = words::range(summary) {
            put(out, format_args!(" [{range}]"));
        }
        if let Some(ratio) = summary.ratio {
            put(out, format_args!(" {}×", words::figure(ratio)));
        }
        if let Some(known) = words::known(measure, &result.runs) {
            put(out, format_args!(" ({known})"));
        }
        out.push_str(" |");
    }
    let finding = finding::finding(&result.runs);
    let words = plain(finding.long.trim_end_matches('.'));
    let words = if finding.good { words } else { format!("**{words}**") };
    let limits = finding.limits.map(|limits| format!("; **{}**", plain(&limits))).unwrap_or_default();
    put(out, format_args!(" {words}{limits} |\n"));
}

/// What a reader must know to judge the figures, each text once.
fn warn<'a>(out: &mut String, runs: impl Iterator<Item = &'a Run>, place: &str) {
    let mut known = Vec::new();
    for run in runs {
        let errors = run.error.iter().map(|error| ("Cut short", error.as_str()));
        let notes =
            run.notes.iter().filter_map(|note| Some((words::warning(note.kind)?.0, note.text.as_str())));
        for warning in errors.chain(notes) {
            if !known.contains(&warning) {
                known.push(warning);
            }
        }
    }
    for (heading, text) in &known {
        put(out, format_args!("- **{heading}**: {place}{}\n", plain(text)));
    }
    if !known.is_empty() {
        out.push('\n');
    }
}

fn generator(generator: &str) -> String {
    plain(&format!("Generator: tidegate-bench {generator}."))
}

fn machine(machine: &Machine) -> String {
    plain(&format!("Machine: {}.", super::page::machine(machine)))
}

/// Words from outside, which must not become markup or end a cell.
fn plain(words: &str) -> String {
    let mut out = String::new();
    for letter in words.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

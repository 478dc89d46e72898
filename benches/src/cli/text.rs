//! Results as plain text for a terminal.

use std::fmt::Write;

use crate::compare::MEASURES;
use crate::record::{BrokerResult, Comparison, Run, Summary};
use crate::report::words;

/// One run.
pub(super) fn run(run: &Run) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = lines(&mut text, run);
    text
}

fn lines(text: &mut String, run: &Run) -> std::fmt::Result {
    let Run { broker, totals, rates, latency, .. } = run;
    writeln!(text, "{} against {} {} on {}", run.scenario, broker.name, broker.version, broker.address)?;
    writeln!(text, "  {}", run.about)?;
    if !broker.configuration.is_empty() {
        writeln!(text, "configuration:")?;
        broker.configuration.lines().try_for_each(|line| writeln!(text, "  {line}"))?;
    }
    writeln!(text, "measured    {:.1} s after connecting in {:.2} s", run.duration, run.connect_seconds)?;
    let (sent, accepted, delivered) = (number(rates.sent), number(rates.accepted), number(rates.delivered));
    writeln!(text, "rates       sent {sent}/s, accepted {accepted}/s, delivered {delivered}/s")?;
    writeln!(
        text,
        "latency     p50 {} ms, p99 {} ms, p99.9 {} ms, max {} ms (from the intended time of sending)",
        number(latency.p50),
        number(latency.p99),
        number(latency.p999),
        number(latency.max)
    )?;
    writeln!(
        text,
        "messages    sent {}, accepted {}, refused {}, delivered {} of {} expected",
        totals.sent, totals.accepted, totals.refused, totals.delivered, totals.expected
    )?;
    writeln!(
        text,
        "checks      lost {}, duplicates {}, out of order {}, foreign {}",
        totals.lost, totals.duplicates, totals.out_of_order, totals.foreign
    )?;
    if let Some(used) = &run.broker_use {
        writeln!(text, "broker      {:.2} processors, {:.0} MB", used.cpu, used.rss as f64 / 1e6)?;
    }
    writeln!(
        text,
        "generator   tidegate-bench {}, seed {}: {:.2} processors, {:.0} MB",
        run.generator,
        run.seed,
        run.generator_use.cpu,
        run.generator_use.rss as f64 / 1e6
    )?;
    run.notes.iter().try_for_each(|note| writeln!(text, "note        {}", note.text))?;
    run.error.iter().try_for_each(|error| writeln!(text, "cut short   {error}"))
}

/// Several brokers, a table for each scenario.
pub(super) fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    for part in &comparison.scenarios {
        let _ = writeln!(text, "\n{}: {}", part.scenario, part.about);
        let shown = ["sent", "accepted", "delivered", "p50", "p99", "lost_share", "waiting", "cpu", "rss"];
        let measures: Vec<_> = MEASURES.iter().filter(|measure| shown.contains(&measure.name)).collect();
        let mut rows = vec![
            std::iter::once("median [range]".to_owned())
                .chain(
                    measures
                        .iter()
                        .map(|measure| format!("{} {}", measure.title, measure.unit).trim().to_owned()),
                )
                .chain(std::iter::once("messages".to_owned()))
                .collect::<Vec<_>>(),
        ];
        rows.extend(
            part.brokers.iter().map(|broker| row(broker, measures.iter().map(|measure| measure.name))),
        );
        let widths: Vec<usize> = (0..rows[0].len())
            .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
            .collect();
        for row in rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  "));
        }
        for run in part.brokers.iter().flat_map(|broker| &broker.runs) {
            for words in run.notes.iter().map(|note| &note.text).chain(&run.error) {
                let _ = writeln!(text, "  {} ({}): {words}", run.broker.name, run.repetition);
            }
        }
    }
    if let Some(words) = &comparison.unfinished {
        let _ = writeln!(text, "not finished: {words}");
    }
    for missing in &comparison.missing {
        let scenario = missing.scenario.as_ref().map(|scenario| format!("{scenario}: ")).unwrap_or_default();
        let _ = writeln!(text, "not there: {scenario}{}", missing.reason);
    }
    let _ = writeln!(text, "\nall runs took {:.0} s", comparison.seconds);
    text
}

fn row<'a>(broker: &BrokerResult, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let name = format!("{} {}", broker.broker.name, broker.broker.version);
    std::iter::once(name)
        .chain(names.map(|name| broker.measures.get(name).map_or("-".to_owned(), cell)))
        .chain(std::iter::once(messages(&broker.runs)))
        .collect()
}

/// What became of them and what held the figures back, so that no figure looks better than it is.
fn messages(runs: &[Run]) -> String {
    let finding = words::finding(runs);
    let limits = finding.limits.map(|limits| format!(", {limits}")).unwrap_or_default();
    format!("{}{limits}", finding.short)
}

fn cell(summary: &Summary) -> String {
    let ratio = summary.ratio.map(|ratio| format!(" x{}", number(ratio))).unwrap_or_default();
    format!("{} [{} {}]{ratio}", number(summary.median), number(summary.low), number(summary.high))
}

/// Three digits, and no more for large numbers than they have.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

//! Results as plain text for a terminal.

use std::fmt::Write;

use crate::compare::{MEASURES, value};
use crate::record::{BrokerResult, Comparison, Run, ScenarioComparison, Summary};
use crate::report::{finding, grid, words};

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
    if run.queue_wait.count > 0 {
        let waits = &run.queue_wait;
        let [mean, p50, p99, max] = [waits.mean, waits.p50, waits.p99, waits.max].map(number);
        writeln!(
            text,
            "queueing    mean {mean} ms, p50 {p50} ms, p99 {p99} ms, max {max} ms (from the acknowledgement to processing)"
        )?;
    }
    if let Some(withheld) = &run.withheld {
        writeln!(text, "withheld    {}", words::restraint(withheld))?;
        let share = 100.0 * totals.announcements as f64 / totals.accepted.max(1) as f64;
        writeln!(
            text,
            "advice      {} announcements, {} % of the messages",
            totals.announcements,
            number(share)
        )?;
    }
    control(text, run)?;
    classes(text, run)?;
    writeln!(
        text,
        "messages    sent {}, accepted {}, refused {}, delivered {} of {} expected",
        totals.sent, totals.accepted, totals.refused, totals.delivered, totals.expected
    )?;
    writeln!(
        text,
        "checks      lost {}, undelivered {}, duplicates {}, repeated {}, out of order {}, foreign {}, unsent {}, outstanding {}, \
         connections broken {}",
        totals.lost,
        totals.undelivered,
        totals.duplicates,
        totals.repeated,
        totals.out_of_order,
        totals.foreign,
        totals.unsent,
        totals.outstanding,
        totals.disconnects
    )?;
    writeln!(text, "afterwards  delivered {}", words::drain(run))?;
    if !run.farewells.is_empty() {
        let reasons: Vec<String> = run.farewells.iter().map(finding::reason).collect();
        writeln!(text, "ended       by the broker: {}", reasons.join(", "))?;
    }
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

/// The run against what would have been right, as far as that is known.
fn control(text: &mut String, run: &Run) -> std::fmt::Result {
    let names = [
        ("processed", "processed_share"),
        ("of capacity", "delivered_share"),
        ("queue", "mean_depth"),
        ("send interval", "mean_interval"),
        ("at most", "max_interval"),
        ("instances", "mean_instances"),
        ("settled after", "settle"),
        ("swing", "swing"),
    ];
    let said = |name: &str| {
        let instead = words::instead(name, std::slice::from_ref(run)).map(str::to_owned);
        value(run, name).map(precise).or(instead)
    };
    let known = names.iter().filter_map(|(words, name)| Some(format!("{words} {}", said(name)?)));
    let known: Vec<String> = known.collect();
    // Without a limit the rest says little.
    if run.control.limit.is_none() { Ok(()) } else { writeln!(text, "control     {}", known.join(", ")) }
}

fn classes(text: &mut String, run: &Run) -> std::fmt::Result {
    let classes = run.classes.iter().filter(|_| run.classes.len() > 1);
    classes.into_iter().try_for_each(|class| {
        let fairness = class.fairness.map(|fairness| format!(", fairness {}", precise(fairness)));
        writeln!(
            text,
            "class       {}: {} devices, accepted {}/s{}, latency p50 {} ms, p99 {} ms, queueing p99 {} ms",
            class.name,
            class.devices,
            number(class.rate),
            fairness.unwrap_or_default(),
            number(class.latency.p50),
            number(class.latency.p99),
            number(class.queue_wait.p99)
        )
    })
}

/// The variants of a scenario: a row for each measure.
pub(super) fn study(comparison: &Comparison) -> String {
    let mut text = String::new();
    for part in &comparison.scenarios {
        let _ = writeln!(text, "\n{}: {}", part.scenario, part.about);
        let _ = writeln!(text, "{}.", grid::behind(part));
        align(&mut text, &grid::rows(part));
        say_notes(&mut text, part);
    }
    say_end(&mut text, comparison);
    text
}

/// Figures that are worth a column if they are known of anybody.
const COLUMNS: [&str; 12] = [
    "sent",
    "accepted",
    "delivered",
    "p50",
    "p99",
    "queue_wait_p99",
    "withheld_share",
    "lost_share",
    "undelivered",
    "waiting",
    "cpu",
    "rss",
];

/// Several brokers, a table for each scenario.
pub(super) fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    for part in &comparison.scenarios {
        let _ = writeln!(text, "\n{}: {}", part.scenario, part.about);
        let known = |name: &str| part.brokers.iter().any(|result| result.measures.contains_key(name));
        let is_shown = |name: &str| COLUMNS.contains(&name) && known(name);
        let measures: Vec<_> = MEASURES.iter().filter(|measure| is_shown(&measure.name)).collect();
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
            part.brokers
                .iter()
                .map(|broker| row(broker, measures.iter().map(|measure| measure.name.as_ref()))),
        );
        align(&mut text, &rows);
        say_notes(&mut text, part);
    }
    say_end(&mut text, comparison);
    text
}

/// Rows with their columns one below the other.
fn align(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  "));
    }
}

fn say_notes(text: &mut String, part: &ScenarioComparison) {
    for run in part.brokers.iter().flat_map(|broker| &broker.runs) {
        for words in run.notes.iter().map(|note| &note.text).chain(&run.error) {
            let _ = writeln!(text, "  {} ({}): {words}", run.broker.label(), run.repetition);
        }
    }
}

fn say_end(text: &mut String, comparison: &Comparison) {
    if let Some(words) = &comparison.unfinished {
        let _ = writeln!(text, "not finished: {words}");
    }
    for missing in &comparison.missing {
        let scenario = missing.scenario.as_ref().map(|scenario| format!("{scenario}: ")).unwrap_or_default();
        let _ = writeln!(text, "not there: {scenario}{}", missing.reason);
    }
    let _ = writeln!(text, "\nall runs took {:.0} s", comparison.seconds);
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
    let finding = finding::finding(runs);
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

/// Figures near 1, where a hundredth counts.
fn precise(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.3}") } else { number(value) }
}

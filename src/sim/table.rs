//! Results as text.

use std::fmt::Write;

use super::outcome::{Measure, Outcome};
use super::reproduce::{Paper, Report, Row};

/// The figures of a run, with their bands.
pub(super) fn outcome(outcome: &Outcome) -> String {
    let mut out = format!("{}, seed {}, {} events\n", outcome.scenario, outcome.seed, outcome.events);
    let width = outcome.measures.iter().map(|measure| measure.name.len()).max().unwrap_or(0);
    for measure in &outcome.measures {
        put(
            &mut out,
            format_args!("  {:width$}  {:>12}{}\n", measure.name, figure(measure.value), verdict(measure)),
        );
    }
    out
}

/// The rows of a paper: its figure, ours, and whether they agree.
pub(super) fn report(paper: &Paper, report: &Report) -> String {
    let behind = if report.runs == 1 { "1 run".to_owned() } else { format!("{} runs", report.runs) };
    let mut out = format!("Paper {}: {}, {behind} behind each figure\n", paper.number, paper.title);
    let width =
        |part: fn(&Row) -> &str| report.rows.iter().map(|row| part(row).chars().count()).max().unwrap_or(0);
    let (row_width, column_width) = (width(|row| &row.row), width(|row| &row.column));
    for rows in report.rows.chunk_by(|a, b| a.table == b.table) {
        put(
            &mut out,
            format_args!(
                "\n  {:<row_width$}  {:<column_width$}  {:>10}  {:>10}  agrees\n",
                rows[0].table, "", "paper", "ours"
            ),
        );
        for row in rows {
            let printed = row.printed.map_or_else(|| "-".to_owned(), figure);
            put(
                &mut out,
                format_args!(
                    "  {:<row_width$}  {:<column_width$}  {printed:>10}  {:>10}  {}\n",
                    row.row,
                    row.column,
                    figure(row.ours),
                    agreement(row)
                ),
            );
        }
    }
    let agreeing = report.rows.iter().filter(|row| row.agrees).count();
    put(&mut out, format_args!("\n  {agreeing} of {} figures agree.\n", report.rows.len()));
    for note in &report.notes {
        put(&mut out, format_args!("  Note: {note}\n"));
    }
    out.push('\n');
    out
}

fn agreement(row: &Row) -> String {
    if row.agrees {
        return "yes".to_owned();
    }
    let reason = row.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("NO: {} to {} would{reason}", figure(row.low), figure(row.high))
}

fn verdict(measure: &Measure) -> String {
    let Some([low, high]) = measure.band else { return String::new() };
    let word = if measure.agrees() == Some(true) { "as expected," } else { "NOT as expected," };
    format!("   {word} {} to {}", figure(low), figure(high))
}

/// A number with about five digits.
fn figure(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        large if large >= 10_000.0 => 0,
        large if large >= 100.0 => 1,
        large if large >= 10.0 => 2,
        large if large >= 0.1 => 3,
        _ => 4,
    };
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.digits$}") }
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string can't fail.
    let _ = out.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 5.0, 0.12345, 0.012345, 12.345, 123.45, 12345.6].map(figure);
        assert_eq!(shown, ["0", "5", "0.123", "0.0123", "12.35", "123.5", "12346"]);
    }

    #[test]
    fn a_report_has_the_papers_figure_ours_and_whether_they_agree() {
        fn nothing(_: usize, _: u64, _: &mut dyn FnMut(f64)) -> Report {
            Report::default()
        }
        let paper =
            Paper { number: "002", title: "a title", runs: 1, report: nothing, figures: |_| Vec::new() };
        let rows = vec![
            Row::near(["002", "1", "O.P.", "processed"], 5855.0, 5897.25, 100.0),
            Row::within(["002", "1", "O.P.", "share"], None, 0.5, 0.9, 1.0),
        ];
        let text = report(&paper, &Report { runs: 7, rows, notes: vec!["a note".to_owned()] });
        assert!(text.contains("5855") && text.contains("5897.2") && text.contains("yes"), "{text}");
        assert!(text.contains("NO: 0.900 to 1 would") && text.contains("1 of 2 figures agree"), "{text}");
        assert!(
            text.contains("Note: a note") && text.contains("a title, 7 runs behind each figure"),
            "{text}"
        );
    }
}

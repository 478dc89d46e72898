//! Figures in words, the same in every kind of report.

use crate::compare::{Measure, drained};
use crate::record::{Broker, Missing, NoteKind, Run, ScenarioComparison, Settled, Summary, Withheld};

/// A whole number with its thousands apart.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with three significant digits.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if size >= 2 {
        let unit = 10f64.powi(size - 2);
        let rounded = (value.abs() / unit).round() * unit;
        let sign = if value < 0.0 { "−" } else { "" };
        return format!("{sign}{}", count(rounded as u64));
    }
    let decimals = (2 - size).clamp(0, 6) as usize;
    let digits = format!("{value:.decimals$}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    // what rounds to nothing is not nothing
    if value != 0.0 && digits == "0" { "<0.000001".to_owned() } else { digits.to_owned() }
}

/// A number with its unit.
pub fn quantity(value: f64, unit: &str) -> String {
    let space = if unit.is_empty() || unit.starts_with('/') || unit == "%" { "" } else { " " };
    format!("{}{space}{unit}", figure(value))
}

/// What is counted, and is best never seen.
const COUNTED: [&str; 15] = [
    "lost",
    "lost_share",
    "undelivered",
    "duplicates",
    "repeated",
    "out_of_order",
    "refused",
    "unsent",
    "outstanding",
    "waiting",
    "disconnects",
    "failed_connects",
    "withheld",
    "withheld_share",
    "drained",
];

/// Whether it is one of those that are counted and best never seen.
pub fn is_counted(measure: &Measure) -> bool {
    COUNTED.contains(&measure.name.as_ref())
}

/// The median, or `none` of something that is counted and was never seen.
pub fn median(measure: &Measure, summary: &Summary) -> String {
    if is_counted(measure) && summary.high == 0.0 { "none".to_owned() } else { figure(summary.median) }
}

/// The range of repetitions, if there is one.
pub fn range(summary: &Summary) -> Option<String> {
    let (low, high) = (figure(summary.low), figure(summary.high));
    (low != high).then(|| format!("{low} to {high}"))
}

/// The figure from elsewhere beside that of a variant, with its name.
pub fn reference(part: &ScenarioComparison, broker: &Broker, measure: &Measure) -> Option<String> {
    let reference = part.reference.as_ref().filter(|_| broker.name == "tidegate")?;
    let value = reference.of(&broker.variant, &measure.name)?;
    Some(format!("{}: {}", reference.name, figure(value)))
}

/// What is said in place of a figure that should be there and is not; none if nobody should expect it.
pub fn instead(name: &str, runs: &[Run]) -> Option<&'static str> {
    let settled = runs.iter().filter_map(|run| run.control.settled).max()?;
    match (name, settled) {
        ("settle", Settled::Never) => Some("never"),
        ("settle" | "swing", _) => Some("not measurable"),
        _ => None,
    }
}

/// What is said in place of a figure that is not there.
pub fn unknown(measure: &Measure, runs: &[Run]) -> &'static str {
    instead(&measure.name, runs).unwrap_or("not known")
}

/// From how many runs a figure is known, if not from all.
pub fn known(measure: &Measure, runs: &[Run]) -> Option<String> {
    let known = runs.iter().filter_map(|run| measure.read(run)).count();
    (known < runs.len()).then(|| format!("known from {known} of {}", plural(runs.len(), "run")))
}

/// A length of time.
pub fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        return quantity(seconds, "s");
    }
    let whole = seconds.round() as u64;
    format!("{} min {} s", count(whole / 60), whole % 60)
}

/// An amount of memory.
pub fn memory(bytes: u64) -> String {
    let bytes = bytes as f64;
    if bytes >= 1e9 { quantity(bytes / 1e9, "GB") } else { quantity(bytes / 1e6, "MB") }
}

/// Several things in a row: `a, b and c`.
pub fn list(things: &[String]) -> String {
    match things {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

/// What devices were talked out of sending, in words.
pub fn restraint(withheld: &Withheld) -> String {
    format!(
        "{} of {} messages that devices that follow wanted to send ({}), for {} of {}",
        figure(withheld.messages),
        figure(withheld.wanted),
        quantity(100.0 * withheld.share(), "%"),
        duration(withheld.seconds),
        duration(withheld.connected)
    )
}

/// What was delivered after the measured part, and whether that was all.
pub fn drain(run: &Run) -> String {
    let all = run.totals.lost == 0 && run.totals.undelivered == 0;
    let rest = if all { "" } else { ", and not all of it" };
    format!("{} in {}{rest}", count(drained(run)), duration(run.drain_seconds))
}

/// The seeds of the runs of a scenario, nearly always one.
pub fn seeds(part: &ScenarioComparison) -> String {
    let mut seeds: Vec<u64> =
        part.brokers.iter().flat_map(|result| &result.runs).map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let words: Vec<String> = seeds.iter().map(u64::to_string).collect();
    if words.is_empty() { "No run".to_owned() } else { format!("Seed {}", list(&words)) }
}

/// What a kind of note means, as a heading and a sentence; none for those that only inform.
pub fn warning(kind: NoteKind) -> Option<(&'static str, &'static str)> {
    match kind {
        NoteKind::GeneratorLimited => Some((
            "Generator limited",
            "The generator could not send what was meant to be sent: what it measured is a lower bound.",
        )),
        NoteKind::MachineSaturated => Some((
            "Machine saturated",
            "Generator and broker shared processors that had nothing left: each would do better alone.",
        )),
        NoteKind::Check => {
            Some(("Check not complete", "Loss, duplicates or order could not be checked for every message."))
        }
        NoteKind::Late | NoteKind::Relay | NoteKind::Info => None,
    }
}

/// Who could not take part, and where.
pub fn missing(missing: &Missing) -> String {
    match &missing.scenario {
        None => format!("{} did not take part", missing.broker),
        Some(scenario) => format!("{} could not run {scenario}", missing.broker),
    }
}

/// `1 run`, `2 runs`.
pub fn plural(number: usize, thing: &str) -> String {
    format!("{} {thing}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

/// The same words with a capital letter.
pub fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::MEASURES;

    #[test]
    fn numbers_read_well() {
        let cases = [
            (0.0, "0"),
            (0.0123, "0.0123"),
            (1.0, "1"),
            (9.876, "9.88"),
            (99.96, "100"),
            (123_456.0, "123,000"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
        assert_eq!(figure(f64::NAN), "–");
        assert_eq!(figure(1e-9), "<0.000001");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(quantity(96_123.0, "/s"), "96,100/s");
        assert_eq!(quantity(2.5, "ms"), "2.5 ms");
    }

    #[test]
    fn why_something_is_not_known_is_said() {
        let with = |settled| {
            let control = crate::record::Control { settled, ..Default::default() };
            [Run { control, ..Run::default() }]
        };
        for (settled, settle, swing) in [
            (None, None, None),
            (Some(Settled::NotMeasurable), Some("not measurable"), Some("not measurable")),
            (Some(Settled::Never), Some("never"), Some("not measurable")),
        ] {
            let runs = with(settled);
            assert_eq!((instead("settle", &runs), instead("swing", &runs)), (settle, swing));
            assert_eq!(instead("p99", &runs), None);
        }
    }

    #[test]
    fn none_is_said_only_of_what_was_never_seen() {
        let lost = MEASURES.iter().find(|measure| measure.name == "lost");
        let of = |high: f64| {
            let summary = Summary { median: 0.0, low: 0.0, high, ratio: None };
            lost.map(|lost| median(lost, &summary)).unwrap_or_default()
        };
        assert_eq!((of(0.0).as_str(), of(500.0).as_str()), ("none", "0"));
    }

    #[test]
    fn what_is_known_of_some_runs_only_is_said() {
        let p99 = MEASURES.iter().find(|measure| measure.name == "p99");
        let runs = [Run::default(), Run::default()];
        assert_eq!(p99.and_then(|p99| known(p99, &runs)).as_deref(), Some("known from 0 of 2 runs"));
    }
}

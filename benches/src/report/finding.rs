//! What the runs of a broker came to, and what may be said of it beside another one.

use std::collections::BTreeMap;

use super::words::{capital, count, figure, list, plural, quantity};
use crate::compare::{Better, Measure};
use crate::record::{Farewell, NoteKind, Run, Summary, Totals, Withheld};

/// Measures of which more or less is good or bad by itself. More accepted is no merit (it may be lost), and neither is
/// less memory for less work. The queueing delay starts when the broker chooses to acknowledge.
const JUDGED: [&str; 7] = ["delivered", "p50", "p99", "max", "lost_share", "duplicates", "out_of_order"];

/// What a comparison rests on.
#[derive(Debug, Clone, Copy)]
pub struct Ground {
    /// Both brokers ran more than once, so that there are ranges.
    pub repeated: bool,
    /// No run of either was cut short, left unchecked or held back by the generator.
    pub sound: bool,
    /// Neither broker lost anything, nor had anything left to deliver.
    pub lossless: bool,
    /// Neither broker talked devices out of sending: what is not sent is never late.
    pub unrestrained: bool,
}

impl Ground {
    /// What the runs of a broker and those of the first one allow to say.
    pub fn of(runs: &[Run], first: &[Run]) -> Self {
        let all = || runs.iter().chain(first);
        let noted = |run: &Run, kind| run.notes.iter().any(|note| note.kind == kind);
        let sound = |run: &Run| {
            run.error.is_none() && !noted(run, NoteKind::Check) && !noted(run, NoteKind::GeneratorLimited)
        };
        Self {
            repeated: runs.len() > 1 && first.len() > 1,
            sound: all().all(sound),
            lossless: all().all(|run| run.totals.lost == 0 && run.totals.undelivered == 0),
            unrestrained: withheld(runs).is_none() && withheld(first).is_none(),
        }
    }
}

/// How a broker's figure compares with the first broker's, in words that claim no more than the ranges allow. Where one
/// of them lost messages or let devices send less, nobody is praised for the latency of the others.
pub fn comparison(
    measure: &Measure,
    summary: &Summary,
    first: Option<&Summary>,
    ground: Ground,
) -> Option<String> {
    let first = first?;
    let ratio = summary.ratio.map(|ratio| format!("{}×", figure(ratio)));
    let overlap = summary.low <= first.high && summary.high >= first.low;
    let better = match measure.better {
        Better::Higher => summary.median > first.median,
        Better::Lower => summary.median < first.median,
    };
    let judged = ground.repeated
        && ground.sound
        && JUDGED.contains(&measure.name.as_ref())
        && (ground.lossless && ground.unrestrained || measure.unit != "ms");
    match ratio {
        Some(same) if same == "1×" => Some("the same".to_owned()),
        Some(ratio) if overlap && ground.repeated => Some(format!("{ratio}, ranges overlap")),
        Some(ratio) if judged => Some(format!("{ratio}, {}", if better { "better" } else { "worse" })),
        None if judged && !overlap => Some(if better { "better" } else { "worse" }.to_owned()),
        ratio => ratio,
    }
}

/// What became of the messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether a reader should worry.
    pub good: bool,
    /// In a few words.
    pub short: String,
    /// In sentences.
    pub long: String,
    /// What held the figures back though it was not the broker, in a few words.
    pub limits: Option<String>,
}

/// What became of the messages in these repetitions of one broker. Never better than the worst of them.
pub fn finding(runs: &[Run]) -> Finding {
    let totals = sum(runs);
    let cut = runs.iter().filter(|run| run.error.is_some()).count();
    let unchecked = runs.iter().flat_map(|run| &run.notes).any(|note| note.kind == NoteKind::Check);
    let mut wrong = wrongs(&totals, &farewells(runs));
    match runs {
        [Run { error: Some(error), .. }] => {
            wrong.push(format!("cut short ({})", error.trim_end_matches('.')))
        }
        _ if cut > 0 => wrong.push(format!("{cut} of them cut short")),
        _ => {}
    }
    // Who sends nothing by design gets nothing.
    if totals.delivered == 0 && totals.sent > 0 {
        wrong.insert(0, "nothing was delivered".to_owned());
    }
    if unchecked {
        wrong.push("not everything could be checked".to_owned());
    }
    let behind = if runs.len() == 1 { String::new() } else { format!("In {}: ", plural(runs.len(), "run")) };
    // a refusal is no loss: the publisher knows
    let refused = match totals.refused {
        0 => String::new(),
        refused => format!("; {} were refused with a reason", count(refused)),
    };
    let held_back = withheld(runs).map(|share| format!("{} withheld", quantity(share, "%")));
    let silence = match &held_back {
        None => String::new(),
        Some(share) => format!("; {share}: devices that follow were told to send less than they wanted"),
    };
    let (good, short, long) = if runs.is_empty() {
        (false, "no result".to_owned(), "No run gave a result.".to_owned())
    } else if wrong.is_empty() && totals.sent == 0 && totals.expected == 0 {
        // Not by design if somebody was told to be silent.
        (held_back.is_none(), "nothing sent".to_owned(), format!("{behind}nothing was sent{silence}."))
    } else if wrong.is_empty() {
        let long =
            format!("{behind}every accepted message was delivered once and in order{refused}{silence}.");
        (true, "nothing lost".to_owned(), long)
    } else {
        (false, short(&wrong, cut), format!("{behind}{}{refused}{silence}.", list(&wrong)))
    };
    let short = held_back.map_or(short.clone(), |share| format!("{short}, {share}"));
    Finding { good, short, long: capital(&long), limits: limits(runs) }
}

/// The share of what devices that follow wanted to send and were told not to, in percent; none if it is not worth a word.
pub fn withheld(runs: &[Run]) -> Option<f64> {
    let mut sum = Withheld::default();
    runs.iter().filter_map(|run| run.withheld).for_each(|one| sum.add(&one));
    Some(100.0 * sum.share()).filter(|share| *share >= 1.0)
}

/// In how many runs the generator or the machine was the limit.
fn limits(runs: &[Run]) -> Option<String> {
    let limit = |(kind, words): (NoteKind, &str)| {
        let with = runs.iter().filter(|run| run.notes.iter().any(|note| note.kind == kind)).count();
        let times = if runs.len() > 1 { format!(" in {with} of {} runs", runs.len()) } else { String::new() };
        (with > 0).then(|| format!("{words}{times}"))
    };
    let kinds = [
        (NoteKind::GeneratorLimited, "generator limited"),
        (NoteKind::MachineSaturated, "machine saturated"),
    ];
    let found: Vec<String> = kinds.into_iter().filter_map(limit).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// The worst, without what stands in brackets.
fn short(wrong: &[String], cut: usize) -> String {
    match wrong {
        [only] if only.ends_with("cut short") => format!("{} cut short", plural(cut, "run")),
        [worst, ..] => worst.split(" (").next().unwrap_or_default().to_owned(),
        [] => String::new(),
    }
}

fn sum(runs: &[Run]) -> Totals {
    let mut sum = Totals::default();
    for Run { totals, .. } in runs {
        sum.sent = sum.sent.saturating_add(totals.sent);
        sum.expected = sum.expected.saturating_add(totals.expected);
        sum.delivered = sum.delivered.saturating_add(totals.delivered);
        sum.lost = sum.lost.saturating_add(totals.lost);
        sum.undelivered = sum.undelivered.saturating_add(totals.undelivered);
        sum.duplicates = sum.duplicates.saturating_add(totals.duplicates);
        sum.out_of_order = sum.out_of_order.saturating_add(totals.out_of_order);
        sum.foreign = sum.foreign.saturating_add(totals.foreign);
        sum.refused = sum.refused.saturating_add(totals.refused);
        sum.failed_connects = sum.failed_connects.saturating_add(totals.failed_connects);
        sum.disconnects = sum.disconnects.saturating_add(totals.disconnects);
    }
    sum
}

/// Why brokers said that they end connections, in brackets.
fn farewells(runs: &[Run]) -> String {
    let mut all: BTreeMap<u8, Farewell> = BTreeMap::new();
    for farewell in runs.iter().flat_map(|run| &run.farewells) {
        let known = all.entry(farewell.code).or_insert_with(|| Farewell { count: 0, ..farewell.clone() });
        known.count = known.count.saturating_add(farewell.count);
    }
    let words: Vec<String> = all.values().map(reason).collect();
    if words.is_empty() { words.concat() } else { format!(" (the broker's reasons: {})", words.join(", ")) }
}

/// How often a broker ended connections for one reason, such as `3 with 0x97 quota exceeded`.
pub fn reason(farewell: &Farewell) -> String {
    let Farewell { code, meaning, count: times, .. } = farewell;
    format!("{} with {code:#04x} {meaning}", count(*times)).trim_end().to_owned()
}

/// Everything that went wrong, the worst first.
fn wrongs(totals: &Totals, farewells: &str) -> Vec<String> {
    let of = |part: u64, whole: u64| {
        let share = 100.0 * part as f64 / whole.max(1) as f64;
        format!("{} ({} of {})", quantity(share, "%"), count(part), count(whole))
    };
    let some = |number: u64, words: &str| (number > 0).then(|| format!("{} {words}", count(number)));
    let lost = (totals.lost > 0).then(|| format!("lost {}", of(totals.lost, totals.expected)));
    let others = [
        some(totals.undelivered, "not delivered yet when waiting ended"),
        some(totals.duplicates, "duplicates"),
        some(totals.out_of_order, "out of order"),
        some(totals.foreign, "foreign or unreadable"),
        some(totals.disconnects, "connections broken").map(|words| format!("{words}{farewells}")),
        some(totals.failed_connects, "connection attempts failed"),
    ];
    lost.into_iter().chain(others.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::MEASURES;
    use crate::record::Note;

    fn run(lost: u64, duplicates: u64) -> Run {
        let totals = Totals {
            expected: 100,
            delivered: 100 - lost + duplicates,
            lost,
            duplicates,
            ..Totals::default()
        };
        Run { totals, ..Run::default() }
    }

    #[test]
    fn nothing_delivered_is_bad_only_if_something_was_sent() {
        let silent = Run::default();
        let found = finding(std::slice::from_ref(&silent));
        assert_eq!((found.good, found.long.as_str()), (true, "Nothing was sent."));
        let totals = Totals { sent: 5, ..Totals::default() };
        let found = finding(&[Run { totals, ..silent }]);
        assert!(!found.good && found.short == "nothing was delivered", "{found:?}");
    }

    #[test]
    fn one_bad_run_spoils_the_finding() {
        assert!(finding(&[run(0, 0), run(0, 0)]).good);
        let bad = finding(&[run(0, 0), run(50, 3)]);
        assert!(!bad.good);
        assert_eq!(bad.short, "lost 25%");
        assert_eq!(bad.long, "In 2 runs: lost 25% (50 of 200) and 3 duplicates.");
    }

    #[test]
    fn what_was_still_to_come_is_neither_lost_nor_praised() {
        let totals = Totals { undelivered: 7, ..run(0, 0).totals };
        let cut_off = Run { totals, ..run(0, 0) };
        let found = finding(std::slice::from_ref(&cut_off));
        assert_eq!((found.good, found.short.as_str()), (false, "7 not delivered yet when waiting ended"));
        assert!(!Ground::of(&[run(0, 0)], &[cut_off]).lossless);
    }

    #[test]
    fn no_result_and_no_check_are_no_praise() {
        assert!(!finding(&[]).good);
        let totals = Totals { sent: 1, ..Totals::default() };
        assert!(!finding(&[Run { totals, ..Run::default() }]).good, "nothing delivered");
        let note = Note { kind: NoteKind::Check, text: "the list was full".to_owned() };
        assert!(!finding(&[Run { notes: vec![note], ..run(0, 0) }]).good);
        assert!(!finding(&[Run { error: Some("closed".to_owned()), ..run(0, 0) }]).good);
    }

    #[test]
    fn a_difference_is_claimed_only_when_the_ranges_are_apart() {
        let summary = |low, median, high, ratio| Summary { median, low, high, ratio };
        let first = summary(90.0, 100.0, 110.0, None);
        let of = |name: &str, other: &Summary, lossless: bool| {
            let measure = MEASURES.iter().find(|measure| measure.name == name);
            measure
                .and_then(|measure| {
                    let ground = Ground { repeated: true, sound: true, lossless, unrestrained: true };
                    comparison(measure, other, Some(&first), ground)
                })
                .unwrap_or_default()
        };
        let slower = summary(10.0, 50.0, 80.0, Some(0.5));
        assert_eq!(of("delivered", &slower, true), "0.5×, worse");
        assert_eq!(of("p99", &slower, true), "0.5×, better");
        assert_eq!(of("p99", &slower, false), "0.5×", "the late ones may be lost");
        assert_eq!(of("accepted", &slower, true), "0.5×", "no merit and no fault");
        for wait in ["queue_wait_mean", "queue_wait_p50", "queue_wait_p99", "queue_wait_max"] {
            assert_eq!(of(wait, &slower, true), "0.5×", "the broker decides when {wait} starts");
        }
        assert_eq!(of("delivered", &summary(50.0, 80.0, 95.0, Some(0.8)), true), "0.8×, ranges overlap");
        assert_eq!(of("delivered", &summary(95.0, 100.0, 120.0, Some(1.0)), true), "the same");
        let once = Ground { repeated: false, sound: true, lossless: true, unrestrained: true };
        let delivered = MEASURES.iter().find(|measure| measure.name == "delivered");
        let found = delivered.and_then(|measure| comparison(measure, &slower, Some(&first), once));
        assert_eq!(found.as_deref(), Some("0.5×"), "one run proves nothing");
    }

    fn noted(kind: NoteKind) -> Run {
        Run { notes: vec![Note { kind, text: String::new() }], ..run(0, 0) }
    }

    #[test]
    fn no_claim_rests_on_runs_with_a_flaw_of_either_broker() {
        let good = [run(0, 0), run(0, 0)];
        let sound = Ground::of(&good, &good);
        assert!(sound.repeated && sound.sound && sound.lossless);
        assert!(!Ground::of(&good[..1], &good).repeated);
        for flawed in [
            [run(0, 0), noted(NoteKind::Check)],
            [run(0, 0), noted(NoteKind::GeneratorLimited)],
            [run(0, 0), Run { error: Some("closed".to_owned()), ..run(0, 0) }],
        ] {
            assert!(!Ground::of(&flawed, &good).sound, "the broker's own");
            assert!(!Ground::of(&good, &flawed).sound, "the first broker's");
        }
        let held_back = [run(0, 0), noted(NoteKind::Late)];
        assert!(Ground::of(&held_back, &good).sound && finding(&held_back).good, "back-pressure is no flaw");
        let lossy = [run(0, 0), run(1, 0)];
        assert!(!Ground::of(&lossy, &good).lossless && !Ground::of(&good, &lossy).lossless);
        let (low, high) = (
            Summary { median: 1.0, low: 1.0, high: 1.0, ratio: Some(0.5) },
            Summary { median: 2.0, low: 2.0, high: 2.0, ratio: None },
        );
        let delivered = MEASURES.iter().find(|measure| measure.name == "delivered");
        let said = |ground| delivered.and_then(|measure| comparison(measure, &low, Some(&high), ground));
        assert_eq!(said(sound).as_deref(), Some("0.5×, worse"));
        assert_eq!(said(Ground { sound: false, ..sound }).as_deref(), Some("0.5×"));
    }

    #[test]
    fn who_tells_everybody_to_be_silent_does_not_look_good() {
        let withheld = Withheld { wanted: 200.0, messages: 150.0, connected: 9.0, seconds: 8.0 };
        let quiet = Run { withheld: Some(withheld), ..run(0, 0) };
        let found = finding(std::slice::from_ref(&quiet));
        assert_eq!(found.short, "nothing lost, 75% withheld");
        assert!(found.long.contains("75% withheld: devices that follow were told to send less"), "{found:?}");
        let silent = Run { withheld: Some(withheld), ..Run::default() };
        let found = finding(std::slice::from_ref(&silent));
        assert_eq!((found.good, found.short.as_str()), (false, "nothing sent, 75% withheld"));
        let (open, quiet) = ([run(0, 0), run(0, 0)], [quiet, run(0, 0)]);
        for ground in [Ground::of(&open, &quiet), Ground::of(&quiet, &open)] {
            let summary = |value, ratio| Summary { median: value, low: value, high: value, ratio };
            let (low, high) = (summary(1.0, Some(0.1)), summary(10.0, None));
            let p99 = MEASURES.iter().find(|measure| measure.name == "p99");
            let said = p99.and_then(|p99| comparison(p99, &low, Some(&high), ground));
            assert_eq!(said.as_deref(), Some("0.1×"), "no praise for the latency of what was not sent");
        }
        let hardly = Withheld { wanted: 200.0, messages: 1.0, ..withheld };
        assert_eq!(super::withheld(&[Run { withheld: Some(hardly), ..run(0, 0) }]), None);
    }

    #[test]
    fn limits_are_said() {
        let found =
            finding(&[run(0, 0), noted(NoteKind::GeneratorLimited), noted(NoteKind::MachineSaturated)]);
        let words = "generator limited in 1 of 3 runs, machine saturated in 1 of 3 runs";
        assert_eq!(found.limits.as_deref(), Some(words));
        assert_eq!(
            finding(&[noted(NoteKind::GeneratorLimited)]).limits.as_deref(),
            Some("generator limited")
        );
        assert_eq!(finding(&[run(0, 0)]).limits, None);
    }
}

//! Several brokers side by side: medians, ranges and ratios of repeated runs.

mod measures;
mod plan;
mod study;

use std::collections::BTreeMap;
use std::time::Instant;

pub use self::measures::{Better, MEASURES, Measure, drained, measure_names, measures_of, value};
pub use self::plan::Plan;
pub use self::study::study;
use crate::peers::{Kind, PeerError};
use crate::process;
use crate::record::{BrokerResult, Comparison, FORMAT, Missing, Run, ScenarioComparison, Summary};
use crate::run::{is_interrupted, run};
use crate::scenario::{Loaded, Scenario};

/// What a comparison leaves behind.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was measured.
    pub comparison: Comparison,
    /// What went wrong, each in a sentence; nothing if the figures are what was asked for.
    pub failures: Vec<String>,
}

/// One column of a table: a broker with a scenario.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// What is run.
    pub loaded: &'a Loaded,
    /// With whom.
    pub kind: Kind,
    /// The variant that a study calls it; empty in a comparison.
    pub variant: &'a str,
    /// Whether the bands of the scenario hold for it.
    pub judged: bool,
}

/// Runs every scenario with every broker in turn, as often as wished; `tell` hears of each run.
///
/// Repetitions are interleaved, so that what changes on the machine meanwhile meets all brokers alike; the one that
/// begins changes from repetition to repetition. The bands of a scenario hold for the first broker.
pub async fn compare(scenarios: &[Loaded], kinds: &[Kind], runs: u32, tell: &mut dyn FnMut(&str)) -> Outcome {
    let columns = |loaded| {
        let column =
            move |(at, kind): (usize, &Kind)| Column { loaded, kind: *kind, variant: "", judged: at == 0 };
        kinds.iter().enumerate().map(column).collect::<Vec<_>>()
    };
    let tables: Vec<Vec<Column<'_>>> = scenarios.iter().map(columns).collect();
    Outcome::of(&tables, runs, tell).await
}

/// Which repetition and which broker comes when.
fn turns(runs: u32, kinds: usize) -> impl Iterator<Item = (u32, usize)> {
    let of = move |repetition: u32| (0..kinds).map(move |at| (at + repetition as usize - 1) % kinds);
    (1..=runs).flat_map(move |repetition| of(repetition).map(move |at| (repetition, at)))
}

async fn one(column: &Column<'_>, repetition: u32) -> Result<Run, PeerError> {
    let mut target = column.kind.start(&column.loaded.scenario).await?;
    target.broker.variant = column.variant.to_owned();
    let result = run(column.loaded, &mut target, repetition).await;
    if let Some(peer) = target.peer {
        peer.stop().await;
    }
    Ok(result)
}

/// What is wrong with a run; bands count only if it is `judged`.
fn failures(loaded: &Loaded, run: &Run, judged: bool) -> Vec<String> {
    let place = format!("{} {} {}", run.scenario, run.broker.name, run.repetition);
    let cut = run.error.iter().map(|error| format!("{place} was cut short: {error}"));
    let outside = if judged && run.error.is_none() { outside(&loaded.scenario, run) } else { Vec::new() };
    cut.chain(outside.iter().map(|words| format!("{place}: {words}"))).collect()
}

/// The measures that are not in the bands that the scenario expects, each in a sentence.
pub fn outside(scenario: &Scenario, run: &Run) -> Vec<String> {
    let mut outside = Vec::new();
    for (name, [low, high]) in &scenario.expect {
        let value = value(run, name);
        if !value.is_some_and(|value| (*low..=*high).contains(&value)) {
            let value = value.map_or("unknown".to_owned(), |value| value.to_string());
            outside.push(format!("{name} is {value}, expected {low} to {high}"));
        }
    }
    outside
}

impl Outcome {
    /// Runs the columns of each table in turn.
    async fn of(tables: &[Vec<Column<'_>>], runs: u32, tell: &mut dyn FnMut(&str)) -> Self {
        let begun = Instant::now();
        let mut plan = Plan::new(tables.iter().flatten().map(|column| (column.loaded, column.kind)), runs);
        let comparison = Comparison {
            format: FORMAT,
            started: process::wall_clock().1,
            machine: process::machine(),
            generator: process::generator().to_owned(),
            ..Comparison::default()
        };
        let mut outcome = Self { comparison, failures: Vec::new() };
        tell(&plan.in_a_line());
        for columns in tables {
            outcome.run_table(columns, runs, &mut plan, tell).await;
        }
        if is_interrupted() {
            let unfinished = plan.unfinished().map(|how_many| format!("interrupted: {how_many}"));
            outcome.failures.extend(unfinished.clone());
            outcome.comparison.unfinished = unfinished;
        }
        outcome.comparison.failures = outcome.failures.clone();
        outcome.comparison.seconds = begun.elapsed().as_secs_f64();
        outcome
    }

    async fn run_table(
        &mut self,
        columns: &[Column<'_>],
        runs: u32,
        plan: &mut Plan,
        tell: &mut dyn FnMut(&str),
    ) {
        let mut results: Vec<Vec<Run>> = columns.iter().map(|_| Vec::new()).collect();
        for (repetition, at) in turns(runs, columns.len()) {
            if is_interrupted() {
                break;
            }
            let column = &columns[at];
            match one(column, repetition).await {
                Ok(result) => {
                    plan.did(column.loaded);
                    tell(&format!("[{}] {}", plan.progress(), in_a_line(&result)));
                    self.failures.extend(failures(column.loaded, &result, column.judged));
                    results[at].push(result);
                }
                Err(error) => self.miss(column.kind, column.loaded, &error),
            }
        }
        self.comparison.scenarios.extend(columns.first().map(|first| side_by_side(first.loaded, results)));
    }

    /// A broker that is not installed, or can't do what a scenario needs, is named; one that fails is a failure.
    fn miss(&mut self, kind: Kind, loaded: &Loaded, error: &PeerError) {
        let name = &loaded.scenario.name;
        let scenario = match error {
            PeerError::NotInstalled { .. } | PeerError::Unknown(_) => None,
            _ => Some(name.clone()),
        };
        let one = Missing { broker: kind.name().to_owned(), scenario, reason: error.to_string() };
        if self.comparison.missing.contains(&one) {
            return;
        }
        self.comparison.missing.push(one);
        if matches!(error, PeerError::NotStarted { .. } | PeerError::System { .. }) {
            self.failures.push(format!("{name}: {error}"));
        }
    }
}

fn side_by_side(loaded: &Loaded, results: Vec<Vec<Run>>) -> ScenarioComparison {
    let mut brokers: Vec<BrokerResult> = Vec::new();
    for runs in results.into_iter().filter(|runs| !runs.is_empty()) {
        let measures = summarise(&runs, brokers.first().map(|first| &first.measures));
        brokers.push(BrokerResult { broker: runs[0].broker.clone(), measures, runs });
    }
    ScenarioComparison {
        scenario: loaded.scenario.name.clone(),
        about: loaded.scenario.about.clone(),
        brokers,
        reference: None,
    }
}

fn in_a_line(run: &Run) -> String {
    let trouble = run.error.as_ref().map(|error| format!("; cut short: {error}")).unwrap_or_default();
    let waits = match run.queue_wait.count {
        0 => String::new(),
        _ => format!(", queueing delay p99 {:.1} ms", run.queue_wait.p99),
    };
    format!(
        "{} {} {}: sent {:.0}/s, delivered {:.0}/s, p50 {:.2} ms, p99 {:.1} ms{waits}, lost {}, undelivered {}{trouble}",
        run.scenario,
        run.broker.name,
        run.repetition,
        run.rates.sent,
        run.rates.delivered,
        run.latency.p50,
        run.latency.p99,
        run.totals.lost,
        run.totals.undelivered
    )
}

/// What was owed to consumers when the measured part ended.
pub fn waiting_at_end(run: &Run) -> u64 {
    let measured = run.intervals.iter().rfind(|interval| interval.t <= run.duration + 1e-6);
    measured.map_or(0, |interval| interval.waiting)
}

/// The figures of one broker over its repetitions; `first` are those of the broker that it is compared with.
pub fn summarise(runs: &[Run], first: Option<&BTreeMap<String, Summary>>) -> BTreeMap<String, Summary> {
    let known = measures_of(runs.iter()).into_iter().filter_map(|measure| {
        let summary = summary(runs.iter().filter_map(|run| measure.read(run)).collect())?;
        let base = first.and_then(|first| first.get(measure.name.as_ref())).map(|summary| summary.median);
        let ratio = base.filter(|base| *base != 0.0).map(|base| summary.median / base);
        Some((measure.name.into_owned(), Summary { ratio, ..summary }))
    });
    known.collect()
}

/// Median and range; none of nothing.
fn summary(mut values: Vec<f64>) -> Option<Summary> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    let half = values.len() / 2;
    let median = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
    Some(Summary { median, low, high, ratio: None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::record::{Broker, Rates, Totals};

    fn run(delivered: f64) -> Run {
        Run { rates: Rates { delivered, ..Rates::default() }, ..Run::default() }
    }

    #[test]
    fn medians_ranges_and_ratios() {
        let first = summarise(&[run(10.0), run(30.0), run(20.0)], None);
        let delivered = first["delivered"];
        assert_eq!(delivered, Summary { median: 20.0, low: 10.0, high: 30.0, ratio: None });
        let second = summarise(&[run(4.0), run(6.0)], Some(&first));
        assert_eq!(second["delivered"], Summary { median: 5.0, low: 4.0, high: 6.0, ratio: Some(0.25) });
        assert!(!first.contains_key("p50"), "what no run knows is not compared");
        assert_eq!(second["sent"].ratio, None, "nothing is compared with 0");
    }

    #[test]
    fn brokers_take_turns_and_another_one_begins_each_time() {
        let order: Vec<(u32, usize)> = turns(3, 3).collect();
        assert_eq!(order, [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 0), (3, 2), (3, 0), (3, 1)]);
        assert_eq!(turns(2, 0).count(), 0);
    }

    #[test]
    fn what_is_cut_short_or_outside_of_its_band_is_a_failure() {
        let mut loaded = Scenario::load("flood").unwrap();
        loaded.scenario.expect.clear();
        loaded.scenario.expect.insert("lost".to_owned(), [0.0, 0.0]);
        loaded.scenario.expect.insert("p99".to_owned(), [0.0, 5.0]);
        let broker = Broker { name: "b".to_owned(), ..Broker::default() };
        let totals = Totals { lost: 7, ..Totals::default() };
        let mut run = Run { scenario: "flood".to_owned(), broker, repetition: 2, totals, ..Run::default() };
        let found = failures(&loaded, &run, true);
        assert_eq!(
            found,
            ["flood b 2: lost is 7, expected 0 to 0", "flood b 2: p99 is unknown, expected 0 to 5"]
        );
        assert!(failures(&loaded, &run, false).is_empty(), "the bands are not for other brokers");
        run.error = Some("it closed".to_owned());
        for judged in [false, true] {
            assert_eq!(failures(&loaded, &run, judged), ["flood b 2 was cut short: it closed"]);
        }
    }

    #[test]
    fn a_broker_that_does_not_start_is_a_failure_and_one_that_is_not_there_is_named() {
        let loaded = Scenario::load("flood").unwrap();
        let mut outcome = Outcome::default();
        let remedy = "apt-get install nats-server".to_owned();
        outcome.miss(Kind::Nats, &loaded, &PeerError::NotInstalled { name: "nats", remedy });
        outcome.miss(Kind::Nats, &loaded, &PeerError::Unable { name: "nats", reason: "x".to_owned() });
        assert!(outcome.failures.is_empty() && outcome.comparison.missing.len() == 2);
        for _ in 0..3 {
            let reason = "it ended".to_owned();
            outcome.miss(Kind::Tidegate, &loaded, &PeerError::NotStarted { name: "tidegate", reason });
        }
        assert_eq!(outcome.failures, ["flood: tidegate did not start: it ended"]);
        assert_eq!(outcome.comparison.missing.len(), 3);
    }
}

//! Several brokers side by side: medians, ranges and ratios of repeated runs.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::peers::{Kind, PeerError};
use crate::process;
use crate::record::{BrokerResult, Comparison, FORMAT, Missing, Run, ScenarioComparison, Summary};
use crate::run::{is_interrupted, run};
use crate::scenario::Loaded;

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// A figure of a run that is compared.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// Its name, the key in `BrokerResult::measures`.
    pub name: &'static str,
    /// What it is, as the head of a column.
    pub title: &'static str,
    /// Its unit; empty for a bare number.
    pub unit: &'static str,
    /// Which way is good.
    pub better: Better,
    /// Reads it from a run; none if the run does not know it.
    pub read: fn(&Run) -> Option<f64>,
}

/// All figures that are compared.
pub const MEASURES: [Measure; 14] = [
    rate("sent", "sent", |run| Some(run.rates.sent)),
    rate("accepted", "accepted", |run| Some(run.rates.accepted)),
    rate("delivered", "delivered", |run| Some(run.rates.delivered)),
    latency("p50", "latency p50", |run| (run.latency.count > 0).then_some(run.latency.p50)),
    latency("p99", "latency p99", |run| (run.latency.count > 0).then_some(run.latency.p99)),
    latency("max", "latency max", |run| (run.latency.count > 0).then_some(run.latency.max)),
    count("lost", "messages lost", |run| Some(run.totals.lost as f64)),
    Measure {
        name: "lost_share",
        title: "lost",
        unit: "%",
        better: Better::Lower,
        read: |run| share(run.totals.lost, run.totals.expected),
    },
    count("duplicates", "duplicates", |run| Some(run.totals.duplicates as f64)),
    count("out_of_order", "out of order", |run| Some(run.totals.out_of_order as f64)),
    count("waiting", "waiting at the end", |run| Some(waiting_at_end(run) as f64)),
    Measure {
        name: "connect",
        title: "connecting",
        unit: "s",
        better: Better::Lower,
        read: |run| Some(run.connect_seconds),
    },
    Measure {
        name: "cpu",
        title: "processors used",
        unit: "",
        better: Better::Lower,
        read: |run| run.broker_use.map(|used| used.cpu),
    },
    Measure {
        name: "rss",
        title: "memory",
        unit: "MB",
        better: Better::Lower,
        read: |run| run.broker_use.map(|used| used.rss as f64 / 1e6),
    },
];

/// Runs every scenario with every broker in turn, as often as wished; `tell` hears of each run.
///
/// Repetitions are interleaved, so that what changes on the machine meanwhile meets all brokers alike; the one that
/// begins changes from repetition to repetition.
pub async fn compare(
    scenarios: &[Loaded],
    kinds: &[Kind],
    runs: u32,
    tell: &mut dyn FnMut(&str),
) -> Comparison {
    let begun = Instant::now();
    let mut comparison = Comparison {
        format: FORMAT,
        started: process::wall_clock().1,
        machine: process::machine(),
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        ..Comparison::default()
    };
    for loaded in scenarios {
        let mut results: Vec<Vec<Run>> = kinds.iter().map(|_| Vec::new()).collect();
        for repetition in 1..=runs {
            for at in 0..kinds.len() {
                if is_interrupted() {
                    break;
                }
                let at = (at + repetition as usize - 1) % kinds.len();
                match one(loaded, kinds[at], repetition).await {
                    Ok(result) => {
                        tell(&in_a_line(&result));
                        results[at].push(result);
                    }
                    Err(error) => miss(&mut comparison.missing, kinds[at], loaded, &error),
                }
            }
        }
        comparison.scenarios.push(side_by_side(loaded, results));
    }
    comparison.seconds = begun.elapsed().as_secs_f64();
    comparison
}

async fn one(loaded: &Loaded, kind: Kind, repetition: u32) -> Result<Run, PeerError> {
    let mut target = kind.start(&loaded.scenario).await?;
    let result = run(loaded, &mut target, repetition).await;
    if let Some(peer) = target.peer {
        peer.stop().await;
    }
    Ok(result)
}

fn miss(missing: &mut Vec<Missing>, kind: Kind, loaded: &Loaded, error: &PeerError) {
    let scenario = match error {
        PeerError::NotInstalled { .. } | PeerError::Unknown(_) => None,
        _ => Some(loaded.scenario.name.clone()),
    };
    let one = Missing { broker: kind.name().to_owned(), scenario, reason: error.to_string() };
    if !missing.contains(&one) {
        missing.push(one);
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
    }
}

fn in_a_line(run: &Run) -> String {
    let trouble = run.error.as_ref().map(|error| format!("; cut short: {error}")).unwrap_or_default();
    format!(
        "{} {} {}: sent {:.0}/s, delivered {:.0}/s, p50 {:.2} ms, p99 {:.1} ms, lost {}{trouble}",
        run.scenario,
        run.broker.name,
        run.repetition,
        run.rates.sent,
        run.rates.delivered,
        run.latency.p50,
        run.latency.p99,
        run.totals.lost
    )
}

/// What was owed to consumers when the measured part ended.
pub fn waiting_at_end(run: &Run) -> u64 {
    let measured = run.intervals.iter().rfind(|interval| interval.t <= run.duration + 1e-6);
    measured.map_or(0, |interval| interval.waiting)
}

/// The figures of one broker over its repetitions; `first` are those of the broker that it is compared with.
pub fn summarise(runs: &[Run], first: Option<&BTreeMap<String, Summary>>) -> BTreeMap<String, Summary> {
    let known = MEASURES.iter().filter_map(|measure| {
        let summary = summary(runs.iter().filter_map(measure.read).collect())?;
        let base = first.and_then(|first| first.get(measure.name)).map(|summary| summary.median);
        let ratio = base.filter(|base| *base != 0.0).map(|base| summary.median / base);
        Some((measure.name.to_owned(), Summary { ratio, ..summary }))
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

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

const fn rate(name: &'static str, title: &'static str, read: fn(&Run) -> Option<f64>) -> Measure {
    Measure { name, title, unit: "/s", better: Better::Higher, read }
}

const fn latency(name: &'static str, title: &'static str, read: fn(&Run) -> Option<f64>) -> Measure {
    Measure { name, title, unit: "ms", better: Better::Lower, read }
}

const fn count(name: &'static str, title: &'static str, read: fn(&Run) -> Option<f64>) -> Measure {
    Measure { name, title, unit: "", better: Better::Lower, read }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::record::Rates;

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
}

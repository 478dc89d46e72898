//! Paper 000: random backoff on top of the check interval.
//!
//! The paper prints no results. What is shown here is its setting, simulated: one server that answers 100 requests a
//! second in order, m clients that start together and watch the same source. The bands are what an independent
//! simulation gave and what the paper claims in words.

mod model;

use super::sample::Sample;
use super::{Figure, Report, Row};
use model::{Announces, Outcome, Setup};
use tidegate_control::active::DividedConfig;
use tidegate_control::backoff::{BackoffConfig, FirstValue, Level};
use tidegate_control::time::{Moment, Span};

const RIGOROUS: Level =
    Level::Rigorous { processing: Span::from_millis(10), network: Span::ZERO, queueing: 0.9 };
const MEDIATE: Level = Level::Mediate { assumed: Span::from_millis(50), network: Span::ZERO };
const LIGHT: Level = Level::Light { multiple: 2.0 };
/// No response is ever this slow.
const NEVER: Level = Level::Light { multiple: f64::MAX };

const NOTES: [&str; 6] = [
    "000: as printed, algorithm 3 never backs off: line 13 overwrites line 4 and divides; read as growth by beta from t_min to t_max",
    "000: beta is a multiplier of at least 2 in (4) and a share below 1 in (6): two settings here",
    "000: with m = 1,000 the server can answer one check in three updates, so that no client can lose less than 0.70",
    "000: beyond the paper, a slow reply lengthens the interval as if nothing was lost, and a first backoff is four responses; from a fixed t_min of 0.1 s the start of m = 1,000 overloads the server for 82 s in place of 13 s, and p95 over the whole run is 10 s",
    "000: the flow of all clients is taken for Poisson in section V; it is burstier (variance 1.8 times the mean), because all react to the same updates",
    "000: all m clients ask at once at the start, so that the queue is m long there; peak_queue is counted from 60 s on, p95 from the start",
];

/// Runs the setting of the paper; each run is 600 s of up to 1,000 clients, so that one in 100 of `runs` must do.
pub fn report(runs: usize, seed: u64, progress: &mut dyn FnMut(f64)) -> Report {
    let runs = (runs / 100).clamp(1, 10);
    let mut rows = expected(runs, seed);
    progress(0.4);
    rows.extend(levels(runs, seed));
    progress(0.9);
    rows.extend(steps(runs, seed));
    Report { runs, rows, notes: NOTES.map(str::to_owned).to_vec() }
}

/// Draws how the queue goes on after a start together. The paper has no such figure.
pub fn figures(seed: u64) -> Vec<Figure> {
    let ways = [
        ("adaptive strategy alone", NEVER, FirstValue::LastGood),
        ("with random backoff", RIGOROUS, FirstValue::LastGood),
        ("with the server's rate", RIGOROUS, FirstValue::ServerHint),
    ];
    let figure = |clients: usize| {
        let title = format!("Requests that wait, m = {clients}");
        let mut figure = Figure::new(&format!("000-queue-{clients}"), &title, ["time, s", "requests"]);
        for (name, level, first) in ways {
            let setup = Setup { duration: Span::from_secs(180), ..setup(clients, level, first) };
            let queue = setup.run(seed).map(|outcome| outcome.queue).unwrap_or_default();
            figure = figure
                .line(name, queue.into_iter().enumerate().map(|(second, longest)| (second as f64, longest)));
        }
        figure
    };
    [100, 1_000].map(figure).to_vec()
}

/// Clients with the adaptive strategy and backoff by this level and first value.
fn setup(clients: usize, level: Level, first: FirstValue) -> Setup {
    let announces = match (level, first) {
        (_, FirstValue::ServerHint) => Announces::Rate,
        (Level::Mediate { .. }, _) => Announces::Delay,
        _ => Announces::Nothing,
    };
    Setup {
        clients,
        strategy: DividedConfig { step: Span::from_millis(250), growth_cap: true, ..Default::default() },
        backoff: BackoffConfig { level, first, ..Default::default() },
        announces,
        duration: Span::from_secs(600),
        settled: Moment::from_secs_f64(60.0),
    }
}

/// All runs of a setup.
fn measure(setup: &Setup, runs: usize, seed: u64) -> Vec<Outcome> {
    (0..runs as u64).filter_map(|run| setup.run(seed.wrapping_mul(1_000).wrapping_add(run)).ok()).collect()
}

fn mean(outcomes: &[Outcome], figure: fn(&Outcome) -> f64) -> f64 {
    Sample::new(outcomes.iter().map(figure)).mean()
}

/// The figures that must hold.
fn expected(runs: usize, seed: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut push = |name: &str, column: &str, ours: f64, low: f64, high: f64| {
        rows.push(Row::within(["000", "expected", name, column], None, ours, low, high));
    };
    let few = setup(100, RIGOROUS, FirstValue::LastGood);
    let coarse = DividedConfig { step: Span::from_millis(500), ..few.strategy };
    for (name, setup) in [("m = 100", few), ("m = 100, delta 0.5", Setup { strategy: coarse, ..few })] {
        let outcomes = measure(&setup, runs, seed);
        push(name, "peak_queue", mean(&outcomes, |o| o.peak), 0.0, 10.0);
        push(name, "p95", mean(&outcomes, |o| o.p95), 0.0, 0.05);
        push(name, "loss", mean(&outcomes, |o| o.loss), 0.0, 0.20);
    }
    let first =
        [("m = 1000", FirstValue::LastGood, 2.0), ("m = 1000, server hint", FirstValue::ServerHint, 0.2)];
    for (name, first, p95) in first {
        let outcomes = measure(&setup(1_000, RIGOROUS, first), runs, seed);
        push(name, "p95", mean(&outcomes, |o| o.p95), 0.0, p95);
        push(name, "p95_settled", mean(&outcomes, |o| o.p95_settled), 0.0, p95);
        push(name, "loss", mean(&outcomes, |o| o.loss), 0.69, 0.78);
        push(name, "rate", mean(&outcomes, |o| o.rate), 80.0, 100.0);
    }
    rows
}

/// Section IV: the levels of requirement and the first values, under overload.
fn levels(runs: usize, seed: u64) -> Vec<Row> {
    let p95 = |level, first| mean(&measure(&setup(1_000, level, first), runs, seed), |o| o.p95);
    let row = |name: &str, ours, low, high| Row::within(["000", "IV", name, "p95"], None, ours, low, high);
    let rigorous = p95(RIGOROUS, FirstValue::LastGood);
    vec![
        row("rigorous, last good interval", rigorous, 0.0, 2.0),
        row("rigorous, last ending value", p95(RIGOROUS, FirstValue::LastEnding), 0.0, 2.0),
        row("mediate, last good interval", p95(MEDIATE, FirstValue::LastGood), 0.0, 2.0),
        // The paper calls it the most error-prone: it takes the overload for the average. All 1,000 wait 10 s at most.
        row("light, last good interval", p95(LIGHT, FirstValue::LastGood), rigorous, 10.0),
    ]
}

/// Section V: what the backoff adds to the adaptive strategy alone, and whether the flow is Poisson then.
fn steps(runs: usize, seed: u64) -> Vec<Row> {
    let alone = measure(&setup(100, NEVER, FirstValue::LastGood), runs, seed);
    let both = measure(&setup(100, RIGOROUS, FirstValue::LastGood), runs, seed);
    let row = |name: &str, column: &str, ours, low, high| {
        Row::within(["000", "V", name, column], None, ours, low, high)
    };
    let p95 = mean(&both, |o| o.p95);
    vec![
        row("adaptive strategy alone, m = 100", "p95", mean(&alone, |o| o.p95), p95, 1.0),
        row(
            "adaptive strategy alone, m = 100",
            "peak_queue",
            mean(&alone, |o| o.peak),
            mean(&both, |o| o.peak),
            100.0,
        ),
        row("with random backoff, m = 100", "dispersion", mean(&both, |o| o.dispersion), 0.8, 1.25)
            .because("all clients react to the same updates, so that their flow is not Poisson"),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_hundred_clients_are_served_at_once_for_any_seed() {
        for seed in 1..=12 {
            for step in [250, 500] {
                let few = setup(100, RIGOROUS, FirstValue::LastGood);
                let strategy = DividedConfig { step: Span::from_millis(step), ..few.strategy };
                let outcome = Setup { strategy, ..few }.run(seed).unwrap();
                assert!(outcome.peak <= 10.0, "seed {seed}: {outcome:?}");
                assert!(outcome.p95 <= 0.05, "seed {seed}: {outcome:?}");
                assert!(outcome.loss <= 0.20, "seed {seed}: {outcome:?}");
            }
        }
    }

    #[test]
    fn a_thousand_clients_overload_nobody_for_any_seed() {
        for seed in 1..=3 {
            for (first, p95) in
                [(FirstValue::LastGood, 1.0), (FirstValue::LastEnding, 1.2), (FirstValue::ServerHint, 0.2)]
            {
                let outcome = setup(1_000, RIGOROUS, first).run(seed).unwrap();
                assert!(outcome.p95 <= p95, "seed {seed}, {first:?}: {outcome:?}");
                assert!((0.69..0.78).contains(&outcome.loss), "seed {seed}: {outcome:?}");
                assert!((83.0..100.0).contains(&outcome.rate), "seed {seed}: {outcome:?}");
            }
        }
    }

    #[test]
    fn other_sizes_settle_too() {
        for (clients, alone, hinted) in
            [(30, 0.05, 0.05), (200, 0.15, 0.15), (400, 0.3, 0.2), (2_000, 2.0, 0.2)]
        {
            for (first, p95) in [(FirstValue::LastGood, alone), (FirstValue::ServerHint, hinted)] {
                let setup = setup(clients, RIGOROUS, first);
                let outcome = Setup { settled: Moment::from_secs_f64(200.0), ..setup }.run(7).unwrap();
                assert!(outcome.p95_settled <= p95, "{clients}, {first:?}: {outcome:?}");
            }
        }
    }

    #[test]
    fn the_light_level_and_no_backoff_at_all_leave_the_overload_as_it_is() {
        for level in [LIGHT, NEVER] {
            assert!(setup(1_000, level, FirstValue::LastGood).run(1).unwrap().p95 > 5.0);
        }
    }

    #[test]
    fn all_rows_agree_but_the_poisson_flow() {
        let report = report(1, 1, &mut |_| {});
        let odd = report.rows.iter().filter(|row| !row.agrees);
        let odd: Vec<_> = odd.map(|row| (row.column.as_str(), row.reason.is_some())).collect();
        assert_eq!(odd, [("dispersion", true)]);
    }

    #[test]
    fn the_figures_have_their_curves() {
        for figure in figures(1) {
            assert_eq!(figure.lines.len(), 3);
            assert!(figure.lines.iter().all(|line| line.points.len() == 181));
        }
    }
}

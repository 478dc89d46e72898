//! Paper 003: check intervals that adapt to loss, against three that don't.
//!
//! Losses come at random moments, one in 20 s on average; a client makes 100 checks and counts what was lost before
//! each. The paper prints one such run, so a figure of it agrees when it lies where 99 of 100 runs do.

use super::sample::{Column, FEWEST_RUNS, Sample};
use super::{Figure, Report, Row};
use tidegate_control::Invalid;
use tidegate_control::active::{
    Bounds, Check, ConstantConfig, MultiplicativeConfig, RandomChoiceConfig, SmoothedConfig, Strategy,
};
use tidegate_control::random::{Random, Seeded};
use tidegate_control::time::{Moment, Span};

const CHECKS: u32 = 100;
const LOSS_RATE: f64 = 0.05;
/// Wide enough never to matter here.
const BOUNDS: Bounds = Bounds { shortest: Span::from_nanos(1_000), longest: Span::from_secs(1_000_000) };

/// What table II and III print: k_avg, t_avg, lambda, lambda_avg.
const TABLE_II: [(Kind, [f64; 4]); 4] = [
    (Kind::Multiplicative, [0.59, 14.23, 0.042, 0.078]),
    (Kind::Random, [1.19, 19.87, 0.06, 0.06]),
    (Kind::Constant, [0.89, 20.0, 0.045, 0.045]),
    (Kind::Adaptive(20), [1.23, 28.8, 0.041, 0.043]),
];
const TABLE_III: [(Kind, [f64; 4]); 4] = [
    (Kind::Adaptive(25), [1.41, 34.6, 0.041, 0.041]),
    (Kind::Adaptive(35), [1.57, 35.2, 0.045, 0.045]),
    (Kind::Adaptive(45), [1.96, 37.4, 0.052, 0.048]),
    (Kind::Adaptive(55), [1.98, 39.5, 0.05, 0.051]),
];
/// Cells that differ, whatever the seed, with the reason: row, column, why.
const ODD: [(&str, &str, &str); 2] = [
    ("multiplicative", "lambda_avg", "contradicts its own k_avg / t_avg of 0.042"),
    (
        "adaptive, delta 25",
        "t_avg",
        "above what 99 of 100 runs give, and out of line with its own neighbours",
    ),
];
/// What an independent simulation gave: t_avg and how near to it the mean of 1,000 runs must be.
const EXPECTED: [(Kind, f64, f64); 5] = [
    (Kind::Multiplicative, 14.3, 0.1),
    (Kind::Random, 20.0, 0.1),
    (Kind::Constant, 20.0, 1e-9),
    (Kind::Adaptive(20), 26.2, 0.3),
    (Kind::Adaptive(55), 40.2, 0.4),
];

const NOTES: [&str; 4] = [
    "003: losses are independent of the checks, so the expected loss rate is 0.05/s for every strategy; only k_avg and t_avg tell them apart",
    "003: each printed figure comes from one run of 100 checks; the bands are where 99 of 100 such runs lie",
    "003: table II's lambda_avg of 0.078 for the multiplicative decrease contradicts its own k_avg / t_avg of 0.042",
    "003: table III's t_avg of 34.6 for delta 25 is above what 99 of 100 runs give, and out of line with its own neighbours",
];

/// Runs the experiments of the paper.
pub fn report(runs: usize, seed: u64, progress: &mut dyn FnMut(f64)) -> Report {
    let runs = runs.max(FEWEST_RUNS);
    let (mut done, all) = (0.0, (runs * (TABLE_II.len() + TABLE_III.len() + 2)) as f64);
    let mut run_done = || {
        done += 1.0;
        progress(done / all);
    };
    let mut rows = Vec::new();
    let mut expected = Vec::new();
    for (table, printed) in [("II", TABLE_II), ("III", TABLE_III)] {
        for (kind, figures) in printed {
            let runs = measure(kind, Losses::Poisson, runs, seed, &mut run_done);
            rows.extend(printed_rows(table, kind, figures, &runs));
            for (_, t_avg, tolerance) in EXPECTED.into_iter().filter(|expected| expected.0 == kind) {
                expected.extend(expected_rows(kind, t_avg, tolerance, &runs));
            }
        }
    }
    rows.extend(expected);
    rows.extend(figure_3(runs, seed, &mut run_done));
    Report { runs, rows, notes: NOTES.map(str::to_owned).to_vec() }
}

/// Draws what figures 3, 4 and 5 show: one run of 100 checks each.
pub fn figures(seed: u64) -> Vec<Figure> {
    let trace = |kind: Kind, losses| {
        let strategy = kind.build().ok();
        strategy.map_or_else(Vec::new, |strategy| simulate(strategy, losses, &mut Seeded::new(seed)).1)
    };
    let intervals = |trace: Vec<Point>| trace.into_iter().map(|point| (point.at, point.interval));
    let axes = ["time, s", "check interval, s"];
    let adaptive = trace(Kind::Adaptive(20), Losses::Poisson);
    let losses = adaptive.iter().map(|point| (point.at, point.lost)).collect::<Vec<_>>();
    let mut figure_4 = Figure::new("003-figure-4", "Strategies for the check interval", axes);
    for (kind, _) in TABLE_II {
        figure_4 = figure_4.line(&kind.name(), intervals(trace(kind, Losses::Poisson)));
    }
    vec![
        Figure::new("003-figure-3", "Adaptive strategy, uniform and Poisson losses", axes)
            .line("uniform", intervals(trace(Kind::Adaptive(20), Losses::Uniform)))
            .line("Poisson", intervals(adaptive.clone())),
        figure_4,
        Figure::new(
            "003-figure-5",
            "Losses and the response of the adaptive strategy",
            ["time, s", "losses; s"],
        )
        .line("losses before the check", losses)
        .line("check interval, s", intervals(adaptive)),
    ]
}

/// A strategy of table I; adaptive with its delta in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Multiplicative,
    Random,
    Constant,
    Adaptive(u64),
}

impl Kind {
    fn build(self) -> Result<Box<dyn Strategy>, Invalid> {
        Ok(match self {
            Self::Multiplicative => {
                Box::new(MultiplicativeConfig { bounds: BOUNDS, ..Default::default() }.build()?)
            }
            Self::Random => Box::new(RandomChoiceConfig::default().build()?),
            Self::Constant => Box::new(ConstantConfig::default().build()?),
            Self::Adaptive(delta) => {
                let step = Span::from_secs(delta);
                Box::new(SmoothedConfig { step, bounds: BOUNDS, ..Default::default() }.build()?)
            }
        })
    }

    fn name(self) -> String {
        match self {
            Self::Multiplicative => "multiplicative".to_owned(),
            Self::Random => "random".to_owned(),
            Self::Constant => "constant".to_owned(),
            Self::Adaptive(20) => "adaptive".to_owned(),
            Self::Adaptive(delta) => format!("adaptive, delta {delta}"),
        }
    }
}

/// How losses come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Losses {
    /// At random moments.
    Poisson,
    /// Any whole number up to a tenth of the interval's seconds.
    Uniform,
}

/// The figures of one run.
#[derive(Debug, Clone)]
struct Run {
    k_avg: f64,
    t_avg: f64,
    lambda_avg: f64,
    /// The longest interval.
    peak: f64,
}

/// One check of a run.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: f64,
    interval: f64,
    lost: f64,
}

fn measure(kind: Kind, losses: Losses, runs: usize, seed: u64, run_done: &mut dyn FnMut()) -> Vec<Run> {
    let run = |run| {
        run_done();
        Some(simulate(kind.build().ok()?, losses, &mut Seeded::stream(seed, run)).0)
    };
    (0..runs as u64).filter_map(run).collect()
}

/// One client that makes its checks in virtual time: its figures, and each check for those who draw them.
fn simulate(mut strategy: Box<dyn Strategy>, losses: Losses, random: &mut Seeded) -> (Run, Vec<Point>) {
    let mut now = 0.0;
    let mut next_loss = random.exponential(1.0 / LOSS_RATE);
    let mut trace = Vec::with_capacity(CHECKS as usize);
    for _ in 0..CHECKS {
        let interval = strategy.interval().as_secs_f64();
        now += interval;
        let mut count = 0;
        match losses {
            Losses::Uniform => count = random.below((2.0 * LOSS_RATE * interval).round() as u64 + 1) as u32,
            Losses::Poisson => {
                while next_loss <= now {
                    count += 1;
                    next_loss += random.exponential(1.0 / LOSS_RATE);
                }
            }
        }
        trace.push(Point { at: now, interval, lost: f64::from(count) });
        strategy.on_check(&Check::lost(Moment::from_secs_f64(now), count), random);
    }
    let checks = f64::from(CHECKS);
    let mean = |figure: fn(&Point) -> f64| trace.iter().map(figure).sum::<f64>() / checks;
    let (k_avg, lambda_avg) = (mean(|point| point.lost), mean(|point| point.lost / point.interval));
    let peak = trace.iter().map(|point| point.interval).fold(0.0, f64::max);
    (Run { k_avg, t_avg: now / checks, lambda_avg, peak }, trace)
}

/// The columns of tables II and III.
const COLUMNS: [Column<Run>; 4] = [
    Column { name: "k_avg", figure: |run| run.k_avg, rounding: 0.005 },
    Column { name: "t_avg", figure: |run| run.t_avg, rounding: 0.05 },
    Column { name: "lambda", figure: |run| run.k_avg / run.t_avg, rounding: 0.0005 },
    Column { name: "lambda_avg", figure: |run| run.lambda_avg, rounding: 0.0005 },
];

fn printed_rows(table: &str, kind: Kind, printed: [f64; 4], runs: &[Run]) -> Vec<Row> {
    let place = ["003", table, &kind.name()];
    let cells = COLUMNS.iter().zip(printed).map(|(column, printed)| column.cell(place, printed, runs));
    cells.map(explained).collect()
}

/// The row with the reason why it differs, where that is known.
fn explained(row: Row) -> Row {
    let known = ODD.iter().find(|(name, column, _)| row.row == *name && row.column == *column);
    match known {
        Some((_, _, reason)) => row.because(reason),
        None => row,
    }
}

fn expected_rows(kind: Kind, t_avg: f64, tolerance: f64, runs: &[Run]) -> [Row; 2] {
    let times = Sample::new(runs.iter().map(|run| run.t_avg));
    let tolerance = times.tolerance(tolerance);
    let lambda = Sample::new(runs.iter().map(|run| run.k_avg)).mean() / times.mean();
    let spread = Sample::new(runs.iter().map(|run| run.k_avg / run.t_avg)).tolerance(0.001);
    let name = kind.name();
    [
        Row::within(
            ["003", "expected", &name, "t_avg"],
            None,
            times.mean(),
            t_avg - tolerance,
            t_avg + tolerance,
        ),
        Row::within(
            ["003", "expected", &name, "lambda"],
            None,
            lambda,
            LOSS_RATE - spread,
            LOSS_RATE + spread,
        ),
    ]
}

/// Figure 3: the sawtooth is higher with uniform losses than with Poisson ones.
fn figure_3(runs: usize, seed: u64, run_done: &mut dyn FnMut()) -> [Row; 1] {
    let mut peak = |losses| {
        let runs = measure(Kind::Adaptive(20), losses, runs, seed, run_done);
        Sample::new(runs.iter().map(|run| run.peak)).mean()
    };
    let ratio = peak(Losses::Uniform) / peak(Losses::Poisson);
    [Row::within(["003", "figure 3", "adaptive", "peak_uniform_over_poisson"], None, ratio, 1.0, 2.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expected_figure_holds_for_any_seed() {
        for seed in [1, 2, 77] {
            let report = report(1_000, seed, &mut |_| {});
            for row in report.rows.iter().filter(|row| row.table == "expected") {
                assert!(row.agrees, "seed {seed}: {row:?}");
            }
        }
    }

    #[test]
    fn the_printed_tables_agree_but_for_what_the_notes_say() {
        for seed in [1, 5] {
            let report = report(1_000, seed, &mut |_| {});
            let odd = report.rows.iter().filter(|row| !row.agrees);
            let reason = |row: &Row| row.reason.clone().unwrap_or_default();
            let odd: Vec<_> = odd.map(|row| (row.row.clone(), row.column.clone(), reason(row))).collect();
            assert_eq!(
                odd,
                ODD.map(|(row, column, why)| (row.to_owned(), column.to_owned(), why.to_owned()))
            );
        }
    }

    #[test]
    fn progress_grows_up_to_the_whole() {
        let mut shares = Vec::new();
        report(100, 1, &mut |share| shares.push(share));
        assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        assert_eq!(report(20, 3, &mut |_| {}), report(20, 3, &mut |_| {}));
        assert_ne!(report(20, 3, &mut |_| {}), report(20, 4, &mut |_| {}));
    }

    #[test]
    fn the_figures_have_their_curves() {
        let figures = figures(1);
        assert_eq!(figures.iter().map(|figure| figure.lines.len()).collect::<Vec<_>>(), [2, 4, 2]);
        assert!(figures.iter().flat_map(|figure| &figure.lines).all(|line| line.points.len() == 100));
    }
}

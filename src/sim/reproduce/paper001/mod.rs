//! Paper 001: what a client can predict about its own checks, and what it then measures.
//!
//! The predicted columns of table II follow from the printed `E[S]` by formula. The measured ones are simulated: one
//! client, 100 checks with the divided decrease, a source with random gaps. The paper prints one such run for each
//! row, so a measured figure agrees when it lies where 99 of 100 runs do.

mod client;

use super::sample::{Column, FEWEST_RUNS, Sample};
use super::{Figure, Report, Row};
use client::{Run, simulate};
use tidegate_control::Invalid;
use tidegate_control::active::estimate::{self, Estimate};
use tidegate_control::active::{Bounds, DividedConfig, RegularConfig, SelfTuningConfig, Strategy};
use tidegate_control::random::Seeded;
use tidegate_control::time::Span;

const CHECKS: u32 = 100;
const BOUNDS: Bounds = Bounds { shortest: Span::from_nanos(1_000), longest: Span::from_secs(1_000_000) };

/// One row of table II.
#[derive(Debug, Clone, Copy)]
struct Printed {
    step: f64,
    divisor: f64,
    mean_s: f64,
    t_pred: f64,
    t_exp: f64,
    n_pred: f64,
    n_exp: f64,
    lambda: f64,
    k_poisson: f64,
    k_bulk: f64,
    k_bernoulli: f64,
    k_tot: f64,
    redundant: f64,
}

/// Table II, in its order.
const TABLE_II: [[f64; 13]; 12] = [
    [0.5, 1.5, 13.00, 4.84, 4.13, 4.84, 2.74, 0.29, 0.37, 1.00, 0.32, 0.23, 9.0],
    [1.0, 1.5, 10.36, 6.11, 4.79, 3.05, 1.55, 0.25, 0.57, 1.00, 0.42, 0.28, 1.0],
    [2.0, 1.5, 9.20, 8.14, 5.60, 2.03, 0.94, 0.21, 1.07, 1.21, 0.69, 0.40, 4.0],
    [3.0, 1.5, 9.20, 8.14, 5.60, 0.99, 0.32, 0.21, 3.34, 2.64, 1.34, 0.40, 4.0],
    [0.5, 2.0, 14.96, 4.47, 4.02, 4.47, 3.85, 0.32, 0.28, 1.00, 0.28, 0.19, 13.0],
    [1.0, 2.0, 9.74, 5.10, 4.16, 2.55, 2.10, 0.32, 0.52, 1.00, 0.50, 0.31, 27.0],
    [2.0, 2.0, 6.50, 5.89, 4.17, 1.47, 1.04, 0.31, 0.91, 1.00, 0.85, 0.46, 41.0],
    [3.0, 2.0, 9.20, 8.14, 5.60, 1.15, 0.77, 0.21, 2.63, 2.22, 1.21, 0.40, 4.0],
    [0.5, 4.0, 4.86, 2.28, 1.92, 2.28, 2.79, 0.77, 0.58, 1.21, 0.61, 0.35, 40.0],
    [1.0, 4.0, 4.84, 3.21, 1.94, 1.61, 2.82, 0.77, 0.82, 1.22, 0.69, 0.28, 32.0],
    [2.0, 4.0, 5.96, 5.04, 3.76, 1.26, 1.37, 0.40, 1.60, 1.89, 1.02, 0.51, 14.0],
    [3.0, 4.0, 5.00, 5.66, 3.84, 0.94, 0.94, 0.39, 1.82, 1.61, 1.16, 0.53, 16.0],
];

const NOTES: [&str; 8] = [
    "001: rows (3, 1.5) and (3, 2) repeat E[S], T, lambda, K_tot and R of row (2, 1.5): a misprint",
    "001: row (1, 4) was measured with delta 0.5, as row (0.5, 4) shows; its T_pred is formula (7) with delta 1",
    "001: formula (8) is wrong as printed; the bound that follows from (7) is sqrt(2 (a-1) S / (d (a+1))), and the column N_pred is T_pred / (2 d) for every a",
    "001: the text says gaps of 0 to 3 s; only the rows with a = 4 fit that. Those with a = 1.5 and row (0.5, 2) fit gaps of 2 to 4 s, so these are used for all rows with a below 4: chosen to fit, not printed",
    "001: the measured columns of rows (1, 2) and (2, 2) fit no source that was tried; cycles of 2, 3, 4 s and 2, 4 s in step with an update every 3 s would give them, but we did not reproduce that",
    "001: R_exp of row (2, 4) is lower than 99 of 100 runs give",
    "001: K_poisson of rows (1, 1.5) and (0.5, 2) is 0.02 below what their own columns give",
    "001: formula (7) is 29% above the measured column on average; the sharper one is 1.6% off",
];

/// Cells that differ, whatever the seed, with the reason: row, columns, why.
const ODD: [(&str, &[&str], &str); 8] = [
    ("delta 0.5, alpha 2", &["K_poisson"], "printed 0.02 below what its own columns give"),
    ("delta 1, alpha 1.5", &["K_poisson"], "printed 0.02 below what its own columns give"),
    ("delta 1, alpha 2", &["E[S]", "T_exp", "lambda_exp", "R_exp"], UNKNOWN_SOURCE),
    ("delta 2, alpha 2", &["E[S]", "T_exp", "N_exp", "lambda_exp", "K_tot", "R_exp"], UNKNOWN_SOURCE),
    ("delta 1, alpha 4", &["T_sharper"], "measured with delta 0.5"),
    ("delta 2, alpha 4", &["R_exp"], "lower than 99 of 100 runs give"),
    ("delta 3, alpha 1.5", &REPEATED, MISPRINT),
    (
        "delta 3, alpha 2",
        &["T_pred", "N_pred", "T_sharper", "N_exp", "K_poisson", "K_bulk", "K_bernoulli"],
        MISPRINT,
    ),
];
/// Cells on the edge of their band, which differ with some seeds.
const ON_THE_EDGE: [(&str, &[&str], &str); 3] = [
    ("delta 1, alpha 2", &["N_exp", "K_tot"], UNKNOWN_SOURCE),
    ("delta 2, alpha 2", &["K_bulk"], UNKNOWN_SOURCE),
    ("delta 3, alpha 2", &["T_exp"], MISPRINT),
];
const MISPRINT: &str = "the row repeats E[S], T, lambda, K_tot and R of (2, 1.5)";
const UNKNOWN_SOURCE: &str = "measured with a source that is not printed";
const REPEATED: [&str; 10] = [
    "T_pred",
    "N_pred",
    "lambda_cln",
    "T_sharper",
    "T_exp",
    "N_exp",
    "K_poisson",
    "K_bulk",
    "K_bernoulli",
    "K_tot",
];

/// Evaluates the formulas on the printed rows and runs the experiments.
pub fn report(runs: usize, seed: u64, progress: &mut dyn FnMut(f64)) -> Report {
    let runs = runs.max(FEWEST_RUNS);
    let printed: Vec<Printed> = TABLE_II.into_iter().map(Printed::new).collect();
    let mut rows: Vec<Row> = printed.iter().flat_map(predicted).collect();
    let (mut done, all) = (0.0, (runs * printed.len()) as f64 * f64::from(CHECKS));
    for row in &printed {
        let runs = measure(row, runs, seed, &mut |_, _| {
            done += 1.0;
            if done % f64::from(CHECKS) == 0.0 {
                progress(done / all);
            }
        });
        rows.extend(measured(row, &runs));
    }
    rows.extend(beyond(runs, seed));
    for row in rows.iter_mut().filter(|row| !row.agrees) {
        row.reason = known_reason(row).map(str::to_owned);
    }
    let mut notes = NOTES.map(str::to_owned).to_vec();
    notes.push(format!(
        "001: the rows beyond the paper come from {} runs of {} checks each",
        long_count(runs),
        20 * CHECKS
    ));
    Report { runs, rows, notes }
}

/// Why a cell differs, if that is known.
fn known_reason(row: &Row) -> Option<&'static str> {
    let cells = ODD.iter().chain(&ON_THE_EDGE);
    let mut known =
        cells.filter(|(name, columns, _)| row.row == *name && columns.contains(&row.column.as_str()));
    known.next().map(|(_, _, reason)| *reason)
}

/// Draws what figures 3 to 7 show, over steps that the table has not.
pub fn figures(seed: u64) -> Vec<Figure> {
    let steps: Vec<f64> = (1..=12).map(|half| f64::from(half) / 2.0).collect();
    let measured = |divisor| -> Vec<(f64, Run)> {
        steps.iter().map(|step| (*step, mean_run(&divided(*step, divisor, (2.0, 4.0), 100, seed)))).collect()
    };
    let halved = measured(2.0);
    let curve = |runs: &[(f64, Run)], figure: &dyn Fn(&Estimate, &Run) -> f64| -> Vec<(f64, f64)> {
        let point = |(step, run): &(f64, Run)| Some((*step, figure(&Estimate::new(*step, 2.0).ok()?, run)));
        runs.iter().filter_map(point).collect()
    };
    let bernoulli = |_: &Estimate, run: &Run| estimate::losses_bernoulli(run.rate, run.interval, run.lost);
    let poisson = |_: &Estimate, run: &Run| estimate::losses_poisson(run.bulk, run.interval, run.mean_s);
    let mut trace = Vec::new();
    watched(0.5, 2.0, (2.0, 4.0), 1, seed, &mut |at, interval| trace.push((at, interval)));
    let mut rates = Figure::new("001-figure-5", "Rate of checks", ["delta, s", "checks a second"]);
    for divisor in [1.5, 2.0, 4.0] {
        let points = measured(divisor).into_iter().map(|(step, run)| (step, run.rate));
        rates = rates.line(&format!("alpha {divisor}"), points);
    }
    vec![
        Figure::new("001-figure-3", "Check interval, alpha 2, delta 0.5", ["time, s", "check interval, s"])
            .line("interval", trace),
        Figure::new("001-figure-4", "Losses before a decrease, alpha 2", ["delta, s", "losses (K)"])
            .line("Poisson", curve(&halved, &poisson))
            .line("bulk", curve(&halved, &|_, run| run.bulk))
            .line("Bernoulli", curve(&halved, &bernoulli)),
        rates,
        Figure::new("001-figure-6", "Interval before a decrease, alpha 2", ["delta, s", "T, s"])
            .line("bound (7)", curve(&halved, &|estimate, run| estimate.interval_bound(run.mean_s)))
            .line("sharper", curve(&halved, &|estimate, run| estimate.interval(run.mean_s)))
            .line("measured", curve(&halved, &|_, run| run.interval)),
        Figure::new("001-figure-7", "Growths between two decreases, alpha 2", ["delta, s", "N"])
            .line("bound", curve(&halved, &|estimate, run| estimate.growths_bound(run.mean_s)))
            .line("measured", curve(&halved, &|_, run| run.growths)),
    ]
}

/// The mean of each figure.
fn mean_run(runs: &[Run]) -> Run {
    let mean = |figure: fn(&Run) -> f64| Sample::new(runs.iter().map(figure)).mean();
    Run {
        mean_s: mean(|run| run.mean_s),
        interval: mean(|run| run.interval),
        growths: mean(|run| run.growths),
        rate: mean(|run| run.rate),
        bulk: mean(|run| run.bulk),
        lost: mean(|run| run.lost),
        redundant: mean(|run| run.redundant),
    }
}

impl Printed {
    fn new(figures: [f64; 13]) -> Self {
        let [
            step,
            divisor,
            mean_s,
            t_pred,
            t_exp,
            n_pred,
            n_exp,
            lambda,
            k_poisson,
            k_bulk,
            k_bernoulli,
            k_tot,
            redundant,
        ] = figures;
        Self {
            step,
            divisor,
            mean_s,
            t_pred,
            t_exp,
            n_pred,
            n_exp,
            lambda,
            k_poisson,
            k_bulk,
            k_bernoulli,
            k_tot,
            redundant,
        }
    }

    fn name(&self) -> String {
        format!("delta {}, alpha {}", self.step, self.divisor)
    }

    /// The step that the row was really measured with.
    fn measured_step(&self) -> f64 {
        if self.step == 1.0 && self.divisor == 4.0 { 0.5 } else { self.step }
    }

    /// The gaps that the row was really measured with.
    fn gaps(&self) -> (f64, f64) {
        if self.divisor == 4.0 { (0.0, 3.0) } else { (2.0, 4.0) }
    }
}

/// The columns that follow from others by formula.
fn predicted(row: &Printed) -> Vec<Row> {
    let Ok(formula) = Estimate::new(row.step, row.divisor) else { return Vec::new() };
    let name = row.name();
    let place = |column| ["001", "II", name.as_str(), column];
    let t_pred = formula.interval_bound(row.mean_s);
    vec![
        Row::near(place("T_pred"), row.t_pred, t_pred, 0.01),
        Row::near(place("N_pred"), row.n_pred, t_pred / (2.0 * row.step), 0.015),
        Row::near(place("lambda_cln"), row.lambda, estimate::check_rate(row.n_exp, row.mean_s), 0.02),
        Row::near(
            place("K_poisson"),
            row.k_poisson,
            estimate::losses_poisson(row.k_bulk, t_pred, row.mean_s),
            0.015,
        ),
        Row::near(
            place("K_bernoulli"),
            row.k_bernoulli,
            estimate::losses_bernoulli(row.lambda, t_pred, row.k_tot),
            0.02,
        ),
        Row::near(place("T_sharper"), row.t_exp, formula.interval(row.mean_s), 0.05 * row.t_exp),
    ]
}

fn measure(row: &Printed, runs: usize, seed: u64, watch: &mut dyn FnMut(f64, f64)) -> Vec<Run> {
    watched(row.measured_step(), row.divisor, row.gaps(), runs, seed, watch)
}

/// Runs of 100 checks with the divided decrease.
fn divided(step: f64, divisor: f64, gaps: (f64, f64), runs: usize, seed: u64) -> Vec<Run> {
    watched(step, divisor, gaps, runs, seed, &mut |_, _| {})
}

/// The same, with somebody who hears of each check.
fn watched(
    step: f64,
    divisor: f64,
    gaps: (f64, f64),
    runs: usize,
    seed: u64,
    watch: &mut dyn FnMut(f64, f64),
) -> Vec<Run> {
    let step = Span::from_secs_f64(step);
    let config = DividedConfig { step, divisor, bounds: BOUNDS, ..Default::default() };
    let run =
        |run| Some(simulate(&mut config.build().ok()?, gaps, CHECKS, &mut Seeded::stream(seed, run), watch));
    (0..runs.max(1) as u64).filter_map(run).collect()
}

/// The columns that the paper measured.
const MEASURED: [Column<Run>; 7] = [
    Column { name: "E[S]", figure: |run| run.mean_s, rounding: 0.005 },
    Column { name: "T_exp", figure: |run| run.interval, rounding: 0.005 },
    Column { name: "N_exp", figure: |run| run.growths, rounding: 0.005 },
    Column { name: "lambda_exp", figure: |run| run.rate, rounding: 0.01 },
    Column { name: "K_bulk", figure: |run| run.bulk, rounding: 0.005 },
    Column { name: "K_tot", figure: |run| run.lost, rounding: 0.005 },
    Column { name: "R_exp", figure: |run| run.redundant, rounding: 0.5 },
];

fn measured(row: &Printed, runs: &[Run]) -> Vec<Row> {
    let printed = [row.mean_s, row.t_exp, row.n_exp, row.lambda, row.k_bulk, row.k_tot, row.redundant];
    let place = ["001", "II", &row.name()];
    MEASURED.iter().zip(printed).map(|(column, printed)| column.cell(place, printed, runs)).collect()
}

/// Beyond the paper: a client that tunes itself, and one that knows a regular source when it sees one.
fn beyond(runs: usize, seed: u64) -> Vec<Row> {
    let gaps = (2.0, 4.0);
    let divided = long_runs(runs, seed, gaps, || DividedConfig::default().build());
    let regular = long_runs(runs, seed, gaps, || RegularConfig::default().build());
    let tuned = long_runs(runs, seed, (0.0, 3.0), || SelfTuningConfig::default().build());
    let row = |strategy: &str, column: &str, sample: Sample, low, high| {
        Row::within(["001", "beyond", strategy, column], None, sample.mean(), low, high)
    };
    vec![
        row("divided, gaps 2 to 4 s", "lost", Sample::new(divided.iter().map(|run| run.lost)), 0.185, 0.20),
        row(
            "divided, gaps 2 to 4 s",
            "lambda_cln",
            Sample::new(divided.iter().map(|run| run.rate)),
            0.319,
            0.329,
        ),
        row("regular, gaps 2 to 4 s", "lost", Sample::new(regular.iter().map(|run| run.lost)), 0.0, 0.005),
        row(
            "regular, gaps 2 to 4 s",
            "lambda_cln",
            Sample::new(regular.iter().map(|run| run.rate)),
            0.345,
            0.365,
        ),
        row(
            "self-tuning, gaps 0 to 3 s",
            "K_poisson",
            Sample::new(tuned.iter().map(|run| estimate::losses_poisson(run.bulk, run.interval, run.mean_s))),
            0.0,
            1.0,
        ),
    ]
}

/// Runs of two hours or so, long enough to leave the start behind.
fn long_runs<S: Strategy>(
    runs: usize,
    seed: u64,
    gaps: (f64, f64),
    build: impl Fn() -> Result<S, Invalid>,
) -> Vec<Run> {
    let run = |run| {
        let random = &mut Seeded::stream(seed, run);
        Some(simulate(&mut build().ok()?, gaps, 20 * CHECKS, random, &mut |_, _| {}))
    };
    (0..long_count(runs) as u64).filter_map(run).collect()
}

/// How many long runs stand for so many short ones.
fn long_count(runs: usize) -> usize {
    (runs / 50).clamp(1, 20)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_formulas_hold_on_all_sound_rows() {
        let rows = report(1, 1, &mut |_| {}).rows;
        let agreeing = |column: &str, odd: &[&str]| {
            let rows: Vec<_> = rows.iter().filter(|row| row.column == column && row.table == "II").collect();
            assert_eq!(rows.len(), 12);
            for row in rows {
                assert_eq!(row.agrees, !odd.contains(&row.row.as_str()), "{row:?}");
            }
        };
        agreeing("T_pred", &["delta 3, alpha 1.5", "delta 3, alpha 2"]);
        agreeing("T_sharper", &["delta 3, alpha 1.5", "delta 3, alpha 2", "delta 1, alpha 4"]);
    }

    #[test]
    fn just_the_cells_that_have_a_reason_differ() {
        for seed in [1, 2, 3] {
            let rows = report(300, seed, &mut |_| {}).rows;
            for row in rows.iter().filter(|row| !row.agrees) {
                assert!(row.reason.is_some(), "seed {seed}: {row:?}");
            }
            for (name, columns, _) in ODD {
                for column in columns {
                    let row = rows.iter().find(|row| row.row == name && row.column == *column).unwrap();
                    assert!(!row.agrees, "seed {seed}: {row:?} needs no excuse");
                }
            }
        }
    }

    #[test]
    fn beyond_the_paper_holds_for_any_seed() {
        for seed in [1, 2, 3, 4] {
            for row in beyond(250, seed) {
                assert!(row.agrees, "seed {seed}: {row:?}");
            }
        }
    }

    #[test]
    fn the_bound_is_above_what_is_measured_and_the_sharper_estimate_near_it() {
        let figures = figures(1);
        let figure = figures.iter().find(|figure| figure.name == "001-figure-6").unwrap();
        let [bound, sharper, measured] = &figure.lines[..] else { panic!("three curves") };
        assert_eq!(measured.points.len(), 12);
        for ((bound, sharper), measured) in bound.points.iter().zip(&sharper.points).zip(&measured.points) {
            assert!(bound.1 > measured.1, "{bound:?} {measured:?}");
            assert!((sharper.1 / measured.1 - 1.0).abs() < 0.05, "{sharper:?} {measured:?}");
        }
    }
}

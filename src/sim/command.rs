//! `tidegate sim` and `tidegate reproduce`: arguments in, tables, JSON and pictures out.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::picture::picture;
use super::reproduce::{self, PAPERS, Paper, Row};
use super::{Outcome, Scenario, ScenarioError, run, table};

/// How long a run may take before progress is shown.
const PATIENCE: Duration = Duration::from_secs(2);

/// The arguments of `tidegate sim`.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// The scenario file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Another seed than the scenario's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write figures and what happened over time as JSON; - is the standard output
    #[arg(long, value_name = "OUT")]
    pub json: Option<PathBuf>,
    /// Draw depth, delay, rates and phases over time
    #[arg(long, value_name = "OUT.svg")]
    pub plot: Option<PathBuf>,
}

/// The arguments of `tidegate reproduce`.
#[derive(Debug, Clone, Args)]
pub struct ReproduceArgs {
    /// The paper's number, or all
    #[arg(value_name = "PAPER", default_value = "all")]
    pub paper: String,
    /// How many runs; 1000 unless given. 001 and 003 take that many behind each figure, but never fewer than 100; one
    /// of their runs is quick. 002 takes one in 100 of them (1 to 100), 000 and 004 too (1 to 10). The report says how
    /// many it took
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub runs: Option<u32>,
    /// The seed from which every run's own is derived
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write all figures as a JSON array; - is the standard output. `printed` is null where the paper prints no number: what
    /// it shows only as a curve, what must hold by its own formulas, and what goes beyond it. `low` and `high` are ours
    /// there. `reason` says why a figure differs, where that is known
    #[arg(long, value_name = "OUT")]
    pub json: Option<PathBuf>,
    /// Draw the papers' figures into this directory
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The scenario is refused.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// There is no such paper.
    #[error("there is no paper {0:?}: it must be {known} or all", known = known_papers())]
    Paper(String),
    /// A result can't be written.
    #[error("{path}: {source}", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// A figure is outside of the band that the scenario expects.
    #[error("{0} of the scenario's expectations failed")]
    Expectation(usize),
}

/// Runs one scenario, prints its figures and writes what was asked for.
pub fn run_sim(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    let scenario = Scenario::load(&args.file)?;
    let mut progress = Progress::new(scenario.name.clone());
    let outcome = run(&scenario, args.seed.unwrap_or(scenario.seed), &mut |share| progress.show(share));
    progress.finish();
    let outcome = outcome?;
    if args.json.as_deref() != Some(Path::new("-")) {
        write(Path::new("standard output"), || out.write_all(table::outcome(&outcome).as_bytes()))?;
    }
    write_json(args.json.as_deref(), out, &outcome)?;
    if let Some(path) = &args.plot {
        write(path, || std::fs::write(path, picture(&outcome).svg()))?;
    }
    match failed(&outcome) {
        0 => Ok(()),
        count => Err(SimError::Expectation(count)),
    }
}

/// Runs the papers' experiments, prints what they print beside ours and writes what was asked for.
pub fn run_reproduce(args: &ReproduceArgs, out: &mut dyn Write) -> Result<(), SimError> {
    let papers: Vec<&Paper> =
        PAPERS.iter().filter(|p| args.paper == "all" || args.paper == p.number).collect();
    if papers.is_empty() {
        return Err(SimError::Paper(args.paper.clone()));
    }
    let quiet = args.json.as_deref() == Some(Path::new("-"));
    let mut rows: Vec<Row> = Vec::new();
    for paper in papers {
        let runs = args.runs.map_or(paper.runs, |runs| runs as usize);
        let mut progress = Progress::new(format!("paper {}", paper.number));
        let report = (paper.report)(runs, args.seed, &mut |share| progress.show(share));
        progress.finish();
        if !quiet {
            let text = table::report(paper, &report);
            write(Path::new("standard output"), || out.write_all(text.as_bytes()))?;
        }
        rows.extend(report.rows);
        if let Some(directory) = &args.plot {
            draw_figures(paper, args.seed, directory)?;
        }
    }
    write_json(args.json.as_deref(), out, &rows)
}

fn draw_figures(paper: &Paper, seed: u64, directory: &Path) -> Result<(), SimError> {
    write(directory, || std::fs::create_dir_all(directory))?;
    for figure in (paper.figures)(seed) {
        let path = directory.join(format!("{}.svg", figure.name));
        write(&path, || std::fs::write(&path, reproduce::chart(&figure).svg()))?;
    }
    Ok(())
}

fn failed(outcome: &Outcome) -> usize {
    outcome.measures.iter().filter(|measure| measure.agrees() == Some(false)).count()
}

fn known_papers() -> String {
    PAPERS.iter().map(|paper| paper.number).collect::<Vec<_>>().join(", ")
}

fn write_json(path: Option<&Path>, out: &mut dyn Write, value: &impl Serialize) -> Result<(), SimError> {
    let Some(path) = path else { return Ok(()) };
    write(path, || {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        if path == Path::new("-") { out.write_all(text.as_bytes()) } else { std::fs::write(path, text) }
    })
}

fn write(path: &Path, action: impl FnOnce() -> std::io::Result<()>) -> Result<(), SimError> {
    action().map_err(|source| SimError::Write { path: path.to_owned(), source })
}

/// Says on the standard error how far a run is, if it takes long.
struct Progress {
    name: String,
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    fn new(name: String) -> Self {
        Self { name, started: Instant::now(), shown: None, terminal: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, share: f64) {
        // A line that stays is written less often than one that is written over.
        let pause = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(5) };
        let due = self.shown.map_or(self.started + PATIENCE, |shown| shown + pause);
        if Instant::now() < due {
            return;
        }
        self.shown = Some(Instant::now());
        let left = self.started.elapsed().as_secs_f64() * (1.0 - share) / share.max(1e-6);
        let end = if self.terminal { "\r" } else { "\n" };
        self.say(&format!("{}: {:3.0}% done, {left:.0} s left   {end}", self.name, 100.0 * share));
    }

    fn finish(&mut self) {
        if self.terminal && self.shown.is_some() {
            self.say("\r\x1b[K");
        }
    }

    fn say(&self, words: &str) {
        // A run that nobody can watch is still worth finishing.
        let _ = std::io::stderr().write_all(words.as_bytes());
    }
}

#[cfg(test)]
mod tests;

//! The papers' tables and figures again: what is printed, what we get, and whether the two agree.
//!
//! Each paper is a module with `pub fn report(runs: usize, seed: u64, progress) -> Report` and `pub fn figures(seed: u64) ->
//! Vec<Figure>`. It runs what the paper ran as often as `runs` asks for and its cost allows (each run with a seed of its
//! own, derived from `seed`), says how far it is, and returns its rows and its notes. [`PAPERS`] lists them all.

mod figure;
pub mod paper000;
pub mod paper001;
pub mod paper002;
pub mod paper003;
pub mod paper004;
mod row;
mod sample;

pub use figure::{Figure, Line};
pub use row::{Report, Row};

use super::plot::{Chart, Curve, Panel, Style};

/// A paper whose results are reproduced.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    /// Its number, such as `002`.
    pub number: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// Runs unless somebody asks for another number; the report says how many became of it.
    pub runs: usize,
    /// Runs its experiments; hears the share that is done now and then.
    pub report: fn(usize, u64, &mut dyn FnMut(f64)) -> Report,
    /// Draws its figures.
    pub figures: fn(u64) -> Vec<Figure>,
}

/// Every paper, in the order of their numbers.
pub const PAPERS: &[Paper] = &[
    Paper {
        number: "000",
        title: "random backoff of active checks",
        runs: 1000,
        report: paper000::report,
        figures: paper000::figures,
    },
    Paper {
        number: "001",
        title: "estimates for active checks",
        runs: 1000,
        report: paper001::report,
        figures: paper001::figures,
    },
    Paper {
        number: "002",
        title: "overload protection by feedback control of devices",
        runs: 1000,
        report: paper002::report,
        figures: paper002::figures,
    },
    Paper {
        number: "003",
        title: "adaptive intervals of active checks",
        runs: 1000,
        report: paper003::report,
        figures: paper003::figures,
    },
    Paper {
        number: "004",
        title: "balancing clients over brokers",
        runs: 1000,
        report: paper004::report,
        figures: paper004::figures,
    },
];

/// A figure, ready to be drawn.
pub fn chart(figure: &Figure) -> Chart {
    let curves =
        figure.lines.iter().map(|line| Curve::new(&line.name, Style::Line, line.points.iter().copied()));
    Chart {
        title: figure.title.clone(),
        x: figure.x.clone(),
        panels: vec![Panel { y: figure.y.clone(), height: 360.0, curves: curves.collect() }],
        ..Chart::default()
    }
}

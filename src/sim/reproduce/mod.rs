//! The papers' tables and figures again: what is printed, what we get, and whether the two agree.
//!
//! Each paper is a module with `pub fn report(runs: usize, seed: u64) -> Report`. It runs what the paper ran
//! `runs` times (each run with a seed of its own, derived from `seed`) and returns its rows and its notes.

mod figure;
pub mod paper000;
pub mod paper001;
pub mod paper003;
pub mod paper004;
mod row;
mod sample;

pub use figure::{Figure, Line};
pub use row::{Report, Row};

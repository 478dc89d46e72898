//! The simulator: the controllers of `tidegate-control` in virtual time, against devices, queues and consumers.

pub mod command;
mod consumers;
mod fleet;
pub mod outcome;
pub mod pattern;
pub mod picture;
pub mod plot;
mod queue;
pub mod reproduce;
pub mod scenario;
mod table;
mod waits;
mod wheel;
mod world;

pub use outcome::Outcome;
pub use scenario::{Scenario, ScenarioError};
pub use world::run;

#[cfg(test)]
mod tests;

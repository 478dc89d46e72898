//! The simulator: the controllers of `tidegate-control` in virtual time, against devices, queues and consumers.

mod consumers;
mod fleet;
pub mod outcome;
pub mod pattern;
mod queue;
pub mod reproduce;
pub mod scenario;
mod waits;
mod wheel;
mod world;

pub use outcome::Outcome;
pub use scenario::{Scenario, ScenarioError};
pub use world::run;

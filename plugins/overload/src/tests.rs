//! The plugin in a closed loop, in virtual time: publishers, queues and consumers that are simulated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounds;
pub(crate) use bounds::report;
mod control;
mod shares;
mod telling;
mod world;

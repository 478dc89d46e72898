//! An MQTT load generator that checks what it measures, and a runner for experiments with several brokers.
//!
//! Most people run the `tidegate-bench` command. [`record`] is what a run leaves behind.

pub mod check;
pub mod clock;
pub mod codec;
pub mod compare;
pub mod follow;
pub mod link;
pub mod record;
pub mod report;
pub mod scenario;
pub mod transport;

//! An MQTT load generator that checks what it measures, and a runner for experiments with several brokers.
//!
//! Most people run the `tidegate-bench` command. [`record`] is what a run leaves behind.

pub mod compare;
pub mod record;
pub mod report;

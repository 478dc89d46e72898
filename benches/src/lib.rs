//! An MQTT load generator that checks what it measures, and a runner for experiments with several brokers.
//!
//! Most people run the `tidegate-bench` command. [`scenario`] says what is run, [`run`] runs it, [`record`] is what it
//! leaves behind, [`compare`] puts brokers side by side and [`report`] writes it up.

pub mod acks;
mod backoff;
pub mod check;
pub mod cli;
pub mod clock;
pub mod codec;
pub mod compare;
mod consumer;
mod device;
pub mod follow;
pub mod gaps;
pub mod intents;
mod lasting;
pub mod link;
pub mod peers;
pub mod process;
pub mod record;
pub mod relay;
pub mod report;
pub mod run;
pub mod scaler;
pub mod scenario;
pub mod settle;
pub mod sink;
pub mod stats;
pub mod topic;
pub mod transport;
pub mod world;

//! Overload control, live: the `overload` plugin of Tidegate.
//!
//! In every turn of the control loop each protected consumer queue is looked at: a controller of `tidegate_control` says
//! what its publishers may send together, that is divided among their classes, and each publisher gets the lowest rate
//! of the queues it feeds. The rates are set on the [`tidegate_plugin::Publisher`]s, for acknowledgements and
//! enforcement, and announced on retained control topics.
//!
//! - a *queue* is protected while its rules say so, a consumer is connected, and that consumer makes progress;
//! - a *source* is a publisher that fed a protected queue lately;
//! - what sources want is configured for their class, or else learned (`tidegate_control::demand`).
//!
//! Everything is bounded: queues, sources, what is remembered of them, announcements and answers.

mod announce;
mod answer;
mod budget;
mod class;
mod config;
mod divide;
mod elsewhere;
mod glob;
mod hands;
mod hook;
mod measures;
mod message;
mod number;
mod plugin;
mod queue;
mod rules;
mod source;
mod state;

pub use config::{Algorithm, ClassConfig, OverloadConfig, OverloadError, QueueRule, Wrong};
pub use measures::METRICS;
pub use plugin::Overload;

#[cfg(test)]
mod tests;

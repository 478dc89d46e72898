//! Consuming: what came, what is missing, and when to ask for it. Only `driver.rs` knows that there is a network.

mod builder;
mod checks;
mod driver;
mod held;
#[cfg(test)]
mod herd_tests;
mod line;
mod receipts;
mod round;
mod stats;
mod subscriber;
mod tracker;

pub use builder::SubscriberBuilder;
pub use stats::SubscriberStats;
pub use subscriber::{Subscriber, Update, Via};

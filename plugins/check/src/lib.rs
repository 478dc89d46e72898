//! Answers active checks: consumers ask what they missed, and get it.
//!
//! Every accepted message gets a number within its topic. The last messages of tracked topics are kept, within bounds, so
//! that a consumer that missed some can have them. A check arrives as a message on `$tide/v1/check/{client}`, and its
//! answer leaves on `$tide/v1/update/{client}`. A client may only ask for filters that it has subscribed to on the
//! same connection: whatever forbids a subscription forbids the question. For that, this plugin must come after those that
//! forbid.
//!
//! The plugin protects itself. Checks are answered at a limited rate, on a thread of its own, so that no publisher ever
//! waits for one. Those that wait at the same time and ask the same are looked up once. Whoever can't be answered soon is
//! told a time to come back, each another one, at the limit's pace; whoever asks learns what rate is his share when
//! the limit is near.
//!
//! What knows no clock and no network: [`History`] (numbers and messages), [`Desk`] (who waits, who is told to come back),
//! [`Check`] and [`Answer`] (the messages). [`CheckPlugin`] wires them to the gateway.

mod config;
mod desk;
mod filter;
mod history;
mod message;
mod plugin;
mod share;
mod shelf;

pub use config::{CheckConfig, ConfigError};
pub use desk::{Desk, Served, Submitted};
pub use history::{Found, History, Kept};
pub use message::{Answer, Asked, Check};
pub use plugin::CheckPlugin;

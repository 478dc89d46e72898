//! Answers active checks: consumers ask what they missed, and get it.
//!
//! Every accepted message gets a number within its topic, which MQTT 5 consumers see as user property `tide-seq`. The
//! last messages of tracked topics are kept, within bounds, so that a consumer that missed some can have them. A check arrives
//! as a message on `$tide/v1/check/{client}`, and its answer leaves on `$tide/v1/update/{client}`, or on the Response
//! Topic of the check, which must be that one or below it. A client may only ask for filters that it has
//! subscribed to on the same connection, not in a shared group: whatever forbids a subscription forbids the question. The
//! plugin may stand at any place among the others: it numbers what all of them let pass, and takes checks that all of
//! them let pass.
//!
//! The plugin protects itself. Checks are answered at a limited rate, on a thread of its own, so that no publisher ever
//! waits for one, and so are the topics that it looks at for them. Those that wait at the same time and ask the same are looked up once. Whoever can't be answered soon is
//! told a time to come back, each another one, at the limit's pace; whoever asks learns what rate is his share when
//! the limit is near.
//!
//! What knows no clock and no network: [`History`] (numbers and messages), [`Desk`] (who waits, who is told to come back),
//! [`Check`] and [`Answer`] (the messages). [`CheckPlugin`] wires them to the gateway.

mod config;
mod counts;
mod desk;
mod history;
mod message;
mod owed;
mod plugin;
mod share;
mod shelf;

pub use config::{CheckConfig, ConfigError};
pub use desk::{Asker, Desk, Reply, Served, Submitted};
pub use history::{Found, History, Kept, SHELVES};
pub use message::{Answer, Asked, Check, Question, Unreadable};
pub use plugin::CheckPlugin;

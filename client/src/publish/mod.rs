//! Publishing: what waits, what may go, and when. Only `driver.rs` knows that there is a network.

mod builder;
mod counters;
mod driver;
mod job;
mod outbox;
mod pace;
mod publisher;
mod rate;
mod slots;
mod urgent;

pub use builder::PublisherBuilder;
pub use counters::PublisherStats;
pub use publisher::{Publisher, UrgentFull};

use std::sync::Arc;

use bytes::Bytes;

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Counts up over all messages of this publisher.
    pub(crate) number: u64,
    pub(crate) topic: Arc<str>,
    pub(crate) payload: Bytes,
    /// The samples it stands for; 0 for an urgent message.
    pub(crate) samples: u64,
    pub(crate) urgent: bool,
    /// Whether a newer message of its topic makes it worthless.
    pub(crate) newest_wins: bool,
    /// Whether it was acknowledged before, by a broker that has lost its memory since.
    pub(crate) repeated: bool,
}

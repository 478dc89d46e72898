//! The companion crate for publishers and consumers.

mod aggregate;
mod clock;
mod consume;
mod error;
mod net;
mod protocol;
mod publish;
mod sample;

pub use aggregate::{Added, Aggregate, Batch, Latest, Mean, Merged, Policy};
pub use consume::{Subscriber, SubscriberBuilder, SubscriberStats, Update, Via};
pub use error::Error;
pub use net::{Connection, Qos, Reconnect, Tls, Version};
pub use publish::{Publisher, PublisherBuilder, PublisherStats, UrgentFull};
pub use sample::Sample;
/// The algorithms behind this crate: strategies for checks and their settings.
pub use tidegate_control as control;

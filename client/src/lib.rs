//! The companion crate for publishers and consumers.

mod aggregate;
mod clock;
mod error;
mod net;
mod protocol;
mod publish;
mod sample;

pub use aggregate::{Added, Aggregate, Batch, Latest, Mean, Merged, Policy};
pub use error::Error;
pub use net::{Connection, Qos, Reconnect, Tls, Version};
pub use publish::{Publisher, PublisherBuilder, PublisherStats, UrgentFull};
pub use sample::Sample;

//! Spreads clients over several brokers (paper 004): loads, states, where a topic goes and what to move away.
//!
//! A head broker takes publishers, edge brokers serve subscribers. A check measures every edge broker once in a
//! while; one that is overloaded plans moves, and brokers with a low load take them.

mod distribute;
mod load;
mod migrate;
mod offload;
mod plan;
mod state;
mod threshold;
mod topic;

pub use distribute::{Distribute, DistributeConfig, correlation};
pub use load::{Capacity, Load, Metric, Utilization};
pub use migrate::{Migration, MigrationConfig, MigrationState};
pub use offload::{Move, Offload, OffloadConfig};
pub use state::{Limits, LimitsConfig, Role, State};
pub use threshold::{Latency, Rates, depth_threshold};
pub use topic::{Origin, Topic};

use alloc::vec::Vec;

/// A broker as it was measured: what it can do, and the topics that it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct Broker {
    /// What the broker can do.
    pub capacity: Capacity,
    /// The topics whose subscribers it serves.
    pub topics: Vec<Topic>,
}

impl Broker {
    /// The load of all topics together.
    pub fn load(&self) -> Load {
        self.topics.iter().map(Topic::load).fold(Load::default(), |sum, load| sum + load)
    }

    /// How much of its capacity is asked for; over 1 where more is asked than it can do.
    pub fn utilization(&self) -> Utilization {
        self.capacity.utilization(&self.load())
    }
}

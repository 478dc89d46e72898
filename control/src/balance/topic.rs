//! The subscribers of one topic on one broker: the bundle that is moved.

use super::Load;
use super::threshold::{Rates, depth_threshold};
use crate::allocate::{Claim, water_fill};
use crate::invalid::{self, Invalid};
use crate::time::Span;
use alloc::vec::Vec;

/// Where the publishers of a topic are, seen from the broker that serves its subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// In other clusters only (S_r).
    Remote,
    /// In this cluster and in others (S_r-l).
    Both,
    /// In this cluster only (S_l).
    #[default]
    Local,
    /// There are none (S_n).
    Nowhere,
}

/// A topic as it was measured on one broker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Topic {
    /// Which topic.
    pub id: u64,
    /// Subscribers that this broker serves.
    pub subscribers: u32,
    /// Where its publishers are.
    pub origin: Origin,
    /// The mean size of a message, in bits.
    pub message_bits: f64,
    /// Messages a second that come in.
    pub input_rate: f64,
    /// Messages a second that go out, to all subscribers together.
    pub output_rate: f64,
    /// Messages that wait, for all subscribers together.
    pub depth: f64,
    /// How long a message may wait here (t_e).
    pub allowed: Span,
}

impl Topic {
    /// Refuses a topic whose measures make no sense.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::positive("message_bits", self.message_bits)?;
        invalid::not_negative("input_rate", self.input_rate)?;
        invalid::not_negative("output_rate", self.output_rate)?;
        invalid::not_negative("depth", self.depth)?;
        Ok(())
    }

    /// Messages a second that its subscribers should get, all together (lambda).
    pub fn demand(&self) -> f64 {
        self.input_rate * f64::from(self.subscribers)
    }

    /// What this topic asks of its broker.
    pub fn load(&self) -> Load {
        if self.subscribers == 0 {
            return Load::default();
        }
        Load {
            input: self.input_rate * self.message_bits,
            matched: self.input_rate,
            output: self.demand() * self.message_bits,
        }
    }

    /// The same topic with another number of subscribers, as it will be when they are all served.
    pub(super) fn with_subscribers(&self, subscribers: u32) -> Self {
        let moved = Self { subscribers, ..*self };
        Self { output_rate: moved.demand(), depth: 0.0, ..moved }
    }

    /// Whether more messages wait than can still be sent in time; an empty queue is never too deep.
    pub fn is_too_deep(&self, migration_cost: Span) -> bool {
        let rates = Rates { input: self.demand(), output: self.output_rate };
        self.depth > 0.0 && self.depth > depth_threshold(self.allowed, migration_cost, rates)
    }
}

/// The messages a second that go out for each topic when they share an uplink (bit/s) fairly and those with a
/// backlog take all that they can get.
pub(super) fn shared_output(uplink: f64, topics: &[Topic]) -> Vec<f64> {
    let claims: Vec<Claim> = topics
        .iter()
        .map(|topic| Claim::up_to(if topic.depth > 0.0 { uplink } else { topic.load().output }))
        .collect();
    water_fill(uplink, &claims).iter().zip(topics).map(|(bits, topic)| bits / topic.message_bits).collect()
}

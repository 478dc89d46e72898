//! What an overloaded broker gives away, and to whom.

use super::plan::Plan;
use super::{Broker, Limits, LimitsConfig, Metric, Origin, Role, State, Topic};
use crate::invalid::{self, Invalid};
use crate::time::Span;
use alloc::vec::Vec;

/// Settings of [`Offload`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OffloadConfig {
    /// When a broker counts as loaded.
    pub limits: LimitsConfig,
    /// How soon the queues that were too deep must be empty again; none: as in the paper, when they are empty is
    /// left open, and nothing is moved that isn't needed to end the overload.
    ///
    /// With it, a target may be filled to just below TH_high instead of TH_low.
    pub drain: Option<Span>,
    /// Moves in one plan, at most.
    pub most_moves: usize,
}

impl Default for OffloadConfig {
    /// The paper's limits and no drain target.
    fn default() -> Self {
        Self { limits: LimitsConfig::default(), drain: None, most_moves: 16 }
    }
}

impl OffloadConfig {
    /// Makes the planner, or says which setting is wrong.
    pub fn build(&self) -> Result<Offload, Invalid> {
        if let Some(drain) = self.drain {
            invalid::positive("drain", drain.as_secs_f64())?;
        }
        invalid::check("most_moves", self.most_moves as f64, "at least 1", self.most_moves > 0)?;
        Ok(Offload { config: *self, limits: self.limits.build()? })
    }
}

/// Subscribers of one topic that go to another broker together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The topic.
    pub topic: u64,
    /// How many of its subscribers.
    pub subscribers: u32,
    /// The index of the broker that takes them.
    pub to: usize,
}

/// Plans the moves that end an edge broker's overload.
#[derive(Debug, Clone)]
pub struct Offload {
    config: OffloadConfig,
    limits: Limits,
}

impl Offload {
    /// The limits that say when a broker is overloaded.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The moves away from an edge broker; none when it is not overloaded or when nobody can help.
    ///
    /// Bundles come first, in the order of table 4. Each goes to the broker with the lowest load that takes it, until
    /// the source would be well. Only when no bundle fits anywhere are subscribers moved one by one.
    pub fn plan(&self, source: usize, brokers: &[Broker]) -> Vec<Move> {
        let Some(broker) = brokers.get(source) else { return Vec::new() };
        let Some(metric) = self.limits.overloaded(Role::Edge, broker) else { return Vec::new() };
        let order = self.order(metric, broker);
        let mut plan = Plan::new(&self.config, &self.limits, metric, source, brokers);
        while !plan.is_well() && plan.moves().len() < self.config.most_moves {
            let next = plan.next_bundle(&order).or_else(|| plan.next_part(&order));
            let Some(next) = next else { break };
            plan.apply(next);
        }
        plan.into_moves()
    }

    /// The topics in the order in which they are offered (table 4): by group, then the longest allowed wait first.
    fn order(&self, metric: Metric, broker: &Broker) -> Vec<u64> {
        let cost = self.limits.config().migration_cost;
        let mut topics: Vec<&Topic> = broker.topics.iter().filter(|topic| topic.subscribers > 0).collect();
        topics.sort_by_key(|topic| (group(metric, topic, cost), core::cmp::Reverse(topic.allowed), topic.id));
        topics.iter().map(|topic| topic.id).collect()
    }
}

/// The place of a topic's group in table 4.
fn group(metric: Metric, topic: &Topic, migration_cost: Span) -> u8 {
    match metric {
        Metric::Downlink | Metric::Uplink => match topic.origin {
            Origin::Remote => 0,
            Origin::Both => 1,
            Origin::Local => 2,
            Origin::Nowhere => 3,
        },
        Metric::Matching => u8::from(topic.origin != Origin::Nowhere),
        Metric::QueueDepth if topic.depth <= 0.0 => 0,
        Metric::QueueDepth => 1 + u8::from(topic.is_too_deep(migration_cost)),
    }
}

/// Whether a broker may be asked to take something.
pub(super) fn is_candidate(limits: &Limits, broker: &Broker) -> bool {
    limits.state(Role::Edge, broker) == State::Low
}

#[cfg(test)]
mod tests;

//! The moves that were chosen so far, and what the brokers would look like after them.

use super::offload::is_candidate;
use super::topic::shared_output;
use super::{Broker, Limits, Metric, Move, OffloadConfig, Role, Topic};
use alloc::vec::Vec;

/// A plan in the making.
pub(super) struct Plan<'a> {
    config: &'a OffloadConfig,
    limits: &'a Limits,
    metric: Metric,
    source: usize,
    /// Topics whose queues were too deep when the plan began.
    deep: Vec<u64>,
    /// As they would be after the moves.
    brokers: Vec<Broker>,
    /// Who may take something: those with a low load when the plan began, the least loaded first.
    targets: Vec<usize>,
    moves: Vec<Move>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        config: &'a OffloadConfig,
        limits: &'a Limits,
        metric: Metric,
        source: usize,
        brokers: &[Broker],
    ) -> Self {
        let cost = limits.config().migration_cost;
        let source_topics = brokers.get(source).map_or(&[][..], |broker| &broker.topics);
        let deep =
            source_topics.iter().filter(|topic| topic.is_too_deep(cost)).map(|topic| topic.id).collect();
        let targets = brokers.iter().enumerate();
        let targets = targets.filter(|(index, broker)| *index != source && is_candidate(limits, broker));
        let targets = targets.map(|(index, _)| index).collect();
        Self { config, limits, metric, source, deep, brokers: brokers.to_vec(), targets, moves: Vec::new() }
    }

    pub(super) fn moves(&self) -> &[Move] {
        &self.moves
    }

    pub(super) fn into_moves(self) -> Vec<Move> {
        self.moves
    }

    /// Whether the source would no longer be overloaded, and drained in time where that is asked for.
    pub(super) fn is_well(&self) -> bool {
        self.brokers.get(self.source).is_none_or(|source| self.would_be_well(source))
    }

    /// The first bundle that ends the overload on its own, or else the first that somebody takes.
    pub(super) fn next_bundle(&self, order: &[u64]) -> Option<Move> {
        let fitting = || {
            order.iter().filter_map(|id| {
                let topic = self.topic(*id)?;
                Some(Move { topic: *id, subscribers: topic.subscribers, to: self.taker(&topic)? })
            })
        };
        // The paper's order is kept as long as nothing else is asked for.
        let best = self.config.drain.and_then(|_| fitting().find(|next| self.ends_it(next)));
        best.or_else(|| fitting().next())
    }

    /// The fewest subscribers of a topic that end the overload, or else as many of the first topic as fit.
    pub(super) fn next_part(&self, order: &[u64]) -> Option<Move> {
        let part = |topic: &Topic, count: u32| {
            let to = self.taker(&Topic { subscribers: count, ..*topic })?;
            Some(Move { topic: topic.id, subscribers: count, to })
        };
        let mut first = None;
        for topic in order.iter().filter_map(|id| self.topic(*id)) {
            let most = last_where(topic.subscribers.saturating_sub(1), |count| part(&topic, count).is_some());
            let Some(largest) = part(&topic, most).filter(|_| most > 0) else { continue };
            if self.ends_it(&largest) {
                let enough = |count| part(&topic, count).is_some_and(|next| self.ends_it(&next));
                return part(&topic, last_where(most, |count| !enough(count)) + 1);
            }
            first = first.or(Some(largest));
        }
        first
    }

    pub(super) fn apply(&mut self, next: Move) {
        let Some(topic) = self.topic(next.topic) else { return };
        if let Some(source) = self.brokers.get_mut(self.source) {
            *source = without(source, &next);
        }
        if let Some(target) = self.brokers.get_mut(next.to) {
            match target.topics.iter_mut().find(|served| served.id == next.topic) {
                Some(served) => {
                    *served = served.with_subscribers(served.subscribers.saturating_add(next.subscribers))
                }
                None => target.topics.push(topic.with_subscribers(next.subscribers)),
            }
        }
        self.moves.push(next);
    }

    fn ends_it(&self, next: &Move) -> bool {
        self.brokers.get(self.source).is_some_and(|source| self.would_be_well(&without(source, next)))
    }

    /// Judges the source after moves, when its topics share the uplink anew.
    fn would_be_well(&self, source: &Broker) -> bool {
        let output = shared_output(source.capacity.uplink(), &source.topics);
        let topics = source.topics.iter().zip(output);
        let topics = topics.map(|(topic, output_rate)| Topic { output_rate, ..*topic }).collect();
        let after = Broker { topics, ..source.clone() };
        self.limits.overloaded(Role::Edge, &after).is_none() && self.drains_in_time(source, &after)
    }

    fn drains_in_time(&self, before: &Broker, after: &Broker) -> bool {
        let Some(drain) = self.config.drain else { return true };
        let cost = self.limits.config().migration_cost.as_secs_f64();
        after.topics.iter().zip(&before.topics).filter(|(topic, _)| self.deep.contains(&topic.id)).all(
            |(after, before)| {
                // The queue still grows as before until the migration is done.
                let depth = after.depth + (before.demand() - before.output_rate).max(0.0) * cost;
                (after.output_rate - after.demand()) * drain.as_secs_f64() >= depth
            },
        )
    }

    /// The topic as the source would still serve it.
    fn topic(&self, id: u64) -> Option<Topic> {
        let source = self.brokers.get(self.source)?;
        source.topics.iter().find(|topic| topic.id == id && topic.subscribers > 0).copied()
    }

    /// The broker with the lowest load that stays under its limit with these subscribers.
    fn taker(&self, topic: &Topic) -> Option<usize> {
        let load =
            |index: usize| self.brokers.get(index).map_or(f64::MAX, |b| b.utilization().of(self.metric));
        let fitting = self.targets.iter().copied().filter(|index| self.fits(*index, topic));
        fitting.min_by(|a, b| load(*a).total_cmp(&load(*b)))
    }

    fn fits(&self, target: usize, topic: &Topic) -> bool {
        let Some(broker) = self.brokers.get(target) else { return false };
        let served = broker.topics.iter().find(|served| served.id == topic.id);
        // Two brokers may have measured the same topic differently: reckoned with is the heavier of the two.
        let mut load = served.map_or(*topic, |served| heavier(topic, served)).load();
        if served.is_some_and(|served| served.subscribers > 0) {
            // The topic comes in already.
            (load.input, load.matched) = (0.0, 0.0);
        }
        let used = broker.capacity.utilization(&(broker.load() + load));
        let limits = self.limits.config();
        let limit = if self.config.drain.is_some() { limits.high } else { limits.low };
        self.limits.is_under(Role::Edge, &used, limit)
    }
}

/// The topic with the larger messages and the higher rate of two measurements of it.
fn heavier(topic: &Topic, other: &Topic) -> Topic {
    let message_bits = topic.message_bits.max(other.message_bits);
    Topic { message_bits, input_rate: topic.input_rate.max(other.input_rate), ..*topic }
}

/// The broker after a move away from it. What waits is still sent from here.
fn without(source: &Broker, next: &Move) -> Broker {
    let mut after = source.clone();
    if let Some(topic) = after.topics.iter_mut().find(|topic| topic.id == next.topic) {
        topic.subscribers = topic.subscribers.saturating_sub(next.subscribers);
    }
    after
}

/// The largest number from 1 to `high` up to which all are good; 0 when not even 1 is.
fn last_where(high: u32, good: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, high);
    while low < high {
        let middle = high - (high - low) / 2;
        if good(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

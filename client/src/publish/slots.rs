//! The samples that wait, by topic.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_control::time::{Moment, Span};

use crate::aggregate::{Added, Aggregate, Policy};
use crate::sample::Sample;

/// Chooses the policy of a topic.
pub(crate) type PolicyOf = dyn Fn(&str) -> Policy + Send + Sync;

/// Bounds, and what an event-driven sender asks for.
#[derive(Clone)]
pub(crate) struct SlotSettings {
    pub(crate) policy: Arc<PolicyOf>,
    pub(crate) most_topics: usize,
    pub(crate) most_bytes: usize,
    /// The least time between two messages of a topic.
    pub(crate) min_interval: Span,
    /// The least change that is worth a message.
    pub(crate) deadband: f64,
}

/// What waits for one topic.
struct Slot {
    aggregate: Box<dyn Aggregate>,
    /// Samples in it.
    samples: u64,
    last_sent: Option<Moment>,
    last_value: Option<f64>,
    /// The number of the last message.
    last_number: u64,
}

/// What waits, by topic. Topics with something to send take turns.
pub(crate) struct Slots {
    settings: SlotSettings,
    slots: HashMap<Arc<str>, Slot>,
    /// The topics with samples.
    turns: VecDeque<Arc<str>>,
    bytes: usize,
}

/// A message taken from a slot.
pub(crate) struct Taken {
    pub(crate) topic: Arc<str>,
    /// None when the aggregate made nothing of its samples.
    pub(crate) payload: Option<Bytes>,
    pub(crate) samples: u64,
    pub(crate) newest_wins: bool,
}

impl Slots {
    pub(crate) fn new(settings: SlotSettings) -> Self {
        Self { settings, slots: HashMap::new(), turns: VecDeque::new(), bytes: 0 }
    }

    /// Takes a sample; none when there is no room, beside so many bytes that are under way.
    pub(crate) fn add(&mut self, topic: &str, sample: Sample, under_way: usize) -> Option<Added> {
        if self.bytes + under_way + sample.size() > self.settings.most_bytes {
            return None;
        }
        if !self.slots.contains_key(topic) {
            self.make_room()?;
            let aggregate = (self.settings.policy)(topic).make();
            let slot = Slot { aggregate, samples: 0, last_sent: None, last_value: None, last_number: 0 };
            self.slots.insert(topic.into(), slot);
        }
        let (name, slot) =
            self.slots.get_key_value(topic).map(|(name, _)| name.clone()).zip(self.slots.get_mut(topic))?;
        let before = slot.aggregate.size();
        let added = slot.aggregate.add(sample);
        self.bytes = self.bytes.saturating_sub(before) + slot.aggregate.size();
        let was_empty = slot.samples == 0;
        slot.samples = match added {
            Added::Kept => slot.samples + 1,
            Added::Replaced(gone) | Added::Dropped(gone) => (slot.samples + 1).saturating_sub(gone),
            Added::Refused => slot.samples,
        };
        if was_empty && slot.samples > 0 {
            self.turns.push_back(name);
        }
        Some(added)
    }

    /// Whether there is anything newer for this topic than the message of this number.
    pub(crate) fn is_outdated(&self, topic: &str, number: u64) -> bool {
        self.slots.get(topic).is_some_and(|slot| slot.samples > 0 || slot.last_number > number)
    }

    /// Samples that wait.
    pub(crate) fn samples(&self) -> u64 {
        self.turns.iter().filter_map(|topic| self.slots.get(topic)).map(|slot| slot.samples).sum()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The topic whose turn it is, or when the next one's is, given the interval that the gateway asks for.
    pub(crate) fn next(&self, now: Moment, interval: Span) -> Result<usize, Option<Moment>> {
        let interval = interval.max(self.settings.min_interval);
        let mut soonest = None;
        for (place, topic) in self.turns.iter().enumerate() {
            let Some(slot) = self.slots.get(topic) else { continue };
            if !self.is_news(slot, interval) {
                continue;
            }
            let ready = slot.last_sent.map_or(Moment::START, |sent| sent + self.settings.min_interval);
            if ready <= now {
                return Ok(place);
            }
            soonest = Some(soonest.unwrap_or(Moment::END).min(ready));
        }
        Err(soonest)
    }

    /// Takes the message of the topic at this place, which gets this number.
    pub(crate) fn take(&mut self, place: usize, number: u64, now: Moment) -> Option<Taken> {
        let topic = self.turns.remove(place)?;
        let slot = self.slots.get_mut(&topic)?;
        let value = slot.aggregate.value();
        let before = slot.aggregate.size();
        let merged = slot.aggregate.take();
        self.bytes = self.bytes.saturating_sub(before) + slot.aggregate.size();
        // Counted here, whatever the aggregate says: the books must balance.
        let samples = std::mem::take(&mut slot.samples);
        (slot.last_sent, slot.last_number) = (Some(now), number);
        slot.last_value = value.or(slot.last_value);
        let newest_wins = slot.aggregate.newest_wins();
        Some(Taken { topic, payload: merged.map(|merged| merged.payload), samples, newest_wins })
    }

    /// Whether the value has changed enough: the deadband widens with the interval.
    fn is_news(&self, slot: &Slot, interval: Span) -> bool {
        let least = self.settings.min_interval.as_secs_f64();
        let wider = if least > 0.0 { (interval.as_secs_f64() / least).max(1.0) } else { 1.0 };
        match (slot.aggregate.value(), slot.last_value) {
            (Some(now), Some(before)) => (now - before).abs() >= self.settings.deadband * wider,
            _ => true,
        }
    }

    /// Lets go of a topic without samples when there are too many; none when all have some.
    fn make_room(&mut self) -> Option<()> {
        if self.slots.len() < self.settings.most_topics {
            return Some(());
        }
        let idle = self.slots.iter().filter(|(_, slot)| slot.samples == 0);
        let oldest = idle.min_by_key(|(_, slot)| slot.last_sent).map(|(topic, _)| topic.clone())?;
        self.slots.remove(&oldest).map(|_| ())
    }
}

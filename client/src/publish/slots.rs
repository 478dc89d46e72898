//! The samples that wait, by topic.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_control::time::{Moment, Span};

use super::job::{Facts, Finished, Job, Panic};
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

/// Samples of a topic that wait beside its aggregate while it works.
const MOST_QUEUED: usize = 1_000;

/// What waits for one topic.
struct Slot {
    /// None while it is on loan: it belongs to the user, and works while nobody holds the lock.
    aggregate: Option<Box<dyn Aggregate>>,
    /// Samples that came meanwhile.
    queue: Vec<Sample>,
    /// What the aggregate said when it came back.
    facts: Facts,
    /// Bytes kept for samples that are on their way into it.
    pending: usize,
    /// Samples in the aggregate, in the queue, and on loan with it.
    samples: u64,
    /// Whether it is among the turns.
    listed: bool,
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
    /// Topics whose aggregate came back while samples waited for it.
    behind: VecDeque<Arc<str>>,
    bytes: usize,
    samples: u64,
}

/// What to do with a sample.
pub(crate) enum Lent {
    /// Nothing: there is no room.
    NoRoom,
    /// Nothing: it waits for its aggregate, in the place of so many others.
    Queued { replaced: u64 },
    /// Make an aggregate: the topic is new.
    Make(Sample),
    /// Work with the aggregate.
    Job(Job),
}

/// What became of samples, and perhaps a message.
#[derive(Default)]
pub(crate) struct Settled {
    pub(crate) refused: u64,
    pub(crate) replaced: u64,
    pub(crate) dropped: u64,
    pub(crate) taken: Option<Taken>,
}

/// A message taken from a slot.
pub(crate) struct Taken {
    pub(crate) number: u64,
    pub(crate) topic: Arc<str>,
    /// None when the aggregate made nothing of its samples.
    pub(crate) payload: Option<Bytes>,
    pub(crate) samples: u64,
    pub(crate) newest_wins: bool,
}

impl Slot {
    fn new(aggregate: Box<dyn Aggregate>) -> Self {
        Self {
            aggregate: Some(aggregate),
            queue: Vec::new(),
            facts: Facts::default(),
            pending: 0,
            samples: 0,
            listed: false,
            last_sent: None,
            last_value: None,
            last_number: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.facts.size + self.pending
    }
}

impl Slots {
    pub(crate) fn new(settings: SlotSettings) -> Self {
        let (turns, behind) = (VecDeque::new(), VecDeque::new());
        Self { settings, slots: HashMap::new(), turns, behind, bytes: 0, samples: 0 }
    }

    /// Takes in a new topic with its aggregate, unless it is known meanwhile or there is no room.
    pub(crate) fn insert(&mut self, topic: &str, aggregate: Box<dyn Aggregate>) {
        if !self.slots.contains_key(topic) && self.make_room().is_some() {
            self.slots.insert(topic.into(), Slot::new(aggregate));
        }
    }

    /// A sample comes in, beside so many bytes that are under way.
    pub(crate) fn lend(&mut self, topic: &str, sample: Sample, under_way: usize) -> Lent {
        let room = self.settings.most_bytes.saturating_sub(self.bytes + under_way);
        let Some((name, _)) = self.slots.get_key_value(topic) else {
            return if self.make_room().is_some() { Lent::Make(sample) } else { Lent::NoRoom };
        };
        let (name, Some(slot)) = (name.clone(), self.slots.get_mut(topic)) else { return Lent::NoRoom };
        let before = slot.bytes();
        let mut replaced = 0;
        if slot.aggregate.is_none() && (sample.size() > room || slot.queue.len() >= MOST_QUEUED) {
            // Where only the newest counts it takes the place of those that wait, and of what the aggregate has.
            let waiting: usize = slot.queue.iter().map(Sample::size).sum();
            if !slot.facts.newest_wins || sample.size() > room + waiting + slot.facts.size {
                return Lent::NoRoom;
            }
            replaced = slot.queue.len() as u64;
            slot.queue.clear();
            (slot.pending, slot.samples) =
                (slot.pending - waiting.min(slot.pending), slot.samples - replaced);
            (self.bytes, self.samples) = (self.bytes - (before - slot.bytes()), self.samples - replaced);
        }
        let room = self.settings.most_bytes.saturating_sub(self.bytes + under_way);
        let (before, kept) = (slot.bytes(), sample.size().min(room));
        let lent = match slot.aggregate.take() {
            None => {
                slot.queue.push(sample);
                Lent::Queued { replaced }
            }
            Some(aggregate) => {
                let mut samples = std::mem::take(&mut slot.queue);
                samples.push(sample);
                Lent::Job(Job {
                    topic: name.clone(),
                    aggregate,
                    samples,
                    room: room + slot.pending,
                    take: None,
                })
            }
        };
        (slot.pending, slot.samples) = (slot.pending + kept, slot.samples + 1);
        self.samples += 1;
        self.bytes += slot.bytes() - before;
        if !std::mem::replace(&mut slot.listed, true) {
            self.turns.push_back(name);
        }
        lent
    }

    /// The work that is left from when an aggregate was on loan.
    pub(crate) fn catch_up(&mut self) -> Option<Job> {
        while let Some(topic) = self.behind.pop_front() {
            if let Some(job) = self.job(topic, None) {
                return Some(job);
            }
        }
        None
    }

    /// An aggregate comes back; or, after a panic, does not.
    pub(crate) fn settle(&mut self, finished: Finished, now: Moment) -> (Settled, Option<Panic>) {
        let Finished { topic, added, taken, value, facts, aggregate } = finished;
        let mut settled = Settled::default();
        let Some(slot) = self.slots.get_mut(&topic) else { return (settled, aggregate.err()) };
        let (bytes, samples) = (slot.bytes(), slot.samples);
        let aggregate = match aggregate {
            Ok(aggregate) => aggregate,
            Err(panic) => {
                settled.dropped = samples;
                (self.bytes, self.samples) = (self.bytes - bytes, self.samples - samples);
                self.slots.remove(&topic);
                self.turns.retain(|other| *other != topic);
                return (settled, Some(panic));
            }
        };
        let queued = slot.queue.len() as u64;
        let mut inside = samples - queued;
        for added in added {
            // Counted here, whatever the aggregate says: the books must balance.
            let (gone, count) = match added {
                Added::Kept => continue,
                Added::Replaced(gone) => (gone.min(inside.saturating_sub(1)), &mut settled.replaced),
                Added::Dropped(gone) => (gone.min(inside.saturating_sub(1)), &mut settled.dropped),
                Added::Refused => (1.min(inside), &mut settled.refused),
            };
            (inside, *count) = (inside - gone, *count + gone);
        }
        slot.facts = facts;
        if let Some((number, payload)) = taken {
            (slot.last_sent, slot.last_number) = (Some(now), number);
            slot.last_value = value.or(slot.last_value);
            let (samples, newest_wins) = (std::mem::take(&mut inside), facts.newest_wins);
            settled.taken = Some(Taken { number, topic: topic.clone(), payload, samples, newest_wins });
        }
        slot.aggregate = Some(aggregate);
        slot.pending = slot.queue.iter().map(Sample::size).sum();
        slot.samples = inside + queued;
        self.samples = self.samples - samples + slot.samples;
        self.bytes = self.bytes - bytes + slot.bytes();
        let listed = std::mem::replace(&mut slot.listed, slot.samples > 0);
        match (listed, slot.samples > 0) {
            (false, true) => self.turns.push_back(topic.clone()),
            (true, false) => self.turns.retain(|other| *other != topic),
            _ => {}
        }
        if queued > 0 {
            self.behind.push_back(topic);
        }
        (settled, None)
    }

    /// Whether there is anything newer for this topic than the message of this number.
    pub(crate) fn is_outdated(&self, topic: &str, number: u64) -> bool {
        self.slots.get(topic).is_some_and(|slot| slot.samples > 0 || slot.last_number > number)
    }

    /// Samples that wait.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether any topic has something to send, given the interval that the gateway asks for.
    pub(crate) fn has_news(&self, interval: Span) -> bool {
        let interval = interval.max(self.settings.min_interval);
        let on_loan = |slot: &Slot| slot.samples > 0 && slot.aggregate.is_none();
        self.slots.values().any(on_loan)
            || self
                .turns
                .iter()
                .filter_map(|topic| self.slots.get(topic))
                .any(|slot| self.is_news(slot, interval))
    }

    /// The topic whose turn it is, or when the next one's is, given the interval that the gateway asks for.
    pub(crate) fn next(&self, now: Moment, interval: Span) -> Result<usize, Option<Moment>> {
        let interval = interval.max(self.settings.min_interval);
        let mut soonest = None;
        for (place, topic) in self.turns.iter().enumerate() {
            let Some(slot) = self.slots.get(topic) else { continue };
            // Whoever has it on loan says when it is back.
            if slot.aggregate.is_none() || !self.is_news(slot, interval) {
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

    /// The work that makes the message of the topic at this place, which gets this number.
    pub(crate) fn take(&mut self, place: usize, number: u64) -> Option<Job> {
        let topic = self.turns.remove(place)?;
        self.slots.get_mut(&topic)?.listed = false;
        self.job(topic, Some(number))
    }

    fn job(&mut self, topic: Arc<str>, take: Option<u64>) -> Option<Job> {
        let slot = self.slots.get_mut(&topic)?;
        let room = self.settings.most_bytes.saturating_sub(self.bytes) + slot.pending;
        let aggregate = slot.aggregate.take()?;
        Some(Job { topic, aggregate, samples: std::mem::take(&mut slot.queue), room, take })
    }

    /// Whether the value has changed enough: the deadband widens with the interval.
    fn is_news(&self, slot: &Slot, interval: Span) -> bool {
        let least = self.settings.min_interval.as_secs_f64();
        let wider = if least > 0.0 { (interval.as_secs_f64() / least).max(1.0) } else { 1.0 };
        match (slot.facts.value, slot.last_value) {
            (Some(now), Some(before)) => (now - before).abs() >= self.settings.deadband * wider,
            _ => true,
        }
    }

    /// Lets go of a topic without samples when there are too many; none when all have some.
    fn make_room(&mut self) -> Option<()> {
        if self.slots.len() < self.settings.most_topics {
            return Some(());
        }
        let idle = self.slots.iter().filter(|(_, slot)| slot.samples == 0 && slot.aggregate.is_some());
        let oldest = idle.min_by_key(|(_, slot)| slot.last_sent).map(|(topic, _)| topic.clone())?;
        self.slots.remove(&oldest).map(|_| ())
    }
}

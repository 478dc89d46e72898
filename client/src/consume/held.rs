//! What waits for updates before it, over all topics: how much, and since when.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_control::time::Moment;

use super::subscriber::Via;

/// An update that waits for those before it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) payload: Bytes,
    pub(super) via: Via,
    pub(super) since: Moment,
    /// Whether the program has it already: it only says that its number is not missing.
    pub(super) told: bool,
}

/// All that waits, oldest first, so that nobody has to look through all topics.
#[derive(Debug, Default)]
pub(super) struct HeldBook {
    bytes: usize,
    ages: BTreeSet<(Moment, Arc<str>, u64)>,
}

impl HeldBook {
    pub(super) fn add(&mut self, topic: &Arc<str>, seq: u64, held: &Held) {
        self.bytes += held.payload.len();
        self.ages.insert((held.since, topic.clone(), seq));
    }

    pub(super) fn remove(&mut self, topic: &Arc<str>, seq: u64, held: &Held) {
        self.bytes -= held.payload.len();
        self.ages.remove(&(held.since, topic.clone(), seq));
    }

    /// How many updates wait.
    pub(super) fn updates(&self) -> usize {
        self.ages.len()
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Since when, with topic and number, oldest first.
    pub(super) fn ages(&self) -> impl Iterator<Item = &(Moment, Arc<str>, u64)> {
        self.ages.iter()
    }

    /// The same for those that wait since after a moment.
    pub(super) fn ages_after(&self, moment: Moment) -> impl Iterator<Item = &(Moment, Arc<str>, u64)> {
        self.ages.range((moment, Arc::from(""), 0)..).filter(move |(since, ..)| *since > moment)
    }
}

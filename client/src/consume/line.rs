//! The updates of one topic, put in order.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use tidegate_control::time::Moment;

use super::subscriber::Via;

/// Payloads without a number that are remembered, to tell what an answer brings from what came by itself.
const REMEMBERED: usize = 64;

/// An update that waits for those before it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) payload: Bytes,
    pub(super) via: Via,
    pub(super) since: Moment,
}

/// An update that may be handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) seq: Option<u64>,
    pub(super) payload: Bytes,
    pub(super) via: Via,
    pub(super) lost_before: u64,
    /// What acknowledges it once the program took it.
    pub(super) token: Option<u64>,
}

/// One topic.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The number of the last update handed on, or of where we came in; none before either.
    pub(super) last: Option<u64>,
    pub(super) held: BTreeMap<u64, Held>,
    /// What `last` was when the check under way was made.
    asked: Option<u64>,
    /// The session was lost: the gateway may count anew.
    unsure: bool,
    /// `last` is where the gateway says that things stand, and nothing came yet.
    untouched: bool,
    /// Lost since the last update handed on.
    lost: u64,
    /// Whether an update came with a number.
    numbered: bool,
    /// Whether one came without.
    bare: bool,
    /// What came by itself without a number since the last check, newest last.
    unnumbered: VecDeque<u64>,
    /// What checks brought lately that may still come by itself, without a number.
    recovered: VecDeque<u64>,
    last_payload: Option<u64>,
}

/// What a line made of an update that came by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It can go on.
    Now,
    /// Something before it is missing.
    Early,
    /// It was there before.
    Twice,
}

impl Line {
    /// The session was lost.
    pub(super) fn doubt(&mut self) {
        self.unsure = true;
    }

    /// Takes a number that came by itself: what is to become of its update.
    pub(super) fn judge(&mut self, seq: u64) -> Came {
        self.numbered = true;
        let last = *self.last.get_or_insert(seq.saturating_sub(1));
        // What was under way, or retained, when the gateway said where things stand is no duplicate.
        let first = std::mem::take(&mut self.untouched);
        if (std::mem::take(&mut self.unsure) || first) && seq <= last {
            self.restart(seq.saturating_sub(1));
            return Came::Now;
        }
        match seq {
            _ if seq <= last || self.held.contains_key(&seq) => Came::Twice,
            _ if seq == last + 1 => Came::Now,
            _ => Came::Early,
        }
    }

    /// A check is made: the last number that it names.
    pub(super) fn ask(&mut self) -> Option<u64> {
        self.asked = self.last;
        self.last
    }

    /// Whether an answer with this head shows that the gateway counts anew: it is behind what the check named. (Behind
    /// what came since proves nothing: an answer may be overtaken.)
    pub(super) fn is_anew(&self, head: u64) -> bool {
        self.asked.is_some_and(|asked| head < asked)
    }

    /// Whether updates that come by themselves say their number.
    pub(super) fn is_numbered(&self) -> bool {
        self.numbered || !self.bare
    }

    /// The gateway counts anew, from after this number.
    pub(super) fn restart(&mut self, last: u64) {
        self.last = Some(last);
        self.unsure = false;
    }

    /// Hands on an update; what is missing before it is lost.
    pub(super) fn hand_on(&mut self, seq: u64, held: Held) -> Ready {
        let missing = seq.saturating_sub(self.last.unwrap_or(0).saturating_add(1));
        self.last = Some(seq);
        self.last_payload = Some(mark(&held.payload));
        let lost_before = std::mem::take(&mut self.lost) + missing;
        Ready { seq: Some(seq), payload: held.payload, via: held.via, lost_before, token: None }
    }

    /// Hands on what waits, as long as it follows; all up to `until`, whatever is missing.
    pub(super) fn release(&mut self, until: u64) -> Vec<Ready> {
        let mut ready = Vec::new();
        while let Some((seq, _)) = self
            .held
            .first_key_value()
            .filter(|(seq, _)| **seq <= until || Some(**seq) == self.last.map(|last| last + 1))
        {
            let seq = *seq;
            if let Some(held) = self.held.remove(&seq).filter(|_| self.last.is_none_or(|last| seq > last)) {
                ready.push(self.hand_on(seq, held));
            }
        }
        ready
    }

    /// Takes an update without a number; none when it was there before.
    pub(super) fn unnumbered(&mut self, payload: Bytes, retain: bool, token: Option<u64>) -> Option<Ready> {
        let mark = mark(&payload);
        if retain && self.last_payload == Some(mark) {
            return None;
        }
        if let Some(place) = self.recovered.iter().position(|known| *known == mark) {
            self.recovered.drain(..=place);
            return None;
        }
        self.bare = true;
        remember(&mut self.unnumbered, mark);
        self.last_payload = Some(mark);
        let lost_before = std::mem::take(&mut self.lost);
        Some(Ready { seq: None, payload, via: Via::Passive, lost_before, token })
    }

    /// Without numbers: compares what an answer brings with what came by itself. What is missing after the last that
    /// came can still be handed on; what is missing before it is lost, since order counts. Also how many were missing.
    pub(super) fn compare(&mut self, updates: Vec<(u64, Bytes)>, head: u64) -> (Vec<Ready>, u64) {
        let (mut came, mut after, mut missing) = (0, Vec::new(), 0);
        for (seq, payload) in updates {
            let mark = mark(&payload);
            if let Some(place) = self.unnumbered.iter().position(|known| *known == mark) {
                self.unnumbered.drain(..=place);
                came = after.len();
            } else {
                missing += 1;
                after.push((seq, payload));
            }
        }
        self.last = Some(head);
        self.lost += came as u64;
        let ready =
            after.split_off(came).into_iter().map(|(seq, payload)| self.recover(seq, payload)).collect();
        (ready, missing)
    }

    /// Where things stand: what came by itself up to here needs no explanation.
    pub(super) fn begin(&mut self, head: u64) {
        self.untouched = self.last.is_none();
        self.last = Some(self.last.unwrap_or(0).max(head));
        self.unnumbered.clear();
    }

    fn recover(&mut self, seq: u64, payload: Bytes) -> Ready {
        remember(&mut self.recovered, mark(&payload));
        self.last_payload = Some(mark(&payload));
        let lost_before = std::mem::take(&mut self.lost);
        Ready { seq: Some(seq), payload, via: Via::Active, lost_before, token: None }
    }
}

fn remember(marks: &mut VecDeque<u64>, mark: u64) {
    if marks.len() >= REMEMBERED {
        marks.pop_front();
    }
    marks.push_back(mark);
}

fn mark(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

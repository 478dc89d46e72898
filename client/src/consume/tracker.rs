//! All topics of a subscriber: updates in, by themselves or with answers; updates out, in order and once.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use tidegate_control::time::{Moment, Span};

use super::line::{Came, Held, Line, Ready, Waiting};
use super::subscriber::Via;
use crate::net::Incoming;
use crate::protocol::{Answer, Head};

/// How much later than its successor an update may come by itself.
const OVERTAKING: Span = Span::from_millis(100);

/// Bounds of a tracker.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackerSettings {
    /// Topics that are tracked; those beyond are handed on as they come.
    pub(super) most_topics: usize,
    /// Updates that may wait for those before them, over all topics.
    pub(super) most_held: usize,
    /// Bytes of them.
    pub(super) most_held_bytes: usize,
    /// How long one waits.
    pub(super) patience: Span,
}

/// An update for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Out {
    pub(super) topic: String,
    pub(super) ready: Ready,
    pub(super) retained: bool,
}

impl Out {
    /// An update that nobody looks for others around.
    pub(super) fn untracked(message: Incoming, token: Option<u64>) -> Self {
        let Incoming { topic, payload, retain, seq, .. } = message;
        let ready = Ready { seq, payload, via: Via::Passive, lost_before: 0, token };
        Self { topic, ready, retained: retain }
    }
}

/// What a check asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Where things stand; `last` says that with its answer all of that is known.
    Start { last: bool },
    /// What is missing.
    Missing,
}

/// What an answer brought.
#[derive(Debug, Default)]
pub(super) struct Brought {
    pub(super) updates: Vec<Out>,
    /// Updates that had not come by themselves.
    pub(super) missing: u32,
    /// Whether it brought anything that is of use: the next one can go on from there.
    pub(super) advanced: bool,
    /// The gateway counts anew: what it said is void, and it must be asked again at once.
    pub(super) again: bool,
}

/// What a subscriber knows of its topics.
#[derive(Debug)]
pub(super) struct Tracker {
    settings: TrackerSettings,
    lines: HashMap<String, Line>,
    held: Waiting,
    epoch: Option<u64>,
    /// Whether the gateway has told where things stand.
    begun: bool,
    /// Whether it told of all topics: from then on one that is not known is new.
    complete: bool,
    /// Whether an answer about that was cut.
    cut: bool,
    /// When an answer had no room for anything of use: what waits since before then is not asked for out of turn again.
    in_vain: Option<Moment>,
    pub(super) duplicates: u64,
}

impl Tracker {
    pub(super) fn new(settings: TrackerSettings) -> Self {
        Self {
            settings,
            lines: HashMap::new(),
            held: Waiting::default(),
            epoch: None,
            begun: false,
            complete: false,
            cut: false,
            in_vain: None,
            duplicates: 0,
        }
    }

    /// Takes an update that came by itself. `token` acknowledges it, and goes with it if it goes on at once.
    pub(super) fn came(&mut self, message: Incoming, token: Option<u64>, now: Moment) -> Vec<Out> {
        let asks = self.begun;
        let Some(line) = self.line(&message.topic) else { return vec![Out::untracked(message, token)] };
        let Incoming { topic, payload, retain, seq, .. } = message;
        let Some(seq) = seq else {
            let ready = line.unnumbered(payload, retain, token);
            self.duplicates += u64::from(ready.is_none());
            return ready
                .into_iter()
                .map(|ready| Out { topic: topic.clone(), ready, retained: retain })
                .collect();
        };
        let held = Held { payload, via: Via::Passive, since: now };
        match line.judge(seq, retain, asks) {
            Came::Twice => {
                self.duplicates += 1;
                Vec::new()
            }
            Came::Now => {
                let first = Ready { token, ..line.hand_on(seq, held) };
                self.collect(topic, retain, Some(first), 0)
            }
            Came::Early => {
                let before = line.waiting();
                line.hold(seq, held);
                let after = line.waiting();
                self.count(before, after);
                let TrackerSettings { most_held, most_held_bytes, .. } = self.settings;
                let full = self.held.updates > most_held || self.held.bytes > most_held_bytes;
                let until = if full { seq } else { 0 };
                self.collect(topic, retain, None, until)
            }
        }
    }

    /// Takes the answer to a check with this purpose.
    pub(super) fn answered(&mut self, answer: Answer, purpose: Purpose, now: Moment) -> Brought {
        let anew = self.epoch.is_some() && answer.epoch.is_some() && answer.epoch != self.epoch;
        self.epoch = answer.epoch.or(self.epoch);
        if anew {
            // The answer is one to a check that named numbers of the old count.
            let updates = self.of_all(Line::distrust);
            return Brought { updates, again: true, ..Brought::default() };
        }
        if let Purpose::Start { last } = purpose {
            self.cut |= answer.truncated;
            (self.begun, self.complete) = (last, last && !self.cut);
            for (topic, head) in answer.heads {
                if let Some(line) = self.known_or_new(&topic) {
                    line.begin(head);
                }
            }
            return Brought::default();
        }
        self.lines.values_mut().for_each(Line::trust);
        let mut updates: BTreeMap<String, Vec<(u64, Bytes)>> = BTreeMap::new();
        for missed in answer.updates {
            updates.entry(missed.topic).or_default().push((missed.seq, missed.payload));
        }
        for (topic, start) in answer.starts {
            if let Some(line) = self.line(&topic) {
                line.skip_to(start);
            }
        }
        let mut brought = Brought::default();
        for head in answer.heads {
            let mut of_topic = updates.remove(&head.0).unwrap_or_default();
            of_topic.sort_by_key(|(seq, _)| *seq);
            self.answered_topic(head, of_topic, answer.truncated, now, &mut brought);
        }
        if answer.truncated && !brought.advanced {
            self.in_vain = Some(now);
        }
        brought
    }

    /// Hands on what has waited too long.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<Out> {
        let patience = self.settings.patience;
        let late: Vec<(String, u64)> = self
            .early()
            .filter_map(|(topic, line)| {
                let late = line.held.iter().filter(|(_, held)| held.since + patience <= now);
                late.last().map(|(seq, _)| (topic.clone(), *seq))
            })
            .collect();
        late.into_iter().flat_map(|(topic, until)| self.collect(topic, false, None, until)).collect()
    }

    /// When [`Tracker::expire`] has something to do.
    pub(super) fn expires(&self) -> Option<Moment> {
        let since = self.early().flat_map(|(_, line)| line.held.values().map(|held| held.since));
        since.min().map(|since| since + self.settings.patience)
    }

    /// Since when an update waits for one that is missing. It counts only after a moment: messages of two publishers may
    /// overtake each other on their way.
    pub(super) fn gap(&self) -> Option<Moment> {
        let since = self.early().flat_map(|(_, line)| line.held.values().map(|held| held.since));
        let asked = since.filter(|since| self.in_vain.is_none_or(|in_vain| *since > in_vain));
        asked.min().map(|since| since + OVERTAKING)
    }

    /// The last number known of each topic, in their order; none before the gateway has told where things stand.
    pub(super) fn known(&self) -> Option<Vec<Head>> {
        if !self.begun {
            return None;
        }
        let known = self.lines.iter().filter_map(|(topic, line)| Some((topic.clone(), line.last?)));
        let mut known: Vec<Head> = known.collect();
        known.sort_unstable();
        Some(known)
    }

    /// A check is made that names these topics.
    pub(super) fn asked<'a>(&mut self, named: impl Iterator<Item = &'a Head>) {
        self.lines.values_mut().for_each(Line::forget_asked);
        for (topic, _) in named {
            if let Some(line) = self.lines.get_mut(topic) {
                line.ask();
            }
        }
    }

    /// Whether there is no room for more topics.
    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= self.settings.most_topics
    }

    /// Whether the gateway has told where things stand.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// A new connection, perhaps to a gateway that counts anew; `lost` says that the session is new too. What waited and
    /// can't be completed any more.
    pub(super) fn connected(&mut self, lost: bool, now: Moment) -> Vec<Out> {
        self.of_all(|line| line.doubt(lost, now))
    }

    /// Tells all lines something; what they hand on.
    fn of_all(&mut self, mut tell: impl FnMut(&mut Line) -> Vec<Ready>) -> Vec<Out> {
        let mut all = Vec::new();
        for (topic, line) in &mut self.lines {
            let ready = tell(line);
            all.extend(ready.into_iter().map(|ready| Out { topic: topic.clone(), ready, retained: false }));
        }
        self.held = Waiting::default();
        for waiting in self.lines.values().map(Line::waiting) {
            self.held.updates += waiting.updates;
            self.held.bytes += waiting.bytes;
        }
        all
    }

    fn answered_topic(
        &mut self,
        head: Head,
        updates: Vec<(u64, Bytes)>,
        truncated: bool,
        now: Moment,
        to: &mut Brought,
    ) {
        let (topic, head) = head;
        let Some(line) = self.line(&topic) else { return };
        line.come_in(updates.first().map(|(seq, _)| *seq), head, truncated);
        if line.is_anew(head) {
            let before = line.waiting();
            let old = line.restart(0).into_iter();
            to.updates.extend(old.map(|ready| Out { topic: topic.clone(), ready, retained: false }));
            let after = line.waiting();
            self.count(before, after);
        }
        let Some(line) = self.lines.get_mut(&topic) else { return };
        let last = line.last.unwrap_or(0);
        // What the answer does not bring will not come any more, unless there was no room for it.
        let until = if truncated { updates.last().map_or(last, |(seq, _)| last.max(*seq)) } else { head };
        to.advanced |= until > last;
        let numbered = line.is_numbered();
        if !numbered && !updates.is_empty() {
            let (ready, missing) = line.compare(updates, until);
            to.missing = to.missing.saturating_add(u32::try_from(missing).unwrap_or(u32::MAX));
            let out = ready.into_iter().map(|ready| Out { topic: topic.clone(), ready, retained: false });
            return to.updates.extend(out);
        }
        let there = line.held.range(..=until).count() as u64;
        let missing = until.saturating_sub(last).saturating_sub(there);
        to.missing = to.missing.saturating_add(u32::try_from(missing).unwrap_or(u32::MAX));
        let before = line.waiting();
        for (seq, payload) in updates.into_iter().filter(|(seq, _)| *seq > last) {
            let held = Held { payload, via: Via::Active, since: now };
            if line.held.contains_key(&seq) {
                continue;
            }
            line.hold(seq, held);
        }
        let after = line.waiting();
        self.count(before, after);
        let out = self.collect(topic, false, None, until);
        to.updates.extend(out);
    }

    /// The updates of a topic that can go on, after a first one.
    fn collect(&mut self, topic: String, retained: bool, first: Option<Ready>, until: u64) -> Vec<Out> {
        let Some(line) = self.lines.get_mut(&topic) else { return Vec::new() };
        let before = line.waiting();
        let rest = line.release(until);
        let after = line.waiting();
        self.count(before, after);
        first.into_iter().chain(rest).map(|ready| Out { topic: topic.clone(), ready, retained }).collect()
    }

    /// What waits in one line has changed.
    fn count(&mut self, before: Waiting, after: Waiting) {
        self.held.updates = (self.held.updates + after.updates).saturating_sub(before.updates);
        self.held.bytes = (self.held.bytes + after.bytes).saturating_sub(before.bytes);
    }

    fn early(&self) -> impl Iterator<Item = (&String, &Line)> {
        // Nothing waits most of the time: then no line is looked at.
        let lines = (self.held.updates > 0).then_some(&self.lines);
        lines.into_iter().flatten().filter(|(_, line)| !line.held.is_empty())
    }

    fn line(&mut self, topic: &str) -> Option<&mut Line> {
        let known = self.lines.contains_key(topic);
        let complete = self.complete;
        let line = self.known_or_new(topic)?;
        if !known && complete {
            line.last = Some(0);
        }
        Some(line)
    }

    fn known_or_new(&mut self, topic: &str) -> Option<&mut Line> {
        if !self.lines.contains_key(topic) {
            if self.is_full() {
                return None;
            }
            self.lines.insert(topic.to_owned(), Line::default());
        }
        self.lines.get_mut(topic)
    }
}

#[cfg(test)]
impl Tracker {
    /// A check is made that names all topics.
    pub(super) fn ask(&mut self) -> Option<Vec<Head>> {
        let known = self.known()?;
        self.asked(known.iter());
        Some(known)
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;

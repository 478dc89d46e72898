//! All topics of a subscriber: updates in, by themselves or with answers; updates out, in order and once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_control::time::{Moment, Span};

use super::held::{Held, HeldBook};
use super::line::{Came, Line, Ready, Session};
use super::subscriber::Via;
use crate::net::Incoming;
use crate::protocol::{Answer, Head};

/// How much later than its successor an update may come by itself.
const OVERTAKING: Span = Span::from_millis(100);

/// Bytes of topic names for each topic that may be tracked, all together.
const NAME: usize = 256;

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
    /// Where to go on asking where things stand: the answer had room for topics before this one only.
    pub(super) next: Option<String>,
}

/// What a subscriber knows of its topics.
#[derive(Debug)]
pub(super) struct Tracker {
    settings: TrackerSettings,
    lines: HashMap<Arc<str>, Line>,
    /// The bytes of their names.
    names: usize,
    held: HeldBook,
    epoch: Option<u64>,
    /// Whether the gateway has told where things stand.
    begun: bool,
    /// Whether it told of all topics: from then on one that is not known is new.
    complete: bool,
    /// Whether an answer about that was cut.
    cut: bool,
    session: Session,
    /// When an answer had no room for anything of use: what waits since before then is not asked for out of turn again.
    in_vain: Option<Moment>,
    pub(super) duplicates: u64,
}

impl Tracker {
    pub(super) fn new(settings: TrackerSettings) -> Self {
        Self {
            settings,
            lines: HashMap::new(),
            names: 0,
            held: HeldBook::default(),
            epoch: None,
            begun: false,
            complete: false,
            cut: false,
            session: Session::default(),
            in_vain: None,
            duplicates: 0,
        }
    }

    /// Takes an update that came by itself. `token` acknowledges it, and goes with it if it goes on at once.
    pub(super) fn came(&mut self, message: Incoming, token: Option<u64>, now: Moment) -> Vec<Out> {
        let asks = self.begun;
        let Some(line) = self.line(&message.topic) else { return vec![Out::untracked(message, token)] };
        let Incoming { topic, payload, retain, seq, receipt, .. } = message;
        let Some(seq) = seq else {
            let ready = line.unnumbered(payload, retain, token);
            self.duplicates += u64::from(ready.is_none());
            return ready
                .into_iter()
                .map(|ready| Out { topic: topic.clone(), ready, retained: retain })
                .collect();
        };
        let held = Held { payload, via: Via::Passive, since: now, told: false };
        match line.judge(seq, retain, receipt.is_some(), asks) {
            Came::Twice => {
                self.duplicates += 1;
                // It may show that what answers brought needs not wait any longer.
                self.collect(&topic, retain, None, 0)
            }
            Came::Now => {
                let of_session = receipt.is_some() && line.is_behind(seq);
                let first = Ready { token, ..line.hand_on(seq, held) };
                if of_session {
                    self.session.came = Some(now);
                }
                self.collect(&topic, retain, Some(first), 0)
            }
            Came::Early => {
                if let Some(line) = self.lines.get_mut(&*topic) {
                    line.hold(seq, held, &mut self.held);
                }
                let until = if is_full(&self.held, &self.settings) { seq } else { 0 };
                self.collect(&topic, retain, None, until)
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
            return self.begin(answer, last, now);
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
            let cut = answer.truncated && answer.next.as_ref().is_none_or(|next| head.0 >= *next);
            self.answered_topic(head, of_topic, cut, now, &mut brought);
        }
        if answer.truncated && !brought.advanced {
            self.in_vain = Some(now);
        }
        brought
    }

    /// Hands on what has waited too long.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<Out> {
        let patience = self.settings.patience;
        let mut late: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for (since, topic, seq) in self.held.ages().take_while(|(since, ..)| *since + patience <= now) {
            if self.waits_until(*since, topic) <= now {
                let until = late.entry(topic.clone()).or_default();
                *until = (*until).max(*seq);
            }
        }
        late.into_iter().flat_map(|(topic, until)| self.collect(&topic, false, None, until)).collect()
    }

    /// When [`Tracker::expire`] has something to do.
    pub(super) fn expires(&self) -> Option<Moment> {
        let mut first = Moment::END;
        for (since, topic, _) in self.held.ages() {
            // None of those that came later can be earlier.
            if *since + self.settings.patience >= first {
                break;
            }
            first = first.min(self.waits_until(*since, topic));
        }
        (first < Moment::END).then_some(first)
    }

    /// Since when an update waits for one that is missing. It counts only after a moment: messages of two publishers may
    /// overtake each other on their way.
    pub(super) fn gap(&self) -> Option<Moment> {
        // To ask for what is on its way to us is of no use.
        let missing =
            |topic: &str| self.lines.get(topic).is_some_and(|line| !line.waits_for_what_is_behind());
        let first = match self.in_vain {
            None => self.held.ages().find(|(_, topic, _)| missing(topic)),
            Some(in_vain) => self.held.ages_after(in_vain).find(|(_, topic, _)| missing(topic)),
        };
        first.map(|(since, ..)| *since + OVERTAKING)
    }

    /// The last number known of each topic, in their order; none before the gateway has told where things stand.
    pub(super) fn known(&self) -> Option<Vec<Head>> {
        if !self.begun {
            return None;
        }
        let known = self.lines.iter().filter_map(|(topic, line)| Some((topic.to_string(), line.last?)));
        let mut known: Vec<Head> = known.collect();
        known.sort_unstable();
        Some(known)
    }

    /// A check is to be made: what was under way and did not come for long is asked for.
    pub(super) fn asks(&mut self, now: Moment) {
        let patience = self.settings.patience;
        for line in self.lines.values_mut() {
            line.give_up_on_what_is_behind(now, patience, self.session);
        }
    }

    /// A check is made that names these topics.
    pub(super) fn asked<'a>(&mut self, named: impl Iterator<Item = &'a Head>) {
        self.lines.values_mut().for_each(Line::forget_asked);
        for (topic, _) in named {
            if let Some(line) = self.lines.get_mut(&**topic) {
                line.ask();
            }
        }
    }

    /// Whether there is no room for more topics.
    pub(super) fn is_full(&self) -> bool {
        let most = self.settings.most_topics;
        self.lines.len() >= most || self.names >= most.saturating_mul(NAME)
    }

    /// Whether the gateway has told where things stand.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// A new connection, perhaps to a gateway that counts anew; `lost` says that the session is new too. What waited and
    /// can't be completed any more.
    pub(super) fn connected(&mut self, lost: bool, now: Moment) -> Vec<Out> {
        (self.session.came, self.session.away) = (None, false);
        self.of_all(|line, held| line.doubt(lost, now, held))
    }

    /// The gateway tells where things stand.
    fn begin(&mut self, answer: Answer, last: bool, now: Moment) -> Brought {
        let next = answer.next.filter(|_| answer.truncated);
        let last = last && next.is_none();
        self.cut |= answer.truncated && next.is_none();
        (self.begun, self.complete) = (last, last && !self.cut);
        let mut brought = Brought { next, ..Brought::default() };
        for (topic, head) in answer.heads {
            if self.known_or_new(&topic).is_none() {
                continue;
            }
            let ready = self
                .lines
                .get_mut(&*topic)
                .map(|line| line.begin(head, self.session.found, now, &mut self.held));
            let out = ready.into_iter().flatten();
            brought.updates.extend(out.map(|ready| Out { topic: topic.clone(), ready, retained: false }));
        }
        brought
    }

    /// There is a new connection, and whether the broker had a session for us from before this program was started.
    pub(super) fn finds(&mut self, session: bool) {
        self.session.found = session;
    }

    /// The program has updates before it.
    pub(super) fn program_is_busy(&mut self, now: Moment) {
        self.session.busy = now;
    }

    /// There is no connection any more.
    pub(super) fn disconnected(&mut self) {
        self.session.away = true;
    }

    /// Tells all lines something; what they hand on.
    fn of_all(&mut self, mut tell: impl FnMut(&mut Line, &mut HeldBook) -> Vec<Ready>) -> Vec<Out> {
        let mut all = Vec::new();
        for (topic, line) in &mut self.lines {
            let ready = tell(line, &mut self.held).into_iter();
            all.extend(ready.map(|ready| Out { topic: topic.to_string(), ready, retained: false }));
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
        if self.line(&topic).is_none() {
            return;
        }
        let (Some(line), book) = (self.lines.get_mut(&*topic), &mut self.held) else { return };
        line.come_in(updates.first().map(|(seq, _)| *seq), head, truncated);
        if line.is_anew(head) {
            let old = line.restart(0, book).into_iter();
            to.updates.extend(old.map(|ready| Out { topic: topic.clone(), ready, retained: false }));
        }
        let last = line.last.unwrap_or(0);
        let first = updates.iter().map(|(seq, _)| *seq).find(|seq| *seq > last);
        if line.leaves_to_session(first, head, self.session, now, book) {
            to.advanced |= head > last;
            return;
        }
        let until = line.answered_to(head, updates.last().map(|(seq, _)| *seq), truncated);
        to.advanced |= until > last;
        let numbered = line.is_numbered();
        if !numbered && !updates.is_empty() {
            let (ready, missing) = line.compare(updates, until);
            to.missing = to.missing.saturating_add(u32::try_from(missing).unwrap_or(u32::MAX));
            let out = ready.into_iter().map(|ready| Out { topic: topic.clone(), ready, retained: false });
            return to.updates.extend(out);
        }
        let mut there = line.held.range(..=until).count() as u64;
        for (seq, payload) in updates.into_iter().filter(|(seq, _)| *seq > last) {
            if line.held.contains_key(&seq) {
                continue;
            }
            // It may wait for long: it comes by itself, or is asked for again.
            if line.waits_for_what_is_behind() && is_full(book, &self.settings) {
                break;
            }
            let told = line.was_told(&payload);
            there += u64::from(told);
            line.hold(seq, Held { payload, via: Via::Active, since: now, told }, book);
        }
        if !truncated {
            line.forget_told();
        }
        let missing = until.saturating_sub(last).saturating_sub(there);
        to.missing = to.missing.saturating_add(u32::try_from(missing).unwrap_or(u32::MAX));
        let out = self.collect(&topic, false, None, until);
        to.updates.extend(out);
    }

    /// The updates of a topic that can go on, after a first one.
    fn collect(&mut self, topic: &str, retained: bool, first: Option<Ready>, until: u64) -> Vec<Out> {
        let Some(line) = self.lines.get_mut(topic) else { return Vec::new() };
        let rest = line.release(until, &mut self.held);
        first.into_iter().chain(rest).map(|ready| Out { topic: topic.to_owned(), ready, retained }).collect()
    }

    /// Until when an update of a topic waits that is here since then.
    fn waits_until(&self, since: Moment, topic: &str) -> Moment {
        let patience = self.settings.patience;
        let until = |line: &Line| line.waits_until(since, patience, self.session);
        self.lines.get(topic).map_or(since + patience, until)
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
            let name: Arc<str> = topic.into();
            self.names += topic.len();
            self.lines.insert(name.clone(), Line::new(name));
        }
        self.lines.get_mut(topic)
    }
}

/// Whether more waits than may.
fn is_full(held: &HeldBook, settings: &TrackerSettings) -> bool {
    held.updates() > settings.most_held || held.bytes() > settings.most_held_bytes
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

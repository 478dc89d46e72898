//! The updates of one topic, put in order.

mod behind;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_control::time::Moment;

use super::held::{Held, HeldBook};
use super::subscriber::Via;
use behind::Behind;
pub(super) use behind::Session;

/// Payloads without a number that are remembered, to tell what an answer brings from what came by itself.
const REMEMBERED: usize = 64;

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
    topic: Arc<str>,
    /// The number of the last update handed on, or of where we came in; none before either.
    pub(super) last: Option<u64>,
    pub(super) held: BTreeMap<u64, Held>,
    /// What `last` was when the check under way was made.
    asked: Option<u64>,
    /// There is a new connection, and no answer has come on it: the gateway may count anew.
    doubt: Option<Doubt>,
    /// `last` is where the gateway says that things stand, and what was under way then may still come by itself.
    behind: Option<Behind>,
    /// Whether the last that came by itself with a number was a retained one.
    kept: bool,
    /// Whether it was one that the broker keeps until it is acknowledged, in the session that we have.
    safe: bool,
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

/// What is known of a line while the gateway may count anew.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    since: Moment,
    /// The session was lost: what comes now was published since, so that a low number is a new one.
    lost: bool,
    /// A number came that may be the next of the old count or a later one of a new: the next answer says which.
    open: bool,
    /// The first number handed on since, and how many were called lost before it.
    first: Option<(u64, u64)>,
    /// What came without a number since.
    unnumbered: usize,
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
    pub(super) fn new(topic: Arc<str>) -> Self {
        Self { topic, ..Self::default() }
    }

    /// There is a new connection. With a new session nothing that waits can be completed any more: it goes on. In one that
    /// goes on, so does what was under way.
    pub(super) fn doubt(&mut self, lost: bool, now: Moment, book: &mut HeldBook) -> Vec<Ready> {
        if lost && self.behind.is_some_and(|behind| behind.last.is_some()) {
            self.end_behind();
        }
        if let Some(behind) = &mut self.behind {
            behind.since = now;
        }
        let ready = if lost { self.release(u64::MAX, book) } else { Vec::new() };
        let lost = lost || self.counts_from_new();
        self.safe &= !lost;
        self.doubt = Some(Doubt { since: now, lost, open: false, first: None, unnumbered: 0 });
        ready
    }

    /// An answer on this connection shows that the gateway counts on.
    pub(super) fn trust(&mut self) {
        self.doubt = None;
    }

    /// An answer on this connection shows that the gateway counts anew. What came in the new count stays; what waits from
    /// the old one goes on.
    pub(super) fn distrust(&mut self, book: &mut HeldBook) -> Vec<Ready> {
        let Some(doubt) = self.doubt.take() else { return Vec::new() };
        self.behind = None;
        self.forget_marks(doubt.unnumbered);
        if let Some((first, called)) = doubt.first {
            // It went on as the next one of the old count. What came before it in the new one is too late.
            self.lost += first.saturating_sub(1).saturating_sub(called);
            self.asked = None;
            return Vec::new();
        }
        let new: Vec<u64> =
            self.held.iter().filter(|(_, held)| held.since >= doubt.since).map(|(seq, _)| *seq).collect();
        let new: Vec<(u64, Held)> =
            new.into_iter().filter_map(|seq| Some((seq, self.unhold(seq, book)?))).collect();
        let ready = self.restart(0, book);
        new.into_iter().for_each(|(seq, held)| self.hold(seq, held, book));
        ready
    }

    /// Takes a number that came by itself: what is to become of its update. `asks` says that checks fetch what is missing.
    /// `safe` says that the broker keeps it until it is acknowledged.
    pub(super) fn judge(&mut self, seq: u64, retained: bool, safe: bool, asks: bool) -> Came {
        self.numbered = true;
        (self.kept, self.safe) = (retained, safe);
        let last = *self.last.get_or_insert(seq.saturating_sub(1));
        // What was under way, or retained, when the gateway said where things stand is no duplicate.
        if self.is_behind(seq) {
            if !self.doubt.is_some_and(|doubt| doubt.lost) {
                return Came::Now;
            }
            self.begin_after(seq.saturating_sub(1));
        } else if seq > last {
            // What comes by itself comes in order: nothing before it is under way any more.
            self.end_behind();
        }
        let last = self.last.unwrap_or(0);
        // A retained one may be old: the next answer says which it is, if there will be one.
        if self.counts_from_new() && seq <= last && !(retained && asks) {
            self.begin_after(if asks { 0 } else { seq.saturating_sub(1) });
        }
        let last = self.last.unwrap_or(0);
        let open = asks && self.counts_from_new();
        if let Some(doubt) = &mut self.doubt {
            doubt.open |= open;
        }
        match seq {
            _ if seq <= last || self.held.contains_key(&seq) => Came::Twice,
            _ if open => Came::Early,
            _ if seq == last + 1 => Came::Now,
            _ => Came::Early,
        }
    }

    /// A check is made that names this topic.
    pub(super) fn ask(&mut self) {
        self.asked = self.last;
    }

    /// A check is made that does not.
    pub(super) fn forget_asked(&mut self) {
        self.asked = None;
    }

    /// An answer names this topic: if nothing is known of it, not even that it is new, it begins with the first update
    /// that the answer brings.
    pub(super) fn come_in(&mut self, first: Option<u64>, head: u64, truncated: bool) {
        let place = first.map(|first| first.saturating_sub(1)).or((!truncated).then_some(head));
        self.last = self.last.or(place);
    }

    /// Numbers up to this one were never given: they are not missing.
    pub(super) fn skip_to(&mut self, start: u64) {
        self.last = self.last.map(|last| last.max(start));
        if let Some(behind) = &mut self.behind {
            behind.told = behind.told.max(start);
        }
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

    /// The gateway counts anew, from after this number: what waits is of the old count and goes on.
    pub(super) fn restart(&mut self, last: u64, book: &mut HeldBook) -> Vec<Ready> {
        let ready = self.release(u64::MAX, book);
        self.begin_after(last);
        ready
    }

    /// Hands on an update; what is missing before it is lost.
    pub(super) fn hand_on(&mut self, seq: u64, held: Held) -> Ready {
        let missing = if self.is_behind(seq) {
            self.come_behind(seq, held.since)
        } else {
            self.end_behind();
            let missing = seq.saturating_sub(self.last.unwrap_or(0).saturating_add(1));
            self.last = Some(seq);
            missing
        };
        let mark = mark(&held.payload);
        self.last_payload = Some(mark);
        if held.via == Via::Active && !self.numbered {
            // It may still come by itself, and perhaps those that do have no numbers.
            remember(&mut self.recovered, mark);
        }
        if let Some(doubt) = &mut self.doubt {
            doubt.first.get_or_insert((seq, missing));
        }
        let lost_before = std::mem::take(&mut self.lost).saturating_add(missing);
        Ready { seq: Some(seq), payload: held.payload, via: held.via, lost_before, token: None }
    }

    /// Keeps an update that waits for those before it.
    pub(super) fn hold(&mut self, seq: u64, held: Held, book: &mut HeldBook) {
        self.unhold(seq, book);
        book.add(&self.topic, seq, &held);
        self.held.insert(seq, held);
    }

    /// Hands on what waits, as long as it follows; all up to `until`, whatever is missing.
    pub(super) fn release(&mut self, until: u64, book: &mut HeldBook) -> Vec<Ready> {
        let mut ready = Vec::new();
        while let Some((seq, _)) = self.held.first_key_value().filter(|(seq, _)| {
            let open = self.doubt.is_some_and(|doubt| doubt.open && doubt.first.is_none());
            let next = self.last.is_some_and(|last| last.checked_add(1) == Some(**seq));
            **seq <= until || next && !open && !self.waits_for_what_is_behind()
        }) {
            let seq = *seq;
            let held = self.unhold(seq, book);
            if let Some(held) = held.filter(|_| self.last.is_none_or(|last| seq > last)) {
                if held.told {
                    self.pass(seq);
                } else {
                    ready.push(self.hand_on(seq, held));
                }
            }
        }
        ready
    }

    /// How far an answer speaks of this topic, which names this head and brings updates up to `brought`: what it does not
    /// bring up to there will not come any more.
    pub(super) fn answered_to(&self, head: u64, brought: Option<u64>, truncated: bool) -> u64 {
        let last = self.last.unwrap_or(0);
        // The check named a higher number: of what is missing before that the answer says nothing.
        let silent = self.asked.is_some_and(|asked| asked > last);
        match brought {
            _ if silent || self.waits_for_what_is_behind() => 0,
            _ if !truncated => head,
            brought => brought.map_or(last, |brought| brought.max(last)),
        }
    }

    /// Whether an update with this payload came by itself without a number, since the last answer. In a line where others
    /// have numbers, that is one of a publisher whose messages can't carry any.
    pub(super) fn was_told(&mut self, payload: &[u8]) -> bool {
        let mark = mark(payload);
        let place = self.unnumbered.iter().position(|known| *known == mark);
        place.is_some_and(|place| self.unnumbered.drain(..=place).next().is_some())
    }

    /// An answer told all that is new: what came without a number before it explains nothing after it.
    pub(super) fn forget_told(&mut self) {
        self.unnumbered.clear();
    }

    /// Takes an update without a number; none when it was there before.
    pub(super) fn unnumbered(&mut self, payload: Bytes, retain: bool, token: Option<u64>) -> Option<Ready> {
        let mark = mark(&payload);
        // In a session that goes on, what the broker kept is older than what came; in a new one it may be news.
        let news = self.doubt.is_some_and(|doubt| doubt.lost);
        if retain && self.last_payload.is_some_and(|last| last == mark || !news) {
            return None;
        }
        if let Some(place) = self.recovered.iter().position(|known| *known == mark) {
            self.recovered.drain(..=place);
            return None;
        }
        self.bare = true;
        if !self.numbered {
            // Without numbers nobody can tell what was under way.
            self.end_behind();
        }
        if let Some(doubt) = &mut self.doubt {
            doubt.unnumbered += 1;
        }
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
        (self.last, self.behind) = (Some(head), None);
        self.lost += came as u64;
        let ready =
            after.split_off(came).into_iter().map(|(seq, payload)| self.recover(seq, payload)).collect();
        (ready, missing)
    }

    /// Where things stand: what came by itself up to here needs no explanation, and what was under way may still come. What
    /// waited goes on. `expected` says that the session may have much in it.
    pub(super) fn begin(
        &mut self,
        head: u64,
        expected: bool,
        now: Moment,
        book: &mut HeldBook,
    ) -> Vec<Ready> {
        // A number from before the gateway was asked for the first time may be one of an older count.
        let trusted = self.doubt.is_none_or(|doubt| doubt.first.is_some());
        let ready = self.release(u64::MAX, book);
        let known = self.last.filter(|_| trusted);
        let whole = known.is_none() || !self.kept;
        let behind = Behind { last: known, told: head, whole, since: now, expected };
        self.behind = known.is_none_or(|known| known < head).then_some(behind);
        self.last = Some(known.unwrap_or(0).max(head));
        self.doubt = None;
        self.unnumbered.clear();
        ready
    }

    fn unhold(&mut self, seq: u64, book: &mut HeldBook) -> Option<Held> {
        let held = self.held.remove(&seq)?;
        book.remove(&self.topic, seq, &held);
        Some(held)
    }

    /// Goes past a number whose update the program has, without a number.
    fn pass(&mut self, seq: u64) {
        let missing = seq.saturating_sub(self.last.unwrap_or(0).saturating_add(1));
        self.lost = self.lost.saturating_add(missing);
        self.last = Some(seq);
    }

    /// Whether a low number that comes by itself is one of a new count.
    fn counts_from_new(&self) -> bool {
        self.doubt.is_some_and(|doubt| doubt.lost && doubt.first.is_none())
    }

    fn begin_after(&mut self, last: u64) {
        (self.last, self.behind) = (Some(last), None);
        // The check under way named a number of the old count.
        self.asked = None;
        if let Some(doubt) = self.doubt.take() {
            self.forget_marks(doubt.unnumbered);
        }
    }

    /// Forgets the payloads of the old count, all but the last so many.
    fn forget_marks(&mut self, keep: usize) {
        let old = self.unnumbered.len().saturating_sub(keep);
        self.unnumbered.drain(..old);
        self.recovered.clear();
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

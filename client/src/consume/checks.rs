//! When to ask: regularly, as the strategy says, and out of turn when an update is known to be missing.

use tidegate_control::active::{CheckTimer, Reply, Strategy};
use tidegate_control::backoff::Announced;
use tidegate_control::pacing::{Bucket, Pass};
use tidegate_control::random::Random;
use tidegate_control::time::{Moment, Span};

/// The strategy of a subscriber, of any kind.
pub(super) type AnyStrategy = Box<dyn Strategy + Send>;

/// How long what waits is kept waiting while the gateway brings what is missing, answer by answer.
const LONGEST_FETCH: Span = Span::from_secs(60);

/// How often the time is doubled after which a gateway is asked again that never answered: with the usual patience, up to
/// ten minutes.
const MOST_DOUBLED: u32 = 7;

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Ask, with this number.
    Now(u64),
    /// Not before this.
    At(Moment),
}

#[derive(Debug, Clone, Copy)]
struct UnderWay {
    id: u64,
    sent: Moment,
    regular: bool,
    /// Whether nothing was ever answered.
    start: bool,
}

/// Decides when to ask and learns from the answers.
pub(super) struct Checks {
    /// How long an answer may take.
    patience: Span,
    timer: CheckTimer<AnyStrategy>,
    /// Holds all of them to a rate, regular or out of turn.
    limiter: Bucket,
    /// When the next regular check is due; none before the first connection.
    due: Option<Moment>,
    /// Nothing is asked before this, out of turn neither.
    not_before: Moment,
    under_way: Option<UnderWay>,
    /// When what is asked for now was asked for the first time, on this connection.
    first_asked: Option<Moment>,
    ids: u64,
    /// Missing updates that checks out of turn found since the last regular one.
    found: u32,
    /// Since when answers say that there is more; none when the last one did not.
    more: Option<Moment>,
    /// How many in a row were not answered before the gateway has told where things stand: perhaps nobody is there who would.
    unheard: u32,
    pub(super) counts: CheckCounts,
}

/// What is counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CheckCounts {
    pub(super) made: u64,
    pub(super) redundant: u64,
    pub(super) silent: u64,
    pub(super) delayed: u64,
    pub(super) refused: u64,
    pub(super) answered: u64,
    pub(super) last_response: Span,
    lost: u64,
    response: f64,
}

impl Checks {
    pub(super) fn new(patience: Span, timer: CheckTimer<AnyStrategy>, limiter: Bucket) -> Self {
        let counts = CheckCounts::default();
        Self {
            patience,
            timer,
            limiter,
            due: None,
            not_before: Moment::START,
            under_way: None,
            first_asked: None,
            ids: 0,
            found: 0,
            more: None,
            unheard: 0,
            counts,
        }
    }

    /// A connection is there: whoever asks for the first time spreads over the first interval.
    pub(super) fn connected(&mut self, now: Moment, random: &mut dyn Random) {
        let first = self.timer.first(now, random);
        self.due = Some(self.due.map_or(first, |due| due.max(now).min(first)));
        (self.under_way, self.unheard) = (None, 0);
    }

    /// The connection is gone, and so is what was asked.
    pub(super) fn disconnected(&mut self) {
        (self.under_way, self.first_asked, self.more) = (None, None, None);
    }

    /// What to do now. `gap` says that an update is known to be missing, `start` that nothing was ever asked.
    pub(super) fn step(&mut self, now: Moment, gap: bool, start: bool, random: &mut dyn Random) -> Ask {
        let Some(due) = self.due else { return Ask::At(Moment::END) };
        if let Some(under_way) = self.under_way {
            let end = under_way.sent + self.patience;
            if now < end {
                return Ask::At(end);
            }
            self.silence(under_way, now, random);
            return Ask::At(now);
        }
        let regular = now >= due;
        if !regular && !gap && !start && self.more.is_none() {
            return Ask::At(due);
        }
        if now < self.not_before {
            return Ask::At(self.not_before);
        }
        match self.limiter.take(now) {
            Pass::Wait(wait) => Ask::At(now + wait),
            Pass::Go => {
                self.ids += 1;
                let regular = regular && !start;
                self.under_way = Some(UnderWay { id: self.ids, sent: now, regular, start });
                self.first_asked.get_or_insert(now);
                self.counts.made += 1;
                Ask::Now(self.ids)
            }
        }
    }

    /// Whether an answer with this number is waited for.
    pub(super) fn expects(&self, id: u64) -> bool {
        self.under_way.is_some_and(|under_way| under_way.id == id)
    }

    /// Whether the gateway has said that there is more, and is being asked for it: what waits for that must not give up,
    /// unless it takes too long, since new updates may come faster than they can be fetched.
    pub(super) fn is_fetching(&self, now: Moment) -> bool {
        self.more.is_some_and(|since| now < since + LONGEST_FETCH)
    }

    /// Whether any answer is waited for.
    pub(super) fn expects_any(&self) -> bool {
        self.under_way.is_some()
    }

    /// An answer came that looked things up.
    pub(super) fn answered(
        &mut self,
        missing: u32,
        more: bool,
        announced: Announced,
        now: Moment,
        random: &mut dyn Random,
    ) {
        let Some(UnderWay { sent, regular, .. }) = self.under_way.take() else { return };
        self.unheard = 0;
        self.more = more.then(|| self.more.unwrap_or(now));
        self.found = self.found.saturating_add(missing);
        let first = self.first_asked.take().unwrap_or(sent);
        self.count(missing, now.since(first));
        if regular {
            let updates = std::mem::take(&mut self.found);
            let reply = Reply { sent, answered: now, updates, last_change: None, announced };
            self.due = Some(self.timer.on_reply(&reply, random));
        }
    }

    /// The gateway asks to come back later.
    pub(super) fn delayed(&mut self, retry: Span, now: Moment, random: &mut dyn Random) {
        self.counts.delayed += u64::from(self.under_way.is_some());
        self.come_back(retry, now, random);
    }

    /// The gateway will not answer: something must change first, which may take as long as this.
    pub(super) fn refused(&mut self, retry: Span, now: Moment, random: &mut dyn Random) {
        self.counts.refused += u64::from(self.under_way.is_some());
        self.come_back(retry, now, random);
    }

    fn come_back(&mut self, retry: Span, now: Moment, random: &mut dyn Random) {
        let Some(UnderWay { sent, .. }) = self.under_way.take() else { return };
        self.unheard = 0;
        // Nothing was looked up, as with silence. All who were told the same time must not come back together.
        let next = self.timer.on_silence(sent, now, random);
        self.not_before = now + retry.scale(1.0 + 0.5 * random.uniform());
        self.due = Some(next.max(self.not_before));
        self.more = None;
    }

    /// The adaptive part of the interval.
    pub(super) fn interval(&self) -> Span {
        self.timer.strategy().interval()
    }

    /// The mean number of updates that a check found overwritten.
    pub(super) fn mean_lost(&self) -> f64 {
        self.counts.lost as f64 / self.counts.answered.max(1) as f64
    }

    /// The mean time an answer took.
    pub(super) fn response(&self) -> Span {
        Span::from_secs_f64(self.counts.response / self.counts.answered.max(1) as f64)
    }

    fn silence(&mut self, under_way: UnderWay, now: Moment, random: &mut dyn Random) {
        (self.under_way, self.more) = (None, None);
        self.counts.silent += 1;
        // Whoever else met with the same silence must not come back at the same moment.
        let factor = f64::from(1_u32 << self.unheard.min(MOST_DOUBLED));
        self.not_before = now + self.patience.scale(factor * random.uniform());
        self.unheard += u32::from(under_way.start);
        self.due = Some(self.timer.on_silence(under_way.sent, now, random));
    }

    fn count(&mut self, missing: u32, took: Span) {
        self.counts.answered += 1;
        self.counts.redundant += u64::from(missing == 0);
        self.counts.lost += u64::from(missing.saturating_sub(1));
        self.counts.response += took.as_secs_f64();
        self.counts.last_response = took;
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;

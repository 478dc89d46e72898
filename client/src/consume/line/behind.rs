//! What is still on its way to us when the gateway tells of later updates.

use tidegate_control::time::{Moment, Span};

use super::{HeldBook, Line, Via};

/// How many times longer it may take until the next message comes that a broker keeps until it is acknowledged.
const SAFE: f64 = 6.0;

/// The session with the broker, as far as it matters to each topic: it is one queue for all of them.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::consume) struct Session {
    /// Whether there was one from before this program was started.
    pub(in crate::consume) found: bool,
    /// When the last message came, of any topic, that had been under way and that the broker keeps until it is acknowledged:
    /// there may be more of them, of other topics too.
    pub(in crate::consume) came: Option<Moment>,
    /// When the program last had updates before it: the broker may have waited until it takes them.
    pub(in crate::consume) busy: Moment,
    /// Whether there is no connection: nothing of it can come.
    pub(in crate::consume) away: bool,
}

/// What was under way when the gateway said where things stand: answers may overtake a whole queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behind {
    /// The last of it that came; none before the first.
    pub(super) last: Option<u64>,
    /// Where things stood first. While the broker brings what it kept, the line's `last` goes on with the gateway.
    pub(super) told: u64,
    /// Whether all after that one is to be accounted for: a retained one may be older than the subscription.
    pub(super) whole: bool,
    /// When that was.
    pub(super) since: Moment,
    /// Whether the session was there before us, and may have much in it although none of it came yet.
    pub(super) expected: bool,
}

impl Behind {
    /// Whether what answers bring has to wait for the rest of it.
    fn is_waited_for(self) -> bool {
        self.whole && (self.last.is_some() || self.expected)
    }
}

impl Line {
    /// Takes an answer about this topic that names this head. While the broker brings what it kept for us, it brings what is
    /// new after that; and where the gateway has not kept all that is missing, after a break or because the program is slow,
    /// the broker has, because it waits for our acknowledgements. Both is left to the broker: true if so.
    pub(in crate::consume) fn leaves_to_session(
        &mut self,
        first: Option<u64>,
        head: u64,
        session: Session,
        now: Moment,
        book: &mut HeldBook,
    ) -> bool {
        let last = self.last.unwrap_or(0);
        if self.is_left_to_broker(session) && self.held.values().all(|held| held.via == Via::Active) {
            while let Some(seq) = self.held.first_key_value().map(|(seq, _)| *seq) {
                self.unhold(seq, book);
            }
            self.last = Some(last.max(head));
            return true;
        }
        let all = head <= last || first.is_some_and(|first| first <= last + 1);
        if !self.safe || self.kept || all || !self.held.is_empty() || self.behind.is_some() {
            return false;
        }
        self.behind = Some(Behind { last: Some(last), told: head, whole: true, since: now, expected: true });
        self.last = Some(head);
        true
    }

    /// A check is made. What was under way when the gateway said where things stand, and did not come for so long, is
    /// lost: it may be the newest, so that it is asked for.
    pub(in crate::consume) fn give_up_on_what_is_behind(
        &mut self,
        now: Moment,
        patience: Span,
        session: Session,
    ) {
        let waits = self.waits_for_what_is_behind();
        if waits && self.waits_until(Moment::START, patience, session) <= now {
            self.end_behind();
            // The broker does not have it either.
            self.safe = false;
        }
    }

    /// Until when an update waits that is here since then: as long as others come that were under way before it, it goes on
    /// waiting. What the broker keeps until it is acknowledged has more time, and all of it while there is no connection.
    pub(in crate::consume) fn waits_until(&self, since: Moment, patience: Span, session: Session) -> Moment {
        let Some(behind) = self.behind.filter(|behind| behind.is_waited_for()) else {
            return since + patience;
        };
        let since = since.max(behind.since);
        match session.came {
            _ if !self.is_left_to_broker(session) => since + patience,
            _ if session.away => Moment::END,
            came => since.max(came.unwrap_or(since)).max(session.busy) + patience.scale(SAFE),
        }
    }

    /// Whether what answers bring waits for what was under way when the gateway said where things stand.
    pub(in crate::consume) fn waits_for_what_is_behind(&self) -> bool {
        self.behind.is_some_and(Behind::is_waited_for)
    }

    /// Whether this number may be one of those that were under way when the gateway said where things stand.
    pub(in crate::consume) fn is_behind(&self, seq: u64) -> bool {
        let last = self.last.unwrap_or(0);
        self.behind.is_some_and(|behind| seq <= last && behind.last.is_none_or(|before| before < seq))
    }

    /// Whether the broker has what was under way, and keeps it until it is acknowledged. Of a topic of which nothing came
    /// yet it may, as it has such messages of others.
    fn is_left_to_broker(&self, session: Session) -> bool {
        let none = self.behind.is_some_and(|behind| behind.last.is_none());
        self.waits_for_what_is_behind() && (self.safe || none && session.came.is_some())
    }

    /// One of those comes; how many are missing before it.
    pub(super) fn come_behind(&mut self, seq: u64, now: Moment) -> u64 {
        let Some(behind) = &mut self.behind else { return 0 };
        let told = behind.told;
        let missing = match behind.last.or((seq > told).then_some(told)) {
            Some(before) if behind.whole => seq - before - 1,
            _ => 0,
        };
        *behind = Behind { last: Some(seq), told, whole: !self.kept, since: now, expected: true };
        if self.kept {
            // What is after it comes by itself, or is asked for.
            self.last = self.last.map(|last| last.min(told.max(seq)));
        }
        if self.last == Some(seq) {
            self.behind = None;
        }
        missing
    }

    /// Nothing of that comes any more: what is missing of it is missing.
    pub(super) fn end_behind(&mut self) {
        if let Some(behind) = self.behind.take().filter(|behind| behind.whole) {
            self.last = Some(behind.last.unwrap_or(behind.told));
        }
    }
}

//! What was told on one topic, and when that is to be told again.

use std::sync::Arc;

use tidegate_control::overload::Phase;
use tidegate_control::time::{Moment, Span};

/// Smaller changes of a rate are not announced.
const STEP: f64 = 0.05;
/// A rate that changes by more than this is urgent.
const URGENT: f64 = 0.2;
/// Time between two announcements on one topic.
const SPACING: Span = Span::from_millis(500);
/// The share of its time to live after which an announcement is repeated, and after which that is urgent.
pub(super) const REPEAT: f64 = 0.6;
const OVERDUE: f64 = 0.9;

/// What somebody is to be told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Advice {
    /// Messages a second; infinity is no limit.
    pub(crate) rate: f64,
    pub(crate) phase: Phase,
    /// The queue that says so.
    pub(crate) queue: Arc<str>,
}

impl Advice {
    /// No limit.
    pub(crate) fn none() -> Self {
        Self { rate: f64::INFINITY, phase: Phase::Idle, queue: "".into() }
    }

    /// Whether somebody who knows `told` need not hear of this.
    pub(crate) fn is_near(&self, told: &Self) -> bool {
        self.rate == told.rate || (self.rate - told.rate).abs() <= STEP * told.rate.min(f64::MAX)
    }
}

/// What was announced on one topic.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) advice: Advice,
    pub(super) at: Moment,
    pub(super) ttl: Span,
    /// How many go by it.
    pub(super) listeners: f64,
}

/// How much it would harm not to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Hardly: a small change, or one that can wait.
    Step,
    /// A limit begins, is another one by far, or would run out.
    Limit,
    /// A limit ends, which was saved for when it was told.
    End,
}

/// A topic for a class or a client.
#[derive(Debug, Default)]
pub(super) struct Topic {
    /// What subscribers were told last.
    pub(super) told: Option<Told>,
    /// What newcomers have been told since, because it was too dear to tell everybody.
    pub(super) kept: Option<Told>,
    /// Nothing is retained there any more.
    pub(super) withdrawn: bool,
}

impl Topic {
    /// What newcomers are told.
    pub(super) fn newest(&self) -> Option<&Told> {
        self.kept.as_ref().or(self.told.as_ref())
    }

    /// Whether newcomers would be told something that is not true any more.
    pub(super) fn is_stale(&self, advice: &Advice, now: Moment) -> bool {
        self.withdrawn || is_due(self.newest(), advice, now)
    }

    /// Whether somebody goes by something that is not true any more.
    pub(super) fn is_due(&self, advice: &Advice, now: Moment) -> bool {
        is_due(self.told.as_ref(), advice, now) || self.is_stale(advice, now)
    }

    /// Whether anybody goes by a limit.
    pub(super) fn limits(&self) -> bool {
        [&self.told, &self.kept].into_iter().flatten().any(|told| told.advice.rate.is_finite())
    }

    /// How much it would harm not to tell.
    pub(super) fn urgency(&self, advice: &Advice, now: Moment) -> Urgency {
        if self.limits() && advice.rate.is_infinite() {
            return Urgency::End;
        }
        let before = self.told.as_ref().map_or(f64::INFINITY, |told| told.advice.rate);
        let ends = self.told.as_ref().is_some_and(|told| now.since(told.at) >= told.ttl.scale(OVERDUE));
        match (before.is_finite(), advice.rate.is_finite()) {
            (false, true) => Urgency::Limit,
            _ if (advice.rate - before).abs() > URGENT * before => Urgency::Limit,
            // Without it publishers would go back to their own rates.
            (true, true) if ends => Urgency::Limit,
            _ => Urgency::Step,
        }
    }

    /// How many were told a limit here and would have to hear of its end.
    pub(super) fn limited(&self) -> f64 {
        self.told.as_ref().filter(|told| told.advice.rate.is_finite()).map_or(0.0, |told| told.listeners)
    }

    /// The same; none without a limit that still holds.
    pub(super) fn limited_at(&self, now: Moment) -> Option<f64> {
        let told = self.told.as_ref().filter(|told| told.advice.rate.is_finite())?;
        (now.since(told.at) < told.ttl).then_some(told.listeners)
    }
}

/// Whether it is time to tell somebody who was told this.
fn is_due(told: Option<&Told>, advice: &Advice, now: Moment) -> bool {
    let Some(told) = told else { return true };
    let age = now.since(told.at);
    let changed = advice.phase != told.advice.phase || !advice.is_near(&told.advice);
    let runs_out = advice.rate.is_finite() && age >= told.ttl.scale(REPEAT);
    (changed && age >= SPACING) || runs_out
}

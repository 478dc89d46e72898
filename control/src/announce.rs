//! When a new rate is worth announcing: advice must not become a load of its own.

use crate::invalid::{self, Invalid};
use crate::overload::Phase;
use crate::time::{Moment, Span};

/// The settings of an announcer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnnounceConfig {
    /// The least change that is announced, as a share of the rate announced last.
    pub step: f64,
    /// The least time between two announcements to a class.
    pub pause: Span,
    /// What announcements may cost, as a share of the messages that publishers send; 1 or more is without limit.
    pub share: f64,
}

impl Default for AnnounceConfig {
    fn default() -> Self {
        Self { step: 0.05, pause: Span::from_millis(500), share: 0.01 }
    }
}

impl AnnounceConfig {
    /// Builds the announcer of one class, or says which setting makes no sense.
    pub fn build(&self) -> Result<Announcer, Invalid> {
        invalid::not_negative("step", self.step)?;
        invalid::not_negative("share", self.share)?;
        Ok(Announcer { config: *self, last: None, messages: 0.0, spent: 0.0 })
    }
}

/// Decides for one class of publishers which rates are announced on its topic.
///
/// Every message that publishers send earns a share of an announcement, and an announcement costs one for each that
/// listens. A change of phase is announced even on credit, since a queue can't wait for it; later steps pay for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Announcer {
    config: AnnounceConfig,
    last: Option<Announced>,
    /// Messages that publishers sent.
    messages: f64,
    /// What announcements have cost.
    spent: f64,
}

/// What was announced last.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Announced {
    at: Moment,
    phase: Phase,
    rate: f64,
}

impl Announcer {
    /// Books messages that publishers of the class sent.
    pub fn earn(&mut self, messages: u64) {
        self.messages += messages as f64;
    }

    /// Whether to announce this rate now to so many listeners; if so, it is booked as announced.
    ///
    /// A rate that makes no sense is never announced.
    pub fn offer(&mut self, now: Moment, phase: Phase, rate: f64, listeners: u64) -> bool {
        let sound = rate.is_finite() && rate >= 0.0;
        if !sound || !self.is_news(now, phase, rate, listeners as f64) {
            return false;
        }
        self.spent += listeners as f64;
        self.last = Some(Announced { at: now, phase, rate });
        true
    }

    fn is_news(&self, now: Moment, phase: Phase, rate: f64, cost: f64) -> bool {
        let Some(last) = self.last else { return true };
        if now.since(last.at) < self.config.pause {
            return false;
        }
        let step = (rate - last.rate).abs() > self.config.step * last.rate;
        let affordable = self.config.share >= 1.0 || self.messages * self.config.share - self.spent >= cost;
        (phase != last.phase && rate != last.rate) || (step && affordable)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Moment {
        Moment::START + Span::from_millis(millis)
    }

    fn announcer(share: f64) -> Announcer {
        let mut announcer = AnnounceConfig { share, ..AnnounceConfig::default() }.build().unwrap();
        assert!(announcer.offer(at(0), Phase::Protect, 1.0, 40), "the first is always news");
        announcer
    }

    #[test]
    fn only_changes_are_news_and_not_too_often() {
        let mut announcer = announcer(1.0);
        assert!(!announcer.offer(at(400), Phase::Protect, 2.0, 40), "too soon");
        assert!(!announcer.offer(at(600), Phase::Protect, 1.04, 40), "too small");
        assert!(announcer.offer(at(600), Phase::Protect, 1.06, 40));
        assert!(announcer.offer(at(1200), Phase::Recover, 1.07, 40), "a change of phase");
        assert!(
            !announcer.offer(at(1800), Phase::Idle, 1.07, 40),
            "a phase alone changes nothing for publishers"
        );
    }

    #[test]
    fn a_step_waits_until_it_is_paid_for_and_a_phase_does_not() {
        let mut announcer = announcer(0.01);
        assert!(!announcer.offer(at(1000), Phase::Protect, 2.0, 40), "the first one left a debt of 40");
        announcer.earn(7_999);
        assert!(!announcer.offer(at(1000), Phase::Protect, 2.0, 40));
        announcer.earn(1);
        assert!(announcer.offer(at(1000), Phase::Protect, 2.0, 40));
        assert!(announcer.offer(at(2000), Phase::Recover, 2.1, 40));
        assert!(!announcer.offer(at(3000), Phase::Recover, 3.0, 40));
    }

    #[test]
    fn bad_numbers_are_refused() {
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            assert!(AnnounceConfig { step: bad, ..AnnounceConfig::default() }.build().is_err());
            assert!(AnnounceConfig { share: bad, ..AnnounceConfig::default() }.build().is_err());
            assert!(!announcer(1.0).offer(at(9000), Phase::Idle, bad, 1));
        }
    }

    fn any_phase() -> impl Strategy<Value = Phase> {
        prop_oneof![Just(Phase::Idle), Just(Phase::Protect), Just(Phase::Recover)]
    }

    proptest! {
        /// Whatever happens, announcements keep their pause, and those that are no change of phase cost no more than the
        /// share of the messages.
        #[test]
        fn the_pause_and_the_budget_hold(
            turns in proptest::collection::vec((0..2000u64, any_phase(), 0.01..10.0f64, 1..50u64, 0..5000u64), 1..100),
        ) {
            let mut announcer = AnnounceConfig::default().build().unwrap();
            let (mut now, mut phase, mut last) = (1, Phase::Idle, None);
            let (mut messages, mut steps) = (0, 0);
            for (time, next, rate, listeners, sent) in turns {
                now += time;
                messages += sent;
                announcer.earn(sent);
                if announcer.offer(at(now), next, rate, listeners) {
                    prop_assert!(last.is_none_or(|before| now - before >= 500));
                    if last.is_some() && next == phase {
                        steps += listeners;
                    }
                    (last, phase) = (Some(now), next);
                }
            }
            prop_assert!(steps as f64 <= messages as f64 * 0.01 + 1e-6, "{} for {}", steps, messages);
        }

        /// Any clock and any numbers: never a panic, and never a rate that is none.
        #[test]
        fn nothing_breaks_it(turns in proptest::collection::vec((any::<u64>(), any_phase(), any::<f64>(), any::<u64>()), 1..50)) {
            let mut announcer = AnnounceConfig::default().build().unwrap();
            for (time, phase, rate, count) in turns {
                announcer.earn(count);
                let announced = announcer.offer(Moment::from_nanos(time), phase, rate, count);
                prop_assert!(!announced || (rate.is_finite() && rate >= 0.0));
            }
        }
    }
}

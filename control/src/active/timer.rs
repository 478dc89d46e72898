//! Algorithm 1 of paper 000: the wait between two checks is a strategy's interval plus a random backoff.

use super::{Check, Pressure, Strategy};
use crate::backoff::{Announced, Backoff, Response};
use crate::random::Random;
use crate::time::{Moment, Span};

/// The gateway's reply to a check.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reply {
    /// When the check was sent.
    pub sent: Moment,
    /// When the reply came.
    pub answered: Moment,
    /// Updates since the check before.
    pub updates: u32,
    /// When the newest update happened, where the reply says so.
    pub last_change: Option<Moment>,
    /// What the gateway said about its load.
    pub announced: Announced,
}

/// Says when the next check is due.
#[derive(Debug, Clone)]
pub struct CheckTimer<S> {
    strategy: S,
    backoff: Backoff,
    /// The wait before the check that is under way.
    waited: Span,
    /// Whether that wait was lengthened because the gateway asked for it.
    held: bool,
}

impl<S: Strategy> CheckTimer<S> {
    /// A timer that waits by these two rules.
    pub fn new(strategy: S, backoff: Backoff) -> Self {
        Self { waited: strategy.interval(), strategy, backoff, held: false }
    }

    /// When to make the first check: anywhere in the first interval, so that clients that start together spread.
    pub fn first(&self, now: Moment, random: &mut dyn Random) -> Moment {
        now + self.strategy.interval().scale(random.uniform())
    }

    /// Takes the reply to a check and returns when the next one is due, never before the reply.
    pub fn on_reply(&mut self, reply: &Reply, random: &mut dyn Random) -> Moment {
        let check = Check::found(reply.sent, reply.updates).changed(reply.last_change);
        let took = reply.answered.since(reply.sent);
        let response = Response { took, waited: self.waited, announced: reply.announced, silent: false };
        self.next(check, &response, random)
    }

    /// Takes a check that got no reply until `gave_up` and returns when the next one is due.
    ///
    /// Silence counts as a slow reply: nothing is known about updates, and the gateway may be overloaded.
    pub fn on_silence(&mut self, sent: Moment, gave_up: Moment, random: &mut dyn Random) -> Moment {
        let announced = Announced::default();
        let response = Response { took: gave_up.since(sent), waited: self.waited, announced, silent: true };
        self.next(Check::found(sent, 0), &response, random)
    }

    /// The strategy.
    pub fn strategy(&self) -> &S {
        &self.strategy
    }

    /// The backoff.
    pub fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    fn next(&mut self, check: Check, response: &Response, random: &mut dyn Random) -> Moment {
        let pressure = match (self.held, self.backoff.on_response(response)) {
            (true, _) => Pressure::Held,
            (false, true) => Pressure::Slow,
            (false, false) => Pressure::None,
        };
        let interval = self.strategy.on_check(&check.under(pressure), random);
        let backoff = self.backoff.wait(interval, random);
        self.held = self.backoff.is_held();
        self.waited = interval + backoff;
        check.at + self.waited.max(response.took)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::active::{Divided, DividedConfig};
    use crate::backoff::BackoffConfig;
    use crate::random::Seeded;

    fn timer() -> CheckTimer<Divided> {
        CheckTimer::new(DividedConfig::default().build().unwrap(), BackoffConfig::default().build().unwrap())
    }

    fn reply(took: f64, updates: u32, rate: Option<f64>) -> Reply {
        Reply {
            sent: Moment::from_secs_f64(100.0),
            answered: Moment::from_secs_f64(100.0 + took),
            updates,
            last_change: None,
            announced: Announced { rate, ..Default::default() },
        }
    }

    #[test]
    fn a_quick_reply_leaves_it_to_the_strategy_counted_from_request_to_request() {
        let mut timer = timer();
        let next = timer.on_reply(&reply(0.01, 1, None), &mut Seeded::new(1));
        assert_eq!(next, Moment::from_secs_f64(103.5));
    }

    #[test]
    fn a_slow_reply_adds_a_backoff_and_loses_nothing_of_the_interval() {
        let mut timer = timer();
        timer.on_reply(&reply(0.01, 1, None), &mut Seeded::new(1));
        let next = timer.on_reply(&reply(1.0, 5, None), &mut Seeded::new(1));
        assert!(next > Moment::from_secs_f64(104.0), "{next:?}");
        assert_eq!(timer.strategy().interval(), Span::from_secs(4));
    }

    #[test]
    fn the_next_check_is_never_due_before_the_reply() {
        let mut timer = timer();
        let reply = reply(500.0, 0, None);
        assert!(timer.on_reply(&reply, &mut Seeded::new(1)) >= reply.answered);
    }

    #[test]
    fn while_the_gateway_holds_it_back_losses_change_nothing() {
        let mut timer = timer();
        let mut random = Seeded::new(1);
        timer.on_reply(&reply(0.01, 1, Some(0.05)), &mut random);
        let interval = timer.strategy().interval();
        let mut total = 0.0;
        for _ in 0..1000 {
            let next = timer.on_reply(&reply(0.01, 9, Some(0.05)), &mut random);
            total += next.since(Moment::from_secs_f64(100.0)).as_secs_f64();
        }
        assert_eq!(timer.strategy().interval(), interval);
        assert!((19.0..21.5).contains(&(total / 1000.0)), "{total}");
        timer.on_reply(&reply(0.01, 9, None), &mut random);
        timer.on_reply(&reply(0.01, 9, None), &mut random);
        assert!(timer.strategy().interval() < interval, "free again");
    }

    #[test]
    fn silence_is_congestion() {
        let mut timer = timer();
        let sent = Moment::from_secs_f64(100.0);
        timer.on_silence(sent, sent + Span::from_millis(1), &mut Seeded::new(1));
        assert_eq!(timer.strategy().interval(), Span::from_millis(3500));
        assert!(timer.backoff().is_congested());
    }

    #[test]
    fn clients_that_start_together_spread() {
        let mut random = Seeded::new(1);
        let now = Moment::from_secs_f64(7.0);
        for _ in 0..100 {
            let first = timer().first(now, &mut random);
            assert!(first >= now && first <= now + Span::from_secs(3));
        }
    }
}

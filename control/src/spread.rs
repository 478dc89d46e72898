//! Spaces publishers out: those that were held back together would else go on sending in step, for as long as they are
//! held back.

use crate::time::{Moment, Span};

/// How much earlier or later than its own interval says a publisher may be asked to send, as a share of that interval.
const LEEWAY: f64 = 0.5;

/// Gives each publisher that asks the next place in an even row, for the acknowledgement that tells it how long to wait.
///
/// Each place is one gap after the last one given, so the row as a whole keeps exactly to its rate; a publisher waits
/// for its interval, give or take a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    last: Moment,
}

impl Spread {
    /// How long a publisher that has just sent waits, where `members` of them may send `rate` messages a second each.
    pub fn wait(&mut self, now: Moment, rate: f64, members: u64) -> Span {
        let interval = Span::from_rate(rate);
        let (soonest, latest) = (now + interval.scale(1.0 - LEEWAY), now + interval.scale(1.0 + LEEWAY));
        let gap = interval.scale(1.0 / members.max(1) as f64);
        self.last = (self.last + gap).clamp(soonest, latest);
        self.last.since(now)
    }
}

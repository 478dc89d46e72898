//! Tells a standing queue from a burst: overload is a delay that does not go away, not one that was high once.

use crate::flow::Reading;
use crate::time::{Moment, Span};

/// Watches for a delay that never falls under its target for a whole interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    target: Span,
    interval: Span,
    above_since: Option<Moment>,
}

impl Standing {
    /// A queue stands when its delay stays over `target` for `interval`.
    pub fn new(target: Span, interval: Span) -> Self {
        Self { target, interval, above_since: None }
    }

    /// Takes in one reading and says whether the queue stands.
    pub fn observe(&mut self, now: Moment, reading: &Reading) -> bool {
        if reading.delay <= self.target {
            self.above_since = None;
            return false;
        }
        // An empty moment since the last reading is a delay of zero: what stands now began after it.
        let since = match self.above_since {
            Some(since) if reading.least_depth > 0 => since,
            _ => (now - reading.delay).max(now - reading.elapsed),
        };
        self.above_since = Some(since);
        now.since(since) >= self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(delay_ms: u64, least_depth: u64) -> Reading {
        let elapsed = Span::from_millis(100);
        Reading { delay: Span::from_millis(delay_ms), least_depth, elapsed, ..Reading::default() }
    }

    fn watch(delays: &[(u64, u64)]) -> bool {
        let mut standing = Standing::new(Span::from_millis(50), Span::from_millis(500));
        let mut now = Moment::from_secs_f64(10.0);
        let mut stands = false;
        for (delay, least) in delays {
            now += Span::from_millis(100);
            stands = standing.observe(now, &reading(*delay, *least));
        }
        stands
    }

    #[test]
    fn a_delay_that_stays_is_an_overload() {
        assert!(!watch(&[(80, 3); 4]));
        assert!(watch(&[(80, 3); 6]));
    }

    #[test]
    fn a_burst_is_not() {
        assert!(!watch(&[(900, 3), (80, 3), (20, 3), (900, 3)]));
        // The queue ran empty in between, though every reading saw a delay.
        assert!(!watch(&[(80, 3), (80, 3), (80, 0), (80, 3), (80, 3)]));
    }
}

//! What consumers have in their hands only because they are far away is no queue.

use tidegate_control::flow::Reading;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::QueueReport;

/// For how long the quickest acknowledgement is remembered, at least; at most twice as long.
const MEMORY: Span = Span::from_secs(10);

/// The quickest acknowledgement lately: a round trip and the work on one message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hands {
    /// Milliseconds, in this stretch of time and in the one before.
    now: Option<u64>,
    before: Option<u64>,
    since: Moment,
}

impl Hands {
    /// The reading of a queue as a controller should see it: what waits, and what consumers have beyond what is on its
    /// way to them and back or is being worked on. `rate` is what they process, in messages a second.
    pub(crate) fn beyond(&mut self, now: Moment, report: &QueueReport, rate: Option<f64>) -> Reading {
        if now.since(self.since) > MEMORY {
            (self.before, self.now, self.since) = (self.now, None, now);
        }
        self.now = least(self.now, report.soonest);
        let raw = report.reading;
        let Some(rate) = rate.filter(|rate| *rate > 0.0) else {
            let depth = report.waiting.min(raw.depth);
            return Reading { depth, delay: report.age, least_depth: raw.least_depth.min(depth), ..raw };
        };
        let quickest = least(self.now, self.before).unwrap_or(0) as f64 / 1e3;
        let needed = (rate * quickest).ceil() as u64 + u64::from(report.consumers);
        let depth = (report.waiting + report.in_flight.saturating_sub(needed)).min(raw.depth);
        let delay = report.age.max(Span::from_secs_f64(depth as f64 / rate));
        Reading { depth, delay, ..raw }
    }
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::report;

    fn seen(waiting: u64, in_flight: u64, soonest: Option<u64>, rate: Option<f64>) -> Reading {
        let reading = Reading { depth: waiting + in_flight, least_depth: 1, ..Reading::default() };
        let told = QueueReport { reading, waiting, in_flight, soonest, ..report(1, Vec::new()) };
        Hands::default().beyond(Moment::from_secs_f64(1.0), &told, rate)
    }

    #[test]
    fn a_far_consumer_is_no_overload() {
        // 200 ms away and 100 messages a second: 20 are always on their way
        assert_eq!(seen(0, 20, Some(200), Some(100.0)).depth, 0);
        assert_eq!(seen(3, 30, Some(200), Some(100.0)).depth, 12);
    }

    #[test]
    fn what_a_slow_consumer_hides_counts() {
        // 5 messages a second, one at a time: one is being worked on, one waits for its turn
        let seen = seen(0, 12, Some(200), Some(5.0));
        assert_eq!((seen.depth, seen.delay), (10, Span::from_secs(2)));
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(seen(4, 20, None, None).depth, 4);
    }
}

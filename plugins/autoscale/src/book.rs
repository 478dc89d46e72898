//! What is known of each queue.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_control::autoscale::InstanceRate;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::QueueReport;

/// Queues that are watched; others are not known.
const MAX_QUEUES: usize = 10_000;
/// A queue that is idle for this long, and that no auto-scaler speaks of, is forgotten.
const FORGET_AFTER: Span = Span::from_secs(600);
/// Over this time arrivals are smoothed.
const SMOOTHING: Span = Span::from_secs(5);

/// What an auto-scaler said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// Instances that it runs.
    pub instances: u32,
    /// The most that it may run.
    pub max: Option<u32>,
    /// Whether no further instance can be had.
    pub saturated: bool,
}

/// What is known of one queue.
#[derive(Debug, Default)]
pub struct Known {
    /// What one instance processes.
    pub instance_rate: InstanceRate,
    /// Messages a second that arrive, smoothed.
    pub arrival_rate: f64,
    /// Consumers that were connected last.
    pub consumers: u32,
    /// Messages waiting.
    pub depth: u64,
    said: Option<(Moment, Said)>,
    seen: Moment,
    updated: Moment,
}

/// All queues that are watched.
#[derive(Debug, Default)]
pub struct Book {
    now: Moment,
    queues: HashMap<Arc<str>, Known>,
}

impl Book {
    /// The moment of the last turn.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// What is known of a queue.
    pub fn get(&self, queue: &str) -> Option<&Known> {
        self.queues.get(queue)
    }

    /// The queues that are known.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.queues.keys()
    }

    /// Takes in what queues did in one turn.
    pub fn on_tick(&mut self, now: Moment, reports: &[QueueReport], ttl: Span) {
        self.now = now;
        for report in reports {
            let named = self.queues.contains_key(&report.name);
            if named || report.group.is_some() && self.queues.len() < MAX_QUEUES {
                self.queues.entry(Arc::clone(&report.name)).or_default().on_report(now, report, ttl);
            }
        }
        self.queues.retain(|_, known| {
            known.rest(now);
            now.since(known.seen) < FORGET_AFTER || known.said(now, ttl).is_some()
        });
    }

    /// Takes in what an auto-scaler says; `false` when there is no room for another queue.
    pub fn on_said(&mut self, queue: &str, said: Said) -> bool {
        if self.queues.len() >= MAX_QUEUES && !self.queues.contains_key(queue) {
            return false;
        }
        let known = self.queues.entry(queue.into()).or_default();
        known.said = Some((self.now, said));
        true
    }
}

impl Known {
    /// What the auto-scaler said, unless that was too long ago.
    pub fn said(&self, now: Moment, ttl: Span) -> Option<Said> {
        self.said.filter(|(at, _)| now.since(*at) < ttl).map(|(_, said)| said)
    }

    /// Instances that run, as the auto-scaler says or else as consumers are connected.
    pub fn instances(&self, now: Moment, ttl: Span) -> u32 {
        self.said(now, ttl).map_or(self.consumers, |said| said.instances)
    }

    fn on_report(&mut self, now: Moment, report: &QueueReport, ttl: Span) {
        self.consumers = report.consumers;
        self.depth = report.reading.depth;
        // An instance that starts is not at work yet, and one may have several connections.
        let at_work = self.instances(now, ttl).min(report.consumers);
        if at_work > 0 {
            self.instance_rate.observe(&report.reading, at_work);
        }
        self.smooth(report.reading.arrival_rate(), report.reading.elapsed);
        (self.seen, self.updated) = (now, now);
    }

    /// A queue that is not told of is empty and idle.
    fn rest(&mut self, now: Moment) {
        if self.updated < now {
            self.depth = 0;
            self.smooth(0.0, now.since(self.updated));
            self.updated = now;
        }
    }

    fn smooth(&mut self, rate: f64, elapsed: Span) {
        let weight = (elapsed.as_secs_f64() / SMOOTHING.as_secs_f64()).min(1.0);
        self.arrival_rate += (rate - self.arrival_rate) * weight;
    }
}

//! What happened in each interval.

use std::sync::atomic::Ordering::Relaxed;

use crate::clock::{Nanos, SECOND};
use crate::process::{self, Usage};
use crate::record::{Interval, Rates, Use};
use crate::stats::{distribution, get, merge, millis};
use crate::world::World;

use super::meter::{Meter, Reading};
use super::supply::Supply;

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Snapshot {
    at: Nanos,
    sent: u64,
    accepted: u64,
    delivered: u64,
    duplicates: u64,
    connects: u64,
    broker: Reading,
    generator: Usage,
}

/// Collects intervals.
pub(super) struct Sampler {
    broker: Meter,
    last: Snapshot,
    measured: Option<(Snapshot, Option<f64>)>,
    /// What was recorded so far.
    pub(super) intervals: Vec<Interval>,
    largest: (u64, u64),
}

/// The measured part as a whole.
pub(super) struct Measured {
    /// In seconds.
    pub(super) duration: f64,
    pub(super) rates: Rates,
    pub(super) broker: Option<Use>,
    pub(super) generator: Use,
    /// Processors that nobody used, as a mean.
    pub(super) idle: Option<f64>,
}

impl Sampler {
    pub(super) fn new(world: &World, broker: Option<u32>) -> Self {
        let mut sampler = Self {
            broker: Meter::new(broker),
            last: Snapshot::default(),
            measured: None,
            intervals: Vec::new(),
            largest: (0, 0),
        };
        sampler.last = sampler.snapshot(world);
        sampler
    }

    /// Reads what the broker's process has used before it goes.
    pub(super) fn look_at_broker(&mut self) {
        self.broker.read(process::usage);
    }

    /// The broker's process has been replaced.
    pub(super) fn follow_broker(&mut self, pid: Option<u32>) {
        self.broker.follow(pid);
    }

    /// Ends an interval; `measured` if it is part of what is measured.
    pub(super) fn sample(&mut self, world: &World, measured: bool, supply: &mut Supply) -> Interval {
        let now = self.snapshot(world);
        let mut all = distribution();
        world.latencies.take().iter().for_each(|class| merge(&mut all, class));
        let at = |quantile: f64| (!all.is_empty()).then(|| millis(all.value_at_quantile(quantile)));
        let mut waits = distribution();
        world.waits.take().iter().for_each(|class| merge(&mut waits, class));
        let waited = |quantile: f64| (!waits.is_empty()).then(|| millis(waits.value_at_quantile(quantile)));
        let length = seconds(now.at.saturating_sub(self.last.at));
        let cpu = |used: f64, before: f64| (used - before).max(0.0) / length.max(1e-9);
        let followers = world.counts.followers.load(Relaxed);
        let followed = get(&world.counts.followed) as f64 / 1000.0 / f64::from(followers.max(1));
        let mut interval = Interval {
            t: self.time(world, now.at),
            length,
            sent: now.sent - self.last.sent,
            accepted: now.accepted - self.last.accepted,
            delivered: now.delivered - self.last.delivered,
            duplicates: now.duplicates - self.last.duplicates,
            devices: world.counts.devices.load(Relaxed),
            consumers: world.counts.consumers.load(Relaxed),
            waiting: world.waiting(),
            connects: now.connects - self.last.connects,
            p50: at(0.5),
            p99: at(0.99),
            max: (!all.is_empty()).then(|| millis(all.max())),
            wait_p50: waited(0.5),
            wait_p99: waited(0.99),
            demand: None,
            capacity: None,
            limit: None,
            rate: (followers > 0).then_some(followed),
            broker_cpu: now.broker.cpu.zip(self.last.broker.cpu).map(|(used, before)| cpu(used, before)),
            broker_rss: now.broker.rss,
            generator_cpu: cpu(now.generator.cpu, self.last.generator.cpu),
        };
        supply.tell(&mut interval);
        if measured {
            self.largest.0 = self.largest.0.max(now.broker.rss.unwrap_or(0));
            self.largest.1 = self.largest.1.max(now.generator.rss);
        }
        self.last = now;
        self.intervals.push(interval);
        interval
    }

    /// The measured part begins here, at the end of an interval.
    pub(super) fn begin(&mut self, world: &World) {
        world.measured_from.store(self.last.at, Relaxed);
        world.measured_until.store(world.time_of(1.0), Relaxed);
        // Intervals before were told without knowing when it begins.
        let from = self.last.at;
        let mut end = from;
        for interval in self.intervals.iter_mut().rev() {
            interval.t = -seconds(from - end);
            end = end.saturating_sub((interval.length * SECOND as f64) as Nanos);
        }
        self.measured = Some((self.last, process::idle()));
    }

    /// The measured part ends here, at the end of an interval; none if it never began.
    pub(super) fn end(&self) -> Option<Measured> {
        let (first, idle) = self.measured?;
        let duration = seconds(self.last.at - first.at).max(1e-9);
        let rate = |now: u64, before: u64| (now - before) as f64 / duration;
        let used = |now: f64, before: f64, rss: u64| Use { cpu: (now - before).max(0.0) / duration, rss };
        Some(Measured {
            duration,
            rates: Rates {
                sent: rate(self.last.sent, first.sent),
                accepted: rate(self.last.accepted, first.accepted),
                delivered: rate(self.last.delivered, first.delivered),
            },
            broker: (self.last.broker.cpu.zip(first.broker.cpu))
                .map(|(now, before)| used(now, before, self.largest.0)),
            generator: used(self.last.generator.cpu, first.generator.cpu, self.largest.1),
            idle: process::idle().zip(idle).map(|(now, before)| (now - before).max(0.0) / duration),
        })
    }

    fn time(&self, world: &World, now: Nanos) -> f64 {
        let from = world.measured_from.load(Relaxed);
        if from == Nanos::MAX { seconds(now) } else { seconds(now.saturating_sub(from)) }
    }

    fn snapshot(&mut self, world: &World) -> Snapshot {
        Snapshot {
            at: world.clock.now(),
            sent: get(&world.counts.sent),
            accepted: get(&world.counts.accepted),
            delivered: get(&world.counts.delivered),
            duplicates: get(&world.counts.duplicates),
            connects: get(&world.counts.connects),
            broker: self.broker.read(process::usage),
            generator: process::usage(std::process::id()).unwrap_or_default(),
        }
    }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

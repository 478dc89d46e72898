//! Processing one message at a time, in a time that is kept exactly on average though wake-ups are late.

use std::collections::VecDeque;

use tidegate_control::random::{Random, Seeded};

use super::Item;
use crate::clock::{Nanos, SECOND};
use crate::scenario::{Consumers, Service};
use crate::world::World;

/// A worker that was woken this late may begin with a message that was there already as if it had been in time.
const SLACK: Nanos = 5_000_000;

/// Messages that wait inside a consumer, and the one that it works on.
pub(super) struct Worker {
    rate: f64,
    service: Service,
    speed: Vec<[f64; 2]>,
    waiting: VecDeque<(Item, Nanos)>,
    /// What it works on, and when that is done.
    current: Option<(Item, Nanos)>,
    /// When it had nothing more to do.
    free_from: Nanos,
    random: Seeded,
}

impl Worker {
    /// None for consumers that take all at once.
    pub(super) fn new(settings: &Consumers, seed: u64, number: usize) -> Option<Self> {
        let rate = settings.rate?;
        let random = Seeded::stream(seed ^ 0x3028_11AB, number as u64);
        let (service, speed) = (settings.service, settings.speed.clone());
        Some(Self { rate, service, speed, waiting: VecDeque::new(), current: None, free_from: 0, random })
    }

    /// Messages inside.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }

    /// Whether it works on a message.
    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in what was read now.
    pub(super) fn receive(&mut self, items: impl Iterator<Item = Item>, now: Nanos) {
        // A busy worker that was woken late reads late: what it finds then was there before.
        let there_since = if now.saturating_sub(self.free_from) < SLACK { self.free_from } else { now };
        self.waiting.extend(items.map(|item| (item, there_since)));
    }

    /// Finishes what is due into `done`; returns when the next one is done.
    pub(super) fn work(&mut self, world: &World, now: Nanos, done: &mut Vec<Item>) -> Nanos {
        loop {
            if let Some((item, until)) = self.current {
                if until > now {
                    return until;
                }
                done.push(item);
                self.free_from = until;
                self.current = None;
            }
            let Some((mut item, since)) = self.waiting.front().copied() else { return Nanos::MAX };
            let start = since.max(self.free_from);
            let share = world.share(start);
            let speed = speed(&self.speed, share);
            if speed <= 0.0 {
                // Stalled: begin again when the speed changes.
                let resumes = next_change(&self.speed, share).map_or(Nanos::MAX, |at| world.time_of(at));
                // A little later, so that rounding can't put it before the change.
                let resumes = resumes.saturating_add(1000);
                self.free_from = resumes.max(self.free_from);
                if resumes > now {
                    return resumes;
                }
                continue;
            }
            self.waiting.pop_front();
            // Work may begin in the past to keep its pace, but nobody takes what has not come yet.
            item.taken = item.taken.max(start);
            self.current = Some((item, start.saturating_add(self.time(speed))));
        }
    }

    /// Drops everything.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.current = None;
    }

    /// Gives everything away; what was not begun with is taken now.
    pub(super) fn forget_into(&mut self, items: &mut Vec<Item>, now: Nanos) {
        items.extend(self.current.take().map(|(item, _)| item));
        items.extend(self.waiting.drain(..).map(|(item, _)| Item { taken: now, ..item }));
    }

    fn time(&mut self, speed: f64) -> Nanos {
        let mean = 1.0 / (self.rate * speed);
        let seconds = match self.service {
            Service::Fixed => mean,
            Service::Exponential => self.random.exponential(mean),
        };
        (seconds * SECOND as f64) as Nanos
    }
}

/// The speed at a share of the duration: that of the last point, 1 before the first.
pub(crate) fn speed(points: &[[f64; 2]], share: f64) -> f64 {
    points.iter().rfind(|[at, _]| *at <= share).map_or(1.0, |[_, speed]| *speed)
}

/// The share of the duration at which the speed changes next.
pub(super) fn next_change(points: &[[f64; 2]], share: f64) -> Option<f64> {
    points.iter().map(|[at, _]| *at).find(|at| *at > share)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn world() -> World {
        let text = "name = 'x'\nduration = 1.0\nclass = [{ name = 'd', devices = 1, topic = 't' }]\n\
                    consumers = [{ instances = 1, filter = 't', rate = 1000.0 }]";
        let scenario = crate::scenario::Scenario::parse("x", text, None).unwrap();
        let address = "127.0.0.1:1".parse().unwrap();
        let kind = crate::transport::Kind::Tcp;
        let route = crate::transport::Route { address, host: String::new(), kind, tls: None };
        World::new(crate::clock::Clock::start().unwrap(), 1, scenario, route.clone(), route)
    }

    #[test]
    fn a_message_is_never_taken_before_it_came() {
        let world = world();
        let mut worker = Worker::new(&world.scenario.consumers[0], 1, 0).unwrap();
        let item = |taken| Item {
            flow: 0,
            number: 0,
            intended: 0,
            qos: 0,
            id: 0,
            foreign: false,
            taken,
            again: false,
        };
        let mut done = Vec::new();
        worker.receive([item(10_000_000)].into_iter(), 10_000_000);
        assert_eq!(worker.work(&world, 10_000_000, &mut done), 11_000_000);
        // Woken late: the next message came two milliseconds after the worker had become free.
        assert_eq!(worker.work(&world, 13_000_000, &mut done), Nanos::MAX);
        worker.receive([item(13_000_000)].into_iter(), 13_000_000);
        assert_eq!(worker.work(&world, 13_000_000, &mut done), Nanos::MAX, "its pace is kept");
        assert_eq!(done.iter().map(|item| item.taken).collect::<Vec<_>>(), [10_000_000, 13_000_000]);
        world.clock.close();
    }

    #[test]
    fn speed_steps_at_its_points() {
        let points = [[0.5, 0.0], [0.75, 2.0]];
        assert_eq!([0.0, 0.5, 0.7, 0.75, 1.0].map(|share| speed(&points, share)), [1.0, 0.0, 0.0, 2.0, 2.0]);
        assert_eq!(next_change(&points, 0.5), Some(0.75));
        assert_eq!(next_change(&points, 0.75), None);
        assert_eq!(speed(&[], 0.3), 1.0);
    }
}

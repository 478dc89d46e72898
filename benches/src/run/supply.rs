//! What devices want to send and consumers can process, over time: what would be right, against which a run is held.

use std::sync::atomic::Ordering::Relaxed;

use crate::clock::{Nanos, SECOND};
use crate::consumer::speed;
use crate::record::{Control, Interval};
use crate::scenario::Scenario;
use crate::world::World;

/// What could be had, a second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    /// None if somebody sends as fast as it can.
    demand: Option<f64>,
    capacity: f64,
    instances: f64,
}

impl Level {
    fn limit(&self) -> f64 {
        self.demand.map_or(self.capacity, |demand| demand.min(self.capacity))
    }
}

/// Levels times seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    seconds: f64,
    demand: f64,
    capacity: f64,
    limit: f64,
    instances: f64,
}

impl Sum {
    fn add(&mut self, level: &Level, seconds: f64) {
        self.seconds += seconds;
        self.demand += level.demand.unwrap_or(f64::NAN) * seconds;
        self.capacity += level.capacity * seconds;
        self.limit += level.limit() * seconds;
        self.instances += level.instances * seconds;
    }

    fn mean(&self, sum: f64) -> Option<f64> {
        (self.seconds > 0.0 && sum.is_finite()).then(|| sum / self.seconds)
    }
}

/// Adds up what could be had, in the measured part.
#[derive(Debug, Default)]
pub(super) struct Supply {
    /// The last time that somebody looked, and how it was.
    last: Option<(Nanos, Level)>,
    interval: Sum,
    all: Sum,
}

impl Supply {
    /// Looks at how it is now; `demand` is what devices want, if that is known, and `wanted` how many consumers are to be
    /// there.
    pub(super) fn look(&mut self, world: &World, demand: Option<f64>, wanted: u32, now: Nanos) {
        let Some(each) = capacity(&world.scenario, world.share(now)) else { return };
        let counts = &world.counts;
        // Those that the target has thrown out could work: that they do not is no excuse for it.
        let able = wanted.saturating_sub(counts.dropped_consumers.load(Relaxed));
        let instances = f64::from(counts.consumers.load(Relaxed));
        self.go_on(Level { demand, capacity: f64::from(able) * each, instances }, now);
    }

    fn go_on(&mut self, level: Level, now: Nanos) {
        if let Some((since, before)) = self.last.replace((now, level)) {
            let seconds = now.saturating_sub(since) as f64 / SECOND as f64;
            self.interval.add(&before, seconds);
            self.all.add(&before, seconds);
        }
    }

    /// Ends an interval.
    pub(super) fn tell(&mut self, interval: &mut Interval) {
        let sum = std::mem::take(&mut self.interval);
        interval.demand = sum.mean(sum.demand);
        interval.capacity = sum.mean(sum.capacity);
        interval.limit = sum.mean(sum.limit);
    }

    /// The measured part is over.
    pub(super) fn control(&self) -> Control {
        let known = self.all.seconds > 0.0;
        Control {
            capacity: known.then_some(self.all.capacity),
            limit: known.then_some(self.all.limit),
            mean_instances: self.all.mean(self.all.instances),
            ..Control::default()
        }
    }
}

/// What one consumer can process now; none if there are several kinds, if each gets every message or if they take all at once.
fn capacity(scenario: &Scenario, share: f64) -> Option<f64> {
    let [consumers] = scenario.consumers.as_slice() else { return None };
    let shared = consumers.group.is_some() || consumers.instances == 1;
    consumers.rate.filter(|_| shared).map(|rate| rate * speed(&consumers.speed, share))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::clock::Clock;
    use crate::transport::{Kind, Route};

    fn level(demand: Option<f64>, instances: f64) -> Level {
        Level { demand, capacity: 10.0 * instances, instances }
    }

    #[test]
    fn the_limit_is_the_smaller_one_of_demand_and_capacity_at_each_moment() {
        let mut supply = Supply::default();
        assert_eq!(supply.control(), Control::default());
        supply.go_on(level(Some(5.0), 2.0), 0);
        supply.go_on(level(Some(50.0), 4.0), 2 * SECOND);
        let mut interval = Interval::default();
        supply.go_on(level(Some(50.0), 4.0), 6 * SECOND);
        supply.tell(&mut interval);
        assert_eq!((interval.demand, interval.capacity), (Some(35.0), Some(200.0 / 6.0)));
        assert_eq!(interval.limit, Some(170.0 / 6.0), "not the smaller one of the means");
        supply.go_on(level(None, 4.0), 7 * SECOND);
        supply.go_on(level(None, 4.0), 8 * SECOND);
        supply.tell(&mut interval);
        assert_eq!((interval.demand, interval.limit), (None, Some(40.0)), "a closed loop wants all there is");
        let control = supply.control();
        assert_eq!((control.capacity, control.limit), (Some(280.0), Some(250.0)));
        assert_eq!(control.mean_instances, Some(3.5));
        supply.tell(&mut interval);
        assert_eq!(interval.limit, None);
    }

    #[tokio::test]
    async fn consumers_that_the_target_threw_out_count_and_those_that_the_scenario_dropped_do_not() {
        let text = "name = 'x'\nduration = 1.0\nclass = [{ name = 'd', devices = 1, topic = 't' }]\n\
                    consumers = [{ instances = 4, filter = 't', group = 'g', rate = 10.0 }]";
        let scenario = Scenario::parse("x", text, None).unwrap();
        let route = Route {
            address: "127.0.0.1:1".parse().unwrap(),
            host: String::new(),
            kind: Kind::Tcp,
            tls: None,
        };
        let world = World::new(Clock::start().unwrap(), 1, scenario, route.clone(), route);
        let mut supply = Supply::default();
        supply.look(&world, None, 4, 0);
        world.counts.dropped_consumers.store(3, Relaxed);
        supply.look(&world, None, 4, SECOND);
        supply.look(&world, None, 4, 2 * SECOND);
        let control = supply.control();
        assert_eq!((control.capacity, control.mean_instances), (Some(40.0 + 10.0), Some(0.0)));
        world.clock.close();
    }

    #[test]
    fn capacity_is_known_of_one_kind_that_shares_its_messages() {
        let of = |consumers: &str| {
            let text = format!(
                "name = 'x'\nduration = 1.0\nclass = [{{ name = 'd', devices = 1, topic = 't' }}]\n\
                 consumers = [{consumers}]"
            );
            capacity(&Scenario::parse("x", &text, None).unwrap(), 0.6)
        };
        let one = "{ instances = 1, filter = 't', rate = 100.0, speed = [[0.5, 0.25]] }";
        assert_eq!(of(one), Some(25.0));
        assert_eq!(of("{ instances = 3, filter = 't', group = 'g', rate = 7.0 }"), Some(7.0));
        assert_eq!(of("{ instances = 3, filter = 't', rate = 7.0 }"), None, "each gets every message");
        assert_eq!(of("{ instances = 1, filter = 't' }"), None);
        assert_eq!(of(&format!("{one}, {{ name = 'y', instances = 1, filter = 't' }}")), None);
    }
}

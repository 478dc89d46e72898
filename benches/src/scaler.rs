//! How many consumers there are: by schedule or by a threshold auto-scaler.

mod tell;

use std::collections::VecDeque;

use tidegate_control::autoscale::{Scaler, Signals};
use tidegate_control::overload::Phase;
use tidegate_control::time::Moment;

pub use self::tell::{News, Told, tell};
use crate::clock::{Nanos, SECOND};
use crate::scenario::Scenario;

/// Decides how many instances of the first consumers run.
pub struct Scaling {
    scaler: Option<Scaler>,
    start_delay: Nanos,
    instance_rate: Option<f64>,
    /// Instances that were asked for, with the time when they are there.
    starting: VecDeque<(Nanos, u32)>,
    running: u32,
}

/// What the auto-scaler is told.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Messages that wait for the first consumers.
    pub waiting: u64,
    /// What the gateway says it is doing.
    pub phase: Phase,
    /// Messages a second that connected devices would send if nobody held them back.
    pub demand: f64,
}

impl Scaling {
    /// For a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        // A scenario that was checked has settings that make sense.
        let scaler = scenario.scaler_config().and_then(|config| config.build().ok());
        Self {
            running: scaler.as_ref().map_or(0, Scaler::instances),
            start_delay: scenario
                .autoscale
                .map_or(0, |settings| (settings.start_delay * SECOND as f64) as Nanos),
            instance_rate: scenario.consumers.first().and_then(|consumers| consumers.rate),
            starting: VecDeque::new(),
            scaler,
        }
    }

    /// Instances that are to run now; none if there is no auto-scaler.
    pub fn instances(&mut self, now: Nanos, seen: &Seen) -> Option<u32> {
        let scaler = self.scaler.as_mut()?;
        let signals = Signals {
            depth: seen.waiting,
            phase: seen.phase,
            demand: seen.demand,
            instance_rate: self.instance_rate,
        };
        let asked_before = self.starting.back().map_or(self.running, |(_, count)| *count);
        let asked = scaler.on_signals(Moment::from_secs_f64(now as f64 / SECOND as f64), &signals);
        if asked < asked_before {
            // Stopping takes no time, and what had not started yet need not.
            self.starting.clear();
            self.running = self.running.min(asked);
        }
        let expected = self.starting.back().map_or(self.running, |(_, count)| *count);
        if asked > expected {
            self.starting.push_back((now + self.start_delay, asked));
        }
        while let Some((_, count)) = self.starting.front().filter(|(at, _)| *at <= now) {
            self.running = *count;
            self.starting.pop_front();
        }
        Some(self.running)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    const TEXT: &str = r#"
        name = "x"
        duration = 1.0
        autoscale = { min = 1, upper = 10, interval = 2.0, start_delay = 3.0 }
        class = [{ name = "d", devices = 1, topic = "t" }]
        consumers = [{ instances = 3, filter = "t", group = "g", rate = 5.0 }]
    "#;

    #[test]
    fn instances_come_after_their_delay_and_go_at_once() {
        let mut scaling = Scaling::new(&Scenario::parse("x", TEXT, None).unwrap());
        let mut at = |second: u64, waiting: u64| {
            let seen = Seen { waiting, phase: Phase::Idle, demand: 0.0 };
            scaling.instances(second * SECOND, &seen).unwrap()
        };
        assert_eq!([at(0, 50), at(2, 50), at(3, 50), at(4, 50), at(5, 50)], [1, 1, 2, 2, 3]);
        assert_eq!([at(6, 0), at(7, 0), at(8, 0), at(10, 0)], [2, 2, 1, 1]);
    }

    #[test]
    fn without_an_auto_scaler_there_is_nothing_to_say() {
        let text = TEXT.replace("autoscale", "#");
        let mut scaling = Scaling::new(&Scenario::parse("x", &text, None).unwrap());
        assert_eq!(scaling.instances(0, &Seen { waiting: 9, phase: Phase::Idle, demand: 0.0 }), None);
    }
}

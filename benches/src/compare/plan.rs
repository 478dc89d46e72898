//! How long a comparison takes, told before it starts and while it runs.

use std::time::{Duration, Instant};

use crate::peers::Kind;
use crate::scenario::Loaded;

/// Starting and stopping a broker, and connecting everybody, in seconds.
const AROUND: f64 = 1.0;
/// The share of the longest wait afterwards that is usually needed.
const WAIT: f64 = 0.3;

/// What is left to do.
#[derive(Debug, Clone)]
pub struct Plan {
    runs: usize,
    done: usize,
    /// What all runs usually take, and what they take at most unless something is wrong, in seconds.
    usual: f64,
    longest: f64,
    /// What the runs that are done usually take.
    usual_done: f64,
    started: Instant,
}

impl Plan {
    /// All scenarios with brokers that are there and able, so many times each.
    pub fn new<'a>(columns: impl Iterator<Item = (&'a Loaded, Kind)>, repetitions: u32) -> Self {
        let able = columns.filter(|(loaded, kind)| kind.is_able(&loaded.scenario));
        let scenarios: Vec<&Loaded> = able.map(|(loaded, _)| loaded).collect();
        let times = f64::from(repetitions);
        let sum = |one: fn(&Loaded) -> f64| scenarios.iter().map(|each| times * one(each)).sum();
        Self {
            runs: scenarios.len() * repetitions as usize,
            done: 0,
            usual: sum(usual),
            longest: sum(longest),
            usual_done: 0.0,
            started: Instant::now(),
        }
    }

    /// What is to be done, in a line.
    pub fn in_a_line(&self) -> String {
        let runs = if self.runs == 1 { "run" } else { "runs" };
        format!("{} {runs}: about {}, at most {}", self.runs, minutes(self.usual), minutes(self.longest))
    }

    /// Takes note of a run that is done.
    pub fn did(&mut self, loaded: &Loaded) {
        self.done += 1;
        self.usual_done += usual(loaded);
    }

    /// How far it is, such as `3 of 12, about 2 min left`.
    pub fn progress(&self) -> String {
        format!("{} of {}, {} left", self.done, self.runs, self.left(self.started.elapsed()))
    }

    /// Whether all was done, or how much of it.
    pub fn unfinished(&self) -> Option<String> {
        (self.done < self.runs).then(|| format!("{} of {} runs were made", self.done, self.runs))
    }

    /// What the longest run of each would take, in seconds.
    pub fn longest(&self) -> f64 {
        self.longest
    }

    /// What is left, if the rest goes like what was done.
    fn left(&self, elapsed: Duration) -> String {
        let pace = if self.usual_done > 0.0 { elapsed.as_secs_f64() / self.usual_done } else { 1.0 };
        format!("about {}", minutes((self.usual - self.usual_done).max(0.0) * pace))
    }
}

fn usual(loaded: &Loaded) -> f64 {
    let scenario = &loaded.scenario;
    AROUND + scenario.warmup + scenario.duration + WAIT * scenario.drain
}

fn longest(loaded: &Loaded) -> f64 {
    let scenario = &loaded.scenario;
    AROUND + scenario.warmup + scenario.duration + scenario.drain
}

fn minutes(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    if whole < 120 { format!("{whole} s") } else { format!("{} min", whole.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::scenario::Scenario;

    fn loaded(name: &str) -> Loaded {
        Scenario::load(name).unwrap()
    }

    #[test]
    fn the_whole_comparison_takes_under_fifteen_minutes() {
        let scenarios = ["fan-in", "fan-out", "shared", "flood", "slow-consumer"].map(loaded);
        // Brokers that are not installed take no time in a plan, so rumqttd, which is part of this program, stands for each.
        let kinds = [Kind::Tidegate, Kind::Mosquitto, Kind::Nats, Kind::Rumqttd];
        let columns = kinds.iter().flat_map(|kind| {
            let able = scenarios.iter().filter(|one| kind.would_be_able(&one.scenario));
            able.map(|one| (one, Kind::Rumqttd))
        });
        let plan = Plan::new(columns, 3);
        assert_eq!(plan.runs, 57, "NATS has no shared groups");
        assert!(plan.longest() < 15.0 * 60.0, "{} s", plan.longest());
        assert_eq!(plan.in_a_line(), "57 runs: about 11 min, at most 15 min", "as BENCHMARKS.md says");
    }

    #[test]
    fn what_is_left_follows_what_was_done() {
        let scenarios = [loaded("fan-in")];
        let mut plan = Plan::new(scenarios.iter().map(|one| (one, Kind::Rumqttd)), 4);
        assert!(plan.unfinished().unwrap().contains("0 of 4"));
        assert_eq!(plan.left(Duration::ZERO), format!("about {}", minutes(plan.usual)));
        plan.did(&scenarios[0]);
        let slow = Duration::from_secs_f64(2.0 * plan.usual_done);
        assert_eq!(plan.left(slow), format!("about {}", minutes(2.0 * 3.0 * plan.usual_done)));
        (0..3).for_each(|_| plan.did(&scenarios[0]));
        assert_eq!((plan.unfinished(), plan.left(slow).as_str()), (None, "about 0 s"));
        assert!(plan.progress().starts_with("4 of 4"));
    }

    #[test]
    fn who_is_not_able_takes_no_time() {
        let plan = Plan::new([(&loaded("shared"), Kind::Nats)].into_iter(), 3);
        assert_eq!((plan.runs, plan.longest()), (0, 0.0));
    }
}

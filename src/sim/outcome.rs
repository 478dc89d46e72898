//! What came out of a simulation: totals, measures by name, and what happened over time.

use serde::Serialize;

use super::scenario::Scenario;
use super::waits::Waits;

/// The result of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed of the run.
    pub seed: u64,
    /// Figures by name, in the order in which they are printed.
    pub measures: Vec<Measure>,
    /// Messages sent and processed, counted as events.
    pub events: u64,
    /// Work that was done for them: the events, and the appointments of devices that were looked at, moved or compared.
    pub steps: u64,
    /// What happened over time.
    pub series: Vec<Point>,
    /// The names of the classes, in the order of `Point::rates`.
    pub classes: Vec<String>,
}

/// One figure, with its band if the scenario expects one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measure {
    /// Its name.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// The lowest and highest value that the scenario expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub band: Option<[f64; 2]>,
}

impl Measure {
    /// Whether the figure lies in its band, if it has one.
    pub fn agrees(&self) -> Option<bool> {
        self.band.map(|[low, high]| (low..=high).contains(&self.value))
    }
}

/// The state at one moment, with rates over the time since the last point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since the start.
    pub time: f64,
    /// Devices connected.
    pub devices: u64,
    /// What they want to send, in messages a second.
    pub demand: f64,
    /// What they sent.
    pub arrivals: f64,
    /// What consumers took.
    pub departures: f64,
    /// What consumers could take.
    pub capacity: f64,
    /// What the controller allows in total.
    pub allowed: f64,
    /// Messages waiting.
    pub depth: u64,
    /// How long the head has waited, in seconds.
    pub delay: f64,
    /// What the controller is doing.
    pub phase: &'static str,
    /// Instances at work.
    pub instances: u32,
    /// The rate announced to a device of each class.
    pub rates: Vec<f64>,
}

impl Outcome {
    /// A figure by its name.
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.measures.iter().find(|measure| measure.name == name).map(|measure| measure.value)
    }

    /// Whether every figure lies in its band.
    pub fn agrees(&self) -> bool {
        self.measures.iter().all(|measure| measure.agrees() != Some(false))
    }
}

/// The measures that every scenario has.
const MEASURES: [&str; 20] = [
    "offered",
    "limit",
    "sent",
    "processed",
    "processed_share",
    "waiting",
    "dropped",
    "mean_wait",
    "p50_wait",
    "p95_wait",
    "p99_wait",
    "max_wait",
    "mean_depth",
    "max_depth",
    "mean_interval",
    "max_interval",
    "mean_instances",
    "held_time",
    "held_use",
    "advice",
];

/// Every measure that this scenario has.
pub(super) fn measure_names(scenario: &Scenario) -> Vec<String> {
    let classes = scenario.classes.iter().flat_map(|class| {
        [format!("class.{}.processed", class.name), format!("class.{}.held_rate", class.name)]
    });
    MEASURES.iter().map(|name| (*name).to_owned()).chain(classes).collect()
}

/// What is added up during a run.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Messages that devices wanted to send.
    pub(super) offered: f64,
    /// What could be processed without a queue.
    pub(super) limit: f64,
    /// Messages dropped because the queue was full.
    pub(super) dropped: u64,
    /// Messages sent.
    pub(super) sent: u64,
    /// Waiting times of processed messages.
    pub(super) waits: Waits,
    /// Seconds that messages spent in the queue, all together.
    pub(super) queued: f64,
    /// The deepest queue.
    pub(super) max_depth: u64,
    /// The mean send interval told to devices, times time.
    pub(super) intervals: f64,
    /// Seconds during which any device was connected.
    pub(super) connected_time: f64,
    /// The longest send interval told.
    pub(super) max_interval: f64,
    /// Instance-seconds.
    pub(super) instance_time: f64,
    /// Seconds during which devices were held back.
    pub(super) held_time: f64,
    /// Messages that could have been and that were processed while devices were held back.
    pub(super) held_capacity: f64,
    /// Messages processed while devices were held back.
    pub(super) held_departed: u64,
    /// Rates pushed, counted once for each device that gets them.
    pub(super) advice: u64,
    /// Figures of each class.
    pub(super) classes: Vec<ClassSums>,
}

/// What is added up for one class.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClassSums {
    /// Messages sent.
    pub(super) sent: u64,
    /// Messages processed.
    pub(super) processed: u64,
    /// Messages sent while devices were held back.
    pub(super) held_sent: u64,
    /// Device-seconds while devices were held back.
    pub(super) held_device_time: f64,
}

impl Sums {
    /// All measures, in the order of their names.
    pub(super) fn measures(&self, scenario: &Scenario, waiting: u64) -> Vec<Measure> {
        let waits = &self.waits;
        let processed = waits.count() as f64;
        let common = [
            self.offered,
            self.limit,
            self.sent as f64,
            processed,
            ratio(processed, self.limit),
            waiting as f64,
            self.dropped as f64,
            waits.mean(),
            waits.quantile(0.5),
            waits.quantile(0.95),
            waits.quantile(0.99),
            waits.max(),
            self.queued / scenario.duration,
            self.max_depth as f64,
            ratio(self.intervals, self.connected_time),
            self.max_interval,
            self.instance_time / scenario.duration,
            self.held_time,
            ratio(self.held_departed as f64, self.held_capacity),
            self.advice as f64,
        ];
        let classes = self.classes.iter().flat_map(|class| {
            [class.processed as f64, ratio(class.held_sent as f64, class.held_device_time)]
        });
        let values = common.into_iter().chain(classes);
        let named = measure_names(scenario).into_iter().zip(values);
        named
            .map(|(name, value)| Measure { band: scenario.expect.get(&name).copied(), name, value })
            .collect()
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

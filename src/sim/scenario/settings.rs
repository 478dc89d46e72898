//! The parts of a scenario, with their defaults.

use serde::Deserialize;
use tidegate_control::overload::phase::Threshold;
use tidegate_control::overload::{DrainConfig, PhaseConfig};

use super::{ScenarioError, optional, span, value};

/// How many devices are connected over time: a named pattern or points.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// A named pattern.
    pub pattern: Option<String>,
    /// Points of time and share, both from 0 to 1.
    pub points: Option<Vec<[f64; 2]>>,
}

/// One kind of devices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Devices at the pattern's highest point.
    pub devices: u32,
    /// Messages a second that a device sends when nobody holds it back.
    pub rate: f64,
    /// A device's share when there is too little for all.
    #[serde(default = "unit")]
    pub weight: f64,
    /// The least rate of a device.
    #[serde(default)]
    pub floor: f64,
    /// The highest rate of a device while devices are held back; its own rate when not given.
    pub ceiling: Option<f64>,
    /// How far the time between two messages may be off, as a share of it.
    #[serde(default)]
    pub jitter: f64,
    /// The share of an interval over which the first messages of devices that connect together are spread.
    #[serde(default = "unit")]
    pub spread: f64,
    /// The share of devices that never listen.
    #[serde(default)]
    pub deaf: f64,
}

impl Class {
    /// Devices of this rate, with defaults for all else.
    pub fn new(name: &str, devices: u32, rate: f64) -> Self {
        let (weight, spread, name) = (unit(), unit(), name.to_owned());
        Self { name, devices, rate, weight, floor: 0.0, ceiling: None, jitter: 0.0, spread, deaf: 0.0 }
    }
}

/// Who processes messages.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerSettings {
    /// Instances; with an auto-scaler the most there can be.
    pub instances: u32,
    /// Messages a second that one instance processes.
    pub rate: f64,
    /// How the times of messages vary.
    #[serde(default)]
    pub service: Service,
    /// Points of time (a share of the duration) and speed (1 is the full rate), for consumers that slow down.
    #[serde(default)]
    pub speed: Vec<[f64; 2]>,
}

impl ConsumerSettings {
    /// Instances of this rate that never slow down.
    pub fn new(instances: u32, rate: f64) -> Self {
        Self { instances, rate, service: Service::Fixed, speed: Vec::new() }
    }
}

/// How the processing times of messages vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// All the same.
    #[default]
    Fixed,
    /// Exponentially distributed.
    Exponential,
}

/// How measurements and rates travel.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoopSettings {
    /// The control period in seconds.
    pub period: f64,
    /// The time from a decision to devices that could hear it, in seconds.
    pub latency: f64,
    /// How devices hear.
    pub announce: Announce,
    /// A rate is pushed when it differs by this share from the one pushed last; acknowledgements always carry it.
    pub step: f64,
    /// What pushed rates may cost, as a share of the messages that devices send; without it there is no limit.
    pub budget: Option<f64>,
    /// Whether an acknowledgement also gives a held-back device a place in an even row, so that devices don't send in
    /// step; by default with the drain controller, and not with the paper's, which tells a rate and no more.
    pub spaced: Option<bool>,
}

impl Default for LoopSettings {
    fn default() -> Self {
        Self { period: 0.5, latency: 0.05, announce: Announce::Push, step: 0.05, budget: None, spaced: None }
    }
}

/// How devices hear of a new rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Announce {
    /// With the acknowledgement of a message, as in the paper.
    Ack,
    /// On a control topic.
    Push,
    /// Both: acknowledgements carry every rate, the control topic those that its budget allows.
    Both,
}

/// Who decides the rates.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(from = "ControllerTable")]
pub enum ControllerSettings {
    /// Nobody: devices send as they like.
    #[default]
    None,
    /// The paper's phase machine.
    Phase(PhaseSettings),
    /// The drain controller.
    Drain(DrainSettings),
}

/// The same as it is written; a variant without braces would take any key.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum ControllerTable {
    None {},
    Phase(PhaseSettings),
    Drain(DrainSettings),
}

impl From<ControllerTable> for ControllerSettings {
    fn from(table: ControllerTable) -> Self {
        match table {
            ControllerTable::None {} => Self::None,
            ControllerTable::Phase(settings) => Self::Phase(settings),
            ControllerTable::Drain(settings) => Self::Drain(settings),
        }
    }
}

/// The paper's phase machine: what is not given has its default.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PhaseSettings {
    /// Overload is more messages than this.
    pub threshold_depth: Option<u64>,
    /// Overload is a longer delay than this, in seconds.
    pub threshold_delay: Option<f64>,
    /// What is left of the supported rate while protecting.
    pub protect: Option<f64>,
    /// The growth in each period while recovering.
    pub recover: Option<f64>,
    /// The time between two steps of growth, in seconds.
    pub period: Option<f64>,
}

/// The drain controller: what is not given has its default.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrainSettings {
    /// The delay at which the queue is held, in seconds.
    pub target_delay: Option<f64>,
    /// The least depth at which it is held.
    pub target_depth: Option<f64>,
    /// How many times the target may grow while consumers starve now and then.
    pub most_stretch: Option<f64>,
    /// In what time a queue over its target is emptied, in seconds.
    pub drain_time: Option<f64>,
    /// The drain time is never shorter than so many delays of the loop.
    pub loop_delays: Option<f64>,
    /// The least share of the processing rate that is ever announced.
    pub floor: Option<f64>,
    /// How long the delay must stay over its target to count as overload, in seconds.
    pub standing: Option<f64>,
}

/// The auto-scaler.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoscaleSettings {
    /// How it works together with the controller.
    pub coupling: CouplingName,
    /// The fewest instances, with which it starts.
    pub min: u32,
    /// An instance is added when more messages than this wait.
    pub upper: u64,
    /// An instance is removed when no more messages than this wait.
    pub lower: u64,
    /// The time between two changes, in seconds.
    pub interval: f64,
    /// The time that an instance needs to start, in seconds.
    pub start_delay: f64,
    /// The share of its capacity that an instance is meant to use; for the demand-aware coupling.
    pub utilisation: f64,
}

impl Default for AutoscaleSettings {
    fn default() -> Self {
        Self {
            coupling: CouplingName::Apart,
            min: 1,
            upper: 10,
            lower: 0,
            interval: 2.0,
            start_delay: 2.0,
            utilisation: 0.9,
        }
    }
}

/// How the auto-scaler works together with the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CouplingName {
    /// Neither knows of the other.
    Apart,
    /// The auto-scaler rests while devices are held back.
    OverloadBased,
    /// The same, and devices are held back only once the auto-scaler is at its limit.
    StateAware,
    /// The auto-scaler follows the demand that is held back.
    DemandAware,
}

impl PhaseSettings {
    pub(super) fn config(&self, needs_saturation: bool) -> Result<PhaseConfig, ScenarioError> {
        let default = PhaseConfig::default();
        let threshold = match (self.threshold_depth, self.threshold_delay) {
            (Some(_), Some(_)) => {
                return Err(value(
                    "controller",
                    "must have threshold_depth or threshold_delay, not both".to_owned(),
                ));
            }
            (Some(depth), None) => Threshold::Depth(depth),
            (None, Some(delay)) => Threshold::Delay(span("controller.threshold_delay", delay)?),
            (None, None) => default.threshold,
        };
        Ok(PhaseConfig {
            threshold,
            protect: self.protect.unwrap_or(default.protect),
            recover: self.recover.unwrap_or(default.recover),
            period: optional("controller.period", self.period, default.period)?,
            needs_saturation,
            ..default
        })
    }
}

impl DrainSettings {
    pub(super) fn config(&self, needs_saturation: bool) -> Result<DrainConfig, ScenarioError> {
        let default = DrainConfig::default();
        Ok(DrainConfig {
            target_delay: optional("controller.target_delay", self.target_delay, default.target_delay)?,
            target_depth: self.target_depth.unwrap_or(default.target_depth),
            drain_time: optional("controller.drain_time", self.drain_time, default.drain_time)?,
            most_stretch: self.most_stretch.unwrap_or(default.most_stretch),
            loop_delays: self.loop_delays.unwrap_or(default.loop_delays),
            floor: self.floor.unwrap_or(default.floor),
            standing: optional("controller.standing", self.standing, default.standing)?,
            needs_saturation,
            ..default
        })
    }
}

fn unit() -> f64 {
    1.0
}

//! Scenario files: what is simulated, and what is expected of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_control::autoscale::{Coupling, ScalerConfig};
use tidegate_control::overload::drain::Hears;
use tidegate_control::overload::phase::Threshold;
use tidegate_control::overload::{Config, DrainConfig, PhaseConfig};
use tidegate_control::time::Span;

use super::pattern::Pattern;

/// The most devices in one scenario.
const MAX_DEVICES: u64 = 10_000_000;
/// The most messages that devices may want to send in one scenario.
const MAX_MESSAGES: f64 = 5e9;
/// The longest scenario, in seconds.
const MAX_DURATION: f64 = 86_400.0;

/// Why a scenario can't be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file can't be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The file is not TOML, or has a key or a value that nobody knows.
    #[error("{path}: {source}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What went wrong, with the line.
        source: Box<toml::de::Error>,
    },
    /// A value makes no sense.
    #[error("{key} {problem}")]
    Value {
        /// The key in the file.
        key: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A short name.
    pub name: String,
    /// What it shows, in a sentence.
    #[serde(default)]
    pub about: String,
    /// The seed of all random numbers in it.
    #[serde(default = "one")]
    pub seed: u64,
    /// How long it lasts, in seconds.
    pub duration: f64,
    /// How many devices are connected over time.
    pub workload: Workload,
    /// The kinds of devices.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
    /// Who processes messages.
    pub consumers: ConsumerSettings,
    /// How measurements and rates travel.
    #[serde(default, rename = "loop")]
    pub delays: LoopSettings,
    /// Who decides the rates.
    #[serde(default)]
    pub controller: ControllerSettings,
    /// Who decides how many instances there are; without it they are all there from the start.
    pub autoscale: Option<AutoscaleSettings>,
    /// Messages that the queue holds at most; more are dropped.
    #[serde(default = "ten_million")]
    pub queue_limit: u64,
    /// The bands in which measures must lie.
    #[serde(default)]
    pub expect: BTreeMap<String, [f64; 2]>,
}

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
}

impl Default for LoopSettings {
    fn default() -> Self {
        Self { period: 0.5, latency: 0.05, announce: Announce::Push, step: 0.05 }
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
}

/// Who decides the rates.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ControllerSettings {
    /// Nobody: devices send as they like.
    #[default]
    None,
    /// The paper's phase machine.
    Phase(PhaseSettings),
    /// The drain controller.
    Drain(DrainSettings),
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
    /// In what time a queue over its target is emptied, in seconds.
    pub drain_time: Option<f64>,
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
            utilisation: 0.95,
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

impl Scenario {
    /// Reads and checks a scenario file.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        let scenario: Self = toml::from_str(&text)
            .map_err(|source| ScenarioError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Says what makes no sense, if anything does.
    pub fn check(&self) -> Result<(), ScenarioError> {
        within("duration", self.duration, 1e-3, MAX_DURATION)?;
        within("loop.period", self.delays.period, 1e-3, MAX_DURATION)?;
        within("loop.latency", self.delays.latency, 0.0, 3600.0)?;
        within("loop.step", self.delays.step, 0.0, 1.0)?;
        within("consumers.instances", self.consumers.instances.into(), 1.0, 1e6)?;
        within("consumers.rate", self.consumers.rate, 1e-6, 1e9)?;
        within("queue_limit", self.queue_limit as f64, 1.0, 1e8)?;
        self.check_speed()?;
        self.check_classes()?;
        self.pattern(self.seed)?;
        if let Some(config) = self.controller_config()? {
            config.build().map_err(|error| value("controller", error.to_string()))?;
        }
        if let Some(config) = self.scaler_config()? {
            config.build().map_err(|error| value("autoscale", error.to_string()))?;
        }
        self.expect.iter().try_for_each(|(key, band)| self.check_band(key, band))
    }

    /// The workload's pattern for this seed.
    pub fn pattern(&self, seed: u64) -> Result<Pattern, ScenarioError> {
        match (&self.workload.pattern, &self.workload.points) {
            (Some(name), None) => Pattern::named(name, seed).ok_or_else(|| {
                let known = Pattern::names().join(", ");
                value("workload.pattern", format!("= {name:?} is not known: it must be one of {known}"))
            }),
            (None, Some(points)) => {
                Pattern::through(points).map_err(|problem| value("workload.points", problem))
            }
            _ => Err(value("workload", "must have either pattern or points".to_owned())),
        }
    }

    /// The controller's configuration, if there is a controller.
    pub fn controller_config(&self) -> Result<Option<Config>, ScenarioError> {
        let needs_saturation =
            self.autoscale.is_some_and(|scaler| scaler.coupling == CouplingName::StateAware);
        Ok(match &self.controller {
            ControllerSettings::None => None,
            ControllerSettings::Phase(settings) => Some(Config::Phase(settings.config(needs_saturation)?)),
            ControllerSettings::Drain(settings) => Some(Config::Drain(DrainConfig {
                hears: match self.delays.announce {
                    Announce::Ack => Hears::WithAck,
                    Announce::Push => Hears::AtOnce,
                },
                ..settings.config(needs_saturation)?
            })),
        })
    }

    /// The auto-scaler's configuration, if there is one.
    pub fn scaler_config(&self) -> Result<Option<ScalerConfig>, ScenarioError> {
        let Some(settings) = &self.autoscale else { return Ok(None) };
        within("autoscale.start_delay", settings.start_delay, 0.0, 3600.0)?;
        Ok(Some(ScalerConfig {
            upper: settings.upper,
            lower: settings.lower,
            min: settings.min,
            max: self.consumers.instances,
            interval: span("autoscale.interval", settings.interval)?,
            utilisation: settings.utilisation,
            coupling: match settings.coupling {
                CouplingName::Apart => Coupling::Apart,
                CouplingName::OverloadBased => Coupling::OverloadBased,
                CouplingName::StateAware => Coupling::StateAware,
                CouplingName::DemandAware => Coupling::DemandAware,
            },
        }))
    }

    fn check_speed(&self) -> Result<(), ScenarioError> {
        for [time, speed] in &self.consumers.speed {
            within("consumers.speed: a time", *time, 0.0, 1.0)?;
            within("consumers.speed: a speed", *speed, 1e-6, 1e3)?;
        }
        match self.consumers.speed.windows(2).find(|pair| pair[1][0] < pair[0][0]) {
            Some(pair) => Err(value("consumers.speed", format!("falls back in time at {}", pair[1][0]))),
            None => Ok(()),
        }
    }

    fn check_classes(&self) -> Result<(), ScenarioError> {
        within("class: the number of classes", self.classes.len() as f64, 1.0, 64.0)?;
        for class in &self.classes {
            let key = |name: &str| format!("class {:?}: {name}", class.name);
            within(&key("rate"), class.rate, 1e-6, 1e6)?;
            within(&key("weight"), class.weight, 0.0, 1e6)?;
            within(&key("floor"), class.floor, 0.0, class.rate)?;
            within(&key("ceiling"), class.ceiling.unwrap_or(class.rate), class.floor, 1e6)?;
            within(&key("jitter"), class.jitter, 0.0, 1.0)?;
            within(&key("spread"), class.spread, 0.0, 1.0)?;
            within(&key("deaf"), class.deaf, 0.0, 1.0)?;
        }
        let devices: u64 = self.classes.iter().map(|class| u64::from(class.devices)).sum();
        within("class: the number of devices", devices as f64, 0.0, MAX_DEVICES as f64)?;
        let demand: f64 = self.classes.iter().map(|class| f64::from(class.devices) * class.rate).sum();
        within("devices * rate * duration", demand * self.duration, 0.0, MAX_MESSAGES)?;
        Ok(())
    }

    fn check_band(&self, key: &str, band: &[f64; 2]) -> Result<(), ScenarioError> {
        let known = super::outcome::measure_names(self);
        if !known.iter().any(|name| name == key) {
            return Err(value(
                &format!("expect.{key}"),
                format!("is not known: it must be one of {}", known.join(", ")),
            ));
        }
        if band[0] <= band[1] {
            Ok(())
        } else {
            Err(value(&format!("expect.{key}"), "must be [low, high]".to_owned()))
        }
    }
}

impl PhaseSettings {
    fn config(&self, needs_saturation: bool) -> Result<PhaseConfig, ScenarioError> {
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
    fn config(&self, needs_saturation: bool) -> Result<DrainConfig, ScenarioError> {
        let default = DrainConfig::default();
        Ok(DrainConfig {
            target_delay: optional("controller.target_delay", self.target_delay, default.target_delay)?,
            target_depth: self.target_depth.unwrap_or(default.target_depth),
            drain_time: optional("controller.drain_time", self.drain_time, default.drain_time)?,
            floor: self.floor.unwrap_or(default.floor),
            standing: optional("controller.standing", self.standing, default.standing)?,
            needs_saturation,
            ..default
        })
    }
}

fn value(key: &str, problem: String) -> ScenarioError {
    ScenarioError::Value { key: key.to_owned(), problem }
}

fn within(key: &str, number: f64, low: f64, high: f64) -> Result<f64, ScenarioError> {
    if (low..=high).contains(&number) {
        return Ok(number);
    }
    Err(value(key, format!("= {number} is refused: it must be from {low} to {high}")))
}

fn span(key: &str, seconds: f64) -> Result<Span, ScenarioError> {
    within(key, seconds, 0.0, MAX_DURATION).map(Span::from_secs_f64)
}

fn optional(key: &str, seconds: Option<f64>, default: Span) -> Result<Span, ScenarioError> {
    seconds.map_or(Ok(default), |seconds| span(key, seconds))
}

fn one() -> u64 {
    1
}

fn unit() -> f64 {
    1.0
}

fn ten_million() -> u64 {
    10_000_000
}

//! Scenario files: what is simulated, and what is expected of it.

mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_control::announce::AnnounceConfig;
use tidegate_control::autoscale::{Coupling, ScalerConfig};
use tidegate_control::overload::drain::Hears;
use tidegate_control::overload::{Config, DrainConfig};
use tidegate_control::time::Span;

pub use settings::{
    Announce, AutoscaleSettings, Class, ConsumerSettings, ControllerSettings, CouplingName, DrainSettings,
    LoopSettings, PhaseSettings, Service, Workload,
};

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
    /// A file was read, but what it says makes no sense.
    #[error("{path}: {source}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<ScenarioError>,
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

impl Scenario {
    /// Reads and checks a scenario file.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        let scenario: Self = toml::from_str(&text)
            .map_err(|source| ScenarioError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        match scenario.check() {
            Ok(()) => Ok(scenario),
            Err(error) => Err(ScenarioError::Content { path: path.to_owned(), source: Box::new(error) }),
        }
    }

    /// Says what makes no sense, if anything does.
    pub fn check(&self) -> Result<(), ScenarioError> {
        within("duration", self.duration, 1e-3, MAX_DURATION)?;
        // A loop that never turns would control nothing.
        within("loop.period", self.delays.period, 1e-3, self.duration)?;
        within("loop.latency", self.delays.latency, 0.0, 3600.0)?;
        within("loop.step", self.delays.step, 0.0, 1.0)?;
        within("loop.budget", self.delays.budget.unwrap_or(1.0), 0.0, 1.0)?;
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
                    // With both, most rates are heard with acknowledgements.
                    Announce::Ack | Announce::Both => Hears::WithAck,
                    Announce::Push => Hears::AtOnce,
                },
                latency: Span::from_secs_f64(self.delays.latency),
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

    /// When a rate is pushed.
    pub fn announce_config(&self) -> AnnounceConfig {
        let default = AnnounceConfig::default();
        AnnounceConfig { step: self.delays.step, share: self.delays.budget.unwrap_or(1.0), ..default }
    }

    /// Whether acknowledgements space held-back devices out.
    pub fn spaced(&self) -> bool {
        self.delays.spaced.unwrap_or(matches!(self.controller, ControllerSettings::Drain(_)))
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
        for (index, class) in self.classes.iter().enumerate() {
            if self.classes[..index].iter().any(|other| other.name == class.name) {
                return Err(value(&format!("class {:?}", class.name), "is there twice".to_owned()));
            }
            let key = |name: &str| format!("class {:?}: {name}", class.name);
            within(&key("rate"), class.rate, 1e-6, 1e6)?;
            within(&key("weight"), class.weight, 0.0, 1e6)?;
            within(&key("floor"), class.floor, 0.0, class.rate)?;
            // A device that may never send could never hear that it may again.
            within(&key("ceiling"), class.ceiling.unwrap_or(class.rate), class.floor.max(1e-6), 1e6)?;
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

fn ten_million() -> u64 {
    10_000_000
}

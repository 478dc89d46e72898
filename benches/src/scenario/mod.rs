//! Scenario files: what is run, and what is expected of it.

mod check;
mod settings;

use std::io::Read;
use std::path::Path;

pub use settings::{
    Action, AutoscaleSettings, BrokerSettings, Class, ConnectSettings, Consumers, CouplingName,
    EventSettings, RelaySettings, Scenario, Service, Side, Workload,
};
use tidegate::sim::pattern::Pattern;

/// The scenarios that are part of the program.
pub const BUILT_IN: [(&str, &str); 12] = [
    ("fan-in", include_str!("../../scenarios/fan-in.toml")),
    ("fan-out", include_str!("../../scenarios/fan-out.toml")),
    ("point-to-point", include_str!("../../scenarios/point-to-point.toml")),
    ("shared", include_str!("../../scenarios/shared.toml")),
    ("connections-10k", include_str!("../../scenarios/connections-10k.toml")),
    ("flood", include_str!("../../scenarios/flood.toml")),
    ("slow-consumer", include_str!("../../scenarios/slow-consumer.toml")),
    ("case-study-002", include_str!("../../scenarios/case-study-002.toml")),
    ("flash-crowd", include_str!("../../scenarios/flash-crowd.toml")),
    ("capacity-steps", include_str!("../../scenarios/capacity-steps.toml")),
    ("chain-cost", include_str!("../../scenarios/chain-cost.toml")),
    ("reconnect-herd", include_str!("../../scenarios/reconnect-herd.toml")),
];

/// What a study calls the file without a variant.
pub const BASE: &str = "base";

/// Bytes of a file at most.
const LONGEST_FILE: u64 = 1_000_000;

/// Why a scenario can't be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Neither a file nor a name.
    #[error("there is no scenario {0:?}: it must be a file, or one of {names}", names = names())]
    Unknown(String),
    /// The file can't be read.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The file is not TOML, or has a key or a value that nobody knows.
    #[error("{file}: {message}")]
    Parse {
        /// The file.
        file: String,
        /// What went wrong, with the line, the key and the value.
        message: String,
    },
    /// There is no such variant.
    #[error("{file}: there is no variant {variant:?}: {known}")]
    Variant {
        /// The file.
        file: String,
        /// What was asked for.
        variant: String,
        /// What there is.
        known: String,
    },
    /// A value makes no sense.
    #[error("{file}: {key} {problem}")]
    Value {
        /// The file.
        file: String,
        /// The key in the file.
        key: String,
        /// What is wrong, with the value, and what would be right.
        problem: String,
    },
}

/// A scenario with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What is to be run.
    pub scenario: Scenario,
    /// The file as it was read.
    pub text: String,
}

impl Scenario {
    /// Reads and checks a scenario: `NAME` or `FILE`, with `@VARIANT` for one of its variants.
    pub fn load(name: &str) -> Result<Loaded, ScenarioError> {
        let (base, variant) = match name.rsplit_once('@') {
            Some((base, variant)) => (base, Some(variant)),
            None => (name, None),
        };
        let (file, text) = read(base)?;
        let scenario = Self::parse(&file, &text, variant)?;
        Ok(Loaded { scenario, text })
    }

    /// Reads and checks a scenario with all variants that a study of it runs.
    pub fn load_study(name: &str) -> Result<Vec<(String, Loaded)>, ScenarioError> {
        let (file, text) = read(name)?;
        let base = Self::parse(&file, &text, None)?;
        let one = |variant: Option<String>| {
            let scenario = Self::parse(&file, &text, variant.as_deref())?;
            let label = variant.unwrap_or_else(|| BASE.to_owned());
            Ok((label, Loaded { scenario, text: text.clone() }))
        };
        base.columns().into_iter().map(one).collect()
    }

    /// Checks the text of a file.
    pub fn parse(file: &str, text: &str, variant: Option<&str>) -> Result<Self, ScenarioError> {
        let refused = |error: toml::de::Error| ScenarioError::Parse {
            file: file.to_owned(),
            message: error.to_string(),
        };
        let mut scenario: Self = toml::from_str(text).map_err(refused)?;
        let names: Vec<String> = scenario.variants.keys().cloned().collect();
        for name in &names {
            // A mistake in a variant is told even if another one is asked for.
            let changed = scenario.vary(text, name).map_err(|error| {
                let message = format!("in variant.{name}: {error}");
                ScenarioError::Parse { file: file.to_owned(), message }
            })?;
            changed.check(file)?;
            if variant == Some(name.as_str()) {
                scenario = changed;
                break;
            }
        }
        match variant {
            Some(variant) if !names.iter().any(|name| name == variant) => {
                let known = if names.is_empty() {
                    "it has none".to_owned()
                } else {
                    format!("it has {}", names.join(", "))
                };
                Err(ScenarioError::Variant { file: file.to_owned(), variant: variant.to_owned(), known })
            }
            _ => scenario.check(file).map(|()| scenario),
        }
    }

    /// The variants that a study runs, in the order of its columns, as arguments of [`Scenario::parse`].
    pub fn columns(&self) -> Vec<Option<String>> {
        let all = || std::iter::once(BASE.to_owned()).chain(self.variants.keys().cloned()).collect();
        let names: Vec<String> = if self.study.is_empty() { all() } else { self.study.clone() };
        names.into_iter().map(|name| (name != BASE).then_some(name)).collect()
    }

    /// How many devices of patterned classes are there over time.
    pub fn pattern(&self) -> Result<Pattern, String> {
        let Some(workload) = &self.workload else { return Pattern::through(&[[0.0, 1.0]]) };
        match (&workload.pattern, &workload.points) {
            (Some(name), None) => Pattern::named(name, self.seed).ok_or_else(|| {
                format!("pattern = {name:?} is not known: it must be one of {}", Pattern::names().join(", "))
            }),
            (None, Some(points)) => Pattern::through(points).map_err(|problem| format!("points: {problem}")),
            _ => Err("must have either pattern or points".to_owned()),
        }
    }

    fn vary(&self, text: &str, name: &str) -> Result<Self, toml::de::Error> {
        let mut base: toml::Table = toml::from_str(text)?;
        base.remove("variant");
        // A pattern and points exclude each other: merged, one could never take the place of the other.
        if self.variants[name].contains_key("workload") {
            base.remove("workload");
        }
        merge(&mut base, &self.variants[name]);
        // An empty band takes away the one of the file.
        if let Some(toml::Value::Table(expect)) = base.get_mut("expect") {
            expect.retain(|_, band| band.as_array().is_none_or(|band| !band.is_empty()));
        }
        let full = format!("{}@{name}", self.name);
        base.insert("name".to_owned(), full.into());
        base.try_into()
    }
}

impl Class {
    /// The client identifier of a device.
    pub fn client_id(&self, index: u32) -> String {
        format!("{}{index}", self.client.as_ref().unwrap_or(&self.name))
    }

    /// A device's topic.
    pub fn topic_of(&self, index: u32, turn: u32) -> String {
        self.topic.replace("%i", &index.to_string()).replace("%t", &turn.to_string())
    }
}

impl Consumers {
    /// What a consumer subscribes to, without the group.
    pub fn filter_of(&self, index: u32) -> String {
        self.filter.replace("%i", &index.to_string())
    }

    /// What a consumer subscribes to.
    pub fn subscription_of(&self, index: u32) -> String {
        let filter = self.filter_of(index);
        match &self.group {
            Some(group) => format!("$share/{group}/{filter}"),
            None => filter,
        }
    }

    /// Instances at this share of the duration, without an auto-scaler.
    pub fn scheduled(&self, time: f64) -> u32 {
        let point = self.schedule.iter().rfind(|[at, _]| *at <= time);
        point.map_or(self.instances, |[_, count]| *count as u32)
    }
}

/// The names of the scenarios that are part of the program.
pub fn names() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}

fn read(name: &str) -> Result<(String, String), ScenarioError> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok(((*name).to_owned(), (*text).to_owned()));
    }
    if !Path::new(name).exists() && !name.contains(['/', '.']) {
        return Err(ScenarioError::Unknown(name.to_owned()));
    }
    let refused = |source| ScenarioError::Read { file: name.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(name).map_err(refused)?;
    file.take(LONGEST_FILE + 1).read_to_string(&mut text).map_err(refused)?;
    if text.len() as u64 > LONGEST_FILE {
        let problem = format!("it is longer than {LONGEST_FILE} bytes, which no scenario needs");
        return Err(refused(std::io::Error::other(problem)));
    }
    Ok((name.to_owned(), text))
}

/// Tables are merged, all else is replaced.
fn merge(base: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => merge(below, above),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

//! Brokers side by side, as written to JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Broker, Machine, Run};

/// Several brokers side by side.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// [`super::FORMAT`] of the file.
    pub format: u32,
    /// When it started, such as `2026-01-31T12:00:00Z`.
    pub started: String,
    /// Where it ran.
    pub machine: Machine,
    /// The version of the generator, and the commit that it was built from.
    pub generator: String,
    /// Why not all runs were made that were asked for, if so.
    #[serde(default)]
    pub unfinished: Option<String>,
    /// What was cut short or outside of what its scenario expects, each in a sentence.
    #[serde(default)]
    pub failures: Vec<String>,
    /// How long all runs took together, in seconds.
    pub seconds: f64,
    /// One part for each scenario, in the order that was asked for.
    pub scenarios: Vec<ScenarioComparison>,
    /// Brokers that were asked for and could not take part.
    pub missing: Vec<Missing>,
}

/// One scenario, several brokers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ScenarioComparison {
    /// The scenario's name.
    pub scenario: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// The brokers in the order that was asked for, or the variants of a study; the first one is what the others are
    /// compared with.
    pub brokers: Vec<BrokerResult>,
    /// Figures from elsewhere to put beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
}

/// Figures from elsewhere, such as a paper's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// What they are called beside ours, in a word or two.
    pub name: String,
    /// Where they come from and how they can be compared, in sentences.
    #[serde(default)]
    pub about: String,
    /// By variant, and by measure.
    #[serde(default)]
    pub values: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Reference {
    /// The figure beside that of a variant.
    pub fn of(&self, variant: &str, measure: &str) -> Option<f64> {
        self.values.get(variant)?.get(measure).copied()
    }
}

/// One broker in one scenario.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BrokerResult {
    /// Who was measured.
    pub broker: Broker,
    /// The figures over all repetitions by the name of the measure; `compare::MEASURES` says what each one is.
    pub measures: BTreeMap<String, Summary>,
    /// The repetitions.
    pub runs: Vec<Run>,
}

/// One figure over all repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The middle one; the mean of the two in the middle if their number is even.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// This broker's median divided by the first broker's; none for the first broker, or if the first one's is 0.
    pub ratio: Option<f64>,
}

/// A broker that could not take part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Missing {
    /// Its name.
    pub broker: String,
    /// The scenario that it could not run; none if it could not run any.
    pub scenario: Option<String>,
    /// Why, and the command that installs it.
    pub reason: String,
}

//! The settings of plugins that control rates and answer checks.

use serde::{Deserialize, Serialize};

/// How publishers are held to their rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateSettings {
    /// What happens to messages over the announced rate.
    pub excess: ExcessPolicy,
    /// The share by which a publisher may be too fast.
    pub slack: f64,
    /// How long a publisher may go on with a rate after a lower one was announced, in milliseconds.
    pub grace_ms: u64,
    /// Messages that may come at once, at any rate.
    pub burst: u32,
    /// And those that the rate makes in this time, in milliseconds.
    pub burst_ms: u64,
    /// What happens to QoS 0 messages that have waited for `qos0_wait_ms`.
    pub qos0: Qos0Policy,
    /// How long a QoS 0 message waits at most, in milliseconds.
    pub qos0_wait_ms: u64,
    /// How long a publisher may be too fast before it is disconnected, in seconds.
    pub close_after: u64,
}

impl Default for GateSettings {
    fn default() -> Self {
        Self {
            excess: ExcessPolicy::Delay,
            slack: 0.2,
            grace_ms: 1000,
            burst: 2,
            burst_ms: 100,
            qos0: Qos0Policy::Wait,
            qos0_wait_ms: 10_000,
            close_after: 10,
        }
    }
}

/// What happens to messages over the announced rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum ExcessPolicy {
    /// They wait.
    #[default]
    Delay,
    /// They are refused if the client can see it, else they wait.
    Refuse,
    /// They wait, and who goes on is disconnected.
    Close,
}

/// What happens to QoS 0 messages that have waited long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Qos0Policy {
    /// The one at the head passes.
    #[default]
    Wait,
    /// They are thrown away.
    Drop,
}

/// What consumers that missed something may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckSettings {
    /// Filters whose messages are numbered and kept.
    pub track: Vec<String>,
    /// Topics that are numbered.
    pub max_topics: usize,
    /// Messages that are kept of each topic.
    pub max_updates: usize,
    /// Bytes of payloads that are kept over all topics.
    pub max_bytes: usize,
    /// Larger payloads are numbered, but not kept, in bytes.
    pub max_payload: usize,
    /// Checks that are answered in a second.
    pub max_rate: f64,
    /// The longest that a check waits for its answer before it is told to come back, in milliseconds.
    pub max_wait_ms: u64,
    /// Checks that wait for their answers at the same time.
    pub max_waiting: usize,
    /// Bytes of checks that wait at the same time, about.
    pub max_waiting_bytes: usize,
    /// Topics that are compared with filters in a second.
    pub max_looks: u64,
    /// Messages in one answer.
    pub max_answer: usize,
    /// Bytes of one answer, about.
    pub max_answer_bytes: usize,
    /// Bytes of a check.
    pub max_check: usize,
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self {
            track: vec!["#".into()],
            max_topics: 100_000,
            max_updates: 32,
            max_bytes: 32 * 1024 * 1024,
            max_payload: 16 * 1024,
            max_rate: 1_000.0,
            max_wait_ms: 100,
            max_waiting: 1_000,
            max_waiting_bytes: 8 * 1024 * 1024,
            max_looks: 10_000_000,
            max_answer: 1_000,
            max_answer_bytes: 256 * 1024,
            max_check: 64 * 1024,
        }
    }
}

/// How Tidegate and an auto-scaler of consumers work together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoscaleSettings {
    /// Who follows whom.
    pub coupling: CouplingPolicy,
    /// How long what an auto-scaler said of itself counts, in seconds.
    pub state_ttl: u64,
    /// The share of its capacity that an instance is meant to use.
    pub utilisation: f64,
}

impl Default for AutoscaleSettings {
    fn default() -> Self {
        Self { coupling: CouplingPolicy::Off, state_ttl: 60, utilisation: 0.9 }
    }
}

/// Who follows whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum CouplingPolicy {
    /// Neither knows of the other.
    #[default]
    Off,
    /// The auto-scaler rests while publishers are held back.
    OverloadBased,
    /// The same, and publishers are held back only once the auto-scaler has reached its limit.
    StateAware,
    /// The auto-scaler follows the demand that is held back.
    DemandAware,
}

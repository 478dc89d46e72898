//! What can be set.

use std::time::Duration;

use tidegate_control::topic;

use crate::history::SHELVES;

/// Settings of the plugin.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CheckConfig {
    /// The prefix of the control topics.
    pub prefix: String,
    /// Filters whose messages are numbered and kept; those under `$` never are.
    pub track: Vec<String>,
    /// Topics that are numbered; with more, the one that was silent for longest is forgotten.
    pub max_topics: usize,
    /// Messages that are kept for each topic.
    pub max_updates: usize,
    /// Bytes of payloads that are kept over all topics; topics, and notes about what is kept, may each take as much again.
    pub max_bytes: usize,
    /// Larger payloads are numbered, but not kept.
    pub max_payload: usize,
    /// Checks that are answered in a second.
    pub max_rate: f64,
    /// The longest that a check waits for its answer before it is told to come back.
    pub max_wait: Duration,
    /// Checks that wait for their answers at the same time, those that are merged too; others may come back later.
    pub max_waiting: usize,
    /// Bytes of checks that wait at the same time, about.
    pub max_waiting_bytes: usize,
    /// Topics that are compared with filters in a second: whoever asks with wildcards takes the place of several.
    pub max_looks: u64,
    /// Updates in one answer, whatever the check asks for.
    pub max_answer: usize,
    /// Bytes of one answer, about; one topic and one update always fit.
    pub max_answer_bytes: usize,
    /// Bytes of a check; longer ones are refused.
    pub max_check: usize,
}

impl Default for CheckConfig {
    /// Everything is tracked, in about 100 MiB at most; 1,000 checks a second, none of which waits longer than 100 ms.
    fn default() -> Self {
        Self {
            prefix: "$tide/v1".into(),
            track: vec!["#".into()],
            max_topics: 100_000,
            max_updates: 32,
            max_bytes: 32 * 1024 * 1024,
            max_payload: 16 * 1024,
            max_rate: 1_000.0,
            max_wait: Duration::from_millis(100),
            max_waiting: 1_000,
            max_waiting_bytes: 8 * 1024 * 1024,
            max_looks: 10_000_000,
            max_answer: 1_000,
            max_answer_bytes: 256 * 1024,
            max_check: 64 * 1024,
        }
    }
}

/// A setting that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("check.{key} is {value}: it must be {need}")]
pub struct ConfigError {
    /// The setting.
    pub key: &'static str,
    /// What was given.
    pub value: String,
    /// What would be right.
    pub need: &'static str,
}

impl CheckConfig {
    /// Says which setting makes no sense.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |key, value: &dyn std::fmt::Display, need| {
            Err(ConfigError { key, value: value.to_string(), need })
        };
        if let Some(bad) = self.track.iter().find(|filter| !topic::is_filter(filter)) {
            return wrong("track", bad, "a list of topic filters");
        }
        if self.prefix.is_empty() || self.prefix.contains(['+', '#', '\0']) {
            return wrong("prefix", &self.prefix, "a topic name");
        }
        let counts = [
            ("max_topics", self.max_topics),
            ("max_updates", self.max_updates),
            ("max_waiting", self.max_waiting),
            ("max_answer", self.max_answer),
            ("max_check", self.max_check),
        ];
        if let Some((key, value)) = counts.into_iter().find(|(_, value)| *value == 0) {
            return wrong(key, &value, "at least 1");
        }
        if !(self.max_rate.is_finite() && self.max_rate >= 1.0) {
            return wrong("max_rate", &self.max_rate, "at least 1 a second");
        }
        if self.max_looks == 0 {
            return wrong("max_looks", &self.max_looks, "at least 1");
        }
        // A check of the largest size takes some more once it is read.
        if self.max_waiting_bytes < self.max_check.saturating_mul(16) {
            return wrong("max_waiting_bytes", &self.max_waiting_bytes, "at least 16 times max_check");
        }
        if self.max_bytes < self.max_payload.saturating_mul(SHELVES) {
            return wrong("max_bytes", &self.max_bytes, "at least 16 times max_payload");
        }
        if self.max_answer_bytes < self.max_payload {
            return wrong("max_answer_bytes", &self.max_answer_bytes, "at least max_payload");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        assert_eq!(CheckConfig::default().validate(), Ok(()));
        let with = |change: fn(&mut CheckConfig)| {
            let mut config = CheckConfig::default();
            change(&mut config);
            config.validate().map_err(|error| error.key)
        };
        assert_eq!(with(|config| config.track = vec!["a/#/b".into()]), Err("track"));
        assert_eq!(with(|config| config.prefix = "#".into()), Err("prefix"));
        assert_eq!(with(|config| config.max_updates = 0), Err("max_updates"));
        assert_eq!(with(|config| config.max_rate = f64::NAN), Err("max_rate"));
        assert_eq!(with(|config| config.max_waiting = 0), Err("max_waiting"));
        assert_eq!(with(|config| config.max_waiting_bytes = 1_000), Err("max_waiting_bytes"));
        assert_eq!(with(|config| config.max_looks = 0), Err("max_looks"));
        assert_eq!(with(|config| config.max_bytes = 100_000), Err("max_bytes"));
        assert_eq!(with(|config| config.max_answer_bytes = 1), Err("max_answer_bytes"));
    }
}

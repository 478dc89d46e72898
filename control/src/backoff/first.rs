//! Where the first backoff of a congestion comes from.

/// The source of the first backoff value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstValue {
    /// What the interval now lacks to the wait before the last good response.
    LastGood,
    /// The value that ended the last congestion.
    LastEnding,
    /// The rate that the gateway announces; while it announces none, as [`FirstValue::LastGood`].
    #[default]
    ServerHint,
}

impl FirstValue {
    /// The first value in seconds for a client that now uses `interval`; none when the past says nothing.
    pub(super) fn value(self, memory: &Memory, interval: f64) -> Option<f64> {
        match self {
            Self::LastGood | Self::ServerHint => memory.last_good.map(|waited| waited - interval),
            Self::LastEnding => memory.last_ending,
        }
        .filter(|value| *value > 0.0)
    }
}

/// What a client remembers of past congestions.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    last_good: Option<f64>,
    last_ending: Option<f64>,
}

impl Memory {
    /// Records a good response to a request that came `waited` seconds after the one before; `backoff` is the value
    /// that ended a congestion, or 0.
    pub(super) fn on_good(&mut self, waited: f64, backoff: f64) {
        self.last_good = Some(waited);
        if backoff > 0.0 {
            self.last_ending = Some(backoff);
        }
    }
}

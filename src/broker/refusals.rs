//! What was refused, counted by who refused it and why.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Whoever refuses when it is no plugin.
pub const GATEWAY: &str = "gateway";

/// What a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// To publish a message.
    Publish,
    /// To subscribe to a filter.
    Subscribe,
}

impl Asked {
    /// Its name in metrics and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        }
    }
}

/// Counts of refusals: no more than plugins times reason codes.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<(Asked, &'static str, u8), u64>>);

impl Refusals {
    /// Counts one.
    pub fn count(&self, asked: Asked, plugin: &'static str, code: u8) {
        *self.0.lock().entry((asked, plugin, code)).or_default() += 1;
    }

    /// Every count that is not 0: what was asked, who refused, the reason code.
    pub fn each(&self, mut visit: impl FnMut(&'static str, &'static str, u8, u64)) {
        for (&(asked, plugin, code), &count) in &*self.0.lock() {
            visit(asked.name(), plugin, code, count);
        }
    }
}

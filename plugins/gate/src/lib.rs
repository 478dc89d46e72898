//! Holds back publishers that send more than they were told: the `gate` plugin of Tidegate.
//!
//! Another plugin says what rate a publisher may use ([`Publisher::set_rate`](tidegate_plugin::Publisher::set_rate));
//! this one sees to it. Who has no limit passes at the cost of one load. Who has one may for a while go on as fast as it
//! was allowed before, may be a little too fast, and may send a few messages at once: a publisher that follows is never
//! held. What goes beyond that waits, is refused, or ends the connection, as [`GateConfig::excess`] says.
//!
//! Waiting never breaks a connection. The message that waits at the head passes after half the keep-alive whatever its
//! publisher's rate, so that a client that waits for an acknowledgement gets one in time; such messages are booked, so a
//! rate over that of these messages still holds.

mod announced;
mod counts;
mod hook;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_control::Invalid;
use tidegate_plugin::{Client, Hook, Host, Operated, Plugin, Refusal};

pub use counts::{Counts, Snapshot};
use hook::GateHook;

/// What happens to messages over the announced rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Excess {
    /// They wait.
    #[default]
    Delay,
    /// QoS 1 and 2 messages of MQTT 5 clients are refused with 0x97, with the rate and the time to wait; others wait.
    Refuse,
    /// They wait, and who goes on for [`GateConfig::close_after`] is disconnected with 0x96.
    Close,
}

/// What happens to QoS 0 messages that have waited for [`GateConfig::qos0_wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Qos0 {
    /// The one at the head passes.
    #[default]
    Wait,
    /// They are thrown away and counted.
    Drop,
}

/// How publishers are held to their rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateConfig {
    /// What happens to messages over the announced rate.
    pub excess: Excess,
    /// The share by which a publisher may be too fast.
    pub slack: f64,
    /// How long a publisher may go on with a rate after a lower one was announced.
    pub grace: Duration,
    /// Messages that may come at once, at any rate: the one that is due, and one that is early because the rate changed.
    pub burst: u32,
    /// And those that the rate makes in this time: a network may delay messages, which then come in a heap.
    pub burst_time: Duration,
    /// What happens to QoS 0 messages that have waited long.
    pub qos0: Qos0,
    /// How long a QoS 0 message waits at most; a quarter of the keep-alive if that is shorter.
    pub qos0_wait: Duration,
    /// How long a publisher may go on being too fast before it is disconnected.
    pub close_after: Duration,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            excess: Excess::Delay,
            slack: 0.2,
            grace: Duration::from_secs(1),
            burst: 2,
            burst_time: Duration::from_millis(100),
            qos0: Qos0::Wait,
            qos0_wait: Duration::from_secs(10),
            close_after: Duration::from_secs(10),
        }
    }
}

impl GateConfig {
    /// Builds the plugin, or says which setting makes no sense.
    pub fn build(self) -> Result<Gate, Invalid> {
        let refuse = |key, value, need| Err(Invalid { key, value, need });
        let burst_ms = self.burst_time.as_secs_f64() * 1000.0;
        if !(0.0..=10.0).contains(&self.slack) {
            return refuse("slack", self.slack, "from 0 to 10");
        }
        if self.burst == 0 {
            return refuse("burst", 0.0, "at least 1");
        }
        if self.burst_time < hook::RUN {
            return refuse("burst_ms", burst_ms, "at least 20: messages pass in runs");
        }
        Ok(Gate { config: Arc::new(self), counts: Arc::default() })
    }
}

/// The plugin.
#[derive(Debug)]
pub struct Gate {
    config: Arc<GateConfig>,
    counts: Arc<Counts>,
}

impl Gate {
    /// What it has done so far; stays up to date.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl Plugin for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn connect(&self, client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(Some(Box::new(GateHook::new(client.publisher, &self.config, &self.counts))))
    }

    fn start(&self, _host: &Weak<dyn Host>) {
        Counts::describe();
    }

    fn operated(&self) -> Option<&dyn Operated> {
        Some(self)
    }
}

impl Operated for Gate {
    fn refresh_metrics(&self) {
        self.counts.publish();
    }
}

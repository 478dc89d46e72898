//! Where exact lengths of queues come from, in proxy mode.

use serde::{Deserialize, Serialize};

use super::host_and_port;

/// A broker that can be asked how long its queues are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSettings {
    /// Whom to ask.
    pub kind: SourceKind,
    /// Where: `http://host:port`.
    pub url: String,
    /// The user that asks; nobody when empty.
    #[serde(default)]
    pub user: String,
    /// The user's password.
    #[serde(default)]
    pub password: String,
    /// RabbitMQ: the virtual host in which the MQTT plugin has its queues.
    #[serde(default = "slash")]
    pub vhost: String,
    /// Milliseconds between two questions.
    #[serde(default = "second")]
    pub interval_ms: u64,
    /// How long an answer may take, in milliseconds.
    #[serde(default = "second")]
    pub timeout_ms: u64,
}

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// RabbitMQ's management API.
    Rabbitmq,
    /// The monitoring endpoint of a NATS server with JetStream.
    Nats,
}

impl SourceSettings {
    /// Host and port, and the path before that of a question; none when the address is no such thing.
    pub(crate) fn place(&self) -> Option<(&str, &str)> {
        let rest = self.url.strip_prefix("http://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        host_and_port(authority).map(|_| (authority, path.trim_end_matches('/')))
    }
}

fn slash() -> String {
    "/".into()
}

fn second() -> u64 {
    1_000
}

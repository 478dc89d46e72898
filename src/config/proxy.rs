//! The settings of the proxy.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The broker behind the proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxySettings {
    /// Where it listens: `host:port`, in the order in which they are tried.
    #[serde(with = "names")]
    pub upstream: Vec<String>,
    /// Whether clients are spread over all addresses, in place of all using the first one that works.
    pub spread: bool,
    /// How long connecting, and the answer to CONNECT, may take, in milliseconds.
    pub timeout_ms: u64,
    /// How long an address that failed is left alone at first, in milliseconds; then twice as long each time.
    pub retry_ms: u64,
    /// The longest such time, in milliseconds.
    pub max_retry_ms: u64,
    /// The time over which clients are told to leave when many lose the upstream at once, in milliseconds.
    pub jitter_ms: u64,
    /// Whether the upstream is told where clients come from, with the PROXY protocol, version 2.
    pub proxy_protocol: bool,
    /// Whether the upstream is spoken to with TLS.
    pub tls: bool,
    /// Authorities that sign the upstream's certificate, PEM.
    pub ca: Option<PathBuf>,
    /// The name in the upstream's certificate; that of its address when empty.
    pub server_name: String,
    /// A certificate that is shown to the upstream, PEM.
    pub certificate: Option<PathBuf>,
    /// Its key, PEM.
    pub key: Option<PathBuf>,
    /// QoS 1 and 2 messages that one consumer can be at work on; those beyond that it was sent count as waiting.
    pub max_inflight: u16,
    /// Messages that the upstream keeps for one consumer; what comes beyond is lost there. 0 is not known.
    pub queue_limit: u64,
    /// This node among several before the same broker.
    pub node: NodeSettings,
}

/// One of several nodes before the same broker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSettings {
    /// Its name, which no other node has; empty when this one is alone.
    pub id: String,
    /// How often it says what it sees, in milliseconds.
    pub interval_ms: u64,
    /// How long the others believe it when it says nothing more, in milliseconds.
    pub ttl_ms: u64,
    /// The user that it is to the upstream; empty is none.
    pub user: String,
    /// That user's password; empty is none.
    pub password: String,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            id: String::new(),
            interval_ms: 200,
            ttl_ms: 3_000,
            user: String::new(),
            password: String::new(),
        }
    }
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            upstream: Vec::new(),
            spread: false,
            timeout_ms: 5_000,
            retry_ms: 200,
            max_retry_ms: 5_000,
            jitter_ms: 1_000,
            proxy_protocol: false,
            tls: false,
            ca: None,
            server_name: String::new(),
            certificate: None,
            key: None,
            max_inflight: 20,
            queue_limit: 0,
            node: NodeSettings::default(),
        }
    }
}

/// Host and port of an address such as `broker:1883` or `[::1]:1883`; none when it is not one.
pub(crate) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let inner = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let sound = !inner.is_empty() && !inner.contains(|c: char| c.is_whitespace() || c == '/' || c == '@');
    sound.then_some((inner, port))
}

/// One name as text, several with commas between them, or a list of them; `""` and `[]` are none.
mod names {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "must be a text such as \"broker:1883\", or a list of them")]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }

    pub(super) fn serialize<S: Serializer>(value: &[String], to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match OneOrMany::deserialize(from)? {
            OneOrMany::One(text) if text.trim().is_empty() => Vec::new(),
            OneOrMany::One(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
            OneOrMany::Many(texts) => texts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!(host_and_port("broker:1883"), Some(("broker", 1883)));
        assert_eq!(host_and_port("[::1]:1883"), Some(("::1", 1883)));
        for bad in
            ["broker", "broker:", ":1883", "broker:0", "::1:1883", "mqtt://broker:1883", "a b:1", "a:99999"]
        {
            assert_eq!(host_and_port(bad), None, "{bad}");
        }
    }
}

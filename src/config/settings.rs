//! Every key with its default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plugins::{AutoscaleSettings, CheckSettings, GateSettings};
use super::proxy::ProxySettings;
use super::source::SourceSettings;

/// All that can be configured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Who owns the sessions.
    pub mode: Mode,
    /// The broker behind the proxy.
    pub proxy: ProxySettings,
    /// Where and how clients connect.
    pub listen: ListenSettings,
    /// Certificates for `listen.mqtts` and `listen.wss`.
    pub tls: TlsSettings,
    /// What a session may ask for.
    pub session: SessionSettings,
    /// Consumer queues.
    pub queue: QueueSettings,
    /// The plugins, in the order in which they are asked.
    pub plugins: Vec<String>,
    /// Who may connect and do what.
    pub access: AccessSettings,
    /// What publishers may send.
    pub overload: OverloadSettings,
    /// How publishers are held to their rates.
    pub gate: GateSettings,
    /// What consumers that missed something may ask for.
    pub check: CheckSettings,
    /// How Tidegate and an auto-scaler work together.
    pub autoscale: AutoscaleSettings,
    /// Metrics and health.
    pub admin: AdminSettings,
    /// Logging.
    pub log: LogSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            proxy: ProxySettings::default(),
            listen: ListenSettings::default(),
            tls: TlsSettings::default(),
            session: SessionSettings::default(),
            queue: QueueSettings::default(),
            plugins: ["access", "overload", "gate"].map(Into::into).into(),
            access: AccessSettings::default(),
            overload: OverloadSettings::default(),
            gate: GateSettings::default(),
            check: CheckSettings::default(),
            autoscale: AutoscaleSettings::default(),
            admin: AdminSettings::default(),
            log: LogSettings::default(),
        }
    }
}

/// Who owns the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Tidegate is the broker.
    #[default]
    Broker,
    /// Another broker behind Tidegate is.
    Proxy,
}

/// Where and how clients connect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenSettings {
    /// Plain TCP. An empty list turns it off.
    #[serde(with = "addresses")]
    pub mqtt: Vec<SocketAddr>,
    /// TLS.
    #[serde(with = "addresses")]
    pub mqtts: Vec<SocketAddr>,
    /// WebSocket.
    #[serde(with = "addresses")]
    pub ws: Vec<SocketAddr>,
    /// Secure WebSocket.
    #[serde(with = "addresses")]
    pub wss: Vec<SocketAddr>,
    /// Connections at the same time, over all listeners.
    pub max_connections: usize,
    /// How long a client may take to send CONNECT (TLS and WebSocket handshakes included), in seconds.
    pub connect_timeout: u16,
    /// New connections a second from one address; 0 is no limit.
    pub max_accept_rate: u32,
    /// What a connection may keep of input that cannot be handled yet, in bytes, beside one packet.
    pub max_buffer: usize,
    /// The same for all connections together: over it, each may keep only 16 KB.
    pub max_buffer_total: usize,
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self {
            mqtt: vec![SocketAddr::from(([127, 0, 0, 1], 1883))],
            mqtts: Vec::new(),
            ws: Vec::new(),
            wss: Vec::new(),
            max_connections: 100_000,
            connect_timeout: 10,
            max_accept_rate: 0,
            max_buffer: 256 * 1024,
            max_buffer_total: 256 * 1024 * 1024,
        }
    }
}

/// Certificates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// Certificate chain, PEM.
    pub certificate: Option<PathBuf>,
    /// Private key, PEM.
    pub key: Option<PathBuf>,
    /// Authorities that sign client certificates, PEM. When given, clients may show a certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether clients must show a certificate.
    pub require_client_certificate: bool,
}

/// What a session may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionSettings {
    /// Longest keep-alive in seconds; an MQTT 5 client that asks for more (or for none) is told this one as
    /// Server Keep Alive. 0 is no limit.
    pub max_keep_alive: u16,
    /// Longest session expiry in seconds; an MQTT 5 client that asks for more is told this one.
    pub max_expiry: u32,
    /// Largest packet a client may send, in bytes.
    pub max_packet_size: u32,
    /// QoS 1 and 2 messages that a client may have in flight towards us (MQTT 5 Receive Maximum).
    pub receive_maximum: u16,
    /// QoS 1 and 2 messages in flight towards a client that acknowledges promptly.
    pub max_inflight: u16,
    /// Topic aliases a client may set up, and the most that we set up towards a client.
    pub topic_alias_maximum: u16,
    /// Subscriptions of one client.
    pub max_subscriptions: usize,
    /// Longest client identifier in bytes.
    pub max_client_id: usize,
    /// Sessions kept for clients that are away.
    pub max_offline_sessions: usize,
    /// Seconds between updates of `$SYS/broker/...`; 0 turns them off.
    pub sys_interval: u16,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            max_keep_alive: 60,
            max_expiry: u32::MAX,
            max_packet_size: 2 * 1024 * 1024,
            receive_maximum: 1024,
            max_inflight: 4096,
            topic_alias_maximum: 64,
            max_subscriptions: 10_000,
            max_client_id: 256,
            max_offline_sessions: 100_000,
            sys_interval: 10,
        }
    }
}

/// Consumer queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// Messages that may wait for a connected consumer before its publishers are held.
    pub max_messages: usize,
    /// Bytes that may wait for a connected consumer before its publishers are held.
    pub max_bytes: usize,
    /// How long the oldest message may wait before the publishers are held, in milliseconds.
    pub max_delay_ms: u64,
    /// Longest hold for a QoS 0 consumer, in milliseconds; afterwards its oldest messages go.
    pub qos0_hold_ms: u64,
    /// A consumer that acknowledges nothing for this long holds nobody, in seconds.
    pub progress_timeout: u64,
    /// How long the messages of a publisher that has left wait for their turn, in seconds.
    pub left_timeout: u64,
    /// Messages kept for a client that is away.
    pub offline_messages: usize,
    /// Bytes kept for a client that is away.
    pub offline_bytes: usize,
    /// Consumers that never hold publishers.
    pub never_hold: Vec<Hold>,
    /// Retained messages; 0 is no limit.
    pub max_retained: usize,
    /// Bytes of retained messages; 0 is no limit.
    pub max_retained_bytes: usize,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            max_messages: 5_000,
            max_bytes: 8 * 1024 * 1024,
            max_delay_ms: 100,
            qos0_hold_ms: 20,
            progress_timeout: 10,
            left_timeout: 30,
            offline_messages: 10_000,
            offline_bytes: 16 * 1024 * 1024,
            never_hold: Vec::new(),
            max_retained: 1_000_000,
            max_retained_bytes: 1024 * 1024 * 1024,
        }
    }
}

impl QueueSettings {
    /// See `progress_timeout`.
    pub fn progress_timeout(&self) -> Duration {
        Duration::from_secs(self.progress_timeout)
    }
}

/// Which consumers are meant; what is given must all match, `*` matches any text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Hold {
    /// User name.
    pub user: Option<String>,
    /// Client identifier.
    pub client: Option<String>,
    /// Subscription filter, as text.
    pub filter: Option<String>,
}

/// Who may connect and do what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessSettings {
    /// Whether clients without user name may connect.
    pub anonymous: bool,
    /// File with users, made by `tidegate passwd`.
    pub users: Option<PathBuf>,
    /// File with rules; when given, what no rule allows is denied.
    pub rules: Option<PathBuf>,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self { anonymous: true, users: None, rules: None }
    }
}

/// Metrics and health.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSettings {
    /// Where; an empty list turns it off.
    #[serde(with = "addresses")]
    pub listen: Vec<SocketAddr>,
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self { listen: vec![SocketAddr::from(([127, 0, 0, 1], 9464))] }
    }
}

/// What publishers may send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverloadSettings {
    /// Milliseconds between two turns of the control loop.
    pub period_ms: u64,
    /// What control topics start with.
    pub prefix: String,
    /// How the rate is found.
    pub algorithm: OverloadAlgorithm,
    /// The delay that a queue may have, in milliseconds.
    pub target_delay_ms: u64,
    /// Messages that may wait in a queue in any case; 0 is none.
    pub threshold: u64,
    /// Messages a second of one publisher that nobody holds back; 0 is not known.
    pub default_rate: f64,
    /// How long a publisher counts after its last message, in seconds.
    pub window: u64,
    /// How long an announcement holds, in milliseconds.
    pub ttl_ms: u64,
    /// Classes of publishers.
    pub classes: Vec<PublisherClass>,
    /// Queues that are protected; all when the list is empty.
    pub protect: Vec<QueueChoice>,
    /// Queues that are not protected.
    pub ignore: Vec<QueueChoice>,
    /// Who is asked for exact lengths of queues, in proxy mode.
    pub source: Vec<SourceSettings>,
}

impl Default for OverloadSettings {
    fn default() -> Self {
        Self {
            period_ms: 100,
            prefix: "$tide/v1".into(),
            algorithm: OverloadAlgorithm::default(),
            target_delay_ms: 100,
            threshold: 0,
            default_rate: 0.0,
            window: 10,
            ttl_ms: 10_000,
            classes: Vec::new(),
            protect: Vec::new(),
            ignore: Vec::new(),
            source: Vec::new(),
        }
    }
}

/// How the rate of publishers is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum OverloadAlgorithm {
    /// Towards a target delay.
    #[default]
    Drain,
    /// In three phases.
    Phase,
}

/// A class of publishers; patterns that are given must all match, `*` matches any text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PublisherClass {
    /// Its name.
    pub name: String,
    /// Client identifier.
    pub client: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Topic.
    pub topic: Option<String>,
    /// The share of one client, relative to those of others.
    pub weight: f64,
    /// The least rate of one client.
    pub floor: f64,
    /// The highest rate of one client while it is held back; 0 is none.
    pub ceiling: f64,
    /// Messages a second of one client that nobody holds back; 0 is that of all.
    pub default_rate: f64,
    /// Whether it is never held back, and overtakes others that wait for a consumer.
    pub exempt: bool,
}

impl Default for PublisherClass {
    fn default() -> Self {
        Self {
            name: String::new(),
            client: None,
            user: None,
            topic: None,
            weight: 1.0,
            floor: 0.0,
            ceiling: 0.0,
            default_rate: 0.0,
            exempt: false,
        }
    }
}

/// Which queues are meant; what is given must all match, `*` matches any text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct QueueChoice {
    /// Subscription filter, as text.
    pub filter: Option<String>,
    /// Shared group.
    pub group: Option<String>,
    /// Least QoS.
    pub min_qos: u8,
    /// The delay that they may have, in milliseconds.
    pub target_delay_ms: Option<u64>,
    /// Messages that may wait in any case.
    pub threshold: Option<u64>,
    /// Messages a second of one publisher that feeds them and that nobody holds back.
    pub default_rate: Option<f64>,
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `tidegate=debug`.
    pub level: String,
    /// Text for people or JSON for machines.
    pub format: LogFormat,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// One address as text, several with commas between them, or a list of them; `""` and `[]` are none.
mod addresses {
    use std::net::SocketAddr;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "must be an address such as \"127.0.0.1:1883\" or \"[::1]:1883\", or a list of them"
    )]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }

    pub(super) fn serialize<S: Serializer>(value: &[SocketAddr], to: S) -> Result<S::Ok, S::Error> {
        value.iter().map(ToString::to_string).collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
        let texts = match OneOrMany::deserialize(from)? {
            OneOrMany::One(text) if text.trim().is_empty() => Vec::new(),
            OneOrMany::One(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
            OneOrMany::Many(texts) => texts,
        };
        let parse = |text: &String| {
            text.parse().map_err(|_| {
                D::Error::custom(format!(
                    "{text:?} is not a numeric address and a port, such as \"127.0.0.1:1883\" or \"[::1]:1883\""
                ))
            })
        };
        texts.iter().map(parse).collect()
    }
}

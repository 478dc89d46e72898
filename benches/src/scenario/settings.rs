//! The parts of a scenario file, with their defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
pub use tidegate::sim::scenario::{AutoscaleSettings, CouplingName, Service, Workload};

use crate::codec::Version;
use crate::record::Reference;
use crate::transport::Kind;

/// One experiment. Times in lists are shares of the duration, as in the simulator's scenarios.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A short name.
    pub name: String,
    /// What it shows, in a sentence.
    #[serde(default)]
    pub about: String,
    /// The seed of all random numbers in it.
    #[serde(default = "one")]
    pub seed: u64,
    /// How long it is measured, in seconds.
    pub duration: f64,
    /// How long devices send before, in seconds.
    #[serde(default = "unit")]
    pub warmup: f64,
    /// How long at most one waits afterwards until all has been delivered, in seconds.
    #[serde(default = "ten")]
    pub drain: f64,
    /// The length of an interval in the results, in seconds.
    #[serde(default = "half")]
    pub interval: f64,
    /// The run is cut short when nothing at all is accepted or delivered for so many seconds.
    #[serde(default = "five")]
    pub patience: f64,
    /// MQTT 3.1.1 or 5.
    #[serde(default)]
    pub version: Version,
    /// How connections travel.
    #[serde(default)]
    pub transport: Kind,
    /// The authorities that sign the target's certificate, a PEM file; not needed for brokers that are started here.
    pub ca: Option<PathBuf>,
    /// How clients connect.
    #[serde(default)]
    pub connect: ConnectSettings,
    /// How many devices are connected over time; all of them unless given.
    pub workload: Option<Workload>,
    /// The kinds of devices.
    #[serde(default, rename = "class")]
    pub classes: Vec<Class>,
    /// Who takes messages.
    #[serde(default)]
    pub consumers: Vec<Consumers>,
    /// Who decides how many instances of the first consumers there are; their number is the most there can be.
    pub autoscale: Option<AutoscaleSettings>,
    /// The target's admin endpoint, where the auto-scaler says what it does.
    pub admin: Option<std::net::SocketAddr>,
    /// What happens at certain times.
    #[serde(default, rename = "event")]
    pub events: Vec<EventSettings>,
    /// What stands between the generator and the target.
    pub relay: Option<RelaySettings>,
    /// Settings of brokers that are started here.
    #[serde(default)]
    pub broker: BrokerSettings,
    /// The bands in which measures must lie.
    #[serde(default)]
    pub expect: BTreeMap<String, [f64; 2]>,
    /// In a study: the bands in which the medians of measures must lie as shares of those of another variant, by its name.
    #[serde(default)]
    pub against: BTreeMap<String, BTreeMap<String, [f64; 2]>>,
    /// The variants that a study runs, in the order of its columns; `base` is the file without a variant. All unless given.
    #[serde(default)]
    pub study: Vec<String>,
    /// Figures from elsewhere to put beside those of a study.
    pub reference: Option<Reference>,
    /// Tables that replace keys of this file when `NAME@VARIANT` is run.
    #[serde(default, rename = "variant")]
    pub variants: BTreeMap<String, toml::Table>,
}

/// How clients connect.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectSettings {
    /// Handshakes at the same time.
    pub at_once: u32,
    /// Handshakes a second; 0 is no limit.
    pub rate: f64,
    /// How long a handshake may take, in seconds.
    pub timeout: f64,
    /// Keep-alive in seconds.
    pub keep_alive: u16,
    /// The longest wait before the first attempt to come back after a connection was lost, in seconds; each wait is a
    /// random part of it. It doubles with every attempt.
    pub backoff: f64,
    /// What it doubles up to, in seconds.
    pub backoff_max: f64,
    /// User name and password.
    pub login: Option<[String; 2]>,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self {
            at_once: 256,
            rate: 0.0,
            timeout: 10.0,
            keep_alive: 60,
            backoff: 0.1,
            backoff_max: 2.0,
            login: None,
        }
    }
}

/// One kind of devices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Devices at the pattern's highest point.
    pub devices: u32,
    /// The client identifier before the device's number; the class's name unless given.
    pub client: Option<String>,
    /// Messages a second that a device is meant to send (open loop); without it as many as can be (closed loop).
    pub rate: Option<f64>,
    /// QoS 1 and 2: messages of a device that may wait for their acknowledgement.
    #[serde(default = "hundred")]
    pub window: u16,
    /// Messages that go out in one write at most; without it as many as there are.
    pub batch: Option<u32>,
    /// 0, 1 or 2.
    #[serde(default)]
    pub qos: u8,
    /// Bytes of a payload, at least 24.
    #[serde(default = "sixty_four")]
    pub payload: usize,
    /// Where to: %i is the number of the device, %t goes round over `topics`.
    pub topic: String,
    /// How many topics %t stands for.
    #[serde(default = "one_topic")]
    pub topics: u32,
    /// Whether messages are retained.
    #[serde(default)]
    pub retain: bool,
    /// Whether devices follow the rate that the gateway announces.
    #[serde(default)]
    pub follows: bool,
    /// The share of following devices that never listen.
    #[serde(default)]
    pub deaf: f64,
    /// How far the time between two messages may be off, as a share of it.
    #[serde(default)]
    pub jitter: f64,
    /// The share of an interval over which the first messages of devices are spread.
    #[serde(default = "unit")]
    pub spread: f64,
    /// Whether the pattern holds for this class; otherwise all of it is there from the start.
    #[serde(default = "yes")]
    pub patterned: bool,
    /// Another protocol than the scenario's.
    pub version: Option<Version>,
    /// The class whose devices these are to be equal to: fairness is that of both together.
    pub fair_with: Option<String>,
}

/// Consumers of one kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumers {
    /// Their name, and the client identifier before the number.
    #[serde(default = "consumer")]
    pub name: String,
    /// How many there are; with a schedule or an auto-scaler the most there can be.
    pub instances: u32,
    /// What they subscribe to: %i is the number of the consumer.
    pub filter: String,
    /// The shared group that they form; without it each gets every message.
    pub group: Option<String>,
    /// 0, 1 or 2.
    #[serde(default)]
    pub qos: u8,
    /// Messages a second that one of them processes, one at a time; without it they take all at once.
    pub rate: Option<f64>,
    /// How the times of messages vary.
    #[serde(default)]
    pub service: Service,
    /// Points of time and speed: 1 is the full rate, 0 a stall.
    #[serde(default)]
    pub speed: Vec<[f64; 2]>,
    /// Points of time and number of instances; before the first point all are there.
    #[serde(default)]
    pub schedule: Vec<[f64; 2]>,
    /// MQTT 5: messages in flight towards one of them.
    pub receive_maximum: Option<u16>,
    /// The kernel's receive buffer in bytes, if it is to be bounded.
    pub receive_buffer: Option<u32>,
    /// Whether sessions outlive connections.
    #[serde(default)]
    pub persistent: bool,
    /// Another protocol than the scenario's.
    pub version: Option<Version>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSettings {
    /// When, as a share of the duration.
    pub at: f64,
    /// What.
    #[serde(rename = "do")]
    pub action: Action,
    /// The share of clients that it happens to.
    #[serde(default = "unit")]
    pub share: f64,
    /// The class or the consumers that it happens to; all unless given.
    pub who: Option<String>,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Devices lose their connections at the same moment, and come back.
    DropDevices,
    /// Consumers lose their connections at the same moment, and come back.
    DropConsumers,
    /// The broker is killed and started again; only if it was started here.
    RestartBroker,
    /// The relay passes nothing on any more.
    StopRelay,
    /// The relay passes on again.
    ResumeRelay,
}

/// What stands between the generator and the target.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelaySettings {
    /// Whose connections pass it.
    pub side: Side,
    /// The share of messages that are dropped.
    pub drop: f64,
    /// The share of messages that are passed on twice.
    pub repeat: f64,
    /// The share of messages that change places with the next one.
    pub swap: f64,
    /// The seed of its random numbers.
    pub seed: u64,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self { side: Side::Consumers, drop: 0.0, repeat: 0.0, swap: 0.0, seed: 1 }
    }
}

/// Whose connections pass a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Those of devices.
    Devices,
    /// Those of consumers.
    Consumers,
    /// All.
    Both,
}

/// Settings of brokers that are started here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerSettings {
    /// The broker that is started unless another one is asked for; Tidegate unless given.
    pub kind: Option<String>,
    /// Tidegate: `key=value` as after `--set`.
    pub tidegate: Vec<String>,
}

fn one() -> u64 {
    1
}

fn one_topic() -> u32 {
    1
}

fn unit() -> f64 {
    1.0
}

fn half() -> f64 {
    0.5
}

fn five() -> f64 {
    5.0
}

fn ten() -> f64 {
    10.0
}

fn hundred() -> u16 {
    100
}

fn sixty_four() -> usize {
    64
}

fn yes() -> bool {
    true
}

fn consumer() -> String {
    "consumer".to_owned()
}

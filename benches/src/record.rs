//! What a run leaves behind: the result file, and several of them side by side.
//!
//! Times are seconds from the start of the measured part of a run, latencies milliseconds, rates messages a second.

mod comparison;

use serde::{Deserialize, Serialize};

pub use self::comparison::{BrokerResult, Comparison, Missing, Reference, ScenarioComparison, Summary};

/// The version of these types; grows when a field changes its meaning.
pub const FORMAT: u32 = 2;

/// One run of one scenario against one broker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`] of the file.
    pub format: u32,
    /// The scenario's name.
    pub scenario: String,
    /// What the scenario shows, in a sentence.
    pub about: String,
    /// The scenario as it was read.
    pub scenario_file: String,
    /// Who was measured.
    pub broker: Broker,
    /// Which repetition this is, from 1.
    pub repetition: u32,
    /// When it started, in seconds since 1970.
    pub started_unix: u64,
    /// The same as text, such as `2026-01-31T12:00:00Z`.
    pub started: String,
    /// Where it ran.
    pub machine: Machine,
    /// The version of the generator, and the commit that it was built from.
    pub generator: String,
    /// The seed of all random numbers of the run.
    #[serde(default)]
    pub seed: u64,
    /// How long the measured part lasted, in seconds; shorter than planned if the run was cut short.
    pub duration: f64,
    /// Time from the first connection attempt until all consumers and first devices were connected, in seconds.
    pub connect_seconds: f64,
    /// Time that was needed after the measured part until nothing was left to deliver, in seconds.
    pub drain_seconds: f64,
    /// Messages counted over the whole run.
    pub totals: Totals,
    /// How often the broker said that it ends a connection, and why, by reason code (MQTT 5 only). These connections are
    /// among the `disconnects` of the totals.
    #[serde(default)]
    pub farewells: Vec<Farewell>,
    /// Means over the measured part.
    pub rates: Rates,
    /// From the intended time of sending until a consumer takes the message, for those that were meant to be sent in the
    /// measured part, whenever they came. What had not come or not even been sent in the end counts with the time that it
    /// had waited until then.
    pub latency: Latency,
    /// From the broker's acknowledgement until a consumer begins with the message, QoS 1 and 2, for what was acknowledged in
    /// the measured part; 0 for a message that was begun with before. What had not come in the end counts with the time
    /// that it had waited until then.
    #[serde(default)]
    pub queue_wait: Latency,
    /// What devices that follow did not send because they were told so; none without such devices. Their latency counts
    /// from the time that they were told, so this belongs beside it.
    #[serde(default)]
    pub withheld: Option<Withheld>,
    /// What the run was like against what would have been right.
    #[serde(default)]
    pub control: Control,
    /// The distribution behind the latency.
    pub percentiles: Vec<Percentile>,
    /// What happened over time.
    pub intervals: Vec<Interval>,
    /// The same totals for each class of devices.
    pub classes: Vec<ClassTotals>,
    /// What the broker's process used in the measured part, if its process is known.
    pub broker_use: Option<Use>,
    /// What the generator's process used in the measured part.
    pub generator_use: Use,
    /// What a reader must know to judge the figures.
    pub notes: Vec<Note>,
    /// What cut the run short; the figures are those until then.
    pub error: Option<String>,
}

/// Who was measured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Broker {
    /// `tidegate`, `mosquitto`, `nats`, `rumqttd`, or `target` for one that was there before.
    pub name: String,
    /// The variant of the scenario that it ran in a study; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// As it says itself; empty if unknown.
    pub version: String,
    /// The configuration that it was started with, as text; empty if unknown.
    pub configuration: String,
    /// Where it was reached.
    pub address: String,
}

impl Broker {
    /// What a column about it is called: its name, or in a study the variant.
    pub fn label(&self) -> String {
        match (self.variant.as_str(), self.name.as_str()) {
            ("", name) => name.to_owned(),
            (variant, "tidegate") => variant.to_owned(),
            (variant, name) => format!("{variant} ({name})"),
        }
    }
}

/// The computer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that may be used.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The operating system's version.
    pub system: String,
}

/// Messages counted.
///
/// A message goes to every consumer and to every shared group whose filter matches, so `delivered` may be larger than
/// `sent`. `expected = delivered - duplicates - repeated - unaccepted + lost + undelivered`, where `unaccepted` were
/// delivered though the broker never acknowledged them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Begun to send, without repetitions after a reconnect.
    pub sent: u64,
    /// Acknowledged by the broker (QoS 1 and 2), or handed to the socket as a whole (QoS 0).
    pub accepted: u64,
    /// Refused by the broker with a reason code.
    pub refused: u64,
    /// Sent a second time after a reconnect.
    pub resent: u64,
    /// Deliveries owed for accepted messages: one for each matching consumer or group.
    pub expected: u64,
    /// Messages that were due and could not be sent until the measured part was over, or their device went.
    #[serde(default)]
    pub unsent: u64,
    /// Deliveries of messages that had been sent and had not come when waiting ended, after the last one that came.
    #[serde(default)]
    pub outstanding: u64,
    /// Deliveries, duplicates included.
    pub delivered: u64,
    /// Accepted, but never delivered to a consumer or group that should have had it.
    pub lost: u64,
    /// Accepted and not delivered yet when the longest wait was over, to a consumer or group that was still getting messages.
    #[serde(default)]
    pub undelivered: u64,
    /// Deliveries beyond the first to the same consumer or group for which the generator is no reason.
    pub duplicates: u64,
    /// Deliveries beyond the first because the generator had sent the message again after a reconnect, or had come back
    /// to a session of its own without having acknowledged it.
    #[serde(default)]
    pub repeated: u64,
    /// Deliveries that came after a later message of the same publisher and topic on the same connection.
    pub out_of_order: u64,
    /// Deliveries of messages that were never acknowledged.
    pub unaccepted: u64,
    /// Messages that this run did not send, that came to somebody whose filter does not match, or that could not be read.
    pub foreign: u64,
    /// Announcements of rates that devices got, without those that were the answer to their subscription.
    #[serde(default)]
    pub announcements: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connection attempts that failed.
    pub failed_connects: u64,
    /// Connections that ended though the generator did not end them.
    pub disconnects: u64,
}

/// Connections that the broker ended with the same reason code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Farewell {
    /// The reason code of its DISCONNECT.
    pub code: u8,
    /// What the standard says that it means; empty if it says nothing.
    pub meaning: String,
    /// What the broker said about it the last time; empty if nothing.
    #[serde(default)]
    pub words: String,
    /// How many connections.
    pub count: u64,
}

/// Means over the measured part, in messages a second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Begun to send.
    pub sent: f64,
    /// Accepted.
    pub accepted: f64,
    /// Delivered for the first time.
    pub delivered: f64,
}

/// A distribution in short, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// Nine of ten are at most this.
    pub p90: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// 999 of 1000 are at most this.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

/// The measured part against what would have been right: as much as devices want and consumers can process.
///
/// All of it but the intervals between messages is known only if there is one kind of consumers that have a rate and share
/// their messages.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Control {
    /// What consumers that were to be there could have processed, in messages.
    pub capacity: Option<f64>,
    /// The smaller one of that and of what connected devices wanted to send, added up over time.
    pub limit: Option<f64>,
    /// Consumers that were connected, as a mean.
    pub mean_instances: Option<f64>,
    /// Messages that were acknowledged and not begun with, as a mean over time; QoS 1 and 2.
    pub mean_depth: Option<f64>,
    /// Seconds between two messages of a device, as a mean over time of what devices live with at each moment.
    pub mean_interval: Option<f64>,
    /// The longest.
    pub max_interval: Option<f64>,
    /// Seconds until the accepted rate is within 10% of the limit and stays there, the longest over all changes of the
    /// limit; none if it never was.
    pub settle: Option<f64>,
    /// Whether it settled; none if it is not known what would be right.
    #[serde(default)]
    pub settled: Option<Settled>,
    /// How far the accepted rate swings after that around its mean, as a share of it.
    pub swing: Option<f64>,
}

/// Whether the accepted rate settled at what was right; the later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Settled {
    /// It did.
    Settled,
    /// There are too few windows to tell.
    NotMeasurable,
    /// It never did.
    Never,
}

/// What devices that follow were talked out of sending, in the measured part and while they were connected.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Withheld {
    /// Messages that they would have sent at their own rates.
    pub wanted: f64,
    /// Of these, messages that they were told not to send.
    pub messages: f64,
    /// Seconds for which they were connected, of all devices together.
    pub connected: f64,
    /// Of these, seconds with a rate below their own.
    pub seconds: f64,
}

impl Withheld {
    /// The share of what was wanted; 0 if nothing was.
    pub fn share(&self) -> f64 {
        if self.wanted > 0.0 { self.messages / self.wanted } else { 0.0 }
    }

    /// Adds what another one was talked out of.
    pub fn add(&mut self, other: &Self) {
        self.wanted += other.wanted;
        self.messages += other.messages;
        self.connected += other.connected;
        self.seconds += other.seconds;
    }
}

/// A point of the distribution.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Percentile {
    /// From 0 to 100.
    pub percentile: f64,
    /// The latency in milliseconds that this share does not exceed.
    pub latency: f64,
    /// How many do not exceed it.
    pub count: u64,
}

/// A stretch of time, half a second unless the scenario says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, in seconds; negative while warming up, over the duration while draining.
    pub t: f64,
    /// Its length, in seconds.
    pub length: f64,
    /// Messages begun to send in it.
    pub sent: u64,
    /// Messages accepted in it.
    pub accepted: u64,
    /// Messages delivered in it for the first time.
    pub delivered: u64,
    /// Deliveries in it beyond the first.
    #[serde(default)]
    pub duplicates: u64,
    /// Devices connected at its end.
    pub devices: u32,
    /// Consumers connected at its end.
    pub consumers: u32,
    /// Deliveries owed at its end: for each consumer or group, what was accepted and not delivered.
    pub waiting: u64,
    /// Connections made in it.
    pub connects: u64,
    /// Latency in it; none if nothing was delivered.
    pub p50: Option<f64>,
    /// The same.
    pub p99: Option<f64>,
    /// The same.
    pub max: Option<f64>,
    /// The time from the acknowledgement until a consumer begins, in it; none if nothing was delivered, or with QoS 0 only.
    #[serde(default)]
    pub wait_p50: Option<f64>,
    /// The same.
    #[serde(default)]
    pub wait_p99: Option<f64>,
    /// What connected devices want to send, in messages a second; none if some send as fast as they can.
    #[serde(default)]
    pub demand: Option<f64>,
    /// What consumers that are to be there can process, in messages a second; none if that is not known.
    #[serde(default)]
    pub capacity: Option<f64>,
    /// The smaller one of the two, as a mean.
    #[serde(default)]
    pub limit: Option<f64>,
    /// The rate that following devices use, as a mean; none without such devices.
    pub rate: Option<f64>,
    /// Processors that the broker used, such as 1.5; none if its process is unknown.
    pub broker_cpu: Option<f64>,
    /// Memory of the broker's process in bytes; none if it is unknown.
    pub broker_rss: Option<u64>,
    /// Processors that the generator used.
    pub generator_cpu: f64,
}

/// What one class of devices did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClassTotals {
    /// The class's name.
    pub name: String,
    /// Devices in it.
    pub devices: u32,
    /// Messages begun to send.
    pub sent: u64,
    /// Messages accepted.
    pub accepted: u64,
    /// Messages refused.
    pub refused: u64,
    /// Deliveries lost.
    pub lost: u64,
    /// Messages accepted in the measured part.
    #[serde(default)]
    pub measured: u64,
    /// The same in a second.
    #[serde(default)]
    pub rate: f64,
    /// Jain's fairness of what the broker accepted in the measured part of each device, of this class and of those that it
    /// is to be equal to; 1 is all the same. Not known if devices come and go.
    pub fairness: Option<f64>,
    /// From the intended time of sending until a consumer takes the message.
    pub latency: Latency,
    /// From the acknowledgement until a consumer begins with the message.
    #[serde(default)]
    pub queue_wait: Latency,
    /// What its devices were talked out of sending; none if they do not follow.
    #[serde(default)]
    pub withheld: Option<Withheld>,
}

/// What a process used.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Use {
    /// Processors, as a mean, such as 1.5.
    pub cpu: f64,
    /// The largest memory that was seen, in bytes.
    pub rss: u64,
}

/// Something a reader must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// In a sentence.
    pub text: String,
}

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// The generator could not send what was meant to be sent: the broker may be better than shown.
    GeneratorLimited,
    /// Generator and broker shared processors that had nothing left.
    MachineSaturated,
    /// The checks of loss, duplicates or order are not complete.
    Check,
    /// What was sent late, or not there in the end: the checks are complete, and the latencies count it.
    Late,
    /// What a relay between generator and broker did.
    Relay,
    /// Anything else.
    Info,
}

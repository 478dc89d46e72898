//! The packets, as the session sees them.

use bytes::Bytes;

use super::property::PublishProperties;
use super::{QoS, ReasonCode, Version};

/// A packet from a client. Borrows from the read buffer where that saves a copy on the hot path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// The first packet of a connection.
    Connect(Box<Connect>),
    /// A message.
    Publish(Publish<'a>),
    /// QoS 1 delivery acknowledged.
    PubAck(Ack),
    /// QoS 2, first answer.
    PubRec(Ack),
    /// QoS 2, release.
    PubRel(Ack),
    /// QoS 2, complete.
    PubComp(Ack),
    /// Subscribe to filters.
    Subscribe(Subscribe),
    /// Unsubscribe from filters.
    Unsubscribe(Unsubscribe),
    /// Keep-alive.
    PingReq,
    /// The client leaves.
    Disconnect(Disconnect),
    /// Extended authentication.
    Auth(Auth),
}

/// CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Protocol version.
    pub version: Version,
    /// Clean Session (3.1.1) or Clean Start (5.0).
    pub clean_start: bool,
    /// Keep-alive in seconds; 0 is none.
    pub keep_alive: u16,
    /// Client identifier, perhaps empty.
    pub client_id: String,
    /// Published when the connection is lost.
    pub will: Option<Will>,
    /// User name.
    pub user: Option<String>,
    /// Password: bytes, not text.
    pub password: Option<Bytes>,
    /// Session Expiry Interval in seconds; 0 when absent. `u32::MAX` is for ever.
    pub session_expiry: u32,
    /// Receive Maximum of the client; 65,535 when absent.
    pub receive_maximum: u16,
    /// Maximum Packet Size of the client, if any.
    pub maximum_packet_size: Option<u32>,
    /// Topic Alias Maximum of the client; 0 when absent.
    pub topic_alias_maximum: u16,
    /// Whether the client wants response information.
    pub request_response_information: bool,
    /// Whether the client wants reason strings and user properties on acknowledgements; true when absent.
    pub request_problem_information: bool,
    /// Authentication Method, if any.
    pub authentication_method: Option<String>,
}

/// The will of a CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Will {
    /// Its topic, already validated as a topic name.
    pub topic: String,
    /// Its payload.
    pub payload: Bytes,
    /// Its QoS.
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
    /// Will Delay Interval in seconds.
    pub delay: u32,
    /// Message Expiry Interval in seconds.
    pub message_expiry: Option<u32>,
    /// The other properties, encoded as they go into a PUBLISH (no length in front).
    pub properties: Bytes,
}

/// PUBLISH, from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Sent again.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// To be retained.
    pub retain: bool,
    /// Valid UTF-8, no wildcard, no NUL; empty only with a topic alias.
    pub topic: &'a str,
    /// Packet identifier; 0 when QoS is 0, never 0 otherwise.
    pub packet_id: u16,
    /// MQTT 5 properties; empty for 3.1.1.
    pub properties: PublishProperties<'a>,
    /// The payload.
    pub payload: &'a [u8],
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP, from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Packet identifier, never 0.
    pub packet_id: u16,
    /// Reason code; success for 3.1.1.
    pub reason: ReasonCode,
}

/// SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// Packet identifier, never 0.
    pub packet_id: u16,
    /// Subscription Identifier, if any (1 to 268,435,455).
    pub identifier: Option<u32>,
    /// At least one.
    pub filters: Vec<Filter>,
}

/// One filter of a SUBSCRIBE. The text is valid UTF-8 and not empty; whether it is a sound filter is the
/// session's business, because the answer to an unsound one stands in the SUBACK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The filter as sent, `$share/...` included.
    pub path: String,
    /// Maximum QoS wanted.
    pub qos: QoS,
    /// Do not send back what this client publishes.
    pub no_local: bool,
    /// Keep the retain flag as published.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

/// When retained messages are sent for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetainHandling {
    /// Each time the client subscribes.
    Always,
    /// Only when the subscription is new.
    IfNew,
    /// Never.
    Never,
}

/// UNSUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Packet identifier, never 0.
    pub packet_id: u16,
    /// At least one.
    pub filters: Vec<String>,
}

/// DISCONNECT, from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disconnect {
    /// Reason code; normal for 3.1.1.
    pub reason: ReasonCode,
    /// A new Session Expiry Interval, if given.
    pub session_expiry: Option<u32>,
}

/// AUTH, from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// Reason code.
    pub reason: ReasonCode,
    /// Authentication Method, if any.
    pub method: Option<String>,
}

/// CONNACK. For 3.1.1 only `session_present` and `reason` are written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Connack<'a> {
    /// A session was found.
    pub session_present: bool,
    /// Reason code; translated to a return code for 3.1.1.
    pub reason: ReasonCode,
    /// Session Expiry Interval, when it differs from the one asked for.
    pub session_expiry: Option<u32>,
    /// Receive Maximum of the server.
    pub receive_maximum: Option<u16>,
    /// Maximum Packet Size of the server.
    pub maximum_packet_size: Option<u32>,
    /// The client identifier that was assigned.
    pub assigned_client_id: Option<&'a str>,
    /// Topic Alias Maximum of the server.
    pub topic_alias_maximum: Option<u16>,
    /// Server Keep Alive in seconds.
    pub server_keep_alive: Option<u16>,
    /// Response Information, when asked for.
    pub response_information: Option<&'a str>,
    /// Another server to use.
    pub server_reference: Option<&'a str>,
    /// A text for people.
    pub reason_string: Option<&'a str>,
}

/// PUBLISH, to a client. Everything that depends on the receiver stands beside the message's own bytes.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Sent again.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// Retain flag.
    pub retain: bool,
    /// The topic; empty when the alias stands for it (MQTT 5 only).
    pub topic: &'a [u8],
    /// Packet identifier; written when QoS is not 0.
    pub packet_id: u16,
    /// Topic alias, if any (MQTT 5 only).
    pub topic_alias: Option<u16>,
    /// Message Expiry Interval that is left, if any (MQTT 5 only).
    pub message_expiry: Option<u32>,
    /// Subscription identifiers that matched (MQTT 5 only).
    pub subscription_ids: &'a [u32],
    /// The properties that travel unchanged, already encoded (MQTT 5 only).
    pub properties: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

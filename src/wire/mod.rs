//! MQTT packets to bytes and back: 3.1.1 and 5.0, the server's side.
//!
//! The grammar is written here because the public codecs are a client's: `tests/rumqttc_codec.rs` shows
//! what they get wrong for a server. Decoding borrows from the read buffer and validates everything the
//! specifications call malformed or a protocol error, so that the session behind it sees only sound packets.

mod connect;
mod decode;
mod encode;
mod packet;
mod property;
mod reader;
mod reason;
mod subscribe;
mod writer;

pub use decode::{Frame, decode, frame};
pub use encode::Encoder;
pub use packet::{
    Ack, Auth, Connack, Connect, Disconnect, Filter, Outgoing, Packet, Publish, RetainHandling, Subscribe,
    Unsubscribe, Will,
};
pub use property::PublishProperties;
pub use reason::{ReasonCode, WireError};
pub use writer::{correlation_data, user_property};

/// The protocol version that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// MQTT 3.1.1, protocol level 4.
    V311,
    /// MQTT 5.0, protocol level 5.
    V5,
}

/// How surely a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// Fire and forget.
    AtMostOnce = 0,
    /// Acknowledged, perhaps repeated.
    AtLeastOnce = 1,
    /// Acknowledged, never repeated.
    ExactlyOnce = 2,
}

impl QoS {
    /// The level for its number, if there is one.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;

//! The network: one connection that is made again whenever it breaks, seen as a stream of events.

mod address;
mod connection;
mod link;
mod probe;
mod reconnect;
mod route;
mod tls;
mod wire;
mod wire4;
mod wire5;

pub use connection::{Connection, Qos, Version};
pub use reconnect::Reconnect;
pub use tls::Tls;

pub(crate) use link::{Link, Status};
pub(crate) use wire::{RECEIVE_MAXIMUM, Requests, Wanted};

use bytes::Bytes;

use crate::protocol::Hints;

/// What happens on a connection.
#[derive(Debug)]
pub(crate) enum Event {
    /// Connected.
    Up(Up),
    /// A message was sent, with this packet identifier (0 with QoS 0).
    Sent(u16),
    /// A message was answered.
    Answered { id: u16, outcome: Outcome, hints: Hints },
    /// A message came in.
    Message(Incoming),
    /// A subscription was answered: so many filters were refused.
    Subscribed { refused: usize },
    /// The connection is gone.
    Down,
}

/// A connection that was made.
#[derive(Debug)]
pub(crate) struct Up {
    /// What to ask for on this connection.
    pub(crate) requests: Requests,
    /// Whether what was under way goes on; otherwise it is for us to send again.
    pub(crate) resumed: bool,
    /// Whether the broker had a session for us, of this program or of one before it.
    pub(crate) present: bool,
    /// How many messages the broker takes before it has acknowledged one.
    pub(crate) receive_maximum: u16,
    /// The largest packet that the broker takes.
    pub(crate) max_packet: usize,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is the broker's now.
    Accepted,
    /// Not now (0x97): later.
    PushedBack,
    /// Never.
    Rejected,
}

/// A message that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    pub(crate) retain: bool,
    /// Whether the broker says that it has sent it before.
    pub(crate) again: bool,
    /// Its number within its topic, if the gateway says so.
    pub(crate) seq: Option<u64>,
    /// What acknowledges it, if it has to be and we have to do it.
    pub(crate) receipt: Option<Receipt>,
}

/// What acknowledges a message on the connection on which it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) id: u16,
    pub(crate) qos: Qos,
}

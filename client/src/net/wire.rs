//! What the two versions of MQTT have in common.

use std::sync::Arc;

use bytes::Bytes;
use tokio_rustls::rustls::ClientConfig;

use super::address::{Address, Carrier};
use super::connection::{Connection, Qos, Version};
use super::wire4::Wire4;
use super::wire5::Wire5;
use super::{Event, Receipt, wire4, wire5};

/// Requests that may wait for the event loop: more than all that is ever under way.
pub(super) const REQUESTS: usize = 128;
/// Packet identifiers in use: their table takes memory for each.
pub(super) const IDENTIFIERS: u16 = 128;

/// Messages that the broker may send before we acknowledge one: what it holds back, it can see.
pub(super) const RECEIVE_MAXIMUM: u16 = 64;

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Broken {
    /// The broker refers to another one; the reference is missing when the library did not hand it on.
    Redirected { server: Option<String>, permanent: bool },
    /// Anything else; the text is for logs.
    Failed(#[allow(dead_code, reason = "read by its Debug, in logs")] String),
}

/// What must outlive a connection so that its session can go on.
pub(super) enum Saved {
    V4(wire4::Saved),
    V5(wire5::Saved),
}

/// A connection that is being made or used.
pub(super) enum Wire {
    V4(Box<Wire4>),
    V5(Box<Wire5>),
}

impl Wire {
    /// Prepares a connection; the first call of [`Wire::next`] makes it.
    pub(super) fn open(
        connection: &Connection,
        target: &Address,
        tls: Option<&Arc<ClientConfig>>,
        saved: Option<Saved>,
    ) -> Self {
        let transport = transport(target, tls);
        match connection.version {
            Version::V311 => {
                let saved =
                    saved.and_then(|saved| if let Saved::V4(saved) = saved { Some(saved) } else { None });
                Self::V4(Box::new(Wire4::open(connection, target, transport, saved)))
            }
            Version::V5 => {
                let saved =
                    saved.and_then(|saved| if let Saved::V5(saved) = saved { Some(saved) } else { None });
                Self::V5(Box::new(Wire5::open(connection, target, transport, saved)))
            }
        }
    }

    /// The next event, if it is one of interest. Must not be dropped before it is done.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        match self {
            Self::V4(wire) => wire.next().await,
            Self::V5(wire) => wire.next().await,
        }
    }

    /// Ends the connection: events that still wait, and what must be kept.
    pub(super) fn close(self) -> (Vec<Event>, Saved) {
        match self {
            Self::V4(wire) => wire.close(),
            Self::V5(wire) => wire.close(),
        }
    }
}

fn transport(target: &Address, tls: Option<&Arc<ClientConfig>>) -> rumqttc::Transport {
    let tls = tls.map(|config| rumqttc::TlsConfiguration::Rustls(config.clone()));
    match (target.carrier, tls) {
        (Carrier::WebSocket, _) => rumqttc::Transport::Ws,
        (Carrier::Tls, Some(tls)) => rumqttc::Transport::Tls(tls),
        (Carrier::SecureWebSocket, Some(tls)) => rumqttc::Transport::Wss(tls),
        // `Connection::validate` makes a configuration for every secure carrier.
        (Carrier::Tcp | Carrier::Tls | Carrier::SecureWebSocket, _) => rumqttc::Transport::Tcp,
    }
}

/// The host as the library wants it: a whole URL for a WebSocket.
pub(super) fn host(target: &Address) -> String {
    match target.carrier {
        Carrier::Tcp | Carrier::Tls => target.host.clone(),
        Carrier::WebSocket | Carrier::SecureWebSocket => target.url(),
    }
}

/// A filter to subscribe to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) filter: String,
    pub(crate) qos: Qos,
    /// Whether retained messages are wanted again although the session knows the filter.
    pub(crate) retained_again: bool,
}

/// Asks for things on one connection. Nothing waits: what can't be asked for now has failed.
#[derive(Clone)]
pub(crate) enum Requests {
    V4(rumqttc::AsyncClient),
    V5(rumqttc::v5::AsyncClient),
}

impl Requests {
    /// Publishes a message; false when it can't be taken.
    pub(crate) fn publish(&self, topic: &str, payload: Bytes, qos: Qos, retain: bool) -> bool {
        match self {
            Self::V4(client) => client.try_publish(topic, wire4::qos(qos), retain, payload).is_ok(),
            Self::V5(client) => client.try_publish(topic, wire5::qos(qos), retain, payload).is_ok(),
        }
    }

    /// Subscribes; false when it can't be asked for.
    pub(crate) fn subscribe(&self, filters: &[Wanted]) -> bool {
        match self {
            Self::V4(client) => client.try_subscribe_many(filters.iter().map(wire4::filter)).is_ok(),
            Self::V5(client) => client.try_subscribe_many(filters.iter().map(wire5::filter)).is_ok(),
        }
    }

    /// Acknowledges a message.
    pub(crate) fn acknowledge(&self, receipt: Receipt) {
        // An acknowledgement that can't be sent is one of a connection that is going: the message comes again.
        let _ = match self {
            Self::V4(client) => client.try_ack(&wire4::received(receipt)).is_ok(),
            Self::V5(client) => client.try_ack(&wire5::received(receipt)).is_ok(),
        };
    }

    /// Says goodbye.
    pub(crate) fn disconnect(&self) {
        // When it can't be said the connection is gone or going, which comes to the same.
        let _ = match self {
            Self::V4(client) => client.try_disconnect().is_ok(),
            Self::V5(client) => client.try_disconnect().is_ok(),
        };
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Requests")
    }
}

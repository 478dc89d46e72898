//! What the two versions of MQTT have in common.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_rustls::rustls::ClientConfig;

use super::address::{Address, Carrier};
use super::connection::{Connection, Qos, Version};
use super::wire4::Wire4;
use super::wire5::Wire5;
use super::{Event, Receipt, wire4, wire5};

/// Requests that may wait for the event loop: an acknowledgement for each packet identifier that a broker may use, and more
/// than all else that is ever under way. Only what does wait takes memory.
pub(super) const REQUESTS: usize = u16::MAX as usize + 256;
/// Packet identifiers in use: their table takes memory for each.
pub(super) const IDENTIFIERS: u16 = 128;

/// Messages that the broker may send before we acknowledge one: what it holds back, it can see.
pub(crate) const RECEIVE_MAXIMUM: u16 = 64;

/// How long bytes may wait for a socket that takes none.
const STUCK: Duration = Duration::from_secs(5);

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Broken {
    /// The broker refers to another one; the reference is missing when the library did not hand it on.
    Redirected { server: Option<String>, permanent: bool },
    /// A message orders us to go to another one.
    Ordered { server: String, permanent: bool },
    /// Anything else; the text is for people.
    Failed(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redirected { .. } => out.write_str("the broker refers to another one"),
            Self::Ordered { .. } => out.write_str("ordered to move to another broker"),
            Self::Failed(why) => out.write_str(why),
        }
    }
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

    /// The next event, if it is one of interest. Must not be dropped before it is done, unless the connection is closed then.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        // The event loop comes back at least once in each keep-alive, with the ping that it sends, unless it waits for a
        // socket that takes nothing: with MQTT 5 it would wait there for ever.
        let patience = STUCK
            + match self {
                Self::V4(wire) => wire.keep_alive(),
                Self::V5(wire) => wire.keep_alive(),
            };
        let next = async {
            match self {
                Self::V4(wire) => wire.next().await,
                Self::V5(wire) => wire.next().await,
            }
        };
        let stuck = || Broken::Failed("the network takes nothing".into());
        tokio::time::timeout(patience, next).await.unwrap_or_else(|_| Err(stuck()))
    }

    /// Ends the connection: events that still wait, and what must be kept; none when the session can't go on.
    pub(super) fn close(self) -> (Vec<Event>, Option<Saved>) {
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
        Carrier::Tcp => target.host.clone(),
        // The library takes it for the name in the certificate, where an address has no brackets.
        Carrier::Tls => target.bare_host().to_owned(),
        Carrier::WebSocket | Carrier::SecureWebSocket => target.url(),
    }
}

/// Messages of QoS 2 that we have and the broker has not let go.
#[derive(Debug, Default)]
pub(super) struct Half {
    ids: BTreeSet<u16>,
    /// Whether the broker let one go that we know nothing of, from before this program was started perhaps.
    strangers: bool,
}

impl Half {
    /// One came.
    pub(super) fn came(&mut self, id: u16) {
        self.ids.insert(id);
    }

    /// The broker lets one go.
    pub(super) fn released(&mut self, id: u16) {
        self.strangers |= !self.ids.remove(&id);
    }

    /// Those that the broker may let go: any, if there were strangers.
    pub(super) fn ids(&self) -> impl Iterator<Item = u16> {
        let any = if self.strangers { u16::MAX } else { 0 };
        (1..=any).chain(self.ids.iter().copied())
    }
}

/// In which order messages were sent that the broker has not acknowledged: the library gives out identifiers in a circle,
/// and forgets where it began.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The identifier that was given out last.
    newest: u16,
    /// Those that have to be sent again on this connection.
    pub(super) again: BTreeSet<u16>,
    /// How many may be under way: the circle.
    pub(super) most: Option<u16>,
}

impl Order {
    /// A message was sent with this identifier, 0 for none.
    pub(super) fn sent(&mut self, id: u16) {
        if id != 0 && !self.again.remove(&id) {
            self.newest = id;
        }
    }

    /// Puts identifiers into the order in which they were given out.
    pub(super) fn age(&self, id: u16) -> u16 {
        id.wrapping_sub(self.newest.wrapping_add(1))
    }
}

/// What is the same with both versions, but for the types of the library, which have the same names.
macro_rules! common {
    () => {
        /// What must outlive a connection.
        pub(super) struct Saved {
            state: MqttState,
            pending: VecDeque<Request>,
            half: Half,
            order: Order,
        }

        impl Saved {
            /// Takes it out of a connection that has ended.
            fn of(mut events: EventLoop, half: Half, mut order: Order) -> Self {
                events.clean();
                // What was asked for and not sent belongs to the caller; what was sent goes again with its identifier.
                let mut pending = std::mem::take(&mut events.pending);
                pending.retain_mut(|request| match request {
                    Request::Publish(publish) => {
                        publish.dup = true;
                        publish.pkid != 0
                    }
                    Request::PubRel(_) => true,
                    _ => false,
                });
                // Oldest first; what the broker only has to let go comes after that, as it was.
                pending.make_contiguous().sort_by_key(|request| match request {
                    Request::Publish(publish) => order.age(publish.pkid),
                    _ => u16::MAX,
                });
                let ids = pending.iter().filter_map(|request| match request {
                    Request::Publish(publish) => Some(publish.pkid),
                    _ => None,
                });
                order.again = ids.collect();
                // Nor was one sent that waited for its identifier: kept, it would stop all others.
                events.state.collision = None;
                Self { state: events.state, pending, half, order }
            }

            /// Puts it into a new connection; the messages of QoS 2 that we have and the broker has not let go.
            fn restore(self, events: &mut EventLoop) -> (Half, Order) {
                (events.state, events.pending) = (self.state, self.pending);
                for id in self.half.ids() {
                    // The library has forgotten them, and takes it for a mistake when the broker lets one go.
                    let receipt = Receipt { id, qos: Qos::ExactlyOnce };
                    let _ = events.state.handle_incoming_packet(Packet::Publish(received(receipt)));
                    events.state.events.clear();
                }
                (self.half, self.order)
            }
        }

        pub(super) fn qos(qos: Qos) -> QoS {
            match qos {
                Qos::AtMostOnce => QoS::AtMostOnce,
                Qos::AtLeastOnce => QoS::AtLeastOnce,
                Qos::ExactlyOnce => QoS::ExactlyOnce,
            }
        }

        fn receipt(id: u16, qos: QoS) -> Option<Receipt> {
            match qos {
                QoS::AtMostOnce => None,
                QoS::AtLeastOnce => Some(Receipt { id, qos: Qos::AtLeastOnce }),
                QoS::ExactlyOnce => Some(Receipt { id, qos: Qos::ExactlyOnce }),
            }
        }
    };
}
pub(super) use common;

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

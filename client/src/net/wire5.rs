//! MQTT 5 through rumqttc.

use std::collections::VecDeque;
use std::time::Duration;

use rumqttc::Transport;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnectReturnCode, Disconnect, DisconnectReasonCode, Filter, Packet, PubAck, PubAckReason,
    PubRec, PubRecReason, Publish, RetainForwardRule, SubscribeReasonCode,
};
use rumqttc::v5::{
    AsyncClient, ConnectionError, Event as Raw, EventLoop, MqttOptions, MqttState, Request, StateError,
};
use rumqttc::{NetworkOptions, Outgoing};

use super::address::Address;
use super::connection::{Connection, Qos};
use super::wire::{self, Broken, Half, IDENTIFIERS, RECEIVE_MAXIMUM, REQUESTS, Requests, Wanted};
use super::{Event, Incoming, Outcome, Receipt, Up};
use crate::protocol::Hints;

/// After so many refusals of QoS 2 messages, each of which the library counts as under way for ever, connect anew.
const MOST_LEAKED: u16 = IDENTIFIERS / 4;

wire::common!();

/// A connection.
pub(super) struct Wire5 {
    requests: AsyncClient,
    events: EventLoop,
    has_saved: bool,
    half: Half,
    leaked: u16,
    /// The keep-alive that we ask for.
    keep_alive: Duration,
}

impl Wire5 {
    pub(super) fn open(
        connection: &Connection,
        target: &Address,
        transport: Transport,
        saved: Option<Saved>,
    ) -> Self {
        let mut options = MqttOptions::new(&connection.client, wire::host(target), target.port);
        options.set_transport(transport).set_keep_alive(connection.keep_alive).set_clean_start(false);
        let session = u32::try_from(connection.session.as_secs()).unwrap_or(u32::MAX);
        options.set_session_expiry_interval(Some(session)).set_max_packet_size(Some(connection.max_packet));
        options.set_outgoing_inflight_upper_limit(IDENTIFIERS).set_manual_acks(true);
        options.set_receive_maximum(Some(RECEIVE_MAXIMUM));
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        options.set_network_options(network);
        if let Some((user, password)) = &connection.credentials {
            options.set_credentials(user, password);
        }
        let (requests, mut events) = AsyncClient::new(options, REQUESTS);
        let has_saved = saved.is_some();
        let half = saved.map_or_else(Half::default, |saved| saved.restore(&mut events));
        Self { requests, events, has_saved, half, leaked: 0, keep_alive: connection.keep_alive }
    }

    pub(super) fn keep_alive(&self) -> Duration {
        self.events.options.keep_alive()
    }

    pub(super) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        match self.events.poll().await {
            Ok(raw) => self.event(raw),
            Err(error) => Err(self.broken(error)),
        }
    }

    pub(super) fn close(mut self) -> (Vec<Event>, wire::Saved) {
        let raw: Vec<Raw> = self.events.state.events.drain(..).collect();
        let rest = raw.into_iter().filter_map(|raw| self.event(raw).ok().flatten()).collect();
        (rest, wire::Saved::V5(Saved::of(self.events, self.half)))
    }

    fn event(&mut self, raw: Raw) -> Result<Option<Event>, Broken> {
        Ok(match raw {
            Raw::Incoming(Packet::ConnAck(connack)) => Some(Event::Up(self.up(&connack))),
            Raw::Incoming(Packet::PubAck(ack)) => Some(acknowledged(&ack)),
            Raw::Incoming(Packet::PubRec(rec)) => Some(self.received(&rec)?),
            Raw::Incoming(Packet::Publish(publish)) => {
                if publish.qos == QoS::ExactlyOnce {
                    self.half.came(publish.pkid);
                }
                message(publish)
            }
            Raw::Incoming(Packet::PubRel(release)) => {
                self.half.released(release.pkid);
                None
            }
            Raw::Incoming(Packet::SubAck(ack)) => {
                let good = |code: &&SubscribeReasonCode| !matches!(code, SubscribeReasonCode::Success(_));
                Some(Event::Subscribed { refused: ack.return_codes.iter().filter(good).count() })
            }
            Raw::Outgoing(Outgoing::Publish(id)) => Some(Event::Sent(id)),
            _ => None,
        })
    }

    fn up(&mut self, connack: &ConnAck) -> Up {
        // A broker that wants no pings gets ours nevertheless; the library would send them without end.
        if self.events.options.keep_alive().is_zero() {
            self.events.options.set_keep_alive(self.keep_alive);
        }
        let properties = connack.properties.as_ref();
        let largest = properties.and_then(|all| all.max_packet_size).unwrap_or(u32::MAX);
        Up {
            requests: Requests::V5(self.requests.clone()),
            resumed: connack.session_present && self.has_saved,
            receive_maximum: properties.and_then(|all| all.receive_max).unwrap_or(u16::MAX),
            max_packet: largest as usize,
        }
    }

    /// The first answer to a message of QoS 2, which already says whether the broker has it.
    fn received(&mut self, rec: &PubRec) -> Result<Event, Broken> {
        let outcome = match rec.reason {
            PubRecReason::Success | PubRecReason::NoMatchingSubscribers => Outcome::Accepted,
            PubRecReason::QuotaExceeded => Outcome::PushedBack,
            _ => Outcome::Rejected,
        };
        self.leaked += u16::from(outcome != Outcome::Accepted);
        if self.leaked > MOST_LEAKED {
            return Err(Broken::Failed("too many refusals with QoS 2: connecting anew".into()));
        }
        let hints = rec.properties.as_ref().map(|all| Hints::read(&all.user_properties)).unwrap_or_default();
        Ok(Event::Answered { id: rec.pkid, outcome, hints })
    }

    fn broken(&self, error: ConnectionError) -> Broken {
        match &error {
            ConnectionError::ConnectionRefused(code) => match code {
                // The library drops the properties of a CONNACK that refuses: whoever follows has to ask again.
                ConnectReturnCode::UseAnotherServer => Broken::Redirected { server: None, permanent: false },
                ConnectReturnCode::ServerMoved => Broken::Redirected { server: None, permanent: true },
                _ => Broken::Failed(error.to_string()),
            },
            ConnectionError::MqttState(StateError::ServerDisconnect { .. }) => {
                let waiting = self.events.state.events.iter();
                let found = waiting.filter_map(|raw| match raw {
                    Raw::Incoming(Packet::Disconnect(disconnect)) => redirect(disconnect),
                    _ => None,
                });
                found.last().unwrap_or_else(|| Broken::Failed(error.to_string()))
            }
            _ => Broken::Failed(error.to_string()),
        }
    }
}

fn acknowledged(ack: &PubAck) -> Event {
    let outcome = match ack.reason {
        PubAckReason::Success | PubAckReason::NoMatchingSubscribers => Outcome::Accepted,
        PubAckReason::QuotaExceeded => Outcome::PushedBack,
        _ => Outcome::Rejected,
    };
    let hints = ack.properties.as_ref().map(|all| Hints::read(&all.user_properties)).unwrap_or_default();
    Event::Answered { id: ack.pkid, outcome, hints }
}

fn message(publish: Publish) -> Option<Event> {
    let topic = String::from_utf8(publish.topic.into()).ok()?;
    let properties = publish.properties.map(|all| all.user_properties).unwrap_or_default();
    let seq = properties.iter().find(|(key, _)| key == "tide-seq");
    let seq = seq.and_then(|(_, value)| value.parse().ok()).and_then(crate::protocol::number);
    let receipt = receipt(publish.pkid, publish.qos);
    let Publish { payload, retain, dup: again, .. } = publish;
    Some(Event::Message(Incoming { topic, payload, retain, again, seq, receipt }))
}

fn redirect(disconnect: &Disconnect) -> Option<Broken> {
    let permanent = match disconnect.reason_code {
        DisconnectReasonCode::UseAnotherServer => false,
        DisconnectReasonCode::ServerMoved => true,
        _ => return None,
    };
    let server = disconnect.properties.as_ref()?.server_reference.clone()?;
    Some(Broken::Redirected { server: Some(server), permanent })
}

/// What the library needs to know of a message to acknowledge it.
pub(super) fn received(receipt: Receipt) -> Publish {
    let mut publish = Publish::new("t", qos(receipt.qos), "", None);
    publish.pkid = receipt.id;
    publish
}

pub(super) fn filter(wanted: &Wanted) -> Filter {
    let mut filter = Filter::new(&wanted.filter, qos(wanted.qos));
    if !wanted.retained_again {
        filter.retain_forward_rule = RetainForwardRule::OnNewSubscribe;
    }
    filter
}

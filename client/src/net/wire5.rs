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
use super::wire::{self, Broken, Half, IDENTIFIERS, Order, RECEIVE_MAXIMUM, REQUESTS, Requests, Wanted};
use super::{Event, Incoming, Outcome, Receipt, Up};
use crate::protocol::Hints;

wire::common!();

/// A connection.
pub(super) struct Wire5 {
    requests: AsyncClient,
    events: EventLoop,
    has_saved: bool,
    half: Half,
    order: Order,
    /// Refusals of QoS 2 messages, each of which the library counts as under way for ever.
    leaked: u16,
    /// Whether what was under way can't go on.
    discard: bool,
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
        let (half, order) = saved.map(|saved| saved.restore(&mut events)).unwrap_or_default();
        Self {
            requests,
            events,
            has_saved,
            half,
            order,
            leaked: 0,
            discard: false,
            keep_alive: connection.keep_alive,
        }
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

    pub(super) fn close(mut self) -> (Vec<Event>, Option<wire::Saved>) {
        let raw: Vec<Raw> = self.events.state.events.drain(..).collect();
        let rest = raw.into_iter().filter_map(|raw| self.event(raw).ok().flatten()).collect();
        let saved = Saved::of(self.events, self.half, self.order);
        (rest, (!self.discard).then_some(wire::Saved::V5(saved)))
    }

    fn event(&mut self, raw: Raw) -> Result<Option<Event>, Broken> {
        Ok(match raw {
            Raw::Incoming(Packet::ConnAck(connack)) => Some(Event::Up(self.up(&connack)?)),
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
            Raw::Outgoing(Outgoing::Publish(id)) => {
                self.order.sent(id);
                Some(Event::Sent(id))
            }
            _ => None,
        })
    }

    fn up(&mut self, connack: &ConnAck) -> Result<Up, Broken> {
        // A broker that wants no pings gets ours nevertheless; the library would send them without end.
        if self.events.options.keep_alive().is_zero() {
            self.events.options.set_keep_alive(self.keep_alive);
        }
        let properties = connack.properties.as_ref();
        let largest = properties.and_then(|all| all.max_packet_size).unwrap_or(u32::MAX);
        let receive_maximum = properties.and_then(|all| all.receive_max);
        let most =
            receive_maximum.map(|most| most.min(IDENTIFIERS)).or(self.order.most).unwrap_or(IDENTIFIERS);
        // The library would give out identifiers beyond the smaller circle, and find them in use for ever.
        self.discard = self.order.most.is_some_and(|before| most < before);
        if self.discard {
            return Err(Broken::Failed("the broker takes fewer messages at a time: beginning anew".into()));
        }
        self.order.most = Some(most);
        Ok(Up {
            requests: Requests::V5(self.requests.clone()),
            resumed: connack.session_present && self.has_saved,
            present: connack.session_present,
            receive_maximum: receive_maximum.unwrap_or(u16::MAX),
            max_packet: largest as usize,
        })
    }

    /// The first answer to a message of QoS 2, which already says whether the broker has it.
    fn received(&mut self, rec: &PubRec) -> Result<Event, Broken> {
        let outcome = match rec.reason {
            PubRecReason::Success | PubRecReason::NoMatchingSubscribers => Outcome::Accepted,
            PubRecReason::QuotaExceeded => Outcome::PushedBack,
            _ => Outcome::Rejected,
        };
        self.leaked += u16::from(outcome != Outcome::Accepted);
        if self.leaked > self.order.most.unwrap_or(IDENTIFIERS) / 4 {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rumqttc::v5::mqttbytes::v5::ConnAckProperties;

    use super::*;

    fn open(saved: Option<wire::Saved>) -> Wire5 {
        let connection = Connection::new("mqtt://localhost", "c").unwrap();
        let saved = saved.map(|saved| match saved {
            wire::Saved::V5(saved) => saved,
            wire::Saved::V4(_) => unreachable!(),
        });
        Wire5::open(&connection, &connection.address, Transport::Tcp, saved)
    }

    /// Hands all events on, as the network would.
    fn flush(wire: &mut Wire5) -> Result<(), Broken> {
        let raw: Vec<Raw> = wire.events.state.events.drain(..).collect();
        raw.into_iter().try_for_each(|raw| wire.event(raw).map(|_| ()))
    }

    fn connected(wire: &mut Wire5, receive_max: u16) -> Result<(), Broken> {
        let properties = ConnAckProperties {
            session_expiry_interval: None,
            receive_max: Some(receive_max),
            max_qos: None,
            retain_available: None,
            max_packet_size: None,
            assigned_client_identifier: None,
            topic_alias_max: None,
            reason_string: None,
            user_properties: Vec::new(),
            wildcard_subscription_available: None,
            subscription_identifiers_available: None,
            shared_subscription_available: None,
            server_keep_alive: None,
            response_information: None,
            server_reference: None,
            authentication_method: None,
            authentication_data: None,
        };
        let (code, session_present) = (ConnectReturnCode::Success, true);
        let connack = ConnAck { session_present, code, properties: Some(properties) };
        wire.events.state.handle_incoming_packet(Packet::ConnAck(connack)).unwrap();
        flush(wire)
    }

    fn publish(wire: &mut Wire5, count: usize, qos: QoS) {
        for _ in 0..count {
            let publish = Publish::new("t", qos, "x", None);
            wire.events.state.handle_outgoing_packet(Request::Publish(publish)).unwrap();
        }
        flush(wire).unwrap();
    }

    fn acknowledge(wire: &mut Wire5, ids: impl IntoIterator<Item = u16>) {
        for id in ids {
            wire.events.state.handle_incoming_packet(Packet::PubAck(PubAck::new(id, None))).unwrap();
        }
        flush(wire).unwrap();
    }

    /// Sends again so many of what the last connection left.
    fn resend(wire: &mut Wire5, count: usize) {
        for _ in 0..count {
            let request = wire.events.pending.pop_front().unwrap();
            wire.events.state.handle_outgoing_packet(request).unwrap();
        }
        flush(wire).unwrap();
    }

    fn pending(wire: &Wire5) -> Vec<u16> {
        let id = |request: &Request| if let Request::Publish(publish) = request { publish.pkid } else { 0 };
        wire.events.pending.iter().map(id).collect()
    }

    /// Identifiers go in a circle: what was sent first goes again first, however often the connection breaks meanwhile.
    #[test]
    fn what_goes_again_keeps_its_order() {
        let mut wire = open(None);
        connected(&mut wire, u16::MAX).unwrap();
        for id in 1..=126 {
            publish(&mut wire, 1, QoS::AtLeastOnce);
            acknowledge(&mut wire, [id]);
        }
        publish(&mut wire, 4, QoS::AtLeastOnce);
        let mut wire = open(wire.close().1);
        assert_eq!(pending(&wire), [127, 128, 1, 2]);
        connected(&mut wire, u16::MAX).unwrap();
        resend(&mut wire, 1);
        let mut wire = open(wire.close().1);
        assert_eq!(pending(&wire), [127, 128, 1, 2], "after a break in the middle of it");
        connected(&mut wire, u16::MAX).unwrap();
        resend(&mut wire, 4);
        acknowledge(&mut wire, [127]);
        publish(&mut wire, 1, QoS::AtLeastOnce);
        assert_eq!(pending(&open(wire.close().1)), [128, 1, 2, 3]);
    }

    /// The library would look for free identifiers beyond the new maximum, for ever.
    #[test]
    fn a_broker_that_takes_fewer_at_a_time_gets_all_anew() {
        let mut wire = open(None);
        connected(&mut wire, 20).unwrap();
        publish(&mut wire, 15, QoS::AtLeastOnce);
        let mut wire = open(wire.close().1);
        assert!(matches!(connected(&mut wire, 10), Err(Broken::Failed(_))));
        let saved = wire.close().1;
        assert!(saved.is_none());
        let mut wire = open(saved);
        connected(&mut wire, 10).unwrap();
        publish(&mut wire, 10, QoS::AtLeastOnce);
        acknowledge(&mut wire, 1..=10);
        let mut wire = open(wire.close().1);
        connected(&mut wire, 20).unwrap();
        assert!(pending(&wire).is_empty(), "more at a time is no trouble");
    }

    /// Each refusal of QoS 2 takes a place for ever: connecting anew must come before the last one is taken.
    #[test]
    fn refusals_of_qos_2_leave_room_in_a_small_window() {
        for receive_max in [1, 4, 20, u16::MAX] {
            let mut wire = open(None);
            connected(&mut wire, receive_max).unwrap();
            let most = receive_max.min(IDENTIFIERS);
            let refused = (1..=most).take_while(|id| {
                publish(&mut wire, 1, QoS::ExactlyOnce);
                let mut rec = PubRec::new(*id, None);
                rec.reason = PubRecReason::QuotaExceeded;
                // The library's own complaint about it is no news.
                let _ = wire.events.state.handle_incoming_packet(Packet::PubRec(rec));
                flush(&mut wire).is_ok()
            });
            assert!(refused.count() <= usize::from(most) / 4, "{receive_max}");
        }
    }
}

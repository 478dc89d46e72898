//! MQTT 3.1.1 through rumqttc.

use std::collections::VecDeque;
use std::time::Duration;

use rumqttc::{
    AsyncClient, Event as Raw, EventLoop, MqttOptions, MqttState, Outgoing, Packet, Publish, QoS, Request,
    SubscribeFilter, SubscribeReasonCode, Transport,
};

use super::address::Address;
use super::connection::{Connection, Qos};
use super::wire::{self, Broken, Half, IDENTIFIERS, Order, REQUESTS, Requests, Wanted};
use super::{Event, Incoming, Outcome, Receipt, Up};
use crate::protocol::Hints;

/// The protocol's own limit of a packet.
const LARGEST: usize = 268_435_455;

wire::common!();

/// A connection.
pub(super) struct Wire4 {
    requests: AsyncClient,
    events: EventLoop,
    has_saved: bool,
    half: Half,
    order: Order,
}

impl Wire4 {
    pub(super) fn open(
        connection: &Connection,
        target: &Address,
        transport: Transport,
        saved: Option<Saved>,
    ) -> Self {
        let mut options = MqttOptions::new(&connection.client, wire::host(target), target.port);
        options.set_transport(transport).set_keep_alive(connection.keep_alive);
        options.set_clean_session(connection.session.is_zero());
        options.set_max_packet_size(connection.max_packet as usize, LARGEST).set_inflight(IDENTIFIERS);
        options.set_manual_acks(true);
        if let Some((user, password)) = &connection.credentials {
            options.set_credentials(user, password);
        }
        let (requests, mut events) = AsyncClient::new(options, REQUESTS);
        events.network_options.set_tcp_nodelay(true);
        let has_saved = saved.is_some();
        let (half, order) = saved.map(|saved| saved.restore(&mut events)).unwrap_or_default();
        Self { requests, events, has_saved, half, order }
    }

    pub(super) fn keep_alive(&self) -> Duration {
        self.events.mqtt_options.keep_alive()
    }

    pub(super) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        let raw = self.events.poll().await.map_err(|error| Broken::Failed(error.to_string()))?;
        Ok(self.event(raw))
    }

    pub(super) fn close(mut self) -> (Vec<Event>, Option<wire::Saved>) {
        let raw: Vec<Raw> = self.events.state.events.drain(..).collect();
        let rest = raw.into_iter().filter_map(|raw| self.event(raw)).collect();
        (rest, Some(wire::Saved::V4(Saved::of(self.events, self.half, self.order))))
    }

    fn event(&mut self, raw: Raw) -> Option<Event> {
        let accepted = |id| Event::Answered { id, outcome: Outcome::Accepted, hints: Hints::default() };
        match raw {
            Raw::Incoming(Packet::ConnAck(connack)) => Some(Event::Up(Up {
                requests: Requests::V4(self.requests.clone()),
                resumed: connack.session_present && self.has_saved,
                present: connack.session_present,
                receive_maximum: u16::MAX,
                max_packet: LARGEST,
            })),
            Raw::Incoming(Packet::PubAck(ack)) => Some(accepted(ack.pkid)),
            Raw::Incoming(Packet::PubRec(rec)) => Some(accepted(rec.pkid)),
            Raw::Incoming(Packet::Publish(publish)) => {
                let Publish { dup: again, qos, retain, topic, pkid, payload } = publish;
                if qos == QoS::ExactlyOnce {
                    self.half.came(pkid);
                }
                let receipt = receipt(pkid, qos);
                Some(Event::Message(Incoming { topic, payload, retain, again, seq: None, receipt }))
            }
            Raw::Incoming(Packet::PubRel(release)) => {
                self.half.released(release.pkid);
                None
            }
            Raw::Incoming(Packet::SubAck(ack)) => {
                let refused =
                    ack.return_codes.iter().filter(|code| **code == SubscribeReasonCode::Failure).count();
                Some(Event::Subscribed { refused })
            }
            Raw::Outgoing(Outgoing::Publish(id)) => {
                self.order.sent(id);
                Some(Event::Sent(id))
            }
            _ => None,
        }
    }
}

/// What the library needs to know of a message to acknowledge it.
pub(super) fn received(receipt: Receipt) -> Publish {
    let mut publish = Publish::new("t", qos(receipt.qos), "");
    publish.pkid = receipt.id;
    publish
}

pub(super) fn filter(wanted: &Wanted) -> SubscribeFilter {
    SubscribeFilter::new(wanted.filter.clone(), qos(wanted.qos))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// MQTT 3.1.1 knows no time for a session, but that there is none.
    #[test]
    fn no_session_is_a_clean_one() {
        for (seconds, clean) in [(0, true), (3_600, false)] {
            let connection = Connection::new("mqtt://localhost", "c").unwrap();
            let connection = connection.session(Duration::from_secs(seconds));
            let wire = Wire4::open(&connection, &connection.address, Transport::Tcp, None);
            assert_eq!(wire.events.mqtt_options.clean_session(), clean);
        }
    }
}

//! What each packet from a client does.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tidegate_plugin as plugin;
use tidegate_plugin::Verdict;

use super::input::Next;
use super::{Connection, Scratch};
use crate::broker::Broker;
use crate::broker::clock::{Millis, moment};
use crate::broker::held::{LONGEST_DELAY, advice};
use crate::broker::inflight::Stage;
use crate::broker::lifecycle::expiry_moment;
use crate::broker::message::Parts;
use crate::broker::queue::{Extra, Finished};
use crate::broker::refusals::{Asked, GATEWAY};
use crate::broker::session::State;
use crate::broker::topic;
use crate::chain::Hooks;
use crate::hold::Gate;
use crate::wire::{
    Ack, Disconnect, Filter, Packet, Publish, QoS, ReasonCode, Subscribe, Unsubscribe, Version, WireError,
    user_property,
};

/// More QoS 1 and 2 messages at a time than we said.
pub(super) const RECEIVE_MAXIMUM: WireError = WireError {
    reason: ReasonCode::RECEIVE_MAXIMUM_EXCEEDED,
    what: "more unacknowledged messages than the server's Receive Maximum",
};

/// Why nobody may publish to a reserved topic.
const RESERVED: &str = "the topic is reserved for the server";

/// Topics that only the gateway itself publishes to.
pub(crate) fn reserved(topic: &str) -> bool {
    topic.starts_with("$SYS/") || topic.starts_with("$tide/")
}

fn reserved_for_server() -> plugin::Refusal {
    plugin::Refusal::not_authorized(RESERVED)
}

impl Connection {
    /// Whether it is the one control topic that this client may publish to.
    fn is_own_check(&self, topic: &str) -> bool {
        let rest = topic.strip_prefix(&*self.broker.settings.overload.prefix);
        rest.and_then(|rest| rest.strip_prefix("/check/")) == Some(&*self.session.client_id)
    }

    /// Does what a packet asks for.
    pub(super) fn handle(
        &mut self,
        packet: &Packet<'_>,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) -> Next {
        match packet {
            Packet::Publish(publish) => return self.publish(publish, scratch, state, now),
            Packet::PubAck(ack) => self.puback(*ack, scratch, state, now),
            Packet::PubRec(ack) => self.pubrec(*ack, scratch, state, now),
            Packet::PubRel(ack) => self.pubrel(*ack, scratch, state),
            Packet::PubComp(ack) => self.pubcomp(*ack, scratch, state, now),
            Packet::PingReq => self.encoder.pingresp(&mut self.output),
            Packet::Subscribe(subscribe) => {
                // what was published before must count as before
                self.finish_batch(cx, scratch, state, now);
                return self.subscribe(subscribe, state, now);
            }
            Packet::Unsubscribe(unsubscribe) => {
                self.finish_batch(cx, scratch, state, now);
                self.unsubscribe(unsubscribe, state);
            }
            Packet::Disconnect(disconnect) => return self.disconnect(disconnect, state, now),
            Packet::Connect(_) => return Next::Broken(WireError::protocol("a second CONNECT")),
            Packet::Auth(_) => {
                let what = "AUTH without an authentication method in CONNECT";
                return Next::Broken(WireError::protocol(what));
            }
        }
        Next::Go
    }

    /// Whether this message is one more than the client may have unacknowledged.
    pub(super) fn receive_maximum_exceeded(&self, packet: &Packet<'_>, state: &State) -> bool {
        let Packet::Publish(publish) = packet else { return false };
        let waiting = state.received.len() + self.held.as_ref().map_or(0, |held| held.acknowledged);
        publish.qos != QoS::AtMostOnce
            && self.encoder.version == Version::V5
            && waiting >= usize::from(self.broker.settings.session.receive_maximum)
            && !state.received.contains(&publish.packet_id)
    }

    fn publish(
        &mut self,
        publish: &Publish<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) -> Next {
        if self.receive_maximum_exceeded(&Packet::Publish(*publish), state) {
            return Next::Broken(RECEIVE_MAXIMUM);
        }
        if let Some(error) = self.learn_alias(publish) {
            return Next::Broken(error);
        }
        if publish.qos == QoS::ExactlyOnce && state.received.contains(&publish.packet_id) {
            // sent again: we have it
            self.encoder.pubrec(&mut scratch.acks, publish.packet_id, ReasonCode::SUCCESS, None, &[]);
            return Next::Go;
        }
        let alias = publish.properties.topic_alias;
        let topic = match (publish.topic, alias) {
            ("", Some(alias)) => self.inbound_aliases.get(alias).unwrap_or_default(),
            (topic, _) => topic,
        };
        let question = plugin::Publish {
            topic,
            payload: publish.payload,
            qos: publish.qos as u8,
            retain: publish.retain,
            now: moment(now),
            waited: Duration::from_millis(self.held_since.map_or(0, |since| now.saturating_sub(since))),
        };
        let (is_reserved, is_check) = (reserved(topic), self.is_own_check(topic));
        let verdict = match is_reserved && !is_check {
            true => Verdict::Refuse(reserved_for_server()),
            false => self.hooks.on_publish(&question),
        };
        let verdict = match verdict {
            Verdict::Continue if is_check => offer_check(&mut self.hooks, publish, is_reserved),
            verdict => verdict,
        };
        match verdict {
            Verdict::Continue => {
                self.gate.publisher.note_accepted();
                accept(&self.broker, &self.gate, publish, &question, scratch, now);
                self.acknowledge(publish, ReasonCode::SUCCESS, None, scratch, state);
            }
            Verdict::Drop => {
                self.broker.stats.discarded.add(1);
                self.acknowledge(publish, ReasonCode::SUCCESS, None, scratch, state);
            }
            Verdict::Refuse(refusal) => {
                self.broker.stats.refused.add(1);
                let by = if reserved(topic) { GATEWAY } else { self.hooks.decided_by() };
                self.note_refusal(Asked::Publish, by, topic, refusal.code, now);
                let reason = ReasonCode(refusal.code);
                self.acknowledge(publish, reason, Some(&refusal), scratch, state);
            }
            Verdict::Delay(pause) => {
                let pause = pause.clamp(Duration::from_millis(1), LONGEST_DELAY);
                return Next::Wait(now + pause.as_millis() as u64);
            }
            Verdict::Close(refusal) => {
                let by = self.hooks.decided_by();
                self.note_refusal(Asked::Publish, by, topic, refusal.code, now);
                return Next::Refused(Box::new(refusal));
            }
        }
        Next::Go
    }

    /// A refusal is counted each time and logged as far as the log bears it.
    fn note_refusal(&self, asked: Asked, by: &'static str, topic: &str, code: u8, now: Millis) {
        self.broker.refusals.count(asked, by, code);
        if self.broker.lines.refused.allows(now) {
            let (client, peer, what) = (&*self.session.client_id, self.stream.peer(), asked.name());
            let reason = format_args!("0x{code:02x}");
            tracing::info!(client, %peer, what, topic, by, reason, "refused");
        }
    }

    fn learn_alias(&mut self, publish: &Publish<'_>) -> Option<WireError> {
        let alias = publish.properties.topic_alias?;
        let invalid = |what| Some(WireError { reason: ReasonCode::TOPIC_ALIAS_INVALID, what });
        if alias > self.broker.settings.session.topic_alias_maximum {
            return invalid("the topic alias is over the server's Topic Alias Maximum");
        }
        if !publish.topic.is_empty() {
            self.inbound_aliases.set(alias, publish.topic);
        } else if self.inbound_aliases.get(alias).is_none() {
            return Some(WireError::protocol("the topic alias stands for no topic"));
        }
        None
    }

    /// PUBACK or PUBREC. 3.1.1 has no way to refuse: the message is acknowledged and not passed on.
    fn acknowledge(
        &mut self,
        publish: &Publish<'_>,
        reason: ReasonCode,
        refusal: Option<&plugin::Refusal>,
        scratch: &mut Scratch,
        state: &mut State,
    ) {
        if publish.qos == QoS::AtMostOnce {
            return;
        }
        let reason = if self.encoder.version == Version::V5 { reason } else { ReasonCode::SUCCESS };
        let text = refusal.map(|refusal| &*refusal.reason);
        let wait = refusal.and_then(|refusal| refusal.retry_after);
        let advice = self.advice(wait);
        let user = advice
            .as_ref()
            .map_or([("", ""); 2], |(rate, wait)| [("tide-rate", rate), ("tide-wait-ms", wait)]);
        let user = if advice.is_some() { &user[..] } else { &[] };
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => self.encoder.puback(&mut scratch.acks, publish.packet_id, reason, text, user),
            QoS::ExactlyOnce => {
                if !reason.is_error() {
                    state.received.insert(publish.packet_id);
                    scratch.received.push(publish.packet_id);
                }
                self.encoder.pubrec(&mut scratch.acks, publish.packet_id, reason, text, user);
            }
        }
    }

    /// What the client is to know with its next acknowledgement, if anything.
    fn advice(&mut self, wait: Option<Duration>) -> Option<(String, String)> {
        if self.encoder.version != Version::V5 {
            return None;
        }
        advice(&self.gate.publisher, &mut self.told_rate, wait)
    }

    fn puback(&mut self, ack: Ack, scratch: &mut Scratch, state: &mut State, now: Millis) {
        let published =
            |stage: &Stage| matches!(stage, Stage::Published(entry) if entry.qos == QoS::AtLeastOnce);
        if state.inflight.get_mut(ack.packet_id).is_some_and(|sent| published(&sent.stage)) {
            self.finish(ack.packet_id, scratch, state, now);
        }
    }

    fn pubrec(&mut self, ack: Ack, scratch: &mut Scratch, state: &mut State, now: Millis) {
        let Some(sent) = state.inflight.get_mut(ack.packet_id) else {
            self.encoder.pubrel(&mut self.output, ack.packet_id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND);
            return;
        };
        if ack.reason.is_error() {
            self.finish(ack.packet_id, scratch, state, now);
            return;
        }
        if let Stage::Published(entry) = &mut sent.stage {
            let extra = entry.extra.take();
            sent.stage = Stage::Released(extra);
        }
        self.encoder.pubrel(&mut self.output, ack.packet_id, ReasonCode::SUCCESS);
    }

    fn pubcomp(&mut self, ack: Ack, scratch: &mut Scratch, state: &mut State, now: Millis) {
        if state.inflight.get_mut(ack.packet_id).is_some_and(|sent| matches!(sent.stage, Stage::Released(_)))
        {
            self.finish(ack.packet_id, scratch, state, now);
        }
    }

    fn pubrel(&mut self, ack: Ack, scratch: &mut Scratch, state: &mut State) {
        let known = state.received.remove(&ack.packet_id);
        if state.received.is_empty() {
            state.received = Default::default();
        }
        let reason = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        // behind the PUBREC of the same message, should that still wait
        self.encoder.pubcomp(&mut scratch.acks, ack.packet_id, reason);
    }

    /// A message is done: its place in the window is free.
    fn finish(&mut self, id: u16, scratch: &mut Scratch, state: &mut State, now: Millis) {
        let in_flight = state.inflight.on_the_wire();
        let Some(sent) = state.inflight.remove(id) else { return };
        if sent.at != 0 {
            let delay = now.saturating_sub(sent.at);
            self.window.acknowledged(delay, in_flight, now);
            scratch.soonest = scratch.soonest.min(delay);
        }
        scratch.acknowledged = true;
        let extra = match sent.stage {
            Stage::Published(entry) => entry.extra,
            Stage::Released(extra) => extra,
        };
        note_finished(extra.as_ref(), scratch);
    }

    /// Tells the queue and the groups what was acknowledged since the last time.
    pub(super) fn settle_finished(&mut self, scratch: &mut Scratch, now: Millis) {
        let soonest = std::mem::replace(&mut scratch.soonest, Millis::MAX);
        let done = Finished { count: std::mem::take(&mut scratch.own_finished), soonest };
        // what QoS 0 messages leave is of interest only where queues are measured
        if std::mem::take(&mut scratch.acknowledged) || done.count > 0 && self.broker.limits.measured {
            self.session.queue.finished(done, now);
        }
        for (group, count) in scratch.finished.drain(..) {
            let done = Finished { count, soonest };
            group.finished(self.session.number, done, self.window.size(), now, &self.broker.limits);
        }
    }

    fn subscribe(&mut self, subscribe: &Subscribe, state: &mut State, now: Millis) -> Next {
        let mut codes = Vec::with_capacity(subscribe.filters.len());
        for filter in &subscribe.filters {
            match self.subscribe_one(filter, subscribe.identifier, state, now) {
                Ok(code) => codes.push(code),
                Err(refusal) => return Next::Refused(refusal),
            }
        }
        self.encoder.suback(&mut self.output, subscribe.packet_id, &codes);
        Next::Go
    }

    /// The code for SUBACK; `Err` when a plugin ends the connection.
    fn subscribe_one(
        &mut self,
        filter: &Filter,
        identifier: Option<u32>,
        state: &mut State,
        now: Millis,
    ) -> Result<ReasonCode, Box<plugin::Refusal>> {
        let Some((group, plain)) = topic::parse_subscription(&filter.path) else {
            let code = ReasonCode::TOPIC_FILTER_INVALID;
            self.note_refusal(Asked::Subscribe, GATEWAY, &filter.path, code.0, now);
            return Ok(code);
        };
        let question = plugin::Subscribe { filter: plain, group, qos: filter.qos as u8 };
        let (code, close) = match self.hooks.on_subscribe(&question) {
            Verdict::Continue => {
                let (window, shared) = (self.window.size(), group.is_some());
                let code = self.broker.subscribe(&self.session, state, filter, shared, identifier, window);
                if code.is_error() {
                    self.note_refusal(Asked::Subscribe, GATEWAY, &filter.path, code.0, now);
                } else {
                    self.hooks.on_subscribed(&question);
                }
                return Ok(code);
            }
            Verdict::Refuse(refusal) => (refusal.code, None),
            Verdict::Close(refusal) => (refusal.code, Some(Box::new(refusal))),
            Verdict::Delay(_) | Verdict::Drop => (ReasonCode::UNSPECIFIED_ERROR.0, None),
        };
        self.note_refusal(Asked::Subscribe, self.hooks.decided_by(), &filter.path, code, now);
        close.map_or(Ok(ReasonCode(code)), Err)
    }

    fn unsubscribe(&mut self, unsubscribe: &Unsubscribe, state: &mut State) {
        let mut codes = Vec::with_capacity(unsubscribe.filters.len());
        for filter in &unsubscribe.filters {
            codes.push(self.broker.unsubscribe(&self.session, state, filter));
            self.hooks.on_unsubscribe(filter);
        }
        self.encoder.unsuback(&mut self.output, unsubscribe.packet_id, &codes);
    }

    pub(super) fn disconnect(&mut self, disconnect: &Disconnect, state: &mut State, now: Millis) -> Next {
        if let Some(expiry) = disconnect.session_expiry {
            if state.expiry == 0 && expiry != 0 {
                let what = "DISCONNECT asks for a session expiry that CONNECT did not ask for";
                return Next::Broken(WireError::protocol(what));
            }
            state.expiry = expiry.min(self.broker.settings.session.max_expiry);
        }
        self.will = disconnect.reason != ReasonCode::SUCCESS;
        if !self.will {
            state.will = None;
        }
        self.ending = super::Ending::Closing(now + super::LINGER);
        self.timer_at = 0;
        self.arm(now + super::LINGER);
        Next::Stop
    }
}

/// What becomes of a check that all plugins let pass: one of them takes it, or it is a message as any other.
fn offer_check(hooks: &mut Hooks, publish: &Publish<'_>, is_reserved: bool) -> Verdict {
    let check = plugin::CheckRequest {
        payload: publish.payload,
        response_topic: publish.properties.response_topic,
        correlation_data: publish.properties.correlation_data,
    };
    match hooks.on_check(&check) {
        true => Verdict::Drop,
        false if is_reserved => Verdict::Refuse(reserved_for_server()),
        false => Verdict::Continue,
    }
}

/// Puts a message that nobody objects to into the batch, and into the store if it is to be retained.
fn accept(
    broker: &Broker,
    gate: &Gate,
    publish: &Publish<'_>,
    seen: &plugin::Publish<'_>,
    scratch: &mut Scratch,
    now: Millis,
) {
    let (added, batch) = (&mut scratch.added, &mut scratch.batch);
    added.clear();
    broker.chain.on_accept(seen, &mut |key, value| user_property(added, key, value));
    let parts = Parts {
        topic: seen.topic,
        properties: added,
        payload: publish.payload,
        qos: publish.qos,
        retain: publish.retain,
        urgent: gate.publisher.passes(),
        ordinal: 0,
        expires: expiry_moment(now, publish.properties.message_expiry),
    };
    let ordinal = if publish.retain {
        let mut properties = added.clone();
        publish.properties.write_forwarded(&mut properties);
        broker.retain(gate.number, Parts { properties: &properties, ..parts })
    } else {
        // one moment of acceptance for all messages of a batch that are not retained
        *scratch.ordinal.get_or_insert_with(|| broker.next_ordinal())
    };
    batch.push(&Parts { ordinal, ..parts }, |out| publish.properties.write_forwarded(out));
}

/// A message is done, for the session or for the group that it came through.
pub(super) fn note_finished(extra: Option<&Arc<Extra>>, scratch: &mut Scratch) {
    let Some(group) = extra.and_then(|extra| extra.group.as_ref()) else {
        scratch.own_finished += 1;
        return;
    };
    match scratch.finished.iter_mut().find(|(known, _)| Arc::ptr_eq(known, group)) {
        Some((_, count)) => *count += 1,
        None => scratch.finished.push((Arc::clone(group), 1)),
    }
}

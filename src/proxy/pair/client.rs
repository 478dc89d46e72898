//! From the client to the upstream.

use std::collections::BTreeMap;
use std::task::Context;
use std::time::Duration;

use tidegate_plugin as plugin;
use tidegate_plugin::{Refusal, Verdict};

use super::{ANSWERS, BOUND, Ending, Fate, Pair, Scratch};
use crate::broker::clock::{Millis, moment};
use crate::broker::held::{LONGEST_DELAY, advice};
use crate::broker::refusals::{Asked, GATEWAY};
use crate::proxy::frames::{header, varint, write_varint};
use crate::wire::{
    Frame, Packet, Publish, QoS, ReasonCode, Version, WireError, decode, frame, user_property,
};

/// A topic that a client gave a number.
pub(super) struct Alias {
    topic: Box<str>,
    /// The upstream has seen it.
    known: bool,
}

/// What a packet's handler says.
pub(super) enum Next {
    /// What becomes of the packet.
    Go(Fate),
    /// It must wait until this moment.
    Wait(Millis),
    /// It must wait for its turn.
    Held,
    /// The client broke the rules: the connection ends when what came before is done.
    Broken(WireError),
    /// A plugin ends the connection when what came before is done.
    Refused(Box<Refusal>),
}

/// The packet goes no further.
pub(super) const KEPT: Next = Next::Go(Fate::Replace(Vec::new()));

/// Why nobody may publish to a reserved topic.
const RESERVED: &str = "the topic is reserved for the server";

impl Pair {
    /// Handles what the client sent, as far as it may; reads more. `true` when something was done.
    pub(super) fn poll_client(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch, now: Millis) -> bool {
        if !matches!(self.ending, Ending::No | Ending::ClientLeft(_)) || self.upstream.pending() >= BOUND {
            return false;
        }
        self.relieve_if_deaf(now);
        let progress = self.release_held(cx, now);
        if self.reading_paused()
            || self.client.pending_in_all() >= ANSWERS
            || self.ending != Ending::No && !self.client.ready
        {
            return progress;
        }
        if self.client.ready {
            let input = std::mem::take(&mut self.client.input);
            self.handle_kept_client(input, now);
            return true;
        }
        if self.client.ended {
            return progress;
        }
        let mut memory = std::mem::take(&mut scratch.read);
        let read = self.client.poll_read(cx, &mut memory, &self.proxy.stats.bytes_received);
        if let Some(count) = read {
            if self.client.input.is_empty() {
                let handled = self.handle_client(&memory[..count], now);
                self.client.input.extend_from_slice(&memory[handled..count]);
            } else {
                let mut input = std::mem::take(&mut self.client.input);
                input.extend_from_slice(&memory[..count]);
                self.handle_kept_client(input, now);
            }
        }
        scratch.read = memory;
        progress | read.is_some()
    }

    fn handle_client(&mut self, bytes: &[u8], now: Millis) -> usize {
        let handled = self.handle_packets(bytes, now);
        self.book_arrivals(now);
        handled
    }

    fn handle_kept_client(&mut self, mut input: Vec<u8>, now: Millis) {
        let handled = self.handle_client(&input, now);
        if handled < input.len() {
            input.drain(..handled);
            self.client.input = input;
        }
    }

    /// Handles the whole packets in `bytes`; how many bytes they are. What goes on unchanged goes on in one piece.
    fn handle_packets(&mut self, bytes: &[u8], now: Millis) -> usize {
        let maximum = self.proxy.settings.session.max_packet_size as usize;
        let (mut at, mut from) = (0, 0);
        self.client.ready = false;
        let last = loop {
            if self.reading_paused() {
                self.client.ready = true;
                break None;
            }
            let found = match frame(&bytes[at..], maximum) {
                Ok(Some(found)) => found,
                Ok(None) => break None,
                Err(error) => break Some(Next::Broken(error)),
            };
            let end = at + found.header + found.body;
            match self.handle_or_hold(found, &bytes[at + found.header..end], now) {
                Next::Go(Fate::Pass) => at = end,
                Next::Go(Fate::Replace(packet)) => {
                    self.send_up(&bytes[from..at], now);
                    self.send_up(&packet, now);
                    self.speak_for_client(now);
                    (at, from) = (end, end);
                }
                Next::Go(Fate::Last) => {
                    self.send_up(&bytes[from..end], now);
                    self.client_leaves(now);
                    return bytes.len();
                }
                stop => break Some(stop),
            }
        };
        self.send_up(&bytes[from..at], now);
        match last {
            Some(last) => {
                self.conclude(last, now);
                bytes.len()
            }
            None => at,
        }
    }

    pub(super) fn send_up(&mut self, bytes: &[u8], now: Millis) {
        if !bytes.is_empty() {
            self.upstream.output.extend_from_slice(bytes);
            self.spoke = now;
        }
    }

    /// Ends the pair if the last packet asked for it.
    pub(super) fn conclude(&mut self, last: Next, now: Millis) {
        match last {
            Next::Broken(error) => {
                self.proxy.stats.protocol_errors.add(1);
                if self.proxy.lines.client.allows(now) {
                    let (client, peer) = (&*self.client_id, self.client.stream.peer());
                    tracing::info!(client, %peer, %error, "closed for a protocol error");
                }
                self.close(error.reason, Some(error.what), now);
            }
            Next::Refused(refusal) => self.close(ReasonCode(refusal.code), Some(&refusal.reason), now),
            Next::Go(_) | Next::Wait(_) | Next::Held => {}
        }
    }

    fn handle_or_hold(&mut self, found: Frame, body: &[u8], now: Millis) -> Next {
        let packet = match decode(Some(self.encoder.version), found, body) {
            Ok(packet) => packet,
            Err(error) => return Next::Broken(error),
        };
        let passes_held = matches!(
            packet,
            Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubRel(_) | Packet::PubComp(_) | Packet::PingReq
        );
        if self.held.is_some() && !passes_held {
            self.hold(found, body, now);
            return KEPT;
        }
        match self.handle(&packet, body, now) {
            Next::Wait(until) => {
                self.hold(found, body, now);
                self.wait_until(until);
                KEPT
            }
            Next::Held => {
                self.hold(found, body, now);
                self.gate.stand_in_line();
                KEPT
            }
            next => next,
        }
    }

    /// Decides about a packet.
    pub(super) fn handle(&mut self, packet: &Packet<'_>, body: &[u8], now: Millis) -> Next {
        match packet {
            Packet::Publish(publish) => self.publish(publish, body, now),
            Packet::Subscribe(subscribe) => self.subscribe(subscribe, body, now),
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(unsubscribe, body),
            Packet::PubRel(ack) if self.local_qos2.remove(&ack.packet_id) => {
                self.encoder.pubcomp(self.client.answers(), ack.packet_id, ReasonCode::SUCCESS);
                KEPT
            }
            Packet::PubRel(ack) => {
                self.passed(|passed| passed.remove(&ack.packet_id));
                Next::Go(Fate::Pass)
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                self.note_acknowledged(ack.packet_id, now);
                Next::Go(Fate::Pass)
            }
            Packet::PubRec(ack) if ack.reason.is_error() => {
                self.note_acknowledged(ack.packet_id, now);
                Next::Go(Fate::Pass)
            }
            Packet::Disconnect(disconnect) => {
                self.session_expiry = disconnect.session_expiry.unwrap_or(self.session_expiry);
                Next::Go(Fate::Last)
            }
            _ => Next::Go(Fate::Pass),
        }
    }

    fn publish(&mut self, publish: &Publish<'_>, body: &[u8], now: Millis) -> Next {
        if publish.qos == QoS::ExactlyOnce && self.local_qos2.contains(&publish.packet_id) {
            // sent again: it was answered here
            self.encoder.pubrec(self.client.answers(), publish.packet_id, ReasonCode::SUCCESS, None, &[]);
            return KEPT;
        }
        if let Err(error) = self.learn_alias(publish) {
            return Next::Broken(error);
        }
        // taken out, so that the topic can be borrowed while others are asked
        let alias =
            publish.properties.topic_alias.and_then(|number| Some((number, self.aliases.remove(&number)?)));
        let topic = match &alias {
            Some((_, alias)) => &*alias.topic,
            None => publish.topic,
        };
        let (next, added) = match self.passed_before(publish) {
            Some(added) => (Next::Go(Fate::Pass), added),
            None if self.proxy.measured && self.waits_for_its_turn(topic, now) => {
                (Next::Held, Box::default())
            }
            None => self.accept(publish, topic, now),
        };
        let passes = matches!(next, Next::Go(Fate::Pass));
        let mut named = None;
        if let Some((number, mut alias)) = alias {
            if passes {
                named = (publish.topic.is_empty() && !alias.known).then(|| alias.topic.clone());
                alias.known = true;
            }
            self.aliases.insert(number, alias);
        }
        if !passes || named.is_none() && added.is_empty() {
            return next;
        }
        let mut packet = rewritten(publish, body, named.as_deref(), &added);
        if packet.len() > self.largest as usize {
            // better without what was added than not at all
            let Some(named) = named else { return next };
            packet = rewritten(publish, body, Some(&named), &[]);
        }
        self.proxy.counts.changed.add(1);
        Next::Go(Fate::Replace(packet))
    }

    /// What plugins added to this message when it came first: one with QoS 2 that is sent again is no other message.
    fn passed_before(&mut self, publish: &Publish<'_>) -> Option<Box<[u8]>> {
        // Without the mark it is another one: the upstream refused the first, and its identifier is free.
        if publish.qos != QoS::ExactlyOnce || !publish.dup {
            return None;
        }
        self.passed(|passed| passed.get(&publish.packet_id).cloned()).flatten()
    }

    /// Asks the plugins; what they add to a message that passes.
    fn accept(&mut self, publish: &Publish<'_>, topic: &str, now: Millis) -> (Next, Box<[u8]>) {
        let mut added = Vec::new();
        let next = self.ask_and_answer(publish, topic, &mut added, now);
        let added: Box<[u8]> = added.into();
        if publish.qos == QoS::ExactlyOnce && matches!(next, Next::Go(Fate::Pass)) {
            self.passed(|passed| passed.insert(publish.packet_id, added.clone()));
        }
        (next, added)
    }

    /// The QoS 2 messages of the session that are not released; none before the upstream has let the client in.
    fn passed<T>(&mut self, tell: impl FnOnce(&mut BTreeMap<u16, Box<[u8]>>) -> T) -> Option<T> {
        self.consumer.as_ref().map(|consumer| tell(&mut consumer.session.state.lock().passed))
    }

    /// Asks the plugins, and answers where the upstream will not.
    fn ask_and_answer(
        &mut self,
        publish: &Publish<'_>,
        topic: &str,
        added: &mut Vec<u8>,
        now: Millis,
    ) -> Next {
        match self.ask(publish, topic, added, now) {
            Verdict::Continue => {
                self.proxy.stats.published.add(1);
                self.publisher.note_accepted();
                if self.proxy.measured {
                    self.note_arrival(topic, publish.qos, now);
                }
                Next::Go(Fate::Pass)
            }
            Verdict::Drop => {
                self.proxy.stats.discarded.add(1);
                self.acknowledge(publish, None);
                KEPT
            }
            Verdict::Refuse(refusal) => {
                self.proxy.stats.refused.add(1);
                let by = if self.proxy.control.owns(topic) { GATEWAY } else { self.hooks.decided_by() };
                self.note_refusal(Asked::Publish, by, topic, refusal.code, now);
                self.acknowledge(publish, Some(&refusal));
                KEPT
            }
            Verdict::Delay(pause) => {
                let pause = pause.clamp(Duration::from_millis(1), LONGEST_DELAY);
                Next::Wait(now + pause.as_millis() as u64)
            }
            Verdict::Close(refusal) => {
                self.note_refusal(Asked::Publish, self.hooks.decided_by(), topic, refusal.code, now);
                Next::Refused(Box::new(refusal))
            }
        }
    }

    /// Asks the plugins; what they add to a message that they let pass, as properties.
    fn ask(&mut self, publish: &Publish<'_>, topic: &str, added: &mut Vec<u8>, now: Millis) -> Verdict {
        let own = self.proxy.control.owns(topic);
        let question = plugin::Publish {
            topic,
            payload: publish.payload,
            qos: publish.qos as u8,
            retain: publish.retain,
            now: moment(now),
            waited: Duration::from_millis(self.held_since.map_or(0, |since| now.saturating_sub(since))),
        };
        let check = self.proxy.control.asker(topic).is_some_and(|client| *client == *self.client_id);
        let reserved = || Verdict::Refuse(Refusal::not_authorized(RESERVED));
        let verdict = if own && !check { reserved() } else { self.hooks.on_publish(&question) };
        match verdict {
            Verdict::Continue if check => self.offer_check(publish, own),
            Verdict::Continue => {
                let v5 = self.encoder.version == Version::V5;
                // 3.1.1 has no place for them
                let add = &mut |key: &str, value: &str| {
                    if v5 {
                        user_property(added, key, value);
                    }
                };
                self.proxy.chain.on_accept(&question, add);
                Verdict::Continue
            }
            verdict => verdict,
        }
    }

    /// What becomes of a check that all plugins let pass: one of them takes it, or it is a message as any other.
    fn offer_check(&mut self, publish: &Publish<'_>, own: bool) -> Verdict {
        let check = plugin::CheckRequest {
            payload: publish.payload,
            response_topic: publish.properties.response_topic,
            correlation_data: publish.properties.correlation_data,
        };
        match self.hooks.on_check(&check) {
            true => Verdict::Drop,
            false if own => Verdict::Refuse(Refusal::not_authorized(RESERVED)),
            false => Verdict::Continue,
        }
    }

    /// PUBACK or PUBREC for what goes no further. 3.1.1 has no way to refuse: the message is acknowledged all the same.
    fn acknowledge(&mut self, publish: &Publish<'_>, refusal: Option<&Refusal>) {
        let v5 = self.encoder.version == Version::V5;
        let refusal = refusal.filter(|_| v5);
        let reason = refusal.map_or(ReasonCode::SUCCESS, |refusal| ReasonCode(refusal.code));
        let text = refusal.map(|refusal| &*refusal.reason);
        let wait = refusal.and_then(|refusal| refusal.retry_after);
        let advice = if v5 { advice(&self.publisher, &mut self.told_rate, wait) } else { None };
        let user = advice
            .as_ref()
            .map_or([("", ""); 2], |(rate, wait)| [("tide-rate", rate), ("tide-wait-ms", wait)]);
        let user = if advice.is_some() { &user[..] } else { &[] };
        let out = self.client.answers();
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => self.encoder.puback(out, publish.packet_id, reason, text, user),
            QoS::ExactlyOnce => {
                if !reason.is_error() {
                    self.local_qos2.insert(publish.packet_id);
                }
                self.encoder.pubrec(out, publish.packet_id, reason, text, user);
            }
        }
    }

    /// A refusal is counted each time and logged as far as the log bears it.
    pub(super) fn note_refusal(&self, asked: Asked, by: &'static str, topic: &str, code: u8, now: Millis) {
        self.proxy.refusals.count(asked, by, code);
        if self.proxy.lines.refused.allows(now) {
            let (client, peer, what) = (&*self.client_id, self.client.stream.peer(), asked.name());
            tracing::info!(client, %peer, what, topic, by, reason = format_args!("0x{code:02x}"), "refused");
        }
    }

    fn learn_alias(&mut self, publish: &Publish<'_>) -> Result<(), WireError> {
        let Some(number) = publish.properties.topic_alias else { return Ok(()) };
        if number > self.alias_maximum {
            let what = "the topic alias is over the server's Topic Alias Maximum";
            return Err(WireError { reason: ReasonCode::TOPIC_ALIAS_INVALID, what });
        }
        if !publish.topic.is_empty() {
            self.aliases.insert(number, Alias { topic: publish.topic.into(), known: false });
        } else if !self.aliases.contains_key(&number) {
            return Err(WireError::protocol("the topic alias stands for no topic"));
        }
        Ok(())
    }
}

/// The packet again, with the topic beside its alias, where the upstream has not seen the one that introduced it, and with
/// properties before those that it has.
fn rewritten(publish: &Publish<'_>, body: &[u8], topic: Option<&str>, added: &[u8]) -> Vec<u8> {
    let first = 0x30 | u8::from(publish.dup) << 3 | (publish.qos as u8) << 1 | u8::from(publish.retain);
    let topic = topic.unwrap_or(publish.topic);
    // what was read is there: the topic with its length, the identifier, the properties with theirs
    let id = 2 + publish.topic.len();
    let properties = id + if publish.qos == QoS::AtMostOnce { 0 } else { 2 };
    let mut head = Vec::with_capacity(body.len() + topic.len() + added.len() + 10);
    // a topic that came in is no longer than two bytes can say
    head.extend((topic.len() as u16).to_be_bytes());
    head.extend_from_slice(topic.as_bytes());
    head.extend_from_slice(&body[id..properties]);
    let rest = match varint(body, properties) {
        Some((length, start)) if !added.is_empty() => {
            write_varint(&mut head, length + added.len());
            head.extend_from_slice(added);
            start
        }
        _ => properties,
    };
    head.extend_from_slice(&body[rest..]);
    let mut packet = Vec::with_capacity(head.len() + 5);
    header(&mut packet, first, head.len());
    packet.extend_from_slice(&head);
    packet
}

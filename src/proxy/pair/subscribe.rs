//! SUBSCRIBE and UNSUBSCRIBE: what is answered here is taken out, and the answers are put together again.

use std::collections::HashMap;

use tidegate_plugin as plugin;
use tidegate_plugin::{Refusal, Verdict};

use super::client::{KEPT, Next};
use super::{Fate, Pair};
use crate::broker::clock::Millis;
use crate::broker::refusals::{Asked, GATEWAY};
use crate::broker::topic;
use crate::proxy::frames::{self, Nonsense, binary, header, varint};
use crate::proxy::session::MOST_CONTROL;
use crate::wire::{Filter, QoS, ReasonCode, RetainHandling, Subscribe, Unsubscribe, Version, WireError};

/// What SUBSCRIBEs of one client that wait for the upstream's answer may weigh, and as much for UNSUBSCRIBEs, in bytes. One
/// packet alone may weigh more.
const MOST_WAITING: usize = 4 * 1024 * 1024;
/// What a filter weighs beside its own bytes.
const FILTER: usize = 32;
/// 0x9E: shared subscriptions are not supported, here for control topics.
const NOT_SHARED: ReasonCode = ReasonCode(0x9E);

/// Packets of one kind that the upstream has not answered, by packet identifier.
pub(super) struct Waiting<F> {
    packets: HashMap<u16, Pending<F>>,
    /// The bytes that they weigh.
    weight: usize,
    /// Subscriptions that they may add.
    new: usize,
}

/// A packet that the upstream has not answered: for each filter the code, if that is known already.
pub(super) struct Pending<F> {
    codes: Vec<Option<ReasonCode>>,
    /// The filters that the upstream has to answer for.
    filters: Vec<F>,
    new: usize,
    weight: usize,
}

impl<F> Pending<F> {
    fn is_whole(&self) -> bool {
        self.codes.iter().all(Option::is_none)
    }
}

// derived, it would ask for `F: Default`
impl<F> Default for Waiting<F> {
    fn default() -> Self {
        Self { packets: HashMap::new(), weight: 0, new: 0 }
    }
}

impl<F> Waiting<F> {
    /// Whether a packet of this weight is too much.
    fn too_many(&self, weight: usize) -> bool {
        self.weight > 0 && self.weight + weight > MOST_WAITING
    }

    fn insert(&mut self, id: u16, pending: Pending<F>) {
        // a client may use an identifier twice, though it must not
        self.remove(id);
        self.weight += pending.weight;
        self.new += pending.new;
        self.packets.insert(id, pending);
    }

    fn remove(&mut self, id: u16) -> Option<Pending<F>> {
        let pending = self.packets.remove(&id)?;
        self.weight -= pending.weight;
        self.new -= pending.new;
        Some(pending)
    }
}

impl Pair {
    pub(super) fn subscribe(&mut self, subscribe: &Subscribe, body: &[u8], now: Millis) -> Next {
        let mut codes = Vec::with_capacity(subscribe.filters.len());
        let mut new = 0;
        for filter in &subscribe.filters {
            match self.subscribe_one(filter, new, now) {
                Ok(code) => {
                    new += usize::from(code.is_none() && !self.is_subscribed(&filter.path));
                    codes.push(code);
                }
                Err(refusal) => return Next::Refused(refusal),
            }
        }
        if let Some(known) = codes.iter().copied().collect::<Option<Vec<_>>>() {
            self.encoder.suback(self.client.answers(), subscribe.packet_id, &known);
            return KEPT;
        }
        let weight = body.len() + codes.len() * FILTER;
        if self.subscribing.too_many(weight) {
            return Next::Broken(TOO_MANY);
        }
        let open = subscribe.filters.iter().zip(&codes).filter(|(_, code)| code.is_none());
        let filters = open.map(|(filter, _)| filter.clone()).collect();
        let pending = Pending { codes, filters, new, weight };
        let fate = self.ask_for_the_rest(0x82, body, 1, &pending);
        self.subscribing.insert(subscribe.packet_id, pending);
        Next::Go(fate)
    }

    /// The code for SUBACK if it is known here; `Err` when a plugin ends the connection. The same packet
    /// adds so many subscriptions already.
    fn subscribe_one(
        &mut self,
        filter: &Filter,
        new: usize,
        now: Millis,
    ) -> Result<Option<ReasonCode>, Box<Refusal>> {
        let Some((group, plain)) = topic::parse_subscription(&filter.path) else {
            let code = ReasonCode::TOPIC_FILTER_INVALID;
            self.note_refusal(Asked::Subscribe, GATEWAY, &filter.path, code.0, now);
            return Ok(Some(code));
        };
        let question = plugin::Subscribe { filter: plain, group, qos: filter.qos as u8 };
        let (code, close) = match self.hooks.on_subscribe(&question) {
            Verdict::Continue if self.proxy.control.owns(plain) => {
                return Ok(Some(self.subscribe_control(filter, group, plain)));
            }
            Verdict::Continue if self.has_too_many(&filter.path, new) => {
                let code = ReasonCode::QUOTA_EXCEEDED;
                self.note_refusal(Asked::Subscribe, GATEWAY, &filter.path, code.0, now);
                return Ok(Some(code));
            }
            Verdict::Continue => return Ok(None),
            Verdict::Refuse(refusal) => (refusal.code, None),
            Verdict::Close(refusal) => (refusal.code, Some(Box::new(refusal))),
            Verdict::Delay(_) | Verdict::Drop => (ReasonCode::UNSPECIFIED_ERROR.0, None),
        };
        self.note_refusal(Asked::Subscribe, self.hooks.decided_by(), &filter.path, code, now);
        close.map_or(Ok(Some(ReasonCode(code))), Err)
    }

    /// Whether another subscription would be one too many, as in the broker; so many are being added already.
    fn has_too_many(&self, path: &str, new: usize) -> bool {
        let known = self.consumer.as_ref().map_or(0, |consumer| consumer.session.state.lock().feeds.len());
        known + self.subscribing.new + new >= self.proxy.settings.session.max_subscriptions
            && !self.is_subscribed(path)
    }

    fn is_subscribed(&self, path: &str) -> bool {
        let session = self.consumer.as_ref().map(|consumer| &consumer.session);
        session.is_some_and(|session| session.state.lock().feeds.contains_key(path))
    }

    /// Control topics are delivered with QoS 0.
    fn subscribe_control(&mut self, filter: &Filter, group: Option<&str>, plain: &str) -> ReasonCode {
        if group.is_some() {
            return NOT_SHARED;
        }
        let new = !self.control.contains(plain);
        if new && self.control.len() >= MOST_CONTROL {
            return ReasonCode::QUOTA_EXCEEDED;
        }
        self.control.insert(plain.into());
        self.note_control(plain, true);
        let retained = match filter.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => new,
            RetainHandling::Never => false,
        };
        self.proxy.control.subscribe(plain, &self.inbox, retained);
        ReasonCode::SUCCESS
    }

    pub(super) fn unsubscribe(&mut self, unsubscribe: &Unsubscribe, body: &[u8]) -> Next {
        let mut codes = Vec::with_capacity(unsubscribe.filters.len());
        for filter in &unsubscribe.filters {
            self.hooks.on_unsubscribe(filter);
            codes.push(self.proxy.control.owns(filter).then(|| self.unsubscribe_control(filter)));
        }
        if let Some(known) = codes.iter().copied().collect::<Option<Vec<_>>>() {
            self.encoder.unsuback(self.client.answers(), unsubscribe.packet_id, &known);
            return KEPT;
        }
        let weight = body.len() + codes.len() * FILTER;
        if self.unsubscribing.too_many(weight) {
            return Next::Broken(TOO_MANY);
        }
        let open = unsubscribe.filters.iter().zip(&codes).filter(|(_, code)| code.is_none());
        let filters = open.map(|(path, _)| path.as_str().into()).collect();
        let pending = Pending { codes, filters, new: 0, weight };
        let fate = self.ask_for_the_rest(0xA2, body, 0, &pending);
        self.unsubscribing.insert(unsubscribe.packet_id, pending);
        Next::Go(fate)
    }

    /// What goes to the upstream when some codes are known.
    fn ask_for_the_rest<F>(&mut self, first: u8, body: &[u8], options: usize, pending: &Pending<F>) -> Fate {
        if pending.is_whole() {
            return Fate::Pass;
        }
        self.proxy.counts.changed.add(1);
        Fate::Replace(without_known(first, self.encoder.version, body, options, &pending.codes))
    }

    fn unsubscribe_control(&mut self, filter: &str) -> ReasonCode {
        if !self.control.remove(filter) {
            return ReasonCode::NO_SUBSCRIPTION_EXISTED;
        }
        self.note_control(filter, false);
        self.proxy.control.unsubscribe(filter, &self.inbox);
        ReasonCode::SUCCESS
    }

    /// The session knows it from now on: another connection may take it over at any time.
    fn note_control(&self, filter: &str, subscribes: bool) {
        if let Some(consumer) = &self.consumer {
            consumer.session.note_control(filter, subscribes, self.inbox.number);
        }
    }

    /// Puts our codes into the upstream's SUBACK.
    pub(super) fn suback(&mut self, body: &[u8], now: Millis) -> Result<Fate, Nonsense> {
        let id = frames::packet_id(body)?;
        let start = frames::codes(self.encoder.version, body)?;
        let Some(pending) = self.subscribing.remove(id) else { return Ok(Fate::Pass) };
        for (filter, code) in pending.filters.iter().zip(&body[start..]) {
            if let Some(qos) = QoS::from_bits(*code) {
                self.subscribed(&Filter { qos, ..filter.clone() }, now);
                if let Some((group, filter)) = topic::parse_subscription(&filter.path) {
                    self.hooks.on_subscribed(&plugin::Subscribe { filter, group, qos: qos as u8 });
                }
            }
        }
        if pending.is_whole() {
            return Ok(Fate::Pass);
        }
        Ok(Fate::Replace(merged(frames::SUBACK << 4, self.encoder.version, body, start, &pending.codes)))
    }

    /// Puts our codes into the upstream's UNSUBACK.
    pub(super) fn unsuback(&mut self, body: &[u8], now: Millis) -> Result<Fate, Nonsense> {
        let id = frames::packet_id(body)?;
        let start = frames::codes(self.encoder.version, body)?;
        let Some(pending) = self.unsubscribing.remove(id) else { return Ok(Fate::Pass) };
        for path in &pending.filters {
            self.unsubscribed(path, now);
        }
        if self.encoder.version == Version::V311 || pending.is_whole() {
            return Ok(Fate::Pass);
        }
        Ok(Fate::Replace(merged(frames::UNSUBACK << 4, self.encoder.version, body, start, &pending.codes)))
    }
}

const TOO_MANY: WireError = WireError {
    reason: ReasonCode::QUOTA_EXCEEDED,
    what: "too many subscriptions wait for the broker's answer",
};

/// A SUBSCRIBE or UNSUBSCRIBE without the filters whose codes are known; each filter has so many bytes of options. The
/// body was decoded, so that it is sound.
fn without_known(
    first: u8,
    version: Version,
    body: &[u8],
    options: usize,
    codes: &[Option<ReasonCode>],
) -> Vec<u8> {
    let properties = if version == Version::V5 { varint(body, 2) } else { None };
    let mut at = properties.map_or(2, |(length, start)| start + length);
    let mut kept = body[..at].to_vec();
    for code in codes {
        let Some((_, end)) = binary(body, at) else { break };
        if code.is_none() {
            kept.extend_from_slice(&body[at..end + options]);
        }
        at = end + options;
    }
    let mut packet = Vec::with_capacity(kept.len() + 5);
    header(&mut packet, first, kept.len());
    packet.extend(kept);
    packet
}

/// An acknowledgement with the upstream's codes and ours, each in its place.
fn merged(first: u8, version: Version, body: &[u8], start: usize, ours: &[Option<ReasonCode>]) -> Vec<u8> {
    let mut theirs = body[start..].iter().copied();
    let translate = |code: ReasonCode| if version == Version::V5 || code.0 <= 2 { code.0 } else { 0x80 };
    let codes = ours.iter().map(|code| code.map_or_else(|| theirs.next().unwrap_or(0x80), translate));
    let codes: Vec<u8> = codes.collect();
    let mut packet = Vec::with_capacity(start + codes.len() + 5);
    header(&mut packet, first, start + codes.len());
    packet.extend_from_slice(&body[..start]);
    packet.extend(codes);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_taken_out_and_codes_put_in() {
        let body = [0, 9, 2, 0x0B, 5, 0, 1, b'a', 1, 0, 1, b'b', 2, 0, 1, b'c', 0];
        let codes = [None, Some(ReasonCode::NOT_AUTHORIZED), None];
        let packet = without_known(0x82, Version::V5, &body, 1, &codes);
        assert_eq!(packet, [0x82, 13, 0, 9, 2, 0x0B, 5, 0, 1, b'a', 1, 0, 1, b'c', 0]);
        let answer = merged(0x90, Version::V5, &[0, 9, 0, 1, 0], 3, &codes);
        assert_eq!(answer, [0x90, 6, 0, 9, 0, 1, 0x87, 0]);
        let answer = merged(0x90, Version::V311, &[0, 9, 1], 2, &codes);
        assert_eq!(answer, [0x90, 5, 0, 9, 1, 0x80, 0x80], "the upstream left one out");
    }
}

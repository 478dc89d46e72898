//! From the upstream to the client.

use std::task::Context;

use super::{BOUND, Ending, Fate, Pair, Scratch};
use crate::broker::clock::Millis;
use crate::broker::held::advice;
use crate::proxy::connack::{self, Own};
use crate::proxy::frames::{self, Delivered, Nonsense};
use crate::proxy::upstreams::Health;
use crate::wire::{Frame, ReasonCode, Version};

/// How often we look whether the upstream of an MQTT 5 client is gone, in milliseconds.
const SUSPENSE: Millis = 50;

impl Pair {
    /// Handles what the upstream sent, and reads more. `true` when something was done.
    pub(super) fn poll_upstream(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch, now: Millis) -> bool {
        if !matches!(self.ending, Ending::No | Ending::ClientLeft(_)) || self.client.pending() >= BOUND {
            return false;
        }
        if self.upstream.ready {
            let input = std::mem::take(&mut self.upstream.input);
            self.handle_kept_upstream(input, now);
            return true;
        }
        if self.upstream.ended {
            return false;
        }
        let mut memory = std::mem::take(&mut scratch.read);
        let read = self.upstream.poll_read(cx, &mut memory, &self.proxy.counts.bytes_received);
        if let Some(count) = read {
            if self.upstream.input.is_empty() {
                let handled = self.handle_upstream(&memory[..count], now);
                self.upstream.input.extend_from_slice(&memory[handled..count]);
            } else {
                let mut input = std::mem::take(&mut self.upstream.input);
                input.extend_from_slice(&memory[..count]);
                self.handle_kept_upstream(input, now);
            }
        }
        scratch.read = memory;
        read.is_some()
    }

    fn handle_kept_upstream(&mut self, mut input: Vec<u8>, now: Millis) {
        let handled = self.handle_upstream(&input, now);
        if handled < input.len() {
            input.drain(..handled);
            self.upstream.input = input;
        }
    }

    /// Handles the whole packets in `bytes`; how many bytes they are. What goes on unchanged goes on in one piece.
    fn handle_upstream(&mut self, bytes: &[u8], now: Millis) -> usize {
        let (version, maximum) = (self.encoder.version, self.proxy.settings.session.max_packet_size as usize);
        let (mut at, mut from) = (0, 0);
        self.upstream.ready = false;
        if self.client.passing > 0 {
            at = self.client.pass(bytes);
            from = at;
        }
        let outcome = loop {
            let found = match frames::find(&bytes[at..], version, maximum) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(Nonsense::TooLarge) => match self.begin_large(&bytes[at..], now) {
                    Ok(Some(length)) => {
                        self.client.output.extend_from_slice(&bytes[from..at]);
                        self.client.passing = length;
                        at += self.client.pass(&bytes[at..]);
                        from = at;
                        continue;
                    }
                    Ok(None) => break Ok(()),
                    Err(what) => break Err(what),
                },
                Err(what) => break Err(what),
            };
            let end = at + found.header + found.body;
            match self.decide(found, &bytes[at + found.header..end], now) {
                Ok(Fate::Pass) => at = end,
                Ok(Fate::Replace(packet)) => {
                    self.client.output.extend_from_slice(&bytes[from..at]);
                    self.client.output.extend(packet);
                    (at, from) = (end, end);
                }
                Ok(Fate::Last) => {
                    self.client.output.extend_from_slice(&bytes[from..end]);
                    self.finish(now);
                    return bytes.len();
                }
                Err(what) => break Err(what),
            }
        };
        self.client.output.extend_from_slice(&bytes[from..at]);
        self.deliveries_are_out();
        if let Err(what) = outcome {
            self.nonsense(what, now);
            return bytes.len();
        }
        at
    }

    /// A packet begins that is larger than what is kept: how long it is, none when more of it must be seen. Only a message may
    /// be so large. It goes on all the same: else the upstream would send it again and again, and nothing else.
    fn begin_large(&mut self, bytes: &[u8], now: Millis) -> Result<Option<usize>, Nonsense> {
        let (first, version) = (bytes[0], self.encoder.version);
        if !self.accepted || first >> 4 != frames::PUBLISH {
            return Err(Nonsense::TooLarge);
        }
        let (body, start) = frames::varint(bytes, 1).ok_or(Nonsense::Length)?;
        let Some(topic) = frames::two(bytes, start) else { return Ok(None) };
        let identifier = if first & 0b0110 == 0 { 0 } else { 2 };
        let mut seen = start + 2 + usize::from(topic) + identifier;
        if version == Version::V5 {
            let Some((length, properties)) = frames::varint(bytes, seen) else {
                // a length has up to four bytes
                return if bytes.len() < seen + 4 { Ok(None) } else { Err(Nonsense::Length) };
            };
            seen = properties + length;
        }
        if seen > start + body || seen > self.proxy.settings.session.max_packet_size as usize {
            return Err(Nonsense::TooLarge);
        }
        if bytes.len() < seen {
            return Ok(None);
        }
        let delivered = frames::delivered(version, first, &bytes[start..seen])?;
        self.delivers(&delivered, now)?;
        Ok(Some(start + body))
    }

    /// A message goes to the client.
    fn delivers(&mut self, delivered: &Delivered<'_>, now: Millis) -> Result<(), Nonsense> {
        if delivered.alias.is_some_and(|alias| alias == 0 || alias > self.aliases_taken) {
            return Err(Nonsense::Alias);
        }
        if self.proxy.measured {
            self.note_delivery(delivered, now);
        }
        self.proxy.stats.delivered.add(1);
        Ok(())
    }

    /// Decides about one packet.
    fn decide(&mut self, found: Frame, body: &[u8], now: Millis) -> Result<Fate, Nonsense> {
        let kind = found.first >> 4;
        if !self.accepted && kind != frames::CONNACK && kind != frames::AUTH {
            return Err(Nonsense::BeforeConnack);
        }
        match kind {
            frames::CONNACK => self.connack(body, now),
            frames::PUBLISH => {
                let delivered = frames::delivered(self.encoder.version, found.first, body)?;
                self.delivers(&delivered, now).map(|()| Fate::Pass)
            }
            frames::PUBACK | frames::PUBREC => self.advise(found.first, body),
            frames::SUBACK => self.suback(body, now),
            frames::UNSUBACK => self.unsuback(body, now),
            frames::PINGRESP if self.own_pings > 0 => {
                self.own_pings -= 1;
                Ok(Fate::Replace(Vec::new()))
            }
            frames::DISCONNECT => Ok(Fate::Last),
            _ => Ok(Fate::Pass),
        }
    }

    fn connack(&mut self, body: &[u8], now: Millis) -> Result<Fate, Nonsense> {
        if self.accepted {
            return Err(Nonsense::SecondConnack);
        }
        let answer = connack::read(self.encoder.version, body)?;
        if !answer.accepted {
            self.turned_away(body, now);
            return Ok(Fate::Last);
        }
        self.accepted = true;
        self.session_expiry = answer.session_expiry.unwrap_or(self.session_expiry);
        self.begin_consuming(answer.session_present, now);
        if let Some(seconds) = answer.server_keep_alive {
            self.keep_alive = u64::from(seconds) * 1000;
        }
        self.largest = answer.maximum_packet_size.unwrap_or(u32::MAX);
        let settings = &self.proxy.settings.session;
        self.alias_maximum = answer.topic_alias_maximum.min(settings.topic_alias_maximum);
        if self.encoder.version == Version::V311 {
            return Ok(Fate::Pass);
        }
        let own = Own {
            assigned: self.assigned.then_some(&*self.client_id),
            maximum_packet_size: settings.max_packet_size,
            topic_alias_maximum: settings.topic_alias_maximum,
        };
        let mut packet = Vec::new();
        if !connack::amend(&mut packet, body, &answer, &own)? {
            return Ok(Fate::Pass);
        }
        self.proxy.counts.changed.add(1);
        Ok(Fate::Replace(packet))
    }

    /// The upstream does not let the client in, and tells it why.
    fn turned_away(&self, body: &[u8], now: Millis) {
        self.proxy.stats.connects_refused.add(1);
        self.proxy.counts.refused.add(1);
        if self.proxy.lines.turned_away.allows(now) {
            let (client, upstream) = (&*self.client_id, self.proxy.upstreams.name(self.address));
            let code = body.get(1).copied().unwrap_or_default();
            tracing::info!(
                client,
                upstream,
                code = format_args!("0x{code:02x}"),
                "the upstream refused the client"
            );
        }
    }

    /// Tells the client its rate with an acknowledgement, when it does not know it.
    fn advise(&mut self, first: u8, body: &[u8]) -> Result<Fate, Nonsense> {
        let id = frames::packet_id(body)?;
        let encoder = self.encoder;
        if encoder.version == Version::V311
            || !encoder.problem_information
            || self.publisher.changes() == self.told_rate
            || frames::is_refusal(body)
            || body.len() > 3
        {
            return Ok(Fate::Pass);
        }
        let Some((rate, wait)) = advice(&self.publisher, &mut self.told_rate, None) else {
            return Ok(Fate::Pass);
        };
        let user = [("tide-rate", &*rate), ("tide-wait-ms", &*wait)];
        let reason = ReasonCode(body.get(2).copied().unwrap_or(0));
        let mut packet = Vec::new();
        match first >> 4 {
            frames::PUBACK => encoder.puback(&mut packet, id, reason, None, &user),
            _ => encoder.pubrec(&mut packet, id, reason, None, &user),
        }
        self.proxy.counts.changed.add(1);
        Ok(Fate::Replace(packet))
    }

    /// The upstream sent what is not MQTT.
    fn nonsense(&mut self, what: Nonsense, now: Millis) {
        self.proxy.counts.nonsense.add(1);
        if self.proxy.lines.nonsense.allows(now) {
            let (client, upstream) = (&*self.client_id, self.proxy.upstreams.name(self.address));
            tracing::warn!(
                client,
                upstream,
                %what,
                "the upstream sent what is not MQTT: both sides are closed"
            );
        }
        self.upstream.broken = true;
        self.close(ReasonCode::SERVER_BUSY, Some("the broker answers with nonsense"), now);
    }

    /// The upstream closed the connection without a word.
    pub(super) fn lose_upstream(&mut self, now: Millis) {
        if matches!(self.ending, Ending::ClientLeft(_)) {
            self.give_up_waiting(now);
            self.ending = Ending::Over;
            return;
        }
        self.proxy.counts.lost.add(1);
        let cut = !self.upstream.input.is_empty() || self.client.passing > 0;
        if self.proxy.lines.lost.allows(now) {
            let (client, upstream) = (&*self.client_id, self.proxy.upstreams.name(self.address));
            tracing::info!(client, upstream, in_a_packet = cut, "the upstream closed the connection");
        }
        let loss = self.proxy.upstreams.suspect(self.address);
        let mut at = now + self.proxy.upstreams.parting_delay(now);
        // long enough to see whether it closed this connection or is gone itself: MQTT 5 has words for that
        if self.encoder.version == Version::V5 {
            at = at.max(now + SUSPENSE);
        }
        if at == now {
            return self.finish(now);
        }
        self.ending = Ending::UpstreamLost { loss, at };
        self.timer_at = 0;
        self.arm(at);
    }

    /// The time has come to tell the client that its upstream is lost. Where the upstream still works it closed only this
    /// connection, and so do we. After a few probes it is known, so nobody waits for ever.
    pub(super) fn tell_of_loss(&mut self, loss: u64, now: Millis) {
        if self.encoder.version == Version::V311 {
            // it has no words for either
            return self.finish(now);
        }
        match self.proxy.upstreams.health(self.address, loss) {
            Health::Works if !self.upstream.input.is_empty() => {
                let text = Some("the broker broke off in the middle of a packet");
                self.close(ReasonCode::SERVER_BUSY, text, now);
            }
            Health::Works => self.finish(now),
            Health::Gone => {
                let text = Some("the broker behind the gateway is lost");
                self.close(ReasonCode::SERVER_SHUTTING_DOWN, text, now);
            }
            Health::Unknown => {
                let at = now + SUSPENSE;
                self.ending = Ending::UpstreamLost { loss, at };
                self.arm(at);
            }
        }
    }
}

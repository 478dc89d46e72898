//! Packets of a publisher that a plugin holds: they wait in order; acknowledgements and pings go on.

use std::sync::Arc;
use std::task::Context;

use super::client::Next;
use super::{Ending, Fate, Pair};
use crate::broker::clock::Millis;
use crate::broker::held::{HeldBytes, HeldInput, HeldPacket};
use crate::proxy::frames::header;
use crate::wire::{Frame, Packet, decode, frame};

/// How long a client that may owe acknowledgements goes unheard, in milliseconds.
const DEAF: Millis = 500;
const PINGREQ: [u8; 2] = [0xC0, 0];

impl Pair {
    /// Whether input waits because the publisher is held and enough is kept already.
    pub(super) fn reading_paused(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_enough(&self.proxy.settings.listen))
    }

    pub(super) fn hold(&mut self, frame: Frame, body: &[u8], since: Millis) {
        let bytes = || HeldBytes::new(Arc::clone(&self.proxy.held_bytes));
        let held = self.held.get_or_insert_with(|| Box::new(HeldInput::new(bytes())));
        held.push(HeldPacket { frame, body: body.into(), since });
    }

    pub(super) fn wait_until(&mut self, until: Millis) {
        if let Some(held) = &mut self.held {
            held.until = until;
        }
        self.arm(until);
    }

    /// A held client that is not read must be heard now and then, and the upstream must hear of it: it may have sent
    /// PINGREQ behind its messages, or acknowledgements. So before half its keep-alive is over (soon, if it owes
    /// acknowledgements) more of its messages are kept, within bounds, and the upstream gets a PINGREQ of ours.
    pub(super) fn relieve_if_deaf(&mut self, now: Millis) {
        if self.held.is_none() {
            return;
        }
        let half = self.keep_alive / 2;
        if half > 0 && now >= self.spoke + half {
            self.ping(now);
        }
        if half > 0 {
            self.arm(self.spoke + half);
        }
        if !self.reading_paused() {
            self.deaf_since = 0;
            return;
        }
        if self.deaf_since == 0 {
            self.deaf_since = now;
        }
        let owes = self.consumer.as_ref().is_some_and(|consumer| consumer.owes());
        let patience = match half {
            _ if owes => DEAF,
            // it has no pings that must be heard
            0 => return,
            half => half,
        };
        let due = self.deaf_since + patience;
        if now < due {
            return self.arm(due);
        }
        self.deaf_since = 0;
        if self.held.as_mut().is_some_and(|held| held.relieve(&self.proxy.settings.listen)) {
            self.proxy.stats.reliefs.add(1);
        }
    }

    /// The client said something that goes no further: the upstream must hear now and then that it is there. A client that
    /// keeps its keep-alive is never silent for longer than that, so that a quarter more is the longest that the upstream
    /// hears nothing; it waits for one and a half.
    pub(super) fn speak_for_client(&mut self, now: Millis) {
        if self.keep_alive > 0 && now >= self.spoke + self.keep_alive / 4 {
            self.ping(now);
        }
    }

    fn ping(&mut self, now: Millis) {
        self.send_up(&PINGREQ, now);
        self.own_pings += 1;
        self.proxy.counts.pings.add(1);
    }

    /// Passes held packets on as far as the plugins allow. `true` when something was done.
    pub(super) fn release_held(&mut self, cx: &mut Context<'_>, now: Millis) -> bool {
        let Some(held) = &self.held else { return false };
        if held.until > now {
            let until = held.until;
            self.arm(until);
            return false;
        }
        if self.gate.held_or_wake(now, cx.waker()).is_some() {
            self.gate.stand_in_line();
            return false;
        }
        let Some(mut held) = self.held.take() else { return false };
        while self.upstream.pending() < super::BOUND
            && let Some(packet) = held.packets.pop_front()
        {
            match self.handle_held(&packet, now) {
                Next::Go(Fate::Pass) => {
                    header(&mut self.upstream.output, packet.frame.first, packet.body.len());
                    self.send_up(&packet.body, now);
                    self.spoke = now;
                }
                Next::Go(Fate::Replace(other)) => {
                    self.send_up(&other, now);
                    self.speak_for_client(now);
                }
                Next::Go(Fate::Last) => {
                    header(&mut self.upstream.output, packet.frame.first, packet.body.len());
                    self.send_up(&packet.body, now);
                    self.client_leaves(now);
                    self.book_arrivals(now);
                    (self.client.ready, self.client.input) = (false, Vec::new());
                    return true;
                }
                Next::Wait(until) => {
                    held.packets.push_front(packet);
                    held.until = until;
                    self.arm(until);
                    break;
                }
                Next::Held => {
                    held.packets.push_front(packet);
                    self.gate.stand_in_line();
                    break;
                }
                stop => {
                    self.book_arrivals(now);
                    // what is behind it is counted
                    self.held = Some(Box::new(HeldInput::again(*held)));
                    self.conclude(stop, now);
                    return true;
                }
            }
        }
        self.book_arrivals(now);
        if !held.packets.is_empty() {
            self.held = Some(Box::new(HeldInput::again(*held)));
        }
        true
    }

    /// The client says nothing more; what it sent is still handled, for a while.
    pub(super) fn client_leaves(&mut self, now: Millis) {
        if self.ending == Ending::No {
            let until = now.saturating_add(self.proxy.settings.queue.left_timeout.saturating_mul(1000));
            self.ending = Ending::ClientLeft(until);
            self.arm(until);
        }
    }

    /// The client has left long ago, and what it sent still waits: messages are thrown away, and counted. A DISCONNECT
    /// behind them is passed on.
    pub(super) fn give_up_waiting(&mut self, now: Millis) {
        let maximum = self.proxy.settings.session.max_packet_size as usize;
        let mut left: Vec<HeldPacket> = self.held.take().map_or_else(Vec::new, |held| held.packets.into());
        let (input, mut at) = (std::mem::take(&mut self.client.input), 0);
        while let Ok(Some(frame)) = frame(&input[at..], maximum) {
            let end = at + frame.header + frame.body;
            left.push(HeldPacket { frame, body: input[at + frame.header..end].into(), since: now });
            at = end;
        }
        self.client.ready = false;
        for packet in left {
            match decode(Some(self.encoder.version), packet.frame, &packet.body) {
                Ok(Packet::Publish(_)) => self.proxy.stats.dropped_left.add(1),
                Ok(Packet::Disconnect(goodbye)) => {
                    self.session_expiry = goodbye.session_expiry.unwrap_or(self.session_expiry);
                    header(&mut self.upstream.output, packet.frame.first, packet.body.len());
                    self.send_up(&packet.body, now);
                    break;
                }
                _ => {}
            }
        }
        self.finish(now);
    }

    fn handle_held(&mut self, held: &HeldPacket, now: Millis) -> Next {
        self.held_since = Some(held.since);
        let next = match decode(Some(self.encoder.version), held.frame, &held.body) {
            Ok(packet) => self.handle(&packet, &held.body, now),
            // it was decoded before it was held
            Err(error) => Next::Broken(error),
        };
        self.held_since = None;
        next
    }
}

//! Packets of a publisher that a plugin holds: they wait in order; acknowledgements and pings go on.

use std::sync::Arc;
use std::task::Context;

use super::client::Next;
use super::{Fate, Pair};
use crate::broker::clock::Millis;
use crate::broker::held::{HeldBytes, HeldInput, HeldPacket};
use crate::proxy::frames::header;
use crate::wire::{Frame, decode};

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
    /// PINGREQ behind its messages, or acknowledgements. So more of its messages are kept, within bounds, and the upstream
    /// gets a PINGREQ of ours.
    pub(super) fn relieve_if_deaf(&mut self, now: Millis) {
        if self.held.is_none() {
            return;
        }
        let half = self.keep_alive / 2;
        if half > 0 && now >= self.spoke + half {
            self.send_up(&PINGREQ, now);
            self.own_pings += 1;
            self.proxy.counts.pings.add(1);
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
        let due = self.deaf_since + if half == 0 { DEAF } else { half.min(DEAF) };
        if now < due {
            return self.arm(due);
        }
        self.deaf_since = 0;
        if self.held.as_mut().is_some_and(|held| held.relieve()) {
            self.proxy.stats.reliefs.add(1);
        }
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
                Next::Go(Fate::Replace(other)) => self.send_up(&other, now),
                Next::Go(Fate::Last) => {
                    header(&mut self.upstream.output, packet.frame.first, packet.body.len());
                    self.send_up(&packet.body, now);
                    self.ending = super::Ending::ClientLeft;
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

//! What goes over a device's connection.

use std::io;

use super::{Device, PREFIX};
use crate::check::Stamp;
use crate::clock::Nanos;
use crate::codec::{self, kind};
use crate::follow::Advice;
use crate::link::Link;
use crate::stats::add;

impl Device {
    pub(super) fn put(&mut self, link: &mut Link, intended: Nanos) {
        let turn = self.turn;
        self.turn = (turn + 1) % self.templates.len();
        let flow = self.first_flow + turn as u32;
        let number = self.templates[turn].next();
        self.world.sent.up_to(flow, number + 1);
        // Nobody asks for the age of what nobody waits for.
        if !self.world.flows[flow as usize].streams.is_empty() {
            self.flows[turn].intents.push(intended);
        }
        let stamp = Stamp { run: self.world.run, flow, number, intended };
        if self.settings.qos == 0 {
            self.templates[turn].put(&stamp, 0, &mut link.output);
            self.unwritten.push((link.output.len(), turn as u32, number));
            return;
        }
        let id = self.window.take(turn as u32, number, intended);
        self.templates[turn].put(&stamp, id, &mut link.output);
    }

    /// After a reconnect: what was not acknowledged goes out once more.
    pub(super) fn send_again(&mut self, link: &mut Link) {
        let again = self.window.unanswered();
        let dropped = self.window.in_flight() - again.len() as u64;
        add(&self.world.counts.in_flight, 0u64.wrapping_sub(dropped));
        self.window.forget_released();
        add(&self.world.counts.resent, again.len() as u64);
        for (id, turn, number, intended) in again {
            let stamp = Stamp { run: self.world.run, flow: self.first_flow + turn, number, intended };
            self.world.resent.add(stamp.flow, number);
            self.templates[turn as usize].put_again(&stamp, id, &mut link.output);
        }
    }

    pub(super) fn handle(&mut self, link: &mut Link) -> io::Result<()> {
        if link.output.is_empty() {
            self.settle_written(usize::MAX);
        }
        let (mut accepted, mut answered, mut farewell) = (0, 0, None);
        let mut releases = std::mem::take(&mut self.window.releases);
        let version = self.version;
        let now = self.world.clock.now();
        while let Some(packet) = link.packet()? {
            match packet.kind() {
                kind::PUBACK | kind::PUBREC | kind::PUBCOMP => {
                    let ack = codec::ack(&packet, version).map_err(io::Error::other)?;
                    if let Some(advice) = &mut self.advice {
                        advice.on_ack(ack.user_property("tide-rate"), now);
                    }
                    let answer = self.window.answer(packet.kind(), ack.id, ack.reason);
                    if let Some((turn, number)) = answer.accepted
                        && self.accept(turn, number)
                    {
                        accepted += 1;
                        let flow = (self.first_flow + turn) as usize;
                        self.world.acks[flow].lock().push(number, now);
                    }
                    if let Some((turn, number)) = answer.refused {
                        self.flows[turn as usize].refused.insert(number);
                        self.refused += 1;
                        add(&self.world.counts.refused, 1);
                    }
                    answered += u64::from(answer.freed);
                    if answer.release {
                        codec::put_ack(kind::PUBREL, ack.id, &mut releases);
                    }
                }
                kind::PUBLISH => {
                    let message = codec::message(&packet, version).map_err(io::Error::other)?;
                    let (topic, payload) = (message.topic, message.payload);
                    hear(&mut self.advice, topic, payload, now);
                    // What was kept for it is the answer to its subscription.
                    add(&self.world.counts.announcements, u64::from(!message.retained));
                    if let Some(advice) = &self.advice {
                        *self.world.phase.lock() = advice.phase();
                    }
                }
                // What came before it counts all the same.
                kind::DISCONNECT => {
                    farewell = Some(self.world.dismissed(&packet, version));
                    break;
                }
                _ => {}
            }
        }
        link.output.extend_from_slice(&releases);
        releases.clear();
        self.window.releases = releases;
        add(&self.world.counts.in_flight, 0u64.wrapping_sub(answered));
        if answered > 0 {
            self.lasting.succeed();
            add(&self.world.counts.taken, answered);
        }
        self.count_accepted(accepted);
        farewell.map_or(Ok(()), Err)
    }

    fn count_accepted(&mut self, count: u64) {
        self.accepted_count += count;
        if count > 0 && self.world.measured().contains(&self.world.clock.now()) {
            self.measured += count;
        }
        add(&self.world.counts.accepted, count);
    }

    /// QoS 0: what is with the kernel counts as accepted; the rest never went out, and is not owed to anybody.
    pub(super) fn settle_written(&mut self, written: usize) {
        let mut count = 0;
        let mut unwritten = std::mem::take(&mut self.unwritten);
        add(&self.world.counts.in_flight, 0u64.wrapping_sub(unwritten.len() as u64));
        for (end, turn, number) in unwritten.drain(..) {
            if end <= written {
                count += u64::from(self.accept(turn, number));
            }
        }
        // Kept for its memory.
        self.unwritten = unwritten;
        if self.lasting.has_lasted() {
            add(&self.world.counts.taken, count);
        }
        self.count_accepted(count);
    }

    fn accept(&mut self, turn: u32, number: u64) -> bool {
        let new = self.flows[turn as usize].accepted.insert(number);
        if new {
            self.world.owe(&self.world.flows[(self.first_flow + turn) as usize]);
        }
        new
    }
}

/// Takes in a message on one of the topics of the gateway's advice.
fn hear(advice: &mut Option<Advice>, topic: &[u8], payload: &[u8], now: Nanos) {
    let Some(advice) = advice else { return };
    let Some(rest) = topic.strip_prefix(PREFIX.as_bytes()) else { return };
    match rest {
        b"/rate" => advice.on_message(0, payload, now),
        _ if rest.starts_with(b"/rate/class/") => advice.on_message(1, payload, now),
        _ if rest.starts_with(b"/rate/client/") => advice.on_message(2, payload, now),
        _ => {}
    }
}

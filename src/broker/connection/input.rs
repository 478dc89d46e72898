//! Reading: from bytes to packets, and what happens to packets of a held publisher.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_plugin::Refusal;
use tokio::io::{AsyncRead, ReadBuf};

use super::{Connection, Ending, OUTPUT_LIMIT, Pause, Scratch};
use crate::broker::clock::Millis;
use crate::broker::held::{HeldBytes, HeldInput, HeldPacket};
use crate::broker::session::State;
use crate::hold::Held;
use crate::wire::{Frame, Packet, ReasonCode, WireError, decode, frame};

/// How long a client that owes acknowledgements may go unheard, in milliseconds.
const DEAF_TO_ACKS: Millis = 500;
/// What a packet's handler says about the packets after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Go on.
    Go,
    /// This one must wait until this moment.
    Wait(Millis),
    /// This one and all after it wait for a few milliseconds where they are.
    Pause,
    /// There is nothing after it.
    Stop,
    /// The client broke the rules: the connection ends when what came before is done.
    Broken(WireError),
    /// A plugin ends the connection when what came before is done.
    Refused(Box<Refusal>),
}

impl Connection {
    /// Handles what came, as far as it may; reads more. `true` when something was done.
    pub(super) fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) -> bool {
        // what a client published before its DISCONNECT still counts
        if self.offered.is_some() && !self.offer_again(cx, state) {
            return false;
        }
        if matches!(self.ending, Ending::Closing(_) | Ending::Over) {
            return false;
        }
        if !self.resume_after_pause(cx, now) {
            return false;
        }
        self.relieve_if_deaf(state, now);
        let mut progress = self.release_held(cx, scratch, state, now);
        if self.input_ready && !self.reading_paused() && self.offered.is_none() {
            progress = true;
            let input = std::mem::take(&mut self.input);
            self.handle_kept(input, cx, scratch, state, now);
        }
        progress | (self.may_read() && self.read(cx, scratch, state, now))
    }

    /// Whether input waits because the publisher is held and enough is kept already.
    pub(super) fn reading_paused(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_enough(&self.broker.settings.listen))
    }

    /// A held client that is not read must be heard now and then all the same: it may have sent PINGREQ behind its
    /// messages, or acknowledgements that others wait for. So before half its keep-alive is over (soon, if it owes
    /// acknowledgements) more of its messages are kept, within bounds.
    fn relieve_if_deaf(&mut self, state: &State, now: Millis) {
        if !self.reading_paused() {
            self.deaf_since = 0;
            return;
        }
        if self.deaf_since == 0 {
            self.deaf_since = now;
        }
        let patience = match self.silence / 3 {
            _ if state.inflight.len() > 0 => DEAF_TO_ACKS,
            0 => return,
            half => half,
        };
        let due = self.deaf_since + patience;
        if now < due {
            self.arm(due);
            return;
        }
        self.deaf_since = 0;
        if self.held.as_mut().is_some_and(|held| held.relieve(&self.broker.settings.listen)) {
            self.broker.stats.reliefs.add(1);
        }
    }

    /// Whether the client is heard if it says something. Not while it is held: its silence then means nothing.
    pub(super) fn listening(&self) -> bool {
        self.ending == Ending::No
            && !self.input_ready
            && !self.pausing()
            && self.offered.is_none()
            && !self.reading_paused()
    }

    fn may_read(&self) -> bool {
        self.listening() && self.output.len() - self.written < OUTPUT_LIMIT
    }

    fn read(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch, state: &mut State, now: Millis) -> bool {
        let mut memory = std::mem::take(&mut scratch.read);
        let mut buffer = ReadBuf::new(&mut memory);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let count = buffer.filled().len();
        let progress = match polled {
            Poll::Pending => false,
            Poll::Ready(Ok(())) if count > 0 => {
                self.seen = now;
                self.broker.stats.bytes_received.add(count as u64);
                if self.input.is_empty() {
                    let handled = self.handle_bytes(&memory[..count], cx, scratch, state, now);
                    self.input.extend_from_slice(&memory[handled..count]);
                } else {
                    let mut input = std::mem::take(&mut self.input);
                    input.extend_from_slice(&memory[..count]);
                    self.handle_kept(input, cx, scratch, state, now);
                }
                true
            }
            // closed or broken: what came before still counts
            Poll::Ready(_) => {
                self.input_ends();
                true
            }
        };
        scratch.read = memory;
        progress
    }

    /// Handles the whole packets among the bytes that were kept; goes on keeping the rest.
    fn handle_kept(
        &mut self,
        mut input: Vec<u8>,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) {
        let handled = self.handle_bytes(&input, cx, scratch, state, now);
        if handled < input.len() {
            input.drain(..handled);
            self.input = input;
        }
    }

    /// Handles the whole packets in `bytes`; how many bytes they are.
    fn handle_bytes(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) -> usize {
        let maximum = self.broker.settings.session.max_packet_size as usize;
        let mut at = 0;
        let mut last = Next::Go;
        self.input_ready = false;
        self.start_batch(scratch);
        loop {
            if self.reading_paused() || self.offered.is_some() {
                self.input_ready = true;
                break;
            }
            let found = match frame(&bytes[at..], maximum) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    (at, last) = (bytes.len(), Next::Broken(error));
                    break;
                }
            };
            let end = at + found.header + found.body;
            match self.handle_or_hold(found, &bytes[at + found.header..end], cx, scratch, state, now) {
                Next::Pause => {
                    self.input_ready = true;
                    break;
                }
                Next::Go | Next::Wait(_) => at = end,
                stop => {
                    (at, last) = (bytes.len(), stop);
                    break;
                }
            }
            if self.credit_is_used(scratch) {
                self.input_ready = true;
                break;
            }
        }
        let look = self.credit_is_used(scratch);
        self.finish_batch(cx, scratch, state, now);
        self.look_if(look);
        self.conclude(last, now);
        at
    }

    /// Ends the connection if the last packet asked for it: behind the acknowledgements of those before.
    fn conclude(&mut self, last: Next, now: Millis) {
        match last {
            Next::Broken(error) => {
                self.broker.stats.protocol_errors.add(1);
                if self.broker.lines.protocol_error.allows(now) {
                    let (client, peer) = (&*self.session.client_id, self.stream.peer());
                    tracing::info!(client, %peer, %error, "closed for a protocol error");
                }
                self.close(error.reason, Some(error.what), now);
            }
            Next::Refused(refusal) => self.close(ReasonCode(refusal.code), Some(&refusal.reason), now),
            Next::Go | Next::Wait(_) | Next::Pause | Next::Stop => {}
        }
    }

    fn handle_or_hold(
        &mut self,
        found: Frame,
        body: &[u8],
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) -> Next {
        let packet = match decode(Some(self.encoder.version), found, body) {
            Ok(packet) => packet,
            Err(error) => return Next::Broken(error),
        };
        let waits = match &packet {
            Packet::Publish(_) if !self.is_in_order() => {
                self.pause = Pause::Fence;
                return Next::Pause;
            }
            Packet::Publish(publish) => match self.gate.held(now) {
                Some(Held::Until(_)) => {
                    self.pause = Pause::Brief;
                    return Next::Pause;
                }
                held => {
                    if held.is_some() && self.held.is_none() {
                        self.turn.held();
                    }
                    held.is_some() || self.held.is_some() || self.is_held_newcomer(publish.topic, now)
                }
            },
            Packet::PubAck(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::PingReq => false,
            _ => self.held.is_some(),
        };
        if waits {
            if self.receive_maximum_exceeded(&packet, state) {
                return Next::Broken(super::packets::RECEIVE_MAXIMUM);
            }
            self.hold(found, body, now);
            return Next::Go;
        }
        match self.handle(&packet, cx, scratch, state, now) {
            Next::Wait(until) => {
                self.hold(found, body, now);
                self.held_input().until = until;
                self.arm(until);
                Next::Go
            }
            next => next,
        }
    }

    /// The client sends nothing more; what it sent is still handled.
    pub(super) fn input_ends(&mut self) {
        let until = self
            .broker
            .clock
            .now()
            .saturating_add(self.broker.settings.queue.left_timeout.saturating_mul(1000));
        self.ending = Ending::NoInput(until);
        self.arm(until);
    }

    /// The client has left long ago, and what it sent still waits: messages are thrown away, and counted. A DISCONNECT
    /// behind them counts.
    pub(super) fn give_up_waiting(&mut self, state: &mut State, now: Millis) {
        let maximum = self.broker.settings.session.max_packet_size as usize;
        let mut left: Vec<HeldPacket> = self.held.take().map_or_else(Vec::new, |held| held.packets.into());
        let (input, mut at) = (std::mem::take(&mut self.input), 0);
        while let Ok(Some(frame)) = frame(&input[at..], maximum) {
            let end = at + frame.header + frame.body;
            left.push(HeldPacket { frame, body: input[at + frame.header..end].into(), since: now });
            at = end;
        }
        (self.input_ready, self.pause) = (false, Pause::No);
        for packet in left {
            match decode(Some(self.encoder.version), packet.frame, &packet.body) {
                Ok(Packet::Publish(_)) => self.broker.stats.dropped_left.add(1),
                Ok(Packet::Disconnect(goodbye)) => {
                    self.disconnect(&goodbye, state, now);
                    break;
                }
                _ => {}
            }
        }
    }

    fn hold(&mut self, frame: Frame, body: &[u8], since: Millis) {
        self.held_input().push(HeldPacket { frame, body: body.into(), since });
    }

    fn held_input(&mut self) -> &mut HeldInput {
        let bytes = || HeldBytes::new(Arc::clone(&self.broker.held_bytes));
        self.held.get_or_insert_with(|| Box::new(HeldInput::new(bytes())))
    }

    /// Handles held packets as far as the gate allows; registers for the moment when it does.
    fn release_held(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) -> bool {
        let Some(held) = &self.held else { return false };
        if held.until > now {
            self.arm(held.until);
            return false;
        }
        match self.gate.held_or_wake(now, cx.waker()) {
            Some(Held::Until(until)) => {
                self.arm(until);
                return false;
            }
            Some(Held::ByQueue) => {
                self.gate.stand_in_line();
                return false;
            }
            None => {}
        }
        if self.is_held_again(now) {
            self.gate.stand_in_line();
            return false;
        }
        let Some(mut held) = self.held.take() else { return false };
        let mut last = Next::Go;
        self.start_batch(scratch);
        while self.offered.is_none()
            && !self.credit_is_used(scratch)
            && let Some(packet) = held.packets.pop_front()
        {
            match self.handle_held(&packet, cx, scratch, state, now) {
                Next::Go => {}
                Next::Wait(until) => {
                    held.packets.push_front(packet);
                    held.until = until;
                    self.arm(until);
                    break;
                }
                // said only by `handle_or_hold`
                Next::Pause => break,
                stop => {
                    held.packets.clear();
                    last = stop;
                    break;
                }
            }
        }
        let look = self.credit_is_used(scratch);
        self.finish_batch(cx, scratch, state, now);
        self.look_if(look);
        self.conclude(last, now);
        if !held.packets.is_empty() {
            self.held = Some(Box::new(HeldInput::again(*held)));
        }
        true
    }

    fn handle_held(
        &mut self,
        held: &HeldPacket,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) -> Next {
        self.held_since = Some(held.since);
        let next = match decode(Some(self.encoder.version), held.frame, &held.body) {
            Ok(packet) => self.handle(&packet, cx, scratch, state, now),
            // it was decoded before it was held
            Err(error) => Next::Broken(error),
        };
        self.held_since = None;
        next
    }
}

//! Reading: from bytes to packets, and what happens to packets of a held publisher.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_plugin::{Refusal, Standing};
use tokio::io::{AsyncRead, ReadBuf};

use super::packets::reserved;
use super::{Connection, Ending, OUTPUT_LIMIT, Offered, Pause, Scratch};
use crate::broker::clock::Millis;
use crate::broker::held::{HeldBytes, HeldInput, HeldPacket};
use crate::broker::session::State;
use crate::hold::Held;
use crate::wire::{Frame, Packet, ReasonCode, WireError, decode, frame};

/// What passes before we look what consumer queues make of it, in bytes: at first, and after a brief hold that ran its
/// full time.
pub(super) const FIRST_CREDIT: usize = 512;
/// Whoever may pass this much in one go is not looked after any more.
const FULL_CREDIT: usize = 64 * 1024;
/// How often we look whether consumer queues have seen what passed, in milliseconds.
const LOOK: Millis = 2;

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

fn hash(topic: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    topic.hash(&mut hasher);
    hasher.finish()
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
        if self.held.as_mut().is_some_and(|held| held.relieve()) {
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
                self.ending = Ending::NoInput;
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
                        self.credit = (self.credit / 2).max(1);
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

    /// Whether as much is in the batch as may pass before consumer queues have seen it. So a publisher that was never
    /// held, or just was, can't send thousands of messages to a slow consumer before anybody notices.
    fn credit_is_used(&self, scratch: &Scratch) -> bool {
        self.credit < FULL_CREDIT && scratch.batch.bytes() >= self.credit
            || scratch.batch.count() >= self.grant
    }

    /// Whether the first of the packets that wait must wait on: it had its turn, and others had none.
    fn is_held_again(&mut self, now: Millis) -> bool {
        if self.asked_for != (0, 0) || self.broker.holds_begun().is_none() {
            return false;
        }
        let Some(mut held) = self.held.take() else { return false };
        let again = held.packets.front_mut().is_some_and(|packet| {
            let decoded = decode(Some(self.encoder.version), packet.frame, &packet.body);
            matches!(decoded, Ok(Packet::Publish(publish)) if self.is_held_newcomer(publish.topic, now))
        });
        self.held = Some(held);
        again
    }

    /// Whether a queue that holds its publishers is where this message goes, though it had none of this publisher yet:
    /// else each of thousands that come at the same time would get one message in. Known publishers are held by what
    /// they sent, and by this once their turn is over. Asked once for each topic and each time that a queue begins to
    /// hold.
    fn is_held_newcomer(&mut self, topic: &str, now: Millis) -> bool {
        let Some(begun) = self.broker.holds_begun() else { return false };
        if topic.is_empty() || self.gate.publisher.is_exempt() {
            return false;
        }
        let asked = (begun, hash(topic));
        if self.asked_for == asked || reserved(topic) {
            return false;
        }
        self.asked_for = asked;
        self.hooks.standing(topic) == Standing::Ordinary && self.broker.hold_newcomer(topic, &self.gate, now)
    }

    /// Whether what this client publishes stays behind what anybody published before it connected.
    fn is_in_order(&mut self) -> bool {
        if self.fence.as_ref().is_some_and(|fence| !self.broker.spine.passed(fence)) {
            return false;
        }
        self.fence = None;
        true
    }

    /// Waits until consumer queues have seen what was sent.
    fn look_if(&mut self, look: bool) {
        if look && self.pause == Pause::No {
            self.pause = Pause::Look(self.broker.spine.sent(self.session.number));
        }
    }

    fn pausing(&self) -> bool {
        self.pause != Pause::No
    }

    /// Goes on after a brief hold; `false` while it lasts.
    fn resume_after_pause(&mut self, cx: &mut Context<'_>, now: Millis) -> bool {
        match self.pause {
            Pause::No => true,
            Pause::Brief => match self.gate.held_or_wake(now, cx.waker()) {
                Some(Held::Until(until)) => {
                    self.arm(until);
                    false
                }
                _ => {
                    if self.gate.brief_ran_out() {
                        self.credit = self.credit.min(FIRST_CREDIT);
                    }
                    self.pause = Pause::No;
                    true
                }
            },
            Pause::Look(sent) if !self.broker.spine.settled(self.session.number, sent) => {
                self.arm(now + LOOK);
                false
            }
            Pause::Fence => {
                if self.is_in_order() {
                    self.pause = Pause::No;
                } else {
                    self.arm(now + LOOK);
                }
                self.pause == Pause::No
            }
            Pause::Look(_) => {
                self.pause = Pause::No;
                if self.grant < usize::MAX {
                    // its turn is over: it goes to the end of the line, if there still is one
                    (self.grant, self.asked_for) = (self.grant.saturating_mul(2), (0, 0));
                }
                if self.gate.held(now).is_none() {
                    self.credit = (2 * self.credit).min(FULL_CREDIT);
                }
                true
            }
        }
    }

    fn start_batch(&mut self, scratch: &mut Scratch) {
        if let Some(grant) = self.gate.take_grant() {
            self.grant = grant as usize;
        }
        scratch.batch.start(self.session.number);
        scratch.ordinal = None;
        scratch.acks.clear();
        scratch.received.clear();
    }

    /// Gives the batch to the spine; its acknowledgements are sent once it is accepted.
    pub(super) fn finish_batch(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) {
        self.settle_finished(scratch, now);
        if scratch.batch.is_empty() {
            self.output.extend_from_slice(&scratch.acks);
            scratch.acks.clear();
            scratch.received.clear();
            return;
        }
        let count = scratch.batch.count() as u64;
        match self.broker.spine.offer(self.session.number, scratch.batch.finish(), cx.waker()) {
            Ok(()) => {
                self.broker.stats.published.add(count);
                self.output.extend_from_slice(&scratch.acks);
            }
            Err(batch) => {
                // should the connection end before they are accepted, the client sends them again
                scratch.received.retain(|id| state.received.remove(id));
                let (acks, received) = (scratch.acks.clone(), scratch.received.clone());
                self.offered = Some(Box::new(Offered { batch, acks, received, count }));
            }
        }
        self.start_batch(scratch);
    }

    fn offer_again(&mut self, cx: &mut Context<'_>, state: &mut State) -> bool {
        let Some(mut offered) = self.offered.take() else { return true };
        match self.broker.spine.offer(self.session.number, std::mem::take(&mut offered.batch), cx.waker()) {
            Ok(()) => {
                self.broker.stats.published.add(offered.count);
                self.output.extend_from_slice(&offered.acks);
                state.received.extend(offered.received);
                true
            }
            Err(batch) => {
                offered.batch = batch;
                self.offered = Some(offered);
                false
            }
        }
    }
}

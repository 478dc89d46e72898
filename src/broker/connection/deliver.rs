//! From the queue to the output.

use std::sync::Arc;

use super::alias::Naming;
use super::packets::note_finished;
use super::{Connection, Ending, OUTPUT_TARGET, Scratch};
use crate::broker::clock::Millis;
use crate::broker::inflight::Stage;
use crate::broker::queue::Entry;
use crate::broker::session::State;
use crate::wire::{Outgoing, QoS, ReasonCode};

/// Entries taken from the queue at a time.
const CHUNK: usize = 256;
/// Retained messages are read from the store when fewer than this wait.
const RETAINED_CHUNK: usize = 128;
/// Topics looked at for retained messages at a time, and how many times in one turn: others want their turn.
const RETAINED_LOOKS: usize = 1024;
const RETAINED_SEARCHES: usize = 16;

impl Connection {
    /// Encodes what waits, as far as the window and the output's bound allow. `true` when something was done.
    pub(super) fn deliver(&mut self, scratch: &mut Scratch, state: &mut State, now: Millis) -> bool {
        let mut progress = false;
        while self.may_deliver(state) {
            if !self.resend.is_empty() {
                self.send_again(scratch, state, now);
                progress = true;
                continue;
            }
            let more_retained = self.read_retained(scratch, state, now);
            let mut entries = std::mem::take(&mut scratch.entries);
            let window = self.free_window(state);
            let queue = &self.session.queue;
            queue.pop(&mut entries, CHUNK, OUTPUT_TARGET, window, now, &self.broker.limits);
            let taken = entries.len();
            for entry in entries.drain(..) {
                self.send(entry, scratch, state, now);
            }
            scratch.entries = entries;
            self.settle_finished(scratch, now);
            if taken == 0 && !more_retained {
                break;
            }
            progress = true;
        }
        self.broker.stats.delivered.add(std::mem::take(&mut self.delivered));
        progress
    }

    /// How many more messages of QoS 1 and 2 the client may have.
    pub(super) fn free_window(&self, state: &State) -> usize {
        self.window.size().saturating_sub(state.inflight.len())
    }

    /// Whether there may be something to deliver and room for it.
    pub(super) fn may_deliver(&self, state: &State) -> bool {
        self.ending == Ending::No
            && self.output.len() - self.written < OUTPUT_TARGET
            && (self.resend.is_empty() || state.inflight.on_the_wire() < self.window.size())
    }

    fn send(&mut self, entry: Entry, scratch: &mut Scratch, state: &mut State, now: Millis) {
        if entry.message.expired(now) {
            self.broker.stats.dropped_expired.add(1);
            note_finished(entry.extra.as_ref(), scratch);
            return;
        }
        if entry.qos == QoS::AtMostOnce {
            self.write_publish(&entry, 0, false, now);
            note_finished(entry.extra.as_ref(), scratch);
            return;
        }
        let message = Arc::clone(&entry.message);
        let copy = Entry { message, ..entry.clone() };
        match state.inflight.add(entry, now) {
            Some(id) if self.write_publish(&copy, id, false, now) => {}
            Some(id) => {
                state.inflight.remove(id);
                note_finished(copy.extra.as_ref(), scratch);
            }
            // the window is smaller than the number of identifiers
            None => self.broker.stats.dropped_full.add(1),
        }
    }

    /// `false` when it is too large for the client.
    fn write_publish(&mut self, entry: &Entry, packet_id: u16, dup: bool, now: Millis) -> bool {
        let message = &entry.message;
        let naming = self.outbound_aliases.naming(message.topic());
        let (topic, topic_alias) = match naming {
            Naming::Name => (message.topic(), None),
            Naming::Introduce(alias) => (message.topic(), Some(alias)),
            Naming::Alias(alias) => (&[][..], Some(alias)),
        };
        let publish = Outgoing {
            dup,
            qos: entry.qos,
            retain: entry.retain,
            topic,
            packet_id,
            topic_alias,
            message_expiry: message.seconds_left(now),
            subscription_ids: entry.extra.as_ref().map_or(&[], |extra| &extra.identifiers),
            properties: message.properties(),
            payload: message.payload(),
        };
        let written = self.encoder.publish(&mut self.output, &publish);
        if written {
            self.delivered += 1;
        } else {
            if let Naming::Introduce(_) = naming {
                self.outbound_aliases.forget(message.topic());
            }
            self.broker.stats.dropped_large.add(1);
        }
        written
    }

    /// Sends the next message or release of a resumed session again. A message that has expired since goes too:
    /// its delivery has begun, and the client may know its identifier.
    fn send_again(&mut self, scratch: &mut Scratch, state: &mut State, now: Millis) {
        let Some(id) = self.resend.pop_front() else { return };
        let entry = match state.inflight.get_mut(id).map(|sent| &sent.stage) {
            Some(Stage::Published(entry)) => entry.clone(),
            Some(Stage::Released(_)) => {
                self.encoder.pubrel(&mut self.output, id, ReasonCode::SUCCESS);
                state.inflight.sent_again(id, now);
                return;
            }
            // acknowledged meanwhile
            None => return,
        };
        if self.write_publish(&entry, id, true, now) {
            state.inflight.sent_again(id, now);
        } else {
            state.inflight.remove(id);
            note_finished(entry.extra.as_ref(), scratch);
            self.settle_finished(scratch, now);
        }
    }

    /// Whether it stopped searching for retained messages only to let others have their turn.
    pub(super) fn searches_on(&self, scratch: &Scratch, state: &State) -> bool {
        self.ending == Ending::No && scratch.searches >= RETAINED_SEARCHES && !state.retained.is_empty()
    }

    /// Puts the next retained messages for new subscriptions into the queue; `true` when there may be more.
    fn read_retained(&mut self, scratch: &mut Scratch, state: &mut State, now: Millis) -> bool {
        let (queue, bytes) = (&self.session.queue, self.broker.limits.bytes);
        let Some(pending) = state.retained.next() else { return false };
        if scratch.searches >= RETAINED_SEARCHES || queue.depth() >= RETAINED_CHUNK || queue.bytes() >= bytes
        {
            return false;
        }
        scratch.searches += 1;
        let mut messages = Vec::new();
        let store = self.broker.retained.read();
        let done = store.read(&mut pending.cursor, RETAINED_LOOKS, RETAINED_CHUNK, bytes, now, &mut messages);
        drop(store);
        let entries = messages.into_iter().map(|message| Entry {
            qos: message.qos.min(pending.qos),
            retain: true,
            extra: pending.extra.clone(),
            since: now,
            message,
        });
        let pushed = queue.push(entries, now, &self.broker.limits);
        self.broker.stats.dropped_full.add(pushed.dropped);
        if done {
            state.retained.next_is_done();
        }
        !state.retained.is_empty() || !done
    }
}

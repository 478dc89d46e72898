//! What others want of a connection: messages of the gateway itself for its client, and that it leaves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::broker::tree::Subscribed;

/// Bytes of messages that wait for one client; the oldest ones go when there are more, but for the newest.
const MOST: usize = 256 * 1024;

/// A message of the gateway itself.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) topic: Arc<str>,
    pub(super) payload: Bytes,
    /// Properties for MQTT 5 clients, encoded.
    pub(super) properties: Bytes,
    pub(super) retain: bool,
}

/// Where one connection finds what others want of it.
#[derive(Debug)]
pub(super) struct Inbox {
    /// The number of the connection.
    pub(super) number: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    notes: VecDeque<Note>,
    bytes: usize,
    waker: Option<Waker>,
}

impl Inbox {
    pub(super) fn new(number: u64) -> Self {
        Self { number, state: Mutex::default() }
    }

    /// Leaves a message; how many old ones had to go for it.
    pub(super) fn push(&self, note: Note) -> u64 {
        let mut state = self.state.lock();
        state.bytes += note.size();
        state.notes.push_back(note);
        let mut gone = 0;
        // The newest stays, whatever its size: an answer that never came would be asked for again and again.
        while state.bytes > MOST
            && state.notes.len() > 1
            && let Some(old) = state.notes.pop_front()
        {
            state.bytes -= old.size();
            gone += 1;
        }
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        gone
    }

    /// Whether so little waits that a message more need not cost an old one.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().bytes < MOST / 2
    }

    /// Wakes the connection.
    pub(super) fn nudge(&self) {
        let waker = self.state.lock().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Takes all messages if there is `room` for them; the connection is woken when others want something of it.
    pub(super) fn take(&self, waker: &Waker, room: bool) -> VecDeque<Note> {
        let mut state = self.state.lock();
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        if !room {
            return VecDeque::new();
        }
        state.bytes = 0;
        std::mem::take(&mut state.notes)
    }
}

impl Note {
    fn size(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.len() + 96
    }
}

impl Subscribed for Inbox {
    fn key(&self) -> (bool, usize) {
        (false, self.number as usize)
    }
}

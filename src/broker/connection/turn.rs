//! When a publisher may send: what passes before consumer queues have seen it, and its turn where a queue holds its
//! publishers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::task::Context;

use tidegate_plugin::Standing;

use super::packets::reserved;
use super::{Connection, Pause, Scratch};
use crate::broker::clock::Millis;
use crate::hold::Held;
use crate::wire::{Packet, decode};

/// What passes before we look what consumer queues make of it, in bytes: at first, and after a brief hold that ran its
/// full time.
const FIRST_CREDIT: usize = 512;
/// Whoever may pass this much in one go is not looked after any more.
const FULL_CREDIT: usize = 64 * 1024;
/// How often we look whether consumer queues have seen what passed, in milliseconds.
const LOOK: Millis = 2;
/// Topics that are remembered to have been asked for.
const ASKED: usize = 8;

/// What a publisher may send before we look again.
pub(super) struct Turn {
    /// Bytes: grows while consumer queues hold nobody.
    credit: usize,
    /// Messages: what a queue that let go had room for.
    grant: usize,
    /// The topics for which was asked whether a queue holds its publishers.
    asked: Option<Box<Asked>>,
}

/// Topics by their hashes, the oldest forgotten first.
struct Asked {
    /// How many queues had begun to hold their publishers.
    begun: u64,
    topics: [u64; ASKED],
    count: usize,
}

impl Default for Turn {
    fn default() -> Self {
        Self { credit: FIRST_CREDIT, grant: usize::MAX, asked: None }
    }
}

impl Turn {
    /// A queue that let go has room for so many messages.
    pub(super) fn begin(&mut self, grant: u32) {
        self.grant = grant as usize;
    }

    /// A queue has begun to hold it.
    pub(super) fn held(&mut self) {
        self.credit = (self.credit / 2).max(1);
    }

    /// Consumer queues have seen what it sent; whether one of them holds it now.
    fn seen(&mut self, held: bool) {
        if self.grant < usize::MAX {
            // its turn is over: it goes to the end of the line, if there still is one
            self.grant = self.grant.saturating_mul(2);
            self.asked = None;
        }
        if !held {
            self.credit = (2 * self.credit).min(FULL_CREDIT);
        }
    }

    /// Whether this topic is to be asked for: once for each time that a queue begins to hold.
    fn asks(&mut self, begun: u64, topic: &str) -> bool {
        let asked = self.asked.get_or_insert_with(|| Box::new(Asked { begun, topics: [0; ASKED], count: 0 }));
        if asked.begun != begun {
            (asked.begun, asked.count) = (begun, 0);
        }
        let hash = hash(topic);
        if asked.topics[..asked.count.min(ASKED)].contains(&hash) {
            return false;
        }
        asked.topics[asked.count % ASKED] = hash;
        asked.count += 1;
        true
    }
}

fn hash(topic: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    topic.hash(&mut hasher);
    hasher.finish()
}

impl Connection {
    /// Whether as much is in the batch as may pass before consumer queues have seen it. So a publisher that was never
    /// held, or just was, can't send thousands of messages to a slow consumer before anybody notices.
    pub(super) fn credit_is_used(&self, scratch: &Scratch) -> bool {
        self.turn.credit < FULL_CREDIT && scratch.batch.bytes() >= self.turn.credit
            || scratch.batch.count() >= self.turn.grant
    }

    /// Whether the first of the packets that wait must wait on: it had its turn, and others had none.
    pub(super) fn is_held_again(&mut self, now: Millis) -> bool {
        if self.turn.asked.is_some() || self.broker.holds_begun().is_none() {
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
    pub(super) fn is_held_newcomer(&mut self, topic: &str, now: Millis) -> bool {
        let Some(begun) = self.broker.holds_begun() else { return false };
        if topic.is_empty() || self.gate.publisher.is_exempt() || reserved(topic) {
            return false;
        }
        self.turn.asks(begun, topic)
            && self.hooks.standing(topic) == Standing::Ordinary
            && self.broker.hold_newcomer(topic, &self.gate, now)
    }

    /// Whether what this client publishes stays behind what anybody published before it connected.
    pub(super) fn is_in_order(&mut self) -> bool {
        if self.fence.as_ref().is_some_and(|fence| !self.broker.spine.passed(fence)) {
            return false;
        }
        self.fence = None;
        true
    }

    /// Waits until consumer queues have seen what was sent.
    pub(super) fn look_if(&mut self, look: bool) {
        if look && self.pause == Pause::No {
            self.pause = Pause::Look(self.broker.spine.sent(self.session.number));
        }
    }

    pub(super) fn pausing(&self) -> bool {
        self.pause != Pause::No
    }

    /// Goes on after a brief hold; `false` while it lasts.
    pub(super) fn resume_after_pause(&mut self, cx: &mut Context<'_>, now: Millis) -> bool {
        match self.pause {
            Pause::No => true,
            Pause::Brief => match self.gate.held_or_wake(now, cx.waker()) {
                Some(Held::Until(until)) => {
                    self.arm(until);
                    false
                }
                _ => {
                    if self.gate.brief_ran_out() {
                        self.turn.credit = self.turn.credit.min(FIRST_CREDIT);
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
                self.turn.seen(self.gate.held(now).is_some());
                true
            }
        }
    }
}

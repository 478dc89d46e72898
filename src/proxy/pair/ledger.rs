//! What passes, for the ledger: arrivals with what the client publishes, departures with what it consumes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tidegate_plugin::Standing;

use super::consumer::Consumer;
use super::{BOUND, Pair};
use crate::broker::clock::Millis;
use crate::proxy::frames::Delivered;
use crate::proxy::node::Nodes;
use crate::proxy::queue::Feed;
use crate::wire::{Filter, QoS, RetainHandling};

/// Topics whose subscriptions a thread remembers.
const MOST_TOPICS: usize = 8_192;
/// Longest topic that is remembered, in bytes.
pub(super) const LONGEST_KEPT: usize = 256;
/// Messages of one client that pass before they are booked.
const MOST_UNBOOKED: u32 = 32;
/// Subscriptions of one session that are learned from what is delivered.
const MOST_LEARNED: usize = 1_000;

/// Messages of one client with the subscriptions that they match, until they are booked.
pub(super) type Arrivals = Vec<(Feeds, QoS, u32)>;

/// The subscriptions that match a topic.
pub(super) type Feeds = Arc<[Arc<Feed>]>;

type Matches = HashMap<Box<str>, Feeds>;

thread_local! {
    /// For one proxy (by its address) as of one generation.
    static MATCHES: RefCell<((usize, u64), Matches)> = RefCell::default();
}

impl Pair {
    /// The subscriptions that match a topic.
    pub(super) fn feeds_of(&self, topic: &str) -> Feeds {
        let sessions = &self.proxy.sessions;
        let age = (Arc::as_ptr(&self.proxy) as usize, sessions.generation());
        MATCHES.with_borrow_mut(|(known_age, matches)| {
            if *known_age != age || matches.len() >= MOST_TOPICS {
                matches.clear();
                *known_age = age;
            }
            remember(matches, topic, || sessions.matching(topic).into())
        })
    }

    /// Whether the client must wait until it is its turn to send to a topic.
    pub(super) fn waits_for_its_turn(&mut self, topic: &str, now: Millis) -> bool {
        if self.gate.held(now).is_some() {
            self.grant = 0;
            return true;
        }
        if let Some(grant) = self.gate.take_grant() {
            self.grant = grant;
        }
        if self.grant > 0 {
            return false;
        }
        if self.gate.publisher.is_exempt() || self.proxy.control.owns(topic) {
            return false;
        }
        let (feeds, number) = (self.feeds_of(topic), self.inbox.number);
        let lines = feeds.iter().filter(|feed| feed.not_from != Some(number) && feed.queue.has_line());
        let mut lines = lines.peekable();
        if lines.peek().is_none() || self.hooks.standing(topic) != Standing::Ordinary {
            return false;
        }
        let mut held = false;
        lines.for_each(|feed| held |= feed.queue.hold_newcomer(now, &self.gate));
        self.proxy.stats.holds.add(held.into());
        held
    }

    /// Notes a message that goes to the upstream.
    pub(super) fn note_arrival(&mut self, topic: &str, qos: QoS, now: Millis) {
        // a plugin may have made it wait on, so that a turn is used only now
        self.grant = self.grant.saturating_sub(1);
        let found = self.feeds_of(topic);
        if found.is_empty() {
            return;
        }
        match self.arrivals.last_mut() {
            Some((last, last_qos, count)) if *last_qos == qos && Arc::ptr_eq(last, &found) => *count += 1,
            _ => self.arrivals.push((found, qos, 1)),
        }
        self.unbooked += 1;
        // soon enough to see that a queue is over its bound
        if self.unbooked >= MOST_UNBOOKED {
            self.book_arrivals(now);
        }
    }

    /// Books the messages that were noted.
    pub(super) fn book_arrivals(&mut self, now: Millis) {
        let number = self.inbox.number;
        self.unbooked = 0;
        for (feeds, qos, count) in self.arrivals.drain(..) {
            for feed in feeds.iter().filter(|feed| feed.not_from != Some(number)) {
                if feed.queue.arrive(now, number, qos.min(feed.qos), count) {
                    self.proxy.ledger.enter(feed.queue.number, Arc::clone(&feed.queue) as _);
                }
                if self.grant == 0 && feed.queue.hold(now, &self.gate) {
                    self.proxy.stats.holds.add(1);
                    self.proxy.nodes.iter().for_each(|nodes| nodes.note_hold(&feed.queue));
                }
            }
        }
    }

    /// The upstream has let the client in.
    pub(super) fn begin_consuming(&mut self, present: bool, now: Millis) {
        let session = self.proxy.sessions.attach(&self.client_id, self.inbox.number, present, now);
        // it may have subscribed before the upstream let it in
        self.control.iter().for_each(|filter| session.note_control(filter, true, self.inbox.number));
        for filter in &session.state.lock().control {
            if self.control.insert(filter.clone()) {
                self.proxy.control.subscribe(filter, &self.inbox, false);
            }
        }
        let mut consumer = Consumer::new(Arc::clone(&session), self.receive_maximum.into());
        let known: Vec<_> = session
            .state
            .lock()
            .feeds
            .iter()
            .map(|(path, feed)| (Arc::clone(path), Arc::clone(feed)))
            .collect();
        let consumes = !known.is_empty();
        for (path, feed) in known {
            consumer.add(path, feed, now);
        }
        self.consumer = Some(Box::new(consumer));
        if consumes {
            self.proxy.nodes.iter().for_each(Nodes::tell_soon);
        }
    }

    /// The upstream has accepted a subscription.
    pub(super) fn subscribed(&mut self, filter: &Filter, now: Millis) {
        self.feed(filter, now);
        let Some(consumer) = &self.consumer else { return };
        for topic in self.proxy.sessions.explain(&consumer.session, &filter.path) {
            self.unsubscribed(&topic, now);
        }
    }

    /// A subscription feeds a queue.
    fn feed(&mut self, filter: &Filter, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        let feed = {
            let (user, number) = (self.publisher.user.as_deref(), self.inbox.number);
            self.proxy.sessions.subscribe(&consumer.session, filter, user, number, now)
        };
        if let Some(feed) = feed.filter(|_| self.proxy.measured) {
            // what others know already is no news, however often it is said
            if consumer.add(filter.path.as_str().into(), feed, now) {
                self.proxy.nodes.iter().for_each(Nodes::tell_soon);
            }
        }
    }

    /// The upstream has ended a subscription.
    pub(super) fn unsubscribed(&mut self, path: &str, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        if self.proxy.sessions.unsubscribe(&consumer.session, path).is_some() {
            consumer.remove(path, now);
        }
    }

    /// Notes a message that goes to the client.
    pub(super) fn note_delivery(&mut self, delivered: &Delivered<'_>, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        let Some(queue) = consumer.choose(delivered) else {
            return self.learn(delivered, now);
        };
        self.book_delivery(queue, delivered, now);
    }

    fn book_delivery(&mut self, number: u64, delivered: &Delivered<'_>, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        if let Some(queue) = consumer.deliver(number, delivered, now) {
            self.proxy.ledger.enter(queue.number, queue as _);
        }
    }

    /// A session that the upstream kept has a subscription that we never saw.
    fn learn(&mut self, delivered: &Delivered<'_>, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        let learns = consumer.session.state.lock().learn;
        if !learns || delivered.topic.is_empty() || consumer.subscriptions() >= MOST_LEARNED {
            return;
        }
        let filter = Filter {
            path: delivered.topic.to_owned(),
            qos: delivered.qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Always,
        };
        self.proxy.sessions.learned(&consumer.session, delivered.topic);
        self.feed(&filter, now);
        if let Some(queue) = self.consumer.as_mut().and_then(|consumer| consumer.choose(delivered)) {
            self.book_delivery(queue, delivered, now);
        }
    }

    /// What was noted is in the output now.
    pub(super) fn deliveries_are_out(&mut self) {
        let Some(consumer) = &mut self.consumer else { return };
        consumer.deliveries_are_out(self.client.end_of_output());
    }

    /// The client is done with a message.
    pub(super) fn note_acknowledged(&mut self, packet_id: u16, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        consumer.acknowledged(packet_id, now);
    }

    /// Books what the socket took, and whether the client has room.
    pub(super) fn settle_consumer(&mut self, now: Millis) {
        let (taken, pending) = (self.client.taken, self.client.pending());
        let Some(consumer) = &mut self.consumer else { return };
        consumer.settle(taken, pending >= BOUND, now);
    }

    /// The client is gone.
    pub(super) fn end_consuming(&mut self, now: Millis) {
        let Some(mut consumer) = self.consumer.take() else { return };
        consumer.part(now);
        self.proxy.sessions.detach(&consumer.session, self.inbox.number, self.session_expiry, now);
    }
}

/// What is known of a topic, or else is found, and kept unless the topic is long.
fn remember(matches: &mut Matches, topic: &str, find: impl FnOnce() -> Feeds) -> Feeds {
    if let Some(known) = matches.get(topic) {
        return Arc::clone(known);
    }
    let found = find();
    if topic.len() <= LONGEST_KEPT {
        matches.insert(topic.into(), Arc::clone(&found));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_topics_are_not_kept() {
        let (mut matches, mut asked) = (Matches::new(), 0);
        for (topic, times) in [("x".repeat(LONGEST_KEPT), 1), ("x".repeat(LONGEST_KEPT + 1), 3)] {
            for _ in 0..2 {
                remember(&mut matches, &topic, || {
                    asked += 1;
                    Arc::new([])
                });
            }
            assert_eq!((asked, matches.len()), (times, 1));
        }
    }
}

//! What passes, for the ledger: arrivals with what the client publishes, departures with what it consumes.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tidegate_plugin::Standing;

use super::{BOUND, Pair};
use crate::broker::clock::Millis;
use crate::broker::topic;
use crate::proxy::frames::Delivered;
use crate::proxy::node::Nodes;
use crate::proxy::queue::{Feed, Queue};
use crate::proxy::session::Session;
use crate::wire::{Filter, QoS, RetainHandling};

/// Topics whose subscriptions a thread remembers.
const MOST_TOPICS: usize = 8_192;
/// Topics whose queue a consumer remembers.
const MOST_CHOICES: usize = 1_024;
/// Messages of one client that pass before they are booked.
const MOST_UNBOOKED: u32 = 32;
/// Subscriptions of one session that are learned from what is delivered.
const MOST_LEARNED: usize = 1_000;

/// A client as a consumer, where queues are measured.
pub(super) struct Consumer {
    pub(super) session: Arc<Session>,
    /// Paths and what they feed.
    feeds: Vec<(Arc<str>, Arc<Feed>)>,
    /// The queues of all of them.
    queues: Vec<Arc<Queue>>,
    in_flight: HashMap<u16, Flight>,
    /// Messages that it takes at a time, as it says itself.
    window: u64,
    /// Its socket takes nothing more.
    blocked: bool,
    /// QoS 0 messages in the output: they are done when so many bytes are taken.
    sent: VecDeque<(u64, usize, u64)>,
    /// QoS 0 messages that are not in the output yet.
    fresh: Vec<(usize, u64)>,
    /// Which queue a topic came through, where there is more than one.
    choices: HashMap<Box<str>, Option<usize>>,
    aliases: BTreeMap<u16, Box<str>>,
}

#[derive(Clone, Copy)]
struct Flight {
    queue: usize,
    at: Millis,
}

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
            if let Some(found) = matches.get(topic) {
                return Arc::clone(found);
            }
            let found: Feeds = sessions.matching(topic).into();
            matches.insert(topic.into(), Arc::clone(&found));
            found
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
                }
            }
        }
    }

    /// The upstream has let the client in.
    pub(super) fn begin_consuming(&mut self, present: bool, now: Millis) {
        let session = self.proxy.sessions.attach(&self.client_id, self.inbox.number, present, now);
        for filter in &session.state.lock().control {
            self.proxy.control.subscribe(filter, &self.inbox, false);
            self.control.insert(filter.clone());
        }
        let mut consumer = Consumer {
            feeds: Vec::new(),
            queues: Vec::new(),
            in_flight: HashMap::new(),
            window: self.receive_maximum.into(),
            blocked: false,
            sent: VecDeque::new(),
            fresh: Vec::new(),
            choices: HashMap::new(),
            aliases: BTreeMap::new(),
            session: Arc::clone(&session),
        };
        let known: Vec<_> = session
            .state
            .lock()
            .feeds
            .iter()
            .map(|(path, feed)| (Arc::clone(path), Arc::clone(feed)))
            .collect();
        let consumes = !known.is_empty();
        known.into_iter().for_each(|(path, feed)| consumer.add(path, feed, now));
        self.consumer = Some(Box::new(consumer));
        if consumes {
            self.proxy.nodes.iter().for_each(Nodes::tell_soon);
        }
    }

    /// The upstream has accepted a subscription.
    pub(super) fn subscribed(&mut self, filter: &Filter, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        let feed = {
            let (user, number) = (self.publisher.user.as_deref(), self.inbox.number);
            self.proxy.sessions.subscribe(&consumer.session, filter, user, number, now)
        };
        if let Some(feed) = feed.filter(|_| self.proxy.measured) {
            consumer.add(filter.path.as_str().into(), feed, now);
            self.proxy.nodes.iter().for_each(Nodes::tell_soon);
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

    fn book_delivery(&mut self, index: usize, delivered: &Delivered<'_>, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        let Some(queue) = consumer.queues.get(index) else { return };
        if delivered.qos == QoS::AtMostOnce {
            match consumer.fresh.iter_mut().find(|(known, _)| *known == index) {
                Some((_, count)) => *count += 1,
                None => consumer.fresh.push((index, 1)),
            }
        } else {
            let flight = Flight { queue: index, at: now };
            if consumer.in_flight.insert(delivered.packet_id, flight).is_some() {
                // sent again on the same connection
                return;
            }
        }
        if queue.deliver(now, delivered.qos, delivered.retain && !delivered.dup) {
            self.proxy.ledger.enter(queue.number, Arc::clone(queue) as _);
        }
    }

    /// A session that the upstream kept has a subscription that we never saw.
    fn learn(&mut self, delivered: &Delivered<'_>, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        let learns = consumer.session.state.lock().learn;
        if !learns || delivered.topic.is_empty() || consumer.feeds.len() >= MOST_LEARNED {
            return;
        }
        let filter = Filter {
            path: delivered.topic.to_owned(),
            qos: delivered.qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Always,
        };
        self.subscribed(&filter, now);
        if let Some(index) = self.consumer.as_mut().and_then(|consumer| consumer.choose(delivered)) {
            self.book_delivery(index, delivered, now);
        }
    }

    /// What was noted is in the output now.
    pub(super) fn deliveries_are_out(&mut self) {
        let Some(consumer) = &mut self.consumer else { return };
        let end = self.client.end_of_output();
        consumer.sent.extend(consumer.fresh.drain(..).map(|(queue, count)| (end, queue, count)));
    }

    /// The client is done with a message.
    pub(super) fn note_acknowledged(&mut self, packet_id: u16, now: Millis) {
        let Some(consumer) = &mut self.consumer else { return };
        let Some(flight) = consumer.in_flight.remove(&packet_id) else { return };
        if let Some(queue) = consumer.queues.get(flight.queue) {
            queue.finish(now, 1, true, now.saturating_sub(flight.at));
        }
    }

    /// Books what the socket took, and whether the client has room.
    pub(super) fn settle_consumer(&mut self, now: Millis) {
        let (taken, pending) = (self.client.taken, self.client.pending());
        let Some(consumer) = &mut self.consumer else { return };
        while let Some((_, queue, count)) = consumer.sent.front().copied().filter(|(end, ..)| *end <= taken) {
            consumer.sent.pop_front();
            if let Some(queue) = consumer.queues.get(queue) {
                queue.finish(now, count, false, u64::MAX);
            }
        }
        let blocked = pending >= BOUND;
        if blocked != consumer.blocked {
            consumer.blocked = blocked;
            consumer.queues.iter().for_each(|queue| queue.set_blocked(now, blocked));
        }
    }

    /// The client is gone.
    pub(super) fn end_consuming(&mut self, now: Millis) {
        let Some(mut consumer) = self.consumer.take() else { return };
        consumer.part(now);
        let session = &consumer.session;
        session.state.lock().control = std::mem::take(&mut self.control);
        self.proxy.sessions.detach(session, self.inbox.number, self.session_expiry, now);
    }
}

impl Consumer {
    fn add(&mut self, path: Arc<str>, feed: Arc<Feed>, now: Millis) {
        self.choices.clear();
        if !self.queues.iter().any(|queue| Arc::ptr_eq(queue, &feed.queue)) {
            feed.queue.join(now, self.window);
            if self.blocked {
                feed.queue.set_blocked(now, true);
            }
            self.queues.push(Arc::clone(&feed.queue));
        }
        self.feeds.retain(|(known, _)| *known != path);
        self.feeds.push((path, feed));
    }

    fn remove(&mut self, path: &str, now: Millis) {
        self.choices.clear();
        self.feeds.retain(|(known, _)| **known != *path);
        // A queue stays in its place, so that messages in flight know it. One that nothing feeds any more is as if the
        // consumer had left it.
        let unfed: Vec<usize> = (0..self.queues.len())
            .filter(|index| {
                !self.feeds.iter().any(|(_, feed)| Arc::ptr_eq(&feed.queue, &self.queues[*index]))
            })
            .collect();
        if unfed.len() == self.queues.len() {
            self.part(now);
            self.queues.clear();
            self.blocked = false;
        }
    }

    /// Leaves all queues, with what is in flight.
    fn part(&mut self, now: Millis) {
        let mut counts = vec![0; self.queues.len()];
        for flight in self.in_flight.values() {
            if let Some(count) = counts.get_mut(flight.queue) {
                *count += 1;
            }
        }
        for (queue, in_flight) in self.queues.iter().zip(counts) {
            queue.part(now, self.window, in_flight, self.blocked);
        }
        self.in_flight.clear();
        self.sent.clear();
        self.fresh.clear();
    }

    /// The queue that a message came through.
    fn choose(&mut self, delivered: &Delivered<'_>) -> Option<usize> {
        if let (Some(alias), false) = (delivered.alias, delivered.topic.is_empty()) {
            self.aliases.insert(alias, delivered.topic.into());
        }
        if self.queues.len() <= 1 && !self.session.state.lock().learn {
            return (!self.queues.is_empty()).then_some(0);
        }
        let topic = match (delivered.topic, delivered.alias) {
            ("", Some(alias)) => self.aliases.get(&alias)?.clone(),
            (topic, _) => topic.into(),
        };
        if let Some(known) = self.choices.get(&*topic) {
            return *known;
        }
        // the session's own subscriptions before those that it shares
        let mut matching: Vec<_> = self.feeds.iter().filter(|(path, _)| path_matches(path, &topic)).collect();
        matching.sort_by_key(|(path, _)| path.starts_with("$share/"));
        let feed = matching.first().map(|(_, feed)| Arc::clone(&feed.queue));
        let index = feed.and_then(|queue| self.queues.iter().position(|known| Arc::ptr_eq(known, &queue)));
        if self.choices.len() >= MOST_CHOICES {
            self.choices.clear();
        }
        self.choices.insert(topic, index);
        index
    }
}

fn path_matches(path: &str, name: &str) -> bool {
    topic::parse_subscription(path).is_some_and(|(_, plain)| topic::matches(plain, name))
}

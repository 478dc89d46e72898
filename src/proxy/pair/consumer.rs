//! A client as a consumer, where queues are measured: what feeds its queues, and what it was sent and is not done with.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::ledger::LONGEST_KEPT;
use crate::broker::clock::Millis;
use crate::broker::topic;
use crate::proxy::frames::Delivered;
use crate::proxy::queue::{Feed, Queue};
use crate::proxy::session::Session;
use crate::wire::QoS;

/// Topics whose queue a consumer remembers.
const MOST_CHOICES: usize = 1_024;
/// What the topics that the upstream gave numbers may weigh, in bytes.
const MOST_ALIASES: usize = 256 * 1024;
/// What such a topic weighs beside its own bytes.
const ALIAS: usize = 64;

/// A client as a consumer.
pub(super) struct Consumer {
    pub(super) session: Arc<Session>,
    /// Paths and what they feed.
    feeds: HashMap<Arc<str>, Arc<Feed>>,
    /// The queues that it has a share in, by number.
    queues: BTreeMap<u64, Share>,
    in_flight: HashMap<u16, Flight>,
    /// Messages that it takes at a time, as it says itself.
    window: u64,
    /// Its socket takes nothing more.
    blocked: bool,
    /// QoS 0 messages in the output, by queue: they are done when so many bytes are taken.
    sent: VecDeque<(u64, u64, u64)>,
    /// QoS 0 messages that are not in the output yet.
    fresh: Vec<(u64, u64)>,
    /// Which queue a topic came through, where there is more than one.
    choices: HashMap<Box<str>, Option<u64>>,
    aliases: Aliases,
}

/// Topics that the upstream gave numbers.
#[derive(Default)]
struct Aliases {
    topics: BTreeMap<u16, Box<str>>,
    /// The bytes that they weigh.
    weight: usize,
}

impl Aliases {
    /// Keeps one, if there is room. The message passes all the same, and so do those that come with the number alone: only,
    /// where the consumer has more than one queue, it is not known which of them they came through, and none counts them.
    fn set(&mut self, alias: u16, topic: &str) {
        if let Some(before) = self.topics.remove(&alias) {
            self.weight -= before.len() + ALIAS;
        }
        let weight = topic.len() + ALIAS;
        if self.weight + weight <= MOST_ALIASES {
            self.weight += weight;
            self.topics.insert(alias, topic.into());
        }
    }
}

/// What a consumer has of a queue. It leaves the queue when nothing feeds it any more and it is done with what it was sent.
struct Share {
    queue: Arc<Queue>,
    /// Its subscriptions that feed the queue, and those of them that keep the retain flag of what is published.
    feeds: usize,
    as_published: usize,
    /// QoS 1 and 2 messages in flight.
    in_flight: u64,
    /// QoS 0 messages that its socket has not taken.
    leaving: u64,
}

#[derive(Clone, Copy)]
struct Flight {
    queue: u64,
    at: Millis,
}

impl Consumer {
    /// One that takes so many messages at a time.
    pub(super) fn new(session: Arc<Session>, window: u64) -> Self {
        Self {
            session,
            feeds: HashMap::new(),
            queues: BTreeMap::new(),
            in_flight: HashMap::new(),
            window,
            blocked: false,
            sent: VecDeque::new(),
            fresh: Vec::new(),
            choices: HashMap::new(),
            aliases: Aliases::default(),
        }
    }

    /// How many subscriptions it has.
    pub(super) fn subscriptions(&self) -> usize {
        self.feeds.len()
    }

    /// Whether it has messages to acknowledge.
    pub(super) fn owes(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// It subscribes, perhaps in place of what it had under the same path; whether it had nothing.
    pub(super) fn add(&mut self, path: Arc<str>, feed: Arc<Feed>, now: Millis) -> bool {
        self.choices.clear();
        let share = self.queues.entry(feed.queue.number).or_insert_with(|| {
            feed.queue.join(now, self.window);
            if self.blocked {
                feed.queue.set_blocked(now, true);
            }
            Share { queue: Arc::clone(&feed.queue), feeds: 0, as_published: 0, in_flight: 0, leaving: 0 }
        });
        share.feeds += 1;
        share.as_published += usize::from(feed.as_published);
        let old = self.feeds.insert(path, feed);
        old.iter().for_each(|old| self.unfeed(old, now));
        old.is_none()
    }

    /// It subscribes to this no longer.
    pub(super) fn remove(&mut self, path: &str, now: Millis) {
        self.choices.clear();
        if let Some(old) = self.feeds.remove(path) {
            self.unfeed(&old, now);
        }
    }

    fn unfeed(&mut self, feed: &Feed, now: Millis) {
        if let Some(share) = self.queues.get_mut(&feed.queue.number) {
            share.feeds -= 1;
            share.as_published -= usize::from(feed.as_published);
            self.leave_if_done(feed.queue.number, now);
        }
    }

    fn leave_if_done(&mut self, number: u64, now: Millis) {
        let done = |share: &Share| share.feeds == 0 && share.in_flight == 0 && share.leaving == 0;
        if self.queues.get(&number).is_some_and(done)
            && let Some(share) = self.queues.remove(&number)
        {
            share.queue.part(now, self.window, 0, 0, self.blocked);
        }
    }

    /// Leaves all queues, with what is in flight.
    pub(super) fn part(&mut self, now: Millis) {
        for share in std::mem::take(&mut self.queues).into_values() {
            share.queue.part(now, self.window, share.in_flight, share.leaving, self.blocked);
        }
    }

    /// Books a message that goes to it; the queue, when the ledger must be told of it.
    pub(super) fn deliver(
        &mut self,
        number: u64,
        delivered: &Delivered<'_>,
        now: Millis,
    ) -> Option<Arc<Queue>> {
        let share = self.queues.get_mut(&number)?;
        if delivered.qos == QoS::AtMostOnce {
            share.leaving += 1;
            match self.fresh.iter_mut().find(|(known, _)| *known == number) {
                Some((_, count)) => *count += 1,
                None => self.fresh.push((number, 1)),
            }
        } else {
            let Entry::Vacant(place) = self.in_flight.entry(delivered.packet_id) else {
                // sent again on the same connection
                return None;
            };
            place.insert(Flight { queue: number, at: now });
            share.in_flight += 1;
        }
        // Where a subscription keeps the flag, it says nothing about where the message comes from: most are new.
        let stored = delivered.retain && !delivered.dup && share.as_published == 0;
        share.queue.deliver(now, delivered.qos, stored).then(|| Arc::clone(&share.queue))
    }

    /// What was delivered with QoS 0 is in the output, which ends after so many bytes.
    pub(super) fn deliveries_are_out(&mut self, end: u64) {
        self.sent.extend(self.fresh.drain(..).map(|(queue, count)| (end, queue, count)));
    }

    /// It is done with a message.
    pub(super) fn acknowledged(&mut self, packet_id: u16, now: Millis) {
        let Some(flight) = self.in_flight.remove(&packet_id) else { return };
        if let Some(share) = self.queues.get_mut(&flight.queue) {
            share.in_flight -= 1;
            share.queue.finish(now, 1, true, now.saturating_sub(flight.at));
            self.leave_if_done(flight.queue, now);
        }
    }

    /// Its socket has taken so many bytes; `blocked` says that it takes nothing more.
    pub(super) fn settle(&mut self, taken: u64, blocked: bool, now: Millis) {
        while let Some((_, queue, count)) = self.sent.front().copied().filter(|(end, ..)| *end <= taken) {
            self.sent.pop_front();
            if let Some(share) = self.queues.get_mut(&queue) {
                share.leaving -= count;
                share.queue.finish(now, count, false, u64::MAX);
                self.leave_if_done(queue, now);
            }
        }
        if blocked != self.blocked {
            self.blocked = blocked;
            self.queues.values().for_each(|share| share.queue.set_blocked(now, blocked));
        }
    }

    /// The queue that a message came through.
    pub(super) fn choose(&mut self, delivered: &Delivered<'_>) -> Option<u64> {
        if let (Some(alias), false) = (delivered.alias, delivered.topic.is_empty()) {
            self.aliases.set(alias, delivered.topic);
        }
        if self.queues.len() <= 1 && !self.session.state.lock().learn {
            return self.queues.keys().next().copied();
        }
        let topic = match (delivered.topic, delivered.alias) {
            ("", Some(alias)) => self.aliases.topics.get(&alias)?,
            (topic, _) => topic,
        };
        if let Some(known) = self.choices.get(topic) {
            return *known;
        }
        // the session's own subscriptions before those that it shares
        let matching = self.feeds.iter().filter(|(path, _)| path_matches(path, topic));
        let first = matching.min_by_key(|(path, feed)| (path.starts_with("$share/"), feed.queue.number));
        let queue = first.map(|(_, feed)| feed.queue.number);
        if self.choices.len() >= MOST_CHOICES {
            self.choices.clear();
        }
        if topic.len() <= LONGEST_KEPT {
            self.choices.insert(topic.into(), queue);
        }
        queue
    }
}

fn path_matches(path: &str, name: &str) -> bool {
    topic::parse_subscription(path).is_some_and(|(_, plain)| topic::matches(plain, name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::broker::clock::moment;
    use crate::ledger::Measured;
    use crate::proxy::queue::Bounds;
    use crate::proxy::session::Sessions;
    use crate::wire::{Filter, RetainHandling};

    struct House {
        sessions: Sessions,
        consumer: Consumer,
    }

    impl House {
        fn new() -> Self {
            let bounds =
                Bounds { window: 50, messages: 100, delay: 1_000, progress: 10_000, ..Bounds::default() };
            let sessions = Sessions::new(bounds, Vec::new(), 10);
            let session = sessions.attach(&"c".into(), 1, false, 1);
            Self { sessions, consumer: Consumer::new(session, 20) }
        }

        fn subscribe(&mut self, path: &str, retain_as_published: bool) -> Arc<Queue> {
            let filter = Filter {
                path: path.into(),
                qos: QoS::AtLeastOnce,
                no_local: false,
                retain_as_published,
                retain_handling: RetainHandling::Never,
            };
            let feed = self.sessions.subscribe(&self.consumer.session, &filter, None, 1, 1).unwrap();
            let queue = Arc::clone(&feed.queue);
            self.consumer.add(path.into(), feed, 1);
            queue
        }

        fn unsubscribe(&mut self, path: &str) {
            self.sessions.unsubscribe(&self.consumer.session, path).unwrap();
            self.consumer.remove(path, 1);
        }

        /// A message on its way, with QoS 1 unless the identifier is 0.
        fn deliver(&mut self, topic: &str, packet_id: u16, retain: bool) {
            let qos = if packet_id == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            let delivered = Delivered { qos, retain, dup: false, topic, packet_id, alias: None, payload: 0 };
            let queue = self.consumer.choose(&delivered).unwrap();
            self.consumer.deliver(queue, &delivered, 1);
        }
    }

    /// Consumers, messages that wait, messages in flight; a queue that is over has none.
    fn seen(queue: &Queue) -> (u32, u64, u64) {
        let report = queue.measure(moment(1));
        report.map_or((0, 0, 0), |report| (report.consumers, report.waiting, report.in_flight))
    }

    #[test]
    fn who_leaves_one_group_is_no_longer_its_consumer() {
        let mut house = House::new();
        let (own, first) = (house.subscribe("a/#", false), house.subscribe("$share/g/b", false));
        let second = house.subscribe("$share/h/b", false);
        assert_eq!((seen(&own).0, seen(&first).0, seen(&second).0), (1, 1, 1));
        house.unsubscribe("$share/g/b");
        assert_eq!((seen(&own).0, seen(&first).0, seen(&second).0), (1, 0, 1));
        house.consumer.part(1);
        assert_eq!((seen(&own).0, seen(&first).0, seen(&second).0), (0, 0, 0));
    }

    /// What it was sent before it left is still its own work, and no message waits because of that.
    #[test]
    fn who_leaves_a_group_finishes_its_work() {
        let mut house = House::new();
        house.subscribe("a/#", false);
        let group = house.subscribe("$share/g/b", false);
        group.arrive(1, 7, QoS::AtLeastOnce, 1);
        group.arrive(1, 7, QoS::AtMostOnce, 1);
        house.deliver("b", 3, false);
        house.deliver("b", 0, false);
        house.consumer.deliveries_are_out(100);
        house.unsubscribe("$share/g/b");
        assert_eq!(seen(&group), (1, 0, 1));
        house.consumer.acknowledged(3, 1);
        assert_eq!(seen(&group).0, 1, "its socket has not taken the other one");
        house.consumer.settle(100, false, 1);
        assert_eq!(seen(&group), (0, 0, 0));
        assert_eq!(house.consumer.queues.len(), 1);
    }

    /// What a socket had not taken when its consumer left is gone, whoever else is there, and nothing else is.
    #[test]
    fn what_a_socket_did_not_take_leaves_with_its_consumer() {
        let mut house = House::new();
        let queue = house.subscribe("a", false);
        let session = Arc::clone(&house.consumer.session);
        let (path, feed) = ("a".into(), Arc::clone(&session.state.lock().feeds["a"]));
        let mut old = std::mem::replace(&mut house.consumer, Consumer::new(session, 20));
        house.consumer.add(path, feed, 1);
        queue.arrive(1, 7, QoS::AtMostOnce, 5);
        std::mem::swap(&mut old, &mut house.consumer);
        (0..3).for_each(|_| house.deliver("a", 0, false));
        std::mem::swap(&mut old, &mut house.consumer);
        (0..2).for_each(|_| house.deliver("a", 0, false));
        house.consumer.deliveries_are_out(100);
        let told = queue.measure(moment(1)).unwrap();
        assert_eq!((told.consumers, told.reading.depth, told.dropped), (2, 5, 0));
        old.part(1);
        let told = queue.measure(moment(1)).unwrap();
        assert_eq!((told.consumers, told.reading.depth, told.dropped), (1, 2, 3));
        house.consumer.settle(100, false, 1);
        let told = queue.measure(moment(1)).unwrap();
        assert_eq!((told.reading.depth, told.reading.departed, told.dropped), (0, 2, 0));
    }

    #[test]
    fn subscribing_again_is_one_subscription() {
        let mut house = House::new();
        let queue = house.subscribe("a", true);
        house.subscribe("a", false);
        assert_eq!((house.consumer.subscriptions(), seen(&queue).0), (1, 1));
        let feed = Arc::clone(&house.consumer.feeds["a"]);
        assert!(!house.consumer.add("a".into(), Arc::clone(&feed), 1), "that is no news");
        assert!(house.consumer.add("b".into(), feed, 1), "other nodes must hear of another filter");
        house.consumer.remove("b", 1);
        house.unsubscribe("a");
        assert_eq!((house.consumer.subscriptions(), seen(&queue).0), (0, 0));
    }

    /// A live message with the retain flag has arrived before; what was stored never waited.
    #[test]
    fn the_retain_flag_as_published_counts_once() {
        for as_published in [true, false] {
            let mut house = House::new();
            let queue = house.subscribe("a", as_published);
            if as_published {
                queue.arrive(1, 7, QoS::AtLeastOnce, 1);
            }
            house.deliver("a", 3, true);
            assert_eq!(seen(&queue), (1, 0, 1), "{as_published}");
            house.consumer.acknowledged(3, 1);
            assert_eq!(seen(&queue), (1, 0, 0), "{as_published}");
        }
    }

    /// With work for each that grows with all of them, this would not end within anybody's patience.
    #[test]
    fn many_subscriptions_are_no_more_work_each() {
        let mut house = House::new();
        let paths: Vec<String> = (0..200_000).map(|number| format!("a/{number}")).collect();
        let queue = house.subscribe("a", false);
        let feed = house.consumer.feeds.get("a").map(Arc::clone).unwrap();
        for path in &paths {
            house.consumer.add(path.as_str().into(), Arc::clone(&feed), 1);
        }
        assert_eq!((house.consumer.subscriptions(), seen(&queue).0), (200_001, 1));
        paths.iter().for_each(|path| house.consumer.remove(path, 1));
        house.consumer.remove("a", 1);
        assert_eq!((house.consumer.subscriptions(), seen(&queue).0), (0, 0));
    }

    /// Whatever the upstream says: a number that is not kept stands for nothing, and not for what it stood for before.
    #[test]
    fn aliases_are_kept_within_bounds() {
        let mut house = House::new();
        let (own, group) =
            (house.subscribe("a/#", false).number, house.subscribe("$share/g/b", false).number);
        let mut choose = |topic: &str, alias| {
            let (qos, alias) = (QoS::AtMostOnce, Some(alias));
            let message =
                Delivered { qos, retain: false, dup: false, topic, packet_id: 0, alias, payload: 0 };
            house.consumer.choose(&message)
        };
        assert_eq!((choose("b", 1), choose("", 1)), (Some(group), Some(group)));
        let long = format!("a/{}", "x".repeat(60_000));
        (2..=100).for_each(|alias| assert_eq!(choose(&long, alias), Some(own)));
        assert_eq!((choose("", 1), choose("", 2), choose("", 100)), (Some(group), Some(own), None));
        (2..=u16::MAX).for_each(|alias| assert_eq!(choose("a/x", alias), Some(own)));
        assert_eq!((choose("", 2), choose("", u16::MAX)), (Some(own), None));
        assert_eq!((choose(&"x".repeat(65_535), 1), choose("", 1)), (None, None), "there is no room for it");
        let aliases = &house.consumer.aliases;
        let weight: usize = aliases.topics.values().map(|topic| topic.len() + ALIAS).sum();
        assert!(weight == aliases.weight && weight <= MOST_ALIASES, "{weight}");
    }

    #[test]
    fn long_topics_are_not_remembered() {
        let mut house = House::new();
        house.subscribe("a/#", false);
        house.subscribe("$share/g/b", false);
        house.deliver(&format!("a/{}", "x".repeat(LONGEST_KEPT)), 1, false);
        assert!(house.consumer.choices.is_empty());
        house.deliver("a/x", 2, false);
        assert_eq!(house.consumer.choices.len(), 1);
    }
}

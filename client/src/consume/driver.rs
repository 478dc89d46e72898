//! Drives tracker and checks with a clock, randomness and a connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidegate_control::backoff::Announced;
use tidegate_control::random::Seeded;
use tidegate_control::time::{Moment, Span};
use tidegate_control::topic::matches;
use tokio::sync::{mpsc, oneshot};

use super::checks::{Ask, Checks};
use super::receipts::{Receipts, Seen};
use super::round::{Part, Round, is_shared};
use super::stats::SubscriberStats;
use super::subscriber::{Update, Via};
use super::tracker::{Out, Purpose, Tracker};
use crate::clock::{Clock, duration, randomness};
use crate::net::{Event, Incoming, Link, Qos, Receipt, Requests, Up, Wanted};
use crate::protocol::{Answer, CheckRequest, LoadNews, Topics, encode};

/// News about the gateway's load count for so long.
const LOAD_TTL: Span = Span::from_secs(60);
/// Whoever is refused asks again after this: a subscription may be in force by then.
const REFUSED: Span = Span::from_secs(10);

/// What subscriber and driver share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) stats: Mutex<SubscriberStats>,
    /// Updates that wait for the program, and their bytes.
    pub(super) queued: AtomicUsize,
    pub(super) queued_bytes: AtomicUsize,
}

impl Shared {
    /// An update of so many bytes waits.
    fn queue(&self, bytes: usize) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The program took one of so many bytes.
    pub(super) fn take(&self, bytes: usize) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// An update on its way to the program.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) update: Update,
    /// To be given back when the program has taken it.
    pub(super) token: Option<u64>,
}

/// What a subscriber is made of.
pub(super) struct Parts {
    pub(super) tracker: Tracker,
    /// None for no active checks.
    pub(super) checks: Option<Checks>,
    pub(super) updates: mpsc::UnboundedSender<Queued>,
    pub(super) receipts: Receipts,
    pub(super) filters: Vec<(String, Qos)>,
    /// Updates that may wait for the program, beside those that a broker waits for, and bytes of all.
    pub(super) most_updates: usize,
    pub(super) most_bytes: usize,
    /// Updates that one answer may bring.
    pub(super) answer: usize,
    pub(super) topics: Topics,
    pub(super) clock: Clock,
}

/// The task behind a subscriber.
pub(super) struct Driver {
    shared: Arc<Shared>,
    link: Link,
    parts: Parts,
    random: Seeded,
    /// What to ask on the connection; none while there is none.
    requests: Option<Requests>,
    /// What is asked, part by part, and what the part under way is for.
    round: Round,
    purpose: Purpose,
    load: Option<(LoadNews, Moment)>,
    /// Lost because the program was slow, by topic, until the next update of the topic says so.
    overrun: HashMap<String, u64>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, link: Link, parts: Parts) -> Self {
        let own = parts.filters.iter().map(|(filter, _)| filter).filter(|filter| !is_shared(filter));
        let round = Round::new(own.cloned().collect());
        Self {
            shared,
            link,
            parts,
            round,
            purpose: Purpose::Missing,
            random: randomness(),
            requests: None,
            load: None,
            overrun: HashMap::new(),
        }
    }

    /// Runs until it is told to close.
    pub(super) async fn run(
        mut self,
        mut taken: mpsc::UnboundedReceiver<u64>,
        mut close: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        loop {
            let wake = self.look();
            tokio::select! {
                event = self.link.next() => match event {
                    Some(event) => self.on_event(event),
                    None => return,
                },
                Some(token) = taken.recv() => self.acknowledge(token),
                () = self.parts.clock.sleep_until(wake) => {}
                done = close.recv() => {
                    self.say_goodbye().await;
                    if let Some(done) = done {
                        let _ = done.send(());
                    }
                    return;
                }
            }
        }
    }

    /// Does what is due; when to look again.
    fn look(&mut self) -> Option<Moment> {
        let now = self.parts.clock.now();
        if self.shared.queued.load(Ordering::Relaxed) > 0 {
            self.parts.tracker.program_is_busy(now);
        }
        // It may take many answers to bring all that is missing: what comes after it waits as long as they do.
        let is_fetching = |parts: &Parts| parts.checks.as_ref().is_some_and(|checks| checks.is_fetching(now));
        if !is_fetching(&self.parts) {
            let late = self.parts.tracker.expire(now);
            self.hand_on(late);
        }
        let ask = self.ask(now);
        self.publish_stats();
        let fetching = is_fetching(&self.parts);
        let expires = self.parts.tracker.expires().filter(|_| !fetching);
        [ask, expires].into_iter().flatten().min()
    }

    /// Asks if it is time; when it will be.
    fn ask(&mut self, now: Moment) -> Option<Moment> {
        let requests = self.requests.as_ref()?;
        let checks = self.parts.checks.as_mut()?;
        let (gap, start) = (self.parts.tracker.gap(), !self.parts.tracker.has_begun());
        let known = gap.is_some_and(|gap| gap <= now);
        loop {
            match checks.step(now, known, start, &mut self.random) {
                Ask::Now(id) => {
                    self.parts.tracker.asks(now);
                    let part = self.round.part(self.parts.tracker.known().as_deref());
                    self.purpose = match start {
                        true => Purpose::Start { last: self.round.is_last() },
                        false => Purpose::Missing,
                    };
                    self.parts.tracker.asked(part.named());
                    let Part { filters, from, to } = part;
                    let (max, only_named) = (self.parts.answer, self.parts.tracker.is_full());
                    let check = encode(&CheckRequest { id, filters, from, to, only_named, max });
                    requests.publish(&self.parts.topics.check, check, Qos::AtMostOnce, false);
                }
                Ask::At(moment) if moment <= now => {}
                Ask::At(Moment::END) => return None,
                Ask::At(moment) => return Some(gap.filter(|_| !known).unwrap_or(moment).min(moment)),
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = self.parts.clock.now();
        match event {
            Event::Up(up) => self.on_up(up, now),
            Event::Down => {
                self.requests = None;
                self.parts.tracker.disconnected();
                if let Some(checks) = &mut self.parts.checks {
                    checks.disconnected();
                }
            }
            Event::Message(message) => self.on_message(message, now),
            Event::Subscribed { refused } if refused > 0 => tracing::warn!(refused, "filters refused"),
            Event::Sent(_) | Event::Answered { .. } | Event::Subscribed { .. } => {}
        }
    }

    fn on_up(&mut self, up: Up, now: Moment) {
        let own = |filter: &String, qos| Wanted { filter: filter.clone(), qos, retained_again: true };
        // Whoever follows an order to move is gone before it can acknowledge it.
        let mut wanted = vec![own(&self.parts.topics.moved, Qos::AtMostOnce)];
        if self.parts.checks.is_some() {
            let topics = [&self.parts.topics.load, &self.parts.topics.update];
            wanted.extend(topics.map(|topic| own(topic, Qos::AtLeastOnce)));
        }
        let filters = self.parts.filters.iter();
        wanted.extend(filters.map(|(filter, qos)| Wanted {
            filter: filter.clone(),
            qos: *qos,
            retained_again: false,
        }));
        up.requests.subscribe(&wanted);
        self.requests = Some(up.requests);
        let around = self.parts.topics.check.len() + AROUND;
        self.round.connected(up.max_packet.saturating_sub(around));
        self.parts.receipts.connected(up.resumed);
        self.parts.tracker.finds(up.present && !up.resumed);
        let waited = self.parts.tracker.connected(!up.resumed, now);
        self.hand_on(waited);
        if let Some(checks) = &mut self.parts.checks {
            checks.connected(now, &mut self.random);
        }
        self.shared.stats.lock().connections += 1;
    }

    fn on_message(&mut self, message: Incoming, now: Moment) {
        // One that could not be followed.
        if message.topic == self.parts.topics.moved {
            return self.confirm(message.receipt);
        }
        if message.topic == self.parts.topics.update && self.parts.checks.is_some() {
            self.confirm(message.receipt);
            return self.on_answer(&message.payload, now);
        }
        if message.topic == self.parts.topics.load && self.parts.checks.is_some() {
            self.confirm(message.receipt);
            match LoadNews::read(&message.payload) {
                Some(news) => self.load = Some((news, now)),
                None => self.shared.stats.lock().nonsense += 1,
            }
            return;
        }
        let token = match message.receipt.map(|receipt| self.parts.receipts.came(receipt, &message)) {
            None => None,
            Some(Seen::New(token)) => Some(token),
            Some(seen) => {
                self.parts.tracker.duplicates += 1;
                return self.confirm(message.receipt.filter(|_| seen == Seen::Done));
            }
        };
        let updates = if self.is_shared(&message.topic) {
            vec![Out::untracked(message, token)]
        } else {
            self.parts.tracker.came(message, token, now)
        };
        if !updates.iter().any(|out| out.ready.token == token) {
            // It was there before, or waits here for another: the program will not take it soon, or never.
            self.acknowledge_now(token);
        }
        self.hand_on(updates);
    }

    /// Whether it came through a shared group, of which this client gets a part only: what is not in it is not missing.
    fn is_shared(&self, topic: &str) -> bool {
        let plain = |(filter, _): &(String, Qos)| !is_shared(filter) && matches(filter, topic);
        self.parts.filters.iter().any(|(filter, _)| is_shared(filter))
            && !self.parts.filters.iter().any(plain)
    }

    fn on_answer(&mut self, payload: &[u8], now: Moment) {
        let Some(answer) = Answer::read(payload) else {
            self.shared.stats.lock().nonsense += 1;
            return;
        };
        let Some(checks) = &mut self.parts.checks else { return };
        // One check at a time: a refusal without its number can only be for that.
        let refused = answer.refused.as_ref().filter(|_| checks.expects(answer.id) || answer.id == 0);
        if let Some(why) = refused.filter(|_| checks.expects_any()) {
            tracing::warn!(why, "check refused");
            self.round.refused();
            return checks.refused(REFUSED, now, &mut self.random);
        }
        if !checks.expects(answer.id) {
            return;
        }
        if let Some(retry) = answer.retry {
            return checks.delayed(retry, now, &mut self.random);
        }
        let delay = self.load.filter(|(_, at)| now < *at + LOAD_TTL).map(|(news, _)| news.response);
        let announced = Announced { delay: delay.or(answer.server), rate: answer.rate };
        let truncated = answer.truncated;
        let brought = self.parts.tracker.answered(answer, self.purpose, now);
        // What an answer brought nothing of is not asked for again: the next one would not either.
        let cut = truncated && brought.advanced;
        let next = brought.next.is_some_and(|next| self.round.go_on(next));
        let more = cut || next || brought.again || !self.round.is_last();
        match brought.again {
            true => self.round.reset(),
            false if cut || next => {}
            false => self.round.done(),
        }
        checks.answered(brought.missing, more, announced, now, &mut self.random);
        self.hand_on(brought.updates);
    }

    fn hand_on(&mut self, updates: Vec<Out>) {
        for Out { topic, ready, retained } in updates {
            let overrun = self.overrun.remove(&topic).unwrap_or(0);
            let lost_before = ready.lost_before + overrun;
            let (via, token, seq) = (ready.via, ready.token, ready.seq);
            let update = Update { topic, payload: ready.payload, seq, via, lost_before, retained };
            // Counted first: whoever has an update finds it in the counts.
            let queued = Queued { update, token };
            let bytes = queued.update.size();
            if self.is_full(bytes, token) {
                self.overrun(queued, ready.lost_before);
                continue;
            }
            self.shared.queue(bytes);
            count(&mut self.shared.stats.lock(), via, ready.lost_before);
            // Fails only when the program has dropped the subscriber, and this task ends too.
            let _ = self.parts.updates.send(queued);
        }
    }

    /// Whether the program has too much before it to be given this. What the broker waits for is bounded by its window.
    fn is_full(&self, bytes: usize, token: Option<u64>) -> bool {
        let (queued, all) =
            (self.shared.queued.load(Ordering::Relaxed), self.shared.queued_bytes.load(Ordering::Relaxed));
        token.is_none() && queued >= self.parts.most_updates
            || all.saturating_add(bytes) > self.parts.most_bytes
    }

    /// The program did not keep up, and the window of the broker did not stop what came.
    fn overrun(&mut self, queued: Queued, lost: u64) {
        let mut stats = self.shared.stats.lock();
        stats.overrun += 1;
        stats.lost = stats.lost.saturating_add(lost).saturating_add(1);
        drop(stats);
        self.acknowledge_now(queued.token);
        let Update { topic, lost_before, .. } = queued.update;
        let room = self.overrun.len() < MOST_OVERRUN && topic.len() <= LONGEST_OVERRUN;
        if room || self.overrun.contains_key(&topic) {
            self.overrun.insert(topic, lost_before + 1);
        }
    }

    /// The program took an update.
    fn acknowledge(&mut self, token: u64) {
        self.acknowledge_now(Some(token));
    }

    fn acknowledge_now(&mut self, token: Option<u64>) {
        let receipt = token.and_then(|token| self.parts.receipts.done(token));
        self.confirm(receipt);
    }

    fn confirm(&self, receipt: Option<Receipt>) {
        if let (Some(receipt), Some(requests)) = (receipt, &self.requests) {
            requests.acknowledge(receipt);
        }
    }

    fn publish_stats(&self) {
        let mut stats = self.shared.stats.lock();
        stats.duplicates = self.parts.tracker.duplicates;
        if let Some(checks) = &self.parts.checks {
            let counts = checks.counts;
            (stats.checks, stats.redundant_checks) = (counts.made, counts.redundant);
            (stats.silent_checks, stats.delayed_checks) = (counts.silent, counts.delayed);
            stats.refused_checks = counts.refused;
            (stats.interval, stats.response) = (duration(checks.interval()), duration(checks.response()));
            (stats.mean_lost, stats.answered_checks) = (checks.mean_lost(), counts.answered);
            stats.last_response = duration(counts.last_response);
        }
    }

    async fn say_goodbye(&mut self) {
        let Some(requests) = self.requests.take() else { return };
        requests.disconnect();
        let gone = async { while !matches!(self.link.next().await, None | Some(Event::Down)) {} };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), gone).await;
    }
}

fn count(stats: &mut SubscriberStats, via: Via, lost: u64) {
    stats.lost = stats.lost.saturating_add(lost);
    match via {
        Via::Passive => stats.passive += 1,
        Via::Active => stats.active += 1,
    }
}

/// Topics whose overruns are told with their next update, and how long their names may be.
const MOST_OVERRUN: usize = 10_000;
const LONGEST_OVERRUN: usize = 1_024;
/// More than the fixed parts of a PUBLISH take.
const AROUND: usize = 16;

//! The publisher without clock and network: events and offers in, messages out.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tidegate_control::pacing::Pass;
use tidegate_control::random::Random;
use tidegate_control::time::{Moment, Span};
use tidegate_control::topic::is_name;

use super::counters::PublisherStats;
use super::job::{Finished, Job, Panic};
use super::pace::Pace;
use super::rate::{Limit, RateBook, Source};
use super::slots::{Lent, Settled, SlotSettings, Slots, Taken};
use super::urgent::Urgent;
use super::{Message, UrgentFull};
use crate::aggregate::Aggregate;
use crate::net::Outcome;
use crate::protocol::{Hints, RateNews};
use crate::sample::Sample;

/// How long a refusal holds that does not say so itself.
const REFUSED: Span = Span::from_secs(1);
/// More than the fixed parts of a PUBLISH take.
const OVERHEAD: usize = 16;

/// Settings of an [`Outbox`].
#[derive(Clone)]
pub(crate) struct OutboxSettings {
    pub(crate) slots: SlotSettings,
    pub(crate) own_rate: Option<f64>,
    pub(crate) growth: f64,
    pub(crate) urgent: usize,
    pub(crate) urgent_bytes: usize,
    /// How long an urgent message is kept after it was acknowledged.
    pub(crate) urgent_memory: Span,
    /// Messages that may wait for an acknowledgement.
    pub(crate) window: usize,
}

/// What to do now.
pub(crate) enum Step {
    /// Send this; it counts as handed over.
    Send(Message),
    /// Do this without the lock, and bring it back.
    Work(Job),
    /// Nothing before this moment, unless something happens.
    Wait(Option<Moment>),
}

/// What to do with a sample that is offered.
pub(crate) enum Offer {
    /// Nothing more; whether it was taken.
    Done(bool),
    /// Make an aggregate for its topic, without the lock.
    Make(Sample),
    /// Do this without the lock, and bring it back.
    Work(Job),
}

/// All that a publisher knows.
pub(crate) struct Outbox {
    settings: OutboxSettings,
    slots: Slots,
    urgent: Urgent,
    /// Messages made of samples that must go again, oldest first.
    again: VecDeque<Message>,
    /// Handed to the network, not sent yet.
    handed: VecDeque<Message>,
    /// Sent, by packet identifier.
    flying: BTreeMap<u16, Message>,
    book: RateBook,
    pace: Pace,
    /// How many may fly; none while not connected.
    window: Option<usize>,
    /// The largest packet that the broker takes.
    largest: usize,
    numbers: u64,
    stats: PublisherStats,
}

impl Outbox {
    pub(crate) fn new(settings: OutboxSettings) -> Self {
        Self {
            slots: Slots::new(settings.slots.clone()),
            urgent: Urgent::new(settings.urgent, settings.urgent_bytes, settings.urgent_memory),
            again: VecDeque::new(),
            handed: VecDeque::new(),
            flying: BTreeMap::new(),
            book: RateBook::new(settings.own_rate, settings.growth),
            pace: Pace::new(),
            window: None,
            largest: usize::MAX,
            numbers: 0,
            stats: PublisherStats::default(),
            settings,
        }
    }

    /// A sample is offered.
    pub(crate) fn offer(&mut self, topic: &str, sample: Sample) -> Offer {
        // What this sample makes worthless takes no room from it.
        let outdated: usize = self
            .again
            .iter()
            .filter(|old| old.newest_wins && &*old.topic == topic)
            .map(|old| old.payload.len())
            .sum();
        let under_way = self.under_way().map(|message| message.payload.len()).sum::<usize>() - outdated;
        let lent = if is_name(topic) { self.slots.lend(topic, sample, under_way) } else { Lent::NoRoom };
        let offer = match lent {
            Lent::Make(sample) => return Offer::Make(sample),
            Lent::NoRoom => Offer::Done(false),
            Lent::Queued { replaced } => {
                self.stats.replaced += replaced;
                Offer::Done(true)
            }
            Lent::Job(job) => Offer::Work(job),
        };
        self.stats.offered += 1;
        self.stats.refused += u64::from(matches!(offer, Offer::Done(false)));
        offer
    }

    /// An aggregate was made for a new topic, and the sample is offered again.
    pub(crate) fn made(&mut self, topic: &str, aggregate: Box<dyn Aggregate>, sample: Sample) -> Offer {
        self.slots.insert(topic, aggregate);
        self.offer(topic, sample)
    }

    /// Work is brought back: what to do next, and what a panic there left.
    pub(crate) fn finish(&mut self, finished: Finished, now: Moment) -> (Step, Option<Panic>) {
        let (Settled { refused, replaced, dropped, taken }, panic) = self.slots.settle(finished, now);
        self.stats.refused += refused;
        self.stats.replaced += replaced;
        self.stats.dropped += dropped;
        self.discard_outdated();
        let again = Step::Wait(Some(now));
        let Some(Taken { number, topic, payload, samples, newest_wins }) = taken else {
            return (again, panic);
        };
        let Some(payload) = payload else {
            self.stats.dropped += samples;
            return (again, panic);
        };
        let (urgent, repeated) = (false, false);
        let message = Message { number, topic, payload, samples, urgent, newest_wins, repeated };
        (self.hand(message, now), panic)
    }

    /// Takes an urgent message, unless there is no room.
    pub(crate) fn offer_urgent(&mut self, topic: &str, payload: Bytes) -> Result<(), UrgentFull> {
        self.stats.urgent_offered += 1;
        let message = Message {
            number: self.number(),
            topic: topic.into(),
            payload,
            samples: 0,
            urgent: true,
            newest_wins: false,
            repeated: false,
        };
        if is_name(topic) && self.urgent.push(message) {
            return Ok(());
        }
        self.stats.urgent_refused += 1;
        Err(UrgentFull)
    }

    /// What to do now.
    pub(crate) fn step(&mut self, now: Moment, random: &mut dyn Random) -> Step {
        if let Some(job) = self.slots.catch_up() {
            return Step::Work(job);
        }
        let limit = self.book.limit(now);
        self.pace.follow(now, limit);
        let full = self.window.is_none_or(|window| self.handed.len() + self.flying.len() >= window);
        if full {
            return Step::Wait(None);
        }
        let pause = match self.urgent_step(now) {
            Step::Wait(pause) => pause,
            send => return send,
        };
        match self.sample_step(now, limit, random) {
            Step::Wait(wait) => Step::Wait(pause.into_iter().chain(wait).min()),
            send => send,
        }
    }

    /// A connection is there; without its old session, all that was not acknowledged goes again.
    pub(crate) fn connected(&mut self, receive_maximum: u16, largest: usize, resumed: bool) {
        self.stats.connections += 1;
        self.window = Some(self.settings.window.min(usize::from(receive_maximum)).max(1));
        self.largest = largest;
        self.book.forget_numbers();
        if !resumed {
            let mut lost: Vec<Message> = std::mem::take(&mut self.flying).into_values().collect();
            lost.sort_by_key(|message| message.number);
            lost.into_iter().rev().for_each(|message| self.put_back(message));
            self.urgent.repeat();
        }
    }

    /// The connection is gone, and with it what was handed over and not sent.
    pub(crate) fn disconnected(&mut self) {
        self.window = None;
        while let Some(message) = self.handed.pop_back() {
            self.put_back(message);
        }
    }

    /// The network did not take the message that was handed over last.
    pub(crate) fn not_taken(&mut self) {
        if let Some(message) = self.handed.pop_back() {
            self.put_back(message);
        }
    }

    /// The message handed over first was sent with this packet identifier, or one under way was sent again.
    pub(crate) fn sent(&mut self, id: u16, now: Moment) {
        if id != 0 && self.flying.contains_key(&id) {
            return;
        }
        let Some(message) = self.handed.pop_front() else { return };
        // With QoS 0 there is no identifier, and nobody will say more about it.
        if id == 0 {
            self.delivered(&message, now);
        } else {
            self.flying.insert(id, message);
        }
    }

    /// A message was answered.
    pub(crate) fn answered(
        &mut self,
        id: u16,
        outcome: Outcome,
        hints: &Hints,
        now: Moment,
        random: &mut dyn Random,
    ) {
        self.hear(hints, now);
        self.urgent.forget(now);
        let refused = outcome == Outcome::PushedBack;
        // Without a refusal the wait is the interval of the rate, which the pace keeps anyway.
        if refused {
            let wait = hints.wait.unwrap_or(REFUSED);
            let limit = self.book.limit(now);
            self.pace.follow(now, limit);
            self.pace.hold(now, wait, random);
        }
        self.stats.pushed_back += u64::from(refused);
        let Some(message) = self.flying.remove(&id) else { return };
        match outcome {
            Outcome::Accepted => self.delivered(&message, now),
            Outcome::PushedBack => self.put_back(message),
            Outcome::Rejected => self.rejected(&message),
        }
    }

    /// A message on a rate topic; an empty one takes the rate back.
    pub(crate) fn announced(&mut self, source: Source, payload: &[u8], now: Moment) {
        if payload.is_empty() {
            return self.book.clear(source, now);
        }
        match RateNews::read(payload) {
            Some(news) if self.book.tell(source, news, now) => self.stats.rates_followed += 1,
            Some(_) => self.stats.rates_stale += 1,
            None => self.stats.nonsense += 1,
        }
    }

    /// The limit that holds now.
    pub(crate) fn limit(&self, now: Moment) -> Limit {
        self.book.limit(now)
    }

    /// Whether there is nothing to be sent, and nothing that waits for an answer. What is within a deadband is not to be sent.
    pub(crate) fn is_settled(&self, now: Moment) -> bool {
        let limit = self.book.limit(now);
        let interval = limit.rate.filter(|_| limit.held).map_or(Span::ZERO, Span::from_rate);
        let samples = self.under_way().next().is_some() || self.slots.has_news(interval);
        !samples && self.urgent.count() == 0 && self.urgent.repeats() == 0
    }

    /// What was counted.
    pub(crate) fn stats(&self) -> PublisherStats {
        let waiting = self.slots.samples() + self.under_way().map(|message| message.samples).sum::<u64>();
        let (urgent_waiting, urgent_repeating) = (self.urgent.count(), self.repeating());
        PublisherStats { waiting, urgent_waiting, urgent_repeating, ..self.stats }
    }

    /// Bytes of samples that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.under_way().map(|message| message.payload.len()).sum::<usize>()
    }

    /// Messages made of samples, and alarms, that were taken out and are not answered yet.
    fn under_way(&self) -> impl Iterator<Item = &Message> {
        self.again.iter().chain(&self.handed).chain(self.flying.values())
    }

    /// Alarms that go again, the one under way included.
    fn repeating(&self) -> u64 {
        self.urgent.repeats() + self.under_way().filter(|message| message.repeated).count() as u64
    }

    fn urgent_step(&mut self, now: Moment) -> Step {
        if !self.urgent.is_ready() {
            return Step::Wait(None);
        }
        match (self.pace.ask_urgent(now), self.urgent.take()) {
            (Pass::Go, Some(message)) => self.hand(message, now),
            (Pass::Wait(wait), Some(message)) => {
                self.urgent.put_back(message);
                Step::Wait(Some(now + wait))
            }
            (_, None) => Step::Wait(None),
        }
    }

    fn sample_step(&mut self, now: Moment, limit: Limit, random: &mut dyn Random) -> Step {
        self.discard_outdated();
        let interval = if limit.held { self.pace.interval() } else { Span::ZERO };
        let place = match self.slots.next(now, interval) {
            _ if !self.again.is_empty() => None,
            Ok(place) => Some(place),
            // The deadband narrows when the limit changes.
            Err(soonest) => {
                return Step::Wait(soonest.into_iter().chain(limit.until.filter(|_| limit.held)).min());
            }
        };
        if let Pass::Wait(wait) = self.pace.ask(now, random) {
            return Step::Wait(Some(
                (now + wait).min(limit.until.filter(|_| limit.held).unwrap_or(Moment::END)),
            ));
        }
        match place {
            None => self.again.pop_front().map_or(Step::Wait(None), |message| self.hand(message, now)),
            Some(place) => {
                let number = self.number();
                self.slots.take(place, number).map_or(Step::Wait(Some(now)), Step::Work)
            }
        }
    }

    /// Gives a message to the network, unless the broker would never take it.
    fn hand(&mut self, message: Message, now: Moment) -> Step {
        if message.topic.len() + message.payload.len() + OVERHEAD > self.largest {
            self.rejected(&message);
            return Step::Wait(Some(now));
        }
        self.handed.push_back(message.clone());
        Step::Send(message)
    }

    /// Back to the front of where it came from.
    fn put_back(&mut self, message: Message) {
        if message.urgent {
            return self.urgent.put_back(message);
        }
        let place = self.again.partition_point(|other| other.number < message.number);
        self.again.insert(place, message);
    }

    /// Lets go of messages that a newer one makes worthless.
    fn discard_outdated(&mut self) {
        let (slots, stats) = (&self.slots, &mut self.stats);
        self.again.retain(|message| {
            let outdated = message.newest_wins && slots.is_outdated(&message.topic, message.number);
            stats.replaced += if outdated { message.samples } else { 0 };
            !outdated
        });
    }

    fn hear(&mut self, hints: &Hints, now: Moment) {
        self.stats.nonsense += u64::from(hints.nonsense);
        match hints.rate {
            Some(rate) => {
                self.book.tell_ack(rate, now);
                self.stats.rates_followed += 1;
            }
            None => self.book.confirm(now),
        }
    }

    fn delivered(&mut self, message: &Message, now: Moment) {
        if message.urgent {
            self.urgent.done(message);
            self.urgent.remember(message, now);
            self.stats.urgent_delivered += u64::from(!message.repeated);
            self.stats.urgent_repeated += u64::from(message.repeated);
        } else {
            self.stats.delivered_messages += 1;
            self.stats.delivered_samples += message.samples;
        }
    }

    fn rejected(&mut self, message: &Message) {
        if message.urgent {
            self.urgent.done(message);
            self.stats.urgent_rejected += u64::from(!message.repeated);
        } else {
            self.stats.rejected_samples += message.samples;
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;

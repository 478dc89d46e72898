//! Publishers that feed protected queues, and what each may send.

use std::sync::{Arc, Weak};

use tidegate_control::demand::Pressure;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{Host, Publisher};

use crate::class::Classes;
use crate::hook::Topics;
use crate::number::Numbered;
use crate::queue::Queue;

/// Publishers that are followed at a time.
const MAX_SOURCES: usize = 200_000;
/// A smaller change of its rate is not passed on to a publisher.
const STEP: f64 = 0.02;
/// A publisher that is held to long intervals counts for so many of them after its last message.
const INTERVALS: f64 = 2.5;

/// A publisher that feeds protected queues.
#[derive(Debug)]
pub(crate) struct Source {
    publisher: Weak<Publisher>,
    pub(crate) client: Arc<str>,
    pub(crate) class: usize,
    pub(crate) pressure: Pressure,
    /// What it had sent when it was last looked at, while it is limited.
    accepted: u64,
    /// What it may send; infinity is no limit.
    pub(crate) rate: f64,
    /// The queue that says so.
    pub(crate) by: Option<u64>,
    /// What this turn has come to so far.
    wanted: (f64, Option<u64>),
    /// The last turn in which a queue spoke of it.
    turn: u64,
}

impl Source {
    /// Whether its connection has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.publisher.strong_count() == 0
    }

    /// Its class, and the queue that limits it.
    pub(crate) fn camp(&self) -> Camp {
        (self.class, self.by)
    }

    /// How long it counts after its last message.
    pub(crate) fn window(&self, least: Span) -> Span {
        if self.rate.is_finite() { least.max(Span::from_rate(self.rate).scale(INTERVALS)) } else { least }
    }

    /// Takes in what it has sent since the last turn, each message once, however many queues it went to.
    fn count(&mut self, now: Moment) {
        if self.rate.is_infinite() {
            return;
        }
        if let Some(publisher) = self.publisher.upgrade() {
            let accepted = publisher.accepted();
            let sent = accepted.saturating_sub(self.accepted);
            self.accepted = accepted;
            self.pressure.sent(now, u32::try_from(sent).unwrap_or(u32::MAX));
        }
    }

    /// A queue says that it is fed by it.
    pub(crate) fn spoken_of(&mut self, turn: u64) {
        if self.turn != turn {
            (self.turn, self.wanted) = (turn, (f64::INFINITY, None));
        }
    }

    /// A queue that spoke of it says that it may send this much.
    pub(crate) fn may_send(&mut self, rate: f64, queue: u64) {
        if rate < self.wanted.0 {
            self.wanted = (rate, Some(queue));
        }
    }

    /// Passes a rate on, if it is another one.
    fn apply(&mut self, now: Moment, rate: f64, by: Option<u64>, queues: &Numbered<u64, Queue>) {
        if by != self.by {
            self.by = by;
            let queue = by.and_then(|id| queues.get(&id));
            if let Some(publisher) = self.publisher.upgrade() {
                publisher.set_overrun(queue.map(|queue| Arc::clone(&queue.overrun)));
            }
        }
        let near = (rate - self.rate).abs() <= STEP * self.rate;
        if rate == self.rate || near && rate.is_finite() && self.rate.is_finite() {
            self.pressure.settle(now);
            return;
        }
        let before = std::mem::replace(&mut self.rate, rate);
        self.pressure.limit(now, rate);
        if let Some(publisher) = self.publisher.upgrade() {
            if before.is_infinite() {
                self.accepted = publisher.accepted();
            }
            publisher.set_rate(rate);
        }
    }
}

/// All sources, by number.
#[derive(Debug)]
pub(crate) struct Sources {
    all: Numbered<u64, Source>,
    classes: Arc<Classes>,
    topics: Arc<Topics>,
    topic_changes: u64,
    /// How often a publisher was not followed because there were too many.
    pub(crate) untracked: u64,
}

impl Sources {
    pub(crate) fn new(classes: Arc<Classes>, topics: Arc<Topics>) -> Self {
        Self { all: Numbered::default(), classes, topics, topic_changes: 0, untracked: 0 }
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Source> {
        self.all.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Source> {
        self.all.get_mut(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.all.values()
    }

    /// Looks at what those who are limited have sent since the last turn.
    pub(crate) fn count(&mut self, now: Moment) {
        self.all.values_mut().for_each(|source| source.count(now));
    }

    /// A publisher sent messages to a protected queue; says whether it is followed.
    pub(crate) fn fed(&mut self, now: Moment, number: u64, host: &dyn Host) -> bool {
        match self.all.get(&number) {
            Some(source) if !source.is_gone() => true,
            known => {
                // It is new, or has connected again.
                if known.is_none() && self.all.len() >= MAX_SOURCES {
                    self.untracked += 1;
                    return false;
                }
                let Some(publisher) = host.publisher(number) else { return false };
                self.all.insert(number, self.source(now, &publisher));
                true
            }
        }
    }

    fn source(&self, now: Moment, publisher: &Arc<Publisher>) -> Source {
        let mut pressure = Pressure::new(now);
        pressure.limit(now, publisher.rate());
        Source {
            publisher: Arc::downgrade(publisher),
            client: Arc::clone(&publisher.client),
            class: self.classes.of(publisher, self.topics.of(publisher)),
            pressure,
            accepted: publisher.accepted(),
            rate: publisher.rate(),
            by: None,
            wanted: (f64::INFINITY, None),
            turn: 0,
        }
    }

    /// Looks again at who is of which class, after publishers used other topics.
    pub(crate) fn classify(&mut self) {
        let changes = self.topics.changes();
        if changes == self.topic_changes {
            return;
        }
        self.topic_changes = changes;
        for source in self.all.values_mut() {
            if let Some(publisher) = source.publisher.upgrade() {
                source.class = self.classes.of(&publisher, self.topics.of(&publisher));
            }
        }
    }

    /// Passes on what the queues said in this turn, and forgets those that no queue spoke of. Says who is left.
    pub(crate) fn apply(&mut self, now: Moment, turn: u64, queues: &Numbered<u64, Queue>) -> Camps {
        let mut camps = Camps::default();
        // Neighbours are most often of one camp: they are booked together.
        let mut run = ((0, None), 0);
        self.all.retain(|_, source| {
            let spoken_of = source.turn == turn;
            let (rate, by) = if spoken_of { source.wanted } else { (f64::INFINITY, None) };
            source.apply(now, rate, by, queues);
            if spoken_of && run.0 == source.camp() {
                run.1 += 1;
            } else if spoken_of {
                camps.add(std::mem::replace(&mut run, (source.camp(), 1)));
            }
            spoken_of
        });
        camps.add(run);
        camps
    }
}

/// The publishers of a class that one queue limits, or none.
pub(crate) type Camp = (usize, Option<u64>);

/// How many publishers each camp has.
#[derive(Debug, Default)]
pub(crate) struct Camps(Numbered<Camp, usize>);

impl Camps {
    fn add(&mut self, (camp, count): (Camp, usize)) {
        if count > 0 {
            *self.0.entry(camp).or_default() += count;
        }
    }

    /// Each camp that has somebody, with how many they are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Camp, usize)> {
        self.0.iter().map(|(camp, count)| (*camp, *count))
    }
}

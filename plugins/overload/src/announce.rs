//! Tells publishers and consumers, on retained control topics: only what changed enough, not too often, not too dear.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_control::overload::Phase;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::Host;

use crate::budget::{Budget, Urgency};
use crate::class::Classes;
use crate::config::OverloadConfig;
use crate::message::{LoadMessage, RateMessage, json};

/// Smaller changes of a rate are not announced.
const STEP: f64 = 0.05;
/// A rate that falls by more than this is urgent.
const URGENT: f64 = 0.2;
/// Time between two announcements on one topic.
const SPACING: Span = Span::from_millis(500);
/// Time between two announcements of the load, and the change that makes one worth while.
const LOAD_SPACING: Span = Span::from_secs(1);
const LOAD_STEP: f64 = 0.2;
/// The share of its time to live after which an announcement is repeated.
const REPEAT: f64 = 0.6;
/// Milliseconds that an announcement lives at most, however dear it is to repeat.
const LONGEST_TTL: f64 = 600_000.0;
/// Clients that are told apart from their class.
const MAX_CLIENTS: usize = 10_000;
/// Clients that were left out and are remembered, so that they are counted once.
const MAX_LEFT_OUT: usize = 200_000;
/// Announcements to single clients in one turn.
const CLIENTS_A_TURN: usize = 200;

/// What somebody is to be told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Advice {
    /// Messages a second; infinity is no limit.
    pub(crate) rate: f64,
    pub(crate) phase: Phase,
    /// The queue that says so.
    pub(crate) queue: Arc<str>,
}

impl Advice {
    /// No limit.
    pub(crate) fn none() -> Self {
        Self { rate: f64::INFINITY, phase: Phase::Idle, queue: "".into() }
    }

    /// Whether somebody who knows `told` need not hear of this.
    pub(crate) fn is_near(&self, told: &Self) -> bool {
        self.rate == told.rate || (self.rate - told.rate).abs() <= STEP * told.rate.min(f64::MAX)
    }
}

/// What was announced on one topic.
#[derive(Debug)]
struct Told {
    advice: Advice,
    at: Moment,
    ttl: Span,
}

/// What was announced, and the counts of it.
pub(crate) struct Announcer {
    prefix: String,
    ttl_ms: u64,
    seq: u64,
    pub(crate) budget: Budget,
    classes: Vec<Option<Told>>,
    clients: HashMap<Arc<str>, Told>,
    /// Who was left out, and counted, since clients were last told apart.
    left_out: HashSet<Arc<str>>,
    load: Option<(LoadKey, Moment)>,
    pub(crate) counts: Counts,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Announcements.
    pub(crate) announced: u64,
    /// Deliveries that they came to.
    pub(crate) deliveries: u64,
    /// Announcements that the budget put off.
    pub(crate) put_off: u64,
    /// Clients with no topic of their own, because of their identifier or their number.
    pub(crate) left_out: u64,
}

/// What consumers are told of the load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LoadKey {
    pub(crate) phase: Phase,
    pub(crate) response_ms: f64,
    pub(crate) queue_ms: f64,
    pub(crate) depth: u64,
    pub(crate) processing_rate: f64,
}

/// One turn, as the announcer sees it.
pub(crate) struct Occasion<'a> {
    pub(crate) now: Moment,
    pub(crate) wall_ms: u64,
    pub(crate) host: &'a dyn Host,
}

impl Announcer {
    pub(crate) fn new(config: &OverloadConfig, classes: &Classes) -> Self {
        Self {
            prefix: config.prefix.clone(),
            ttl_ms: config.ttl.as_nanos() / 1_000_000,
            seq: 0,
            budget: Budget::default(),
            classes: (0..classes.len()).map(|_| None).collect(),
            clients: HashMap::new(),
            left_out: HashSet::new(),
            load: None,
            counts: Counts::default(),
        }
    }

    /// The topic for a class.
    fn topic(&self, classes: &Classes, index: usize) -> String {
        let prefix = &self.prefix;
        if index == classes.default() {
            format!("{prefix}/rate")
        } else {
            format!("{prefix}/rate/class/{}", classes.get(index).name)
        }
    }

    /// Tells the clients of a class, if it is time to.
    pub(crate) fn class(&mut self, index: usize, advice: &Advice, classes: &Classes, on: &Occasion<'_>) {
        let told = self.classes[index].take();
        let next = match &told {
            None if advice.rate.is_infinite() => None,
            told if !is_due(told.as_ref(), advice, on.now) => None,
            told => {
                let topic = self.topic(classes, index);
                self.publish(&topic, advice, urgency(told.as_ref(), advice), on)
            }
        };
        self.classes[index] = next.or(told);
    }

    /// What the clients of a class were told last.
    pub(crate) fn told(&self, index: usize) -> Option<&Advice> {
        self.classes[index].as_ref().map(|told| &told.advice)
    }

    /// Tells those clients that may send another rate than their class, and takes back what the others were told.
    pub(crate) fn clients(&mut self, wanted: &HashMap<Arc<str>, Advice>, on: &Occasion<'_>) {
        if wanted.is_empty() {
            self.left_out = HashSet::new();
        }
        let mut left = CLIENTS_A_TURN;
        let over: Vec<_> =
            self.clients.keys().filter(|client| !wanted.contains_key(*client)).take(left).cloned().collect();
        for client in over {
            let topic = format!("{}/rate/client/{client}", self.prefix);
            let cost = on.host.subscribers(&topic) as f64;
            if !self.budget.spend(cost, Urgency::Change) {
                self.counts.put_off += 1;
                continue;
            }
            left -= 1;
            self.clients.remove(&client);
            self.send(&topic, b"", cost, on);
        }
        for (client, advice) in wanted {
            let told = self.clients.get(client);
            if left == 0 {
                break;
            }
            if !is_due(told, advice, on.now) {
                continue;
            }
            if client.contains(['/', '+', '#', '\0'])
                || client.is_empty()
                || told.is_none() && self.clients.len() >= MAX_CLIENTS
            {
                self.leave_out(client);
                continue;
            }
            left -= 1;
            let topic = format!("{}/rate/client/{client}", self.prefix);
            if let Some(told) = self.publish(&topic, advice, urgency(told, advice), on) {
                self.clients.insert(Arc::clone(client), told);
            }
        }
    }

    /// Counts a client that is not told its rate, once and not in each turn.
    fn leave_out(&mut self, client: &Arc<str>) {
        if self.left_out.len() >= MAX_LEFT_OUT {
            self.left_out.clear();
        }
        self.counts.left_out += u64::from(self.left_out.insert(Arc::clone(client)));
    }

    /// Tells consumers of the load, if it changed enough.
    pub(crate) fn load(&mut self, load: LoadKey, on: &Occasion<'_>) {
        let far = |a: f64, b: f64| (a - b).abs() > LOAD_STEP * b.abs().max(1.0);
        let due = match &self.load {
            None => load.phase != Phase::Idle,
            Some((told, at)) => {
                let changed = far(load.response_ms, told.response_ms)
                    || far(load.depth as f64, told.depth as f64)
                    || far(load.processing_rate, told.processing_rate);
                let worth = load.phase != told.phase || load.phase != Phase::Idle && changed;
                worth && on.now.since(*at) >= LOAD_SPACING
            }
        };
        if !due {
            return;
        }
        let topic = format!("{}/load", self.prefix);
        let cost = on.host.subscribers(&topic) as f64;
        if !self.budget.spend(cost, Urgency::None) {
            self.counts.put_off += 1;
            return;
        }
        let message = LoadMessage {
            v: 1,
            seq: self.next_seq(on.wall_ms),
            phase: load.phase.name(),
            response_ms: load.response_ms.round() as u64,
            queue_ms: load.queue_ms.round() as u64,
            depth: load.depth,
            processing_rate: (load.processing_rate * 10.0).round() / 10.0,
        };
        self.send(&topic, &json(&message), cost, on);
        self.load = Some((load, on.now));
    }

    /// Publishes advice if the budget allows it.
    fn publish(&mut self, topic: &str, advice: &Advice, urgency: Urgency, on: &Occasion<'_>) -> Option<Told> {
        let cost = on.host.subscribers(topic) as f64;
        if !self.budget.spend(cost, urgency) {
            self.counts.put_off += 1;
            return None;
        }
        // It must hold until there is enough in the purse to repeat it.
        let dear = self.budget.seconds_for(cost) * 1e3 / REPEAT;
        let ttl_ms = (self.ttl_ms as f64).max(dear.min(LONGEST_TTL)) as u64;
        let seq = self.next_seq(on.wall_ms);
        let message = RateMessage::new(seq, on.wall_ms, advice.phase, advice.rate, ttl_ms, &advice.queue);
        self.send(topic, &json(&message), cost, on);
        Some(Told { advice: advice.clone(), at: on.now, ttl: Span::from_millis(ttl_ms) })
    }

    fn send(&mut self, topic: &str, payload: &[u8], cost: f64, on: &Occasion<'_>) {
        self.counts.announced += 1;
        self.counts.deliveries += cost as u64;
        on.host.publish(topic, payload, true);
    }

    /// Grows, also over a restart of the gateway: it starts with the time, and nobody announces a thousand a second.
    fn next_seq(&mut self, wall_ms: u64) -> u64 {
        self.seq = if self.seq == 0 { wall_ms.max(1) } else { self.seq + 1 };
        self.seq
    }
}

/// Whether it is time to tell somebody who was told this.
fn is_due(told: Option<&Told>, advice: &Advice, now: Moment) -> bool {
    let Some(told) = told else { return true };
    let age = now.since(told.at);
    let changed = advice.phase != told.advice.phase || !advice.is_near(&told.advice);
    let runs_out = advice.rate.is_finite() && age >= told.ttl.scale(REPEAT);
    (changed && age >= SPACING) || runs_out
}

/// How much it would harm not to tell.
fn urgency(told: Option<&Told>, advice: &Advice) -> Urgency {
    let before = told.map_or(f64::INFINITY, |told| told.advice.rate);
    match (before.is_finite(), advice.rate.is_finite()) {
        (false, true) => Urgency::Limit,
        (true, false) => Urgency::Change,
        _ if advice.rate < before * (1.0 - URGENT) => Urgency::Change,
        _ => Urgency::None,
    }
}

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

/// What announcements may cost as a share of the messages, one in a hundred together: of rates, and of the load.
const RATES_SHARE: f64 = 0.008;
const LOAD_SHARE: f64 = 0.002;
/// Smaller changes of a rate are not announced.
const STEP: f64 = 0.05;
/// A rate that falls by more than this is urgent.
const URGENT: f64 = 0.2;
/// Time between two announcements on one topic.
const SPACING: Span = Span::from_millis(500);
/// Time between two announcements of the load, and the change that makes one worth while.
const LOAD_SPACING: Span = Span::from_secs(1);
const LOAD_STEP: f64 = 0.2;
/// The share of its time to live after which an announcement is repeated, and after which that is urgent.
const REPEAT: f64 = 0.6;
const OVERDUE: f64 = 0.9;
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

/// A topic for a class or a client.
#[derive(Debug, Default)]
struct Topic {
    /// What subscribers were told last.
    told: Option<Told>,
    /// What newcomers have been told since, because it was too dear to tell everybody.
    kept: Option<Told>,
    /// Nothing is retained there any more.
    withdrawn: bool,
}

impl Topic {
    /// What newcomers are told.
    fn newest(&self) -> Option<&Told> {
        self.kept.as_ref().or(self.told.as_ref())
    }

    /// Whether newcomers would be told something that is not true any more.
    fn is_stale(&self, advice: &Advice, now: Moment) -> bool {
        self.withdrawn || is_due(self.newest(), advice, now)
    }

    /// Whether somebody goes by something that is not true any more.
    fn is_due(&self, advice: &Advice, now: Moment) -> bool {
        is_due(self.told.as_ref(), advice, now) || self.is_stale(advice, now)
    }

    /// Whether anybody goes by a limit.
    fn limits(&self) -> bool {
        [&self.told, &self.kept].into_iter().flatten().any(|told| told.advice.rate.is_finite())
    }

    fn urgency(&self, advice: &Advice, now: Moment) -> Urgency {
        let told = urgency(self.told.as_ref(), advice, now);
        self.kept.as_ref().map_or(told, |kept| told.max(urgency(Some(kept), advice, now)))
    }
}

/// What was announced, and the counts of it.
pub(crate) struct Announcer {
    prefix: String,
    ttl_ms: u64,
    seq: u64,
    budget: Budget,
    /// Apart, so that what consumers are told of the load never keeps publishers from hearing of their rate.
    load_budget: Budget,
    classes: Vec<Topic>,
    clients: HashMap<Arc<str>, Topic>,
    /// Who was left out, and counted, since clients were last told apart.
    left_out: HashSet<Arc<str>>,
    /// What consumers were told of the load, and what newcomers have been told since.
    load: Option<(LoadKey, Moment)>,
    load_kept: Option<(LoadKey, Moment)>,
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
            budget: Budget::new(RATES_SHARE),
            load_budget: Budget::new(LOAD_SHARE),
            classes: (0..classes.len()).map(|_| Topic::default()).collect(),
            clients: HashMap::new(),
            left_out: HashSet::new(),
            load: None,
            load_kept: None,
            counts: Counts::default(),
        }
    }

    /// Messages went through, which pay for announcements.
    pub(crate) fn earn(&mut self, messages: u64, seconds: f64) {
        self.budget.earn(messages, seconds);
        self.load_budget.earn(messages, seconds);
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
        let mut topic = std::mem::take(&mut self.classes[index]);
        let untold = topic.newest().is_none() && advice.rate.is_infinite();
        if !untold && topic.is_due(advice, on.now) {
            let name = self.topic(classes, index);
            self.publish(&name, &mut topic, advice, on);
        }
        self.classes[index] = topic;
    }

    /// Whether somebody of a class goes by a limit.
    pub(crate) fn limits(&self, index: usize) -> bool {
        self.classes[index].limits()
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
            left -= usize::from(self.take_back(&client, on));
        }
        for (client, advice) in wanted {
            if left == 0 {
                break;
            }
            let known = self.clients.get(client);
            if known.is_some_and(|topic| !topic.is_due(advice, on.now)) {
                continue;
            }
            if client.contains(['/', '+', '#', '\0'])
                || client.is_empty()
                || known.is_none() && self.clients.len() >= MAX_CLIENTS
            {
                self.leave_out(client);
                continue;
            }
            left -= 1;
            let mut topic = self.clients.remove(client).unwrap_or_default();
            let name = format!("{}/rate/client/{client}", self.prefix);
            self.publish(&name, &mut topic, advice, on);
            self.clients.insert(Arc::clone(client), topic);
        }
    }

    /// Takes back what a client was told, and forgets it; says whether the budget allowed it.
    fn take_back(&mut self, client: &Arc<str>, on: &Occasion<'_>) -> bool {
        let name = format!("{}/rate/client/{client}", self.prefix);
        let cost = on.host.subscribers(&name) as f64;
        if self.budget.spend(cost, Urgency::Change) {
            self.clients.remove(client);
            self.send(&name, b"", cost, on);
            return true;
        }
        self.counts.put_off += 1;
        if let Some(topic) = self.clients.get_mut(client).filter(|topic| !topic.withdrawn) {
            topic.withdrawn = true;
            on.host.retain(&name, b"");
        }
        false
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
        let newest = self.load_kept.as_ref().or(self.load.as_ref());
        let stale = is_load_due(newest, &load, on.now);
        if !stale && !is_load_due(self.load.as_ref(), &load, on.now) {
            return;
        }
        let phase_changed = [self.load.as_ref(), newest]
            .map(|told| told.map_or(Phase::Idle, |(told, _)| told.phase))
            != [load.phase; 2];
        let urgency = if phase_changed { Urgency::Change } else { Urgency::None };
        let topic = format!("{}/load", self.prefix);
        let cost = on.host.subscribers(&topic) as f64;
        let pays = self.load_budget.spend(cost, urgency);
        self.counts.put_off += u64::from(!pays);
        if !pays && !stale {
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
        if pays {
            self.send(&topic, &json(&message), cost, on);
            (self.load, self.load_kept) = (Some((load, on.now)), None);
        } else {
            on.host.retain(&topic, &json(&message));
            self.load_kept = Some((load, on.now));
        }
    }

    /// Publishes advice if the budget allows it; if it does not, newcomers at least are to be told what is true.
    fn publish(&mut self, name: &str, topic: &mut Topic, advice: &Advice, on: &Occasion<'_>) {
        let cost = on.host.subscribers(name) as f64;
        let pays = self.budget.spend(cost, topic.urgency(advice, on.now));
        self.counts.put_off += u64::from(!pays);
        if !pays && !topic.is_stale(advice, on.now) {
            return;
        }
        // It must hold until there is enough in the purse to repeat it.
        let dear = self.budget.seconds_for(cost) * 1e3 / REPEAT;
        let ttl_ms = (self.ttl_ms as f64).max(dear.min(LONGEST_TTL)) as u64;
        let seq = self.next_seq(on.wall_ms);
        let message = RateMessage::new(seq, on.wall_ms, advice.phase, advice.rate, ttl_ms, &advice.queue);
        let told = Some(Told { advice: advice.clone(), at: on.now, ttl: Span::from_millis(ttl_ms) });
        if pays {
            self.send(name, &json(&message), cost, on);
            *topic = Topic { told, ..Topic::default() };
        } else {
            on.host.retain(name, &json(&message));
            (topic.kept, topic.withdrawn) = (told, false);
        }
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

/// Whether it is time to tell consumers of the load, if they were told this.
fn is_load_due(told: Option<&(LoadKey, Moment)>, load: &LoadKey, now: Moment) -> bool {
    let far = |a: f64, b: f64| (a - b).abs() > LOAD_STEP * b.abs().max(1.0);
    let Some((told, at)) = told else { return load.phase != Phase::Idle };
    let changed = far(load.response_ms, told.response_ms)
        || far(load.depth as f64, told.depth as f64)
        || far(load.processing_rate, told.processing_rate);
    let worth = load.phase != told.phase || load.phase != Phase::Idle && changed;
    worth && now.since(*at) >= LOAD_SPACING
}

/// How much it would harm not to tell somebody who was told this.
fn urgency(told: Option<&Told>, advice: &Advice, now: Moment) -> Urgency {
    let before = told.map_or(f64::INFINITY, |told| told.advice.rate);
    let ends = told.is_some_and(|told| now.since(told.at) >= told.ttl.scale(OVERDUE));
    match (before.is_finite(), advice.rate.is_finite()) {
        (false, true) => Urgency::Limit,
        (true, false) => Urgency::Change,
        _ if advice.rate < before * (1.0 - URGENT) => Urgency::Change,
        // Without it publishers would go back to their own rates.
        (true, true) if ends => Urgency::Change,
        _ => Urgency::None,
    }
}

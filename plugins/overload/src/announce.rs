//! Tells publishers and consumers, on retained control topics: only what changed enough, not too often, not too dear.

mod topic;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_control::overload::Phase;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::Host;

pub(crate) use self::topic::Advice;
use self::topic::{REPEAT, Told, Topic, Urgency};
use crate::budget::Budget;
use crate::class::Classes;
use crate::config::OverloadConfig;
use crate::message::{LoadMessage, RateMessage, json};

/// What announcements may cost as a share of the messages: of rates, and of the load. With what there is to begin with, in
/// deliveries, that is one in a hundred together after the first minutes.
const RATES_SHARE: f64 = 0.006;
const LOAD_SHARE: f64 = 0.002;
const RATES_GIFT: f64 = 40.0;
const LOAD_GIFT: f64 = 5.0;
/// Time between two looks at how many there are to be told.
const COUNTING: Span = Span::from_secs(10);
/// How many urgent announcements a small change must leave enough for.
const SPARE: f64 = 2.0;
/// Time between two announcements of the load, and the change that makes one worth while.
const LOAD_SPACING: Span = Span::from_secs(1);
const LOAD_STEP: f64 = 0.2;
/// Milliseconds that an announcement lives at most, however dear it is to repeat.
const LONGEST_TTL: f64 = 600_000.0;
/// Clients that are told apart from their class.
const MAX_CLIENTS: usize = 10_000;
/// Clients that were left out and are remembered, so that they are counted once.
const MAX_LEFT_OUT: usize = 200_000;
/// Announcements to single clients in one turn.
const CLIENTS_A_TURN: usize = 200;

/// What was announced, and the counts of it.
pub(crate) struct Announcer {
    prefix: String,
    ttl_ms: u64,
    seq: u64,
    budget: Budget,
    /// Apart, so that what consumers are told of the load never keeps publishers from hearing of their rate.
    load_budget: Budget,
    /// When it was last seen how many there are to be told.
    counted: Option<Moment>,
    classes: Vec<Topic>,
    clients: HashMap<Arc<str>, Topic>,
    /// How many of those that are told apart go by a limit.
    clients_limited: f64,
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
            budget: Budget::new(RATES_SHARE, RATES_GIFT),
            load_budget: Budget::new(LOAD_SHARE, LOAD_GIFT),
            counted: None,
            classes: (0..classes.len()).map(|_| Topic::default()).collect(),
            clients: HashMap::new(),
            clients_limited: 0.0,
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

    /// Looks from time to time how many there are to be told, so that enough is saved before it is needed.
    pub(crate) fn count(&mut self, classes: &Classes, on: &Occasion<'_>) {
        if self.counted.is_some_and(|at| on.now.since(at) < COUNTING) {
            return;
        }
        self.counted = Some(on.now);
        let mut everybody = 0;
        for index in 0..classes.len() {
            let listeners = on.host.subscribers(&self.topic(classes, index));
            everybody += listeners;
            // Who came since has read it.
            if let Some(told) = &mut self.classes[index].told {
                told.listeners = listeners as f64;
            }
        }
        self.budget.save_for(everybody);
        self.load_budget.save_for(on.host.subscribers(&self.load_topic()));
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

    /// Tells all classes what is new to them. Those of a class hear what is for everybody else, too, so that is told only
    /// when each class that has a limit has heard of one: else they would go by it.
    pub(crate) fn classes(&mut self, advice: &[Advice], classes: &Classes, on: &Occasion<'_>) {
        let mut all_know = true;
        for index in (0..classes.len()).filter(|index| *index != classes.default()) {
            self.class(index, &advice[index], true, classes, on);
            all_know &= advice[index].rate.is_infinite() || self.classes[index].limited_at(on.now).is_some();
        }
        self.class(classes.default(), &advice[classes.default()], all_know, classes, on);
    }

    /// Tells the clients of a class, if it is time to and they may be told.
    fn class(&mut self, index: usize, advice: &Advice, may_tell: bool, classes: &Classes, on: &Occasion<'_>) {
        let mut topic = std::mem::take(&mut self.classes[index]);
        let untold = topic.newest().is_none() && advice.rate.is_infinite();
        if !untold && topic.is_due(advice, on.now) {
            let name = self.topic(classes, index);
            self.publish(&name, &mut topic, advice, may_tell, on);
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
            self.clients_limited -= topic.limited();
            let name = format!("{}/rate/client/{client}", self.prefix);
            self.publish(&name, &mut topic, advice, true, on);
            self.clients_limited += topic.limited();
            self.clients.insert(Arc::clone(client), topic);
        }
    }

    /// Takes back what a client was told, and forgets it; says whether the budget allowed it.
    fn take_back(&mut self, client: &Arc<str>, on: &Occasion<'_>) -> bool {
        let name = format!("{}/rate/client/{client}", self.prefix);
        if self.clients.get(client).is_some_and(|topic| topic.told.is_none()) {
            // nobody heard it but those who came since, and what they read does not hold for long
            self.clients.remove(client);
            on.host.retain(&name, b"");
            return true;
        }
        let cost = on.host.subscribers(&name) as f64;
        if self.budget.spend(cost, 0.0) {
            let topic = self.clients.remove(client);
            self.clients_limited -= topic.map_or(0.0, |topic| topic.limited());
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
        let topic = self.load_topic();
        let cost = on.host.subscribers(&topic) as f64;
        // Enough is left for the end of an overload.
        let pays = self.load_budget.spend(cost, if phase_changed { 0.0 } else { cost });
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

    /// Publishes advice if the budget allows it. If it does not, newcomers at least are to be told what is true.
    fn publish(&mut self, name: &str, topic: &mut Topic, advice: &Advice, may_tell: bool, on: &Occasion<'_>) {
        let cost = on.host.subscribers(name) as f64;
        let keep = self.keep(cost, topic.urgency(advice, on.now), advice, on.now);
        let pays = may_tell && self.budget.spend(cost, keep);
        self.counts.put_off += u64::from(!pays);
        if !pays && !topic.is_stale(advice, on.now) {
            return;
        }
        let ttl_ms = if pays { self.ttl_until_repeated(cost) } else { self.ttl_ms };
        let seq = self.next_seq(on.wall_ms);
        let message = RateMessage::new(seq, on.wall_ms, advice.phase, advice.rate, ttl_ms, &advice.queue);
        let ttl = Span::from_millis(ttl_ms);
        let told = Some(Told { advice: advice.clone(), at: on.now, ttl, listeners: cost });
        if pays {
            self.send(name, &json(&message), cost, on);
            *topic = Topic { told, ..Topic::default() };
        } else {
            on.host.retain(name, &json(&message));
            (topic.kept, topic.withdrawn) = (told, false);
        }
    }

    /// What is told must hold until there is enough in the purse to repeat it. What newcomers read need not: nobody promises
    /// that they will hear of its end.
    fn ttl_until_repeated(&self, cost: f64) -> u64 {
        let dear = self.budget.seconds_for(cost) * 1e3 / REPEAT;
        (self.ttl_ms as f64).max(dear.min(LONGEST_TTL)) as u64
    }

    /// What must be left after an announcement that costs so much: whoever goes by a limit is to hear of its end, and small
    /// changes leave enough for large ones. The topic itself is not among those that are looked at here.
    fn keep(&self, cost: f64, urgency: Urgency, advice: &Advice, now: Moment) -> f64 {
        if urgency == Urgency::End {
            return 0.0;
        }
        let others: f64 = self.classes.iter().filter_map(|topic| topic.limited_at(now)).sum();
        let own = if advice.rate.is_finite() { cost } else { 0.0 };
        let spare = if urgency == Urgency::Step { SPARE * cost } else { 0.0 };
        others + self.clients_limited + own + spare
    }

    fn load_topic(&self) -> String {
        format!("{}/load", self.prefix)
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

//! One turn of the control loop, over all queues.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_control::overload::Phase;
use tidegate_control::time::Moment;
use tidegate_plugin::{QueueReport, Tick};

use crate::announce::{Advice, Announcer, LoadKey, Occasion};
use crate::class::Classes;
use crate::config::OverloadConfig;
use crate::hook::Topics;
use crate::measures::Gone;
use crate::number::Numbered;
use crate::queue::{Queue, Turn};
use crate::rules::Rules;
use crate::source::{Camp, Camps, Source, Sources};

/// Queues that are looked after at a time.
pub(crate) const MAX_QUEUES: usize = 10_000;
/// Publishers over all queues, each counted for every queue that it feeds.
const MAX_LINKS: usize = 500_000;

/// All that the plugin knows.
pub(crate) struct State {
    config: Arc<OverloadConfig>,
    rules: Rules,
    pub(crate) classes: Arc<Classes>,
    pub(crate) queues: Numbered<u64, Queue>,
    pub(crate) sources: Sources,
    pub(crate) announcer: Announcer,
    /// What was counted for queues that are gone, since the metrics were last read.
    pub(crate) gone: Gone,
    pub(crate) now: Moment,
    /// The same in milliseconds since 1970.
    pub(crate) wall_ms: u64,
    turns: u64,
    links: usize,
    /// How often a queue or a publisher was not looked after because there were too many.
    pub(crate) untracked: u64,
}

impl State {
    pub(crate) fn new(config: &Arc<OverloadConfig>, classes: &Arc<Classes>, topics: &Arc<Topics>) -> Self {
        Self {
            config: Arc::clone(config),
            rules: Rules::new(config, classes),
            classes: Arc::clone(classes),
            queues: Numbered::default(),
            sources: Sources::new(Arc::clone(classes), Arc::clone(topics)),
            announcer: Announcer::new(config, classes),
            gone: Gone::default(),
            now: Moment::START,
            wall_ms: 0,
            turns: 0,
            links: 0,
            untracked: 0,
        }
    }

    /// One turn.
    pub(crate) fn turn(&mut self, tick: &Tick<'_>) {
        // A clock that jumps back stands still until it has caught up.
        let now = self.now.max(tick.now);
        let elapsed = now.since(self.now);
        (self.now, self.wall_ms) = (now, tick.wall_ms);
        self.turns += 1;
        self.sources.classify();
        self.sources.count(now);
        let config = Arc::clone(&self.config);
        let turn = Turn { now, number: self.turns, config: &config };
        let protected = self.feed(tick, &turn);
        self.rules.end_turn();
        for (report, wanted) in tick.queues.iter().zip(&protected) {
            if let (true, Some(queue)) = (*wanted, self.queues.get_mut(&report.id)) {
                queue.turn(report, &turn, &mut self.sources);
                if report.elsewhere.is_some() {
                    let crowds = queue.crowds(queue.holds(now), &turn, &self.sources);
                    tick.host.tell_crowds(report.id, crowds);
                }
            }
        }
        self.queues.retain(|_, queue| {
            let keep = queue.idle_turn(elapsed, &turn, &mut self.sources);
            if !keep {
                queue.note_overrun();
                self.gone.add(&queue.tally);
            }
            keep
        });
        self.links = self.queues.values().map(Queue::publishers).sum();
        let camps = self.sources.apply(now, self.turns, &self.queues);
        // Of publishers here: what others before the same broker send pays for what they are told there.
        let fed = tick.queues.iter().flat_map(|report| &report.feeders).map(|(_, count)| u64::from(*count));
        self.announcer.earn(fed.fold(0, u64::saturating_add), elapsed.as_secs_f64());
        self.announce(&camps, &Occasion { now, wall_ms: tick.wall_ms, host: tick.host });
    }

    /// Books who fed which queue; says for each report whether its queue is protected.
    fn feed(&mut self, tick: &Tick<'_>, turn: &Turn<'_>) -> Vec<bool> {
        tick.queues.iter().map(|report| self.feed_one(report, tick, turn)).collect()
    }

    fn feed_one(&mut self, report: &QueueReport, tick: &Tick<'_>, turn: &Turn<'_>) -> bool {
        let Some(protection) = self.rules.of(report) else { return false };
        let known = self.queues.get(&report.id);
        if known.is_none_or(|queue| !queue.is_protected_by(&protection)) {
            if known.is_none() && self.queues.len() >= MAX_QUEUES {
                self.untracked += 1;
                return false;
            }
            let Some(queue) = Queue::new(report, &protection, turn) else { return false };
            self.replace(queue);
        }
        // It has just been put there if it was not.
        let Some(queue) = self.queues.get_mut(&report.id) else { return false };
        for (number, count) in &report.feeders {
            // who is known is looked after, however many there are
            let known = queue.is_fed_by(*number);
            if !known && (self.links >= MAX_LINKS || !queue.has_room()) {
                self.untracked += 1;
            } else if self.sources.fed(turn.now, *number, tick.host) {
                queue.fed_by(turn.now, *number, *count);
                self.links += usize::from(!known);
            }
        }
        true
    }

    /// Puts a queue there; one that was there is told of by another rule from now on, and starts again.
    fn replace(&mut self, queue: Queue) {
        if let Some(mut before) = self.queues.insert(queue.id, queue) {
            before.note_overrun();
            self.gone.add(&before.tally);
            self.links -= before.publishers();
        }
    }

    fn announce(&mut self, camps: &Camps, on: &Occasion<'_>) {
        let advice = self.class_advice(camps);
        self.announcer.count(&self.classes, on);
        self.announcer.classes(&advice, &self.classes, on);
        let clients = self.client_advice(&advice, camps);
        self.announcer.clients(&clients, on);
        self.announcer.load(self.worst_load(), on);
    }

    /// For each class what most of its publishers may send, so that the fewest need to be told apart.
    fn class_advice(&self, camps: &Camps) -> Vec<Advice> {
        let mut best: Vec<Option<(usize, Advice)>> = vec![None; self.classes.len()];
        for ((class, by), count) in camps.iter() {
            let advice = self.advice(by, class);
            // Of two the lower one.
            let better = |(most, known): &(usize, Advice)| {
                count.cmp(most).then(known.rate.total_cmp(&advice.rate)).is_gt()
            };
            if best[class].as_ref().is_none_or(better) {
                best[class] = Some((count, advice));
            }
        }
        best.into_iter().map(|best| best.map_or_else(Advice::none, |(_, advice)| advice)).collect()
    }

    /// What a queue says to the publishers of a class.
    fn advice(&self, queue: Option<u64>, class: usize) -> Advice {
        match queue.and_then(|id| self.queues.get(&id)) {
            Some(queue) => {
                Advice { rate: queue.rates[class], phase: queue.phase, queue: Arc::clone(&queue.name) }
            }
            None => Advice::none(),
        }
    }

    /// Publishers that may send another rate than their class was told.
    fn client_advice(&self, classes: &[Advice], camps: &Camps) -> HashMap<Arc<str>, Advice> {
        let differs = |(camp, _): (Camp, usize)| {
            let (class, own) = (&classes[camp.0], self.advice(camp.1, camp.0));
            let apart = own.queue != class.queue && !own.is_near(class) && self.told_limit(camp.0, &own);
            apart.then_some((camp, own))
        };
        // Without a limit there is nothing to tell anybody apart for.
        let limited = self.queues.values().any(|queue| queue.phase != Phase::Idle);
        let apart: Numbered<Camp, Advice> = camps.iter().filter(|_| limited).filter_map(differs).collect();
        if apart.is_empty() {
            return HashMap::new();
        }
        let own = |source: &Source| Some((Arc::clone(&source.client), apart.get(&source.camp())?.clone()));
        self.sources.iter().filter_map(own).collect()
    }

    /// Whether somebody of the class would go by the wrong rate without hearing of its own.
    fn told_limit(&self, class: usize, own: &Advice) -> bool {
        own.rate.is_finite() || self.announcer.limits(class)
    }

    /// What consumers are told: how it is where it is worst.
    fn worst_load(&self) -> LoadKey {
        let rank = |queue: &&Queue| (queue.phase != Phase::Idle, queue.latest.delay);
        let Some(queue) = self.queues.values().max_by_key(rank) else { return LoadKey::default() };
        LoadKey {
            phase: queue.phase,
            response_ms: queue.response_ms(),
            queue_ms: queue.latest.delay.as_secs_f64() * 1e3,
            depth: queue.latest.depth,
            processing_rate: queue.latest.processing_rate.unwrap_or(0.0),
        }
    }
}

//! One protected queue: who feeds it, what its controller says, what each class may send.

use std::sync::Arc;

use tidegate_control::demand::Demand;
use tidegate_control::flow::Reading;
use tidegate_control::overload::{Controller, Load, Phase};
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{Crowd, Delays, Overrun, QueueReport};

use crate::class::Class;
use crate::config::OverloadConfig;
use crate::divide::Claims;
use crate::elsewhere::{Crowds, Elsewhere};
use crate::hands::Hands;
use crate::number::Numbered;
use crate::rules::Protection;
use crate::source::{Source, Sources};

/// Publishers that one queue is known to be fed by.
const MAX_FEEDERS: usize = 100_000;
/// A demand of so many times what consumers process is as good as endless.
const ENDLESS: f64 = 20.0;
/// For so long after it held publishers a queue still counts as one that does: it lets them go and holds them again and again,
/// and what they send meanwhile is not all that they want.
const HELD: Span = Span::from_secs(2);
/// Who is held by the queue, and silent for that reason, counts for so many times as long as others.
const HELD_WINDOWS: f64 = 6.0;
/// Seconds over which rates that people read are averaged.
const SMOOTH: f64 = 1.0;

/// A protected queue.
pub(crate) struct Queue {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) filter: Arc<str>,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) qos: u8,
    pub(crate) consumers: u32,
    protection: Arc<Protection>,
    controller: Box<dyn Controller + Send>,
    hands: Hands,
    feeders: Numbered<u64, Feeder>,
    elsewhere: Elsewhere,
    pub(crate) phase: Phase,
    /// What all publishers may send together; infinity while nobody is held back.
    pub(crate) total: f64,
    /// What a publisher of each class may send.
    pub(crate) rates: Vec<f64>,
    pub(crate) latest: Latest,
    pub(crate) tally: Tally,
    /// Messages that were thrown away or went missing since it is known.
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    /// Messages over the announced rate that the gate refused or threw away since it is known.
    pub(crate) refused: u64,
    pub(crate) gate_dropped: u64,
    /// Where the gate counts them.
    pub(crate) overrun: Arc<Overrun>,
    /// When it was last told of, and in which turn.
    told: Moment,
    turn: u64,
    /// For how long consumers have taken nothing of what waits.
    stuck: Span,
    /// When it began to hold publishers, again and again, and when it last did.
    held: Option<(Moment, Moment)>,
}

/// Who feeds a queue.
#[derive(Debug)]
struct Feeder {
    last: Moment,
    demand: Demand,
}

impl Feeder {
    /// What it would send to this queue if the queue did not hold it back. Who is held by another queue shows it.
    fn wants(&self, source: &Source, class: &Class, at: &Asked) -> f64 {
        let elsewhere = source.by.is_some_and(|by| by != at.queue);
        let pressed = (source.pressure.is_pressed() && !elsewhere || at.holds) && !class.exempt;
        class.default_rate.unwrap_or_else(|| self.demand.rate(at.now, pressed, at.share))
    }
}

/// When and of which queue it is asked what publishers want.
#[derive(Debug, Clone, Copy)]
struct Asked {
    now: Moment,
    queue: u64,
    /// It holds publishers.
    holds: bool,
    /// What each of them would get if all wanted the same.
    share: f64,
}

/// What people want to know.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latest {
    pub(crate) depth: u64,
    pub(crate) delay: Span,
    pub(crate) in_flight: u64,
    pub(crate) held: u32,
    pub(crate) arrival_rate: f64,
    pub(crate) processing_rate: Option<f64>,
    pub(crate) demand: f64,
}

/// What was counted since the metrics were last read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) arrived: u64,
    pub(crate) departed: u64,
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) gate_dropped: u64,
    pub(crate) delays: [u64; Delays::STEPS],
}

impl Tally {
    /// Adds another one.
    pub(crate) fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        add(&mut self.arrived, other.arrived);
        add(&mut self.departed, other.departed);
        add(&mut self.dropped, other.dropped);
        add(&mut self.lost, other.lost);
        add(&mut self.refused, other.refused);
        add(&mut self.gate_dropped, other.gate_dropped);
        self.delays.iter_mut().zip(other.delays).for_each(|(sum, count)| add(sum, count));
    }
}

/// What the turn is about, for every queue.
pub(crate) struct Turn<'a> {
    pub(crate) now: Moment,
    pub(crate) number: u64,
    pub(crate) config: &'a OverloadConfig,
}

impl Queue {
    /// A queue that was told of for the first time; none when its settings make no sense.
    pub(crate) fn new(report: &QueueReport, protection: &Arc<Protection>, turn: &Turn<'_>) -> Option<Self> {
        Some(Self {
            id: report.id,
            name: Arc::clone(&report.name),
            filter: Arc::clone(&report.filter),
            group: report.group.clone(),
            qos: report.qos,
            consumers: report.consumers,
            protection: Arc::clone(protection),
            controller: turn.config.controller(protection.rule.as_ref()).build().ok()?,
            hands: Hands::default(),
            feeders: Numbered::default(),
            elsewhere: Elsewhere::default(),
            phase: Phase::Idle,
            total: f64::INFINITY,
            rates: vec![f64::INFINITY; protection.classes.len()],
            latest: Latest::default(),
            tally: Tally::default(),
            dropped: 0,
            lost: 0,
            refused: 0,
            gate_dropped: 0,
            overrun: Arc::default(),
            told: turn.now,
            turn: 0,
            stuck: Span::ZERO,
            held: None,
        })
    }

    /// Whether it holds publishers, or just did.
    pub(crate) fn holds(&self, now: Moment) -> bool {
        self.held.is_some_and(|(_, last)| now.since(last) < HELD)
    }

    /// Whether it is protected in this way.
    pub(crate) fn is_protected_by(&self, protection: &Arc<Protection>) -> bool {
        Arc::ptr_eq(&self.protection, protection)
    }

    /// Publishers that feed it here.
    pub(crate) fn publishers(&self) -> usize {
        self.feeders.len()
    }

    /// Publishers that feed it at other gateways before the same broker.
    pub(crate) fn publishers_elsewhere(&self) -> u64 {
        self.elsewhere.publishers()
    }

    /// The numbers of the publishers that feed it, with what each sent lately.
    pub(crate) fn feeders(&self, now: Moment) -> impl Iterator<Item = (u64, f64)> {
        self.feeders.iter().map(move |(number, feeder)| (*number, feeder.demand.recent(now)))
    }

    /// Milliseconds from a message's arrival to its acknowledgement, as things are.
    pub(crate) fn response_ms(&self) -> f64 {
        let rate = self.latest.processing_rate.filter(|rate| *rate > 0.0);
        let processing = rate.map_or(0.0, |rate| self.latest.in_flight as f64 / rate);
        (self.latest.delay.as_secs_f64() + processing) * 1e3
    }

    /// Its auto-scaler has reached its limit, or has not.
    pub(crate) fn set_saturated(&mut self, saturated: bool) {
        self.controller.on_saturation(saturated);
    }

    /// Whether it is known to be fed by this publisher.
    pub(crate) fn is_fed_by(&self, number: u64) -> bool {
        self.feeders.contains_key(&number)
    }

    /// Whether one more publisher can be known to feed it.
    pub(crate) fn has_room(&self) -> bool {
        self.feeders.len() < MAX_FEEDERS
    }

    /// A publisher fed it.
    pub(crate) fn fed_by(&mut self, now: Moment, number: u64, count: u32) {
        let new = || Feeder { last: now, demand: Demand::new(now) };
        let feeder = self.feeders.entry(number).or_insert_with(new);
        feeder.last = now;
        feeder.demand.sent(count);
    }

    /// Takes in a report and decides what publishers may send.
    pub(crate) fn turn(&mut self, report: &QueueReport, turn: &Turn<'_>, sources: &mut Sources) {
        (self.told, self.turn) = (turn.now, turn.number);
        // A client's queue is called after its oldest subscription, which may end.
        if self.name != report.name {
            (self.name, self.filter) = (Arc::clone(&report.name), Arc::clone(&report.filter));
        }
        (self.qos, self.consumers) = (report.qos, report.consumers);
        self.elsewhere.hear(report.elsewhere.as_deref().unwrap_or_default(), &self.protection.classes);
        self.note(report);
        self.watch_progress(&report.reading);
        let rate = self.controller.processing_rate();
        let mut reading = self.hands.beyond(turn.now, report, rate);
        if self.consumers == 0 {
            // that nobody is there says nothing about how fast they are
            (reading.busy_time, reading.busy_departed) = (Span::ZERO, 0);
        }
        if report.held > 0 {
            let began = self.held.filter(|_| self.holds(turn.now)).map_or(turn.now, |(began, _)| began);
            self.held = Some((began, turn.now));
        }
        self.decide(&reading, self.holds(turn.now), turn, sources);
    }

    /// Goes on without a report, as an empty queue does, if it had none in this turn; says whether it is worth to be kept.
    pub(crate) fn idle_turn(&mut self, elapsed: Span, turn: &Turn<'_>, sources: &mut Sources) -> bool {
        if self.turn == turn.number {
            return true;
        }
        self.latest =
            Latest { processing_rate: self.latest.processing_rate, demand: 0.0, ..Latest::default() };
        self.elsewhere.forget();
        let keep = self.phase != Phase::Idle && turn.now.since(self.told) <= turn.config.window;
        if keep {
            self.decide(&Reading { elapsed, ..Reading::default() }, false, turn, sources);
        }
        keep
    }

    fn note(&mut self, report: &QueueReport) {
        let reading = &report.reading;
        let share = 1.0 - (-reading.elapsed.as_secs_f64() / SMOOTH).exp();
        let latest = &mut self.latest;
        (latest.depth, latest.delay) = (report.waiting, report.age);
        (latest.in_flight, latest.held) = (report.in_flight, report.held);
        latest.arrival_rate += (reading.arrival_rate() - latest.arrival_rate) * share;
        let mut delays = [0; Delays::STEPS];
        delays.iter_mut().zip(report.delays.counts).for_each(|(sum, count)| *sum = u64::from(count));
        let (dropped, lost) = (report.dropped, report.lost);
        (self.dropped, self.lost) = (self.dropped.saturating_add(dropped), self.lost.saturating_add(lost));
        self.tally.add(&Tally {
            arrived: reading.arrived,
            departed: reading.departed,
            dropped,
            lost,
            delays,
            ..Tally::default()
        });
    }

    /// Books what the gate did for its sake.
    pub(crate) fn note_overrun(&mut self) {
        let (refused, dropped) = self.overrun.take();
        self.tally.add(&Tally { refused, gate_dropped: dropped, ..Tally::default() });
        self.refused = self.refused.saturating_add(refused);
        self.gate_dropped = self.gate_dropped.saturating_add(dropped);
    }

    fn watch_progress(&mut self, reading: &Reading) {
        let moves = reading.departed > 0 || reading.depth == 0 && self.consumers > 0;
        self.stuck = if moves { Span::ZERO } else { self.stuck + reading.elapsed };
    }

    /// Whether somebody is there for whom publishers could be held back, or was a moment ago: consumers that restart are
    /// to find a short queue.
    fn is_served(&self, config: &OverloadConfig) -> bool {
        (self.consumers > 0 || self.phase != Phase::Idle) && self.stuck < config.progress_timeout
    }

    fn decide(&mut self, reading: &Reading, holds: bool, turn: &Turn<'_>, sources: &mut Sources) {
        let sums = self.add_up(holds, turn, sources);
        self.latest.demand = sums.demand;
        if self.is_served(turn.config) {
            let load = Load { reading: *reading, devices: sums.devices, demand: self.bounded(&sums) };
            self.controller.on_consumers(self.consumers);
            let held = self.held.filter(|_| holds).map(|(began, last)| last.since(began));
            self.controller.on_held(held);
            self.controller.on_load(turn.now, &load);
            self.phase = self.controller.decision().phase;
        } else {
            self.phase = Phase::Idle;
        }
        self.latest.processing_rate = self.controller.processing_rate();
        if self.phase == Phase::Idle {
            self.total = f64::INFINITY;
            self.rates.fill(f64::INFINITY);
            return;
        }
        self.total = self.controller.decision().total;
        let mut claims = sums.claims.unwrap_or_else(|| self.claims(holds, turn, sources));
        self.elsewhere.claim(&mut claims, &self.protection.classes);
        self.rates = claims.rates((self.total - sums.exempt).max(0.0), &self.protection.classes);
        for number in self.feeders.keys() {
            if let Some(source) = sources.get_mut(*number) {
                source.may_send(self.rates[source.class], self.id);
            }
        }
    }

    fn asked(&self, holds: bool, turn: &Turn<'_>) -> Asked {
        let publishers = self.feeders.len() as u64 + self.elsewhere.publishers();
        let share = self.controller.processing_rate().unwrap_or(0.0) / publishers.max(1) as f64;
        Asked { now: turn.now, queue: self.id, holds, share }
    }

    /// Forgets publishers that are gone or silent, speaks of the others, and adds up what they want. What each of them
    /// claims only if that is likely to be asked for: nobody is held back most of the time.
    fn add_up(&mut self, holds: bool, turn: &Turn<'_>, sources: &mut Sources) -> Sums {
        let mut sums = Sums::default();
        let mut claims = (self.phase != Phase::Idle).then(Claims::default);
        let (asked, classes) = (self.asked(holds, turn), &self.protection.classes);
        self.feeders.retain(|number, feeder| {
            let Some(source) = sources.get_mut(*number) else { return false };
            // Who sent in this turn has been seen to be there.
            let silent = turn.now.since(feeder.last);
            if silent > Span::ZERO && source.is_gone() {
                return false;
            }
            let window = source.window(turn.config.window);
            if silent > if holds { window.scale(HELD_WINDOWS) } else { window } {
                return false;
            }
            source.spoken_of(turn.number);
            let class = classes.get(source.class);
            feeder.demand.settle(turn.now, source.pressure.is_pressed() || holds);
            let wants = feeder.wants(source, class, &asked);
            sums.devices += 1;
            sums.demand += wants;
            sums.floors += class.floor;
            if class.exempt {
                sums.exempt += feeder.demand.recent(turn.now);
            } else if let Some(claims) = &mut claims {
                claims.add(source.class, class, wants);
            }
            true
        });
        sums.claims = claims;
        for (class, count, wants) in self.elsewhere.each(classes) {
            let count = f64::from(count);
            sums.demand += count * wants;
            sums.floors += count * class.floor;
            sums.exempt += if class.exempt { count * wants } else { 0.0 };
        }
        sums.devices += self.elsewhere.publishers();
        sums
    }

    /// Who feeds it here, for other gateways.
    pub(crate) fn crowds(&self, holds: bool, turn: &Turn<'_>, sources: &Sources) -> Vec<Crowd> {
        let (asked, mut crowds) = (self.asked(holds, turn), Crowds::default());
        for (number, feeder) in &self.feeders {
            let Some(source) = sources.get(*number) else { continue };
            let class = self.protection.classes.get(source.class);
            crowds.add(source.class, feeder.wants(source, class, &asked));
        }
        crowds.list(&self.protection.classes)
    }

    /// A controller announces a share of the demand at least, which must mean something.
    fn bounded(&self, sums: &Sums) -> f64 {
        match self.controller.processing_rate() {
            Some(rate) => sums.demand.min((ENDLESS * rate).max(sums.floors).max(self.latest.arrival_rate)),
            None => sums.demand,
        }
    }

    /// What those that feed it here claim.
    fn claims(&self, holds: bool, turn: &Turn<'_>, sources: &Sources) -> Claims {
        let (asked, mut claims) = (self.asked(holds, turn), Claims::default());
        for (number, feeder) in &self.feeders {
            let Some(source) = sources.get(*number) else { continue };
            let class = self.protection.classes.get(source.class);
            if !class.exempt {
                claims.add(source.class, class, feeder.wants(source, class, &asked));
            }
        }
        claims
    }
}

/// What the publishers of a queue come to.
#[derive(Debug, Default)]
struct Sums {
    devices: u64,
    demand: f64,
    floors: f64,
    exempt: f64,
    claims: Option<Claims>,
}

//! Runs a scenario in virtual time: from event to event, as fast as the machine can.

use std::collections::VecDeque;

use tidegate_control::allocate::{self, Claim};
use tidegate_control::announce::Announcer;
use tidegate_control::autoscale::{InstanceRate, Scaler, Signals};
use tidegate_control::flow::Reading;
use tidegate_control::overload::{Controller, Decision, Load, Phase};
use tidegate_control::random::Seeded;
use tidegate_control::time::{Moment, Span};

use super::consumers::Consumers;
use super::fleet::{Fleet, Habits, Hears};
use super::outcome::{ClassSums, Outcome, Point, Sums};
use super::pattern::Pattern;
use super::queue::Queue;
use super::scenario::{Announce, Class, ControllerSettings, Scenario, ScenarioError, Service};

/// How often devices connect and disconnect.
const STEP: Span = Span::from_millis(100);
/// The least share of its own rate that a class is ever told: a device told to stop could not be told to start again.
const LEAST_SHARE: f64 = 0.01;
/// Points that a series has at most.
const MAX_POINTS: f64 = 1000.0;

/// Runs a scenario with a seed; `progress` hears the share that is done, once in each control period.
pub fn run(scenario: &Scenario, seed: u64, progress: &mut dyn FnMut(f64)) -> Result<Outcome, ScenarioError> {
    scenario.check()?;
    let mut world = World::new(scenario, seed)?;
    world.run(progress);
    Ok(world.outcome(seed))
}

/// All that exists while a scenario runs.
struct World<'a> {
    scenario: &'a Scenario,
    pattern: Pattern,
    now: Moment,
    end: Moment,
    /// Two fleets for each class: those that listen and those that never do.
    fleets: Vec<Fleet>,
    queue: Queue,
    controller: Option<Box<dyn Controller + Send>>,
    decision: Decision,
    /// The rate that the controller wants for a device of each class.
    rates: Vec<f64>,
    /// The rate that was let out last, by acknowledgements or on a control topic.
    announced: Vec<f64>,
    /// What decides for each class whether a rate is pushed.
    announcers: Vec<Announcer>,
    /// Rates under way to devices.
    advice: VecDeque<Advice>,
    scaler: Option<Scaler>,
    instance_rate: InstanceRate,
    /// When instances that were asked for are ready.
    starting: VecDeque<Moment>,
    sums: Sums,
    series: Vec<Point>,
    sampled: Sampled,
}

/// A rate on its way to the devices of a class.
#[derive(Debug, Clone, Copy)]
struct Advice {
    arrives: Moment,
    class: usize,
    rate: f64,
    /// Whether it comes on a control topic, or with the next acknowledgements.
    pushed: bool,
}

/// What was counted up to the last point of the series.
#[derive(Default)]
struct Sampled {
    at: Moment,
    sent: u64,
    processed: u64,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let refused = |error: tidegate_control::Invalid| ScenarioError::Value {
            key: error.key.to_owned(),
            problem: error.to_string(),
        };
        let controller =
            scenario.controller_config()?.map(|config| config.build()).transpose().map_err(refused)?;
        let scaler = scenario.scaler_config()?.map(|config| config.build()).transpose().map_err(refused)?;
        let announcer = scenario.announce_config().build().map_err(refused)?;
        let own_rates: Vec<f64> = scenario.classes.iter().map(|class| class.rate).collect();
        let instances = scaler.as_ref().map_or(scenario.consumers.instances, Scaler::instances);
        let consumers = Consumers::new(
            instances,
            scenario.consumers.rate,
            scenario.consumers.service == Service::Exponential,
            scenario.consumers.speed.is_empty(),
            Seeded::stream(seed, 1),
        );
        let sums = Sums { classes: vec![ClassSums::default(); own_rates.len()], ..Sums::default() };
        Ok(Self {
            pattern: scenario.pattern(seed)?,
            now: Moment::START,
            end: Moment::from_secs_f64(scenario.duration),
            fleets: fleets(scenario, seed),
            queue: Queue::new(scenario.queue_limit as usize, consumers),
            controller,
            decision: Decision { phase: Phase::Idle, total: 0.0 },
            rates: own_rates.clone(),
            announcers: own_rates.iter().map(|_| announcer).collect(),
            announced: own_rates,
            advice: VecDeque::new(),
            scaler,
            instance_rate: InstanceRate::default(),
            starting: VecDeque::new(),
            sums,
            series: Vec::new(),
            sampled: Sampled::default(),
            scenario,
        })
    }

    fn run(&mut self, progress: &mut dyn FnMut(f64)) {
        let period = Span::from_secs_f64(self.scenario.delays.period);
        let (mut next_step, mut next_tick) = (Moment::START, Moment::START + period);
        while self.now < self.end {
            if self.now >= next_step {
                self.connect(STEP.min(self.end.since(self.now)));
                next_step += STEP;
            }
            if self.now >= next_tick {
                self.tick();
                progress(self.now.as_secs_f64() / self.scenario.duration);
                next_tick += period;
            }
            self.deliver_advice();
            self.start_instances();
            let arrival = self.advice.front().map_or(Moment::END, |advice| advice.arrives);
            let ready = self.starting.front().copied().unwrap_or(Moment::END);
            let until = next_step.min(next_tick).min(arrival).min(ready).min(self.end);
            self.send_until(until);
            self.now = until;
        }
        self.queue.serve(self.now, &mut self.sums);
        self.tick();
    }

    /// Sends what is due, in the order of time over all fleets.
    fn send_until(&mut self, until: Moment) {
        let held = self.decision.phase != Phase::Idle;
        let mut due: Vec<Option<Moment>> =
            self.fleets.iter_mut().map(|fleet| fleet.next_before(until)).collect();
        while let Some((at, index)) = earliest(&due) {
            self.fleets[index].send();
            due[index] = self.fleets[index].next_before(until);
            let class = &mut self.sums.classes[index / 2];
            class.sent += 1;
            self.announcers[index / 2].earn(1);
            class.held_sent += u64::from(held);
            self.sums.sent += 1;
            self.queue.arrive(at, index / 2, &mut self.sums);
        }
        self.queue.serve(until, &mut self.sums);
    }

    /// Connects and disconnects devices as the pattern says, and adds up what the next step could bring.
    fn connect(&mut self, step: Span) {
        let share = self.pattern.share(self.now.as_secs_f64() / self.scenario.duration);
        for (index, class) in self.scenario.classes.iter().enumerate() {
            let devices = (f64::from(class.devices) * share).round() as u32;
            let deaf = (f64::from(devices) * class.deaf).round() as u32;
            self.fleets[2 * index].resize(self.now, devices - deaf);
            self.fleets[2 * index + 1].resize(self.now, deaf);
        }
        if !self.scenario.consumers.speed.is_empty() {
            self.queue.consumers.set_rate(self.scenario.consumers.rate * self.speed());
        }
        let seconds = step.as_secs_f64();
        let most = f64::from(self.scenario.consumers.instances) * self.scenario.consumers.rate * self.speed();
        self.sums.offered += self.demand() * seconds;
        self.sums.limit += self.demand().min(most) * seconds;
    }

    /// One turn of the control loop.
    fn tick(&mut self) {
        let reading = self.queue.read(self.now);
        self.add_up(&reading);
        let load = Load { reading, devices: self.devices(), demand: self.demand() };
        if let Some(controller) = &mut self.controller {
            if let Some(scaler) = &self.scaler {
                controller.on_saturation(scaler.is_saturated());
            }
            controller.on_consumers(self.queue.consumers.len());
            controller.on_load(self.now, &load);
            let before = std::mem::replace(&mut self.decision, controller.decision());
            self.divide();
            self.announce((before.phase == Phase::Idle) != (self.decision.phase == Phase::Idle));
        }
        self.scale(&load);
        self.sample(&load);
    }

    /// Divides the total among the classes.
    fn divide(&mut self) {
        let (classes, total) = (&self.scenario.classes, self.decision.total);
        if self.decision.phase == Phase::Idle {
            self.rates = classes.iter().map(|class| class.rate).collect();
        } else if matches!(self.scenario.controller, ControllerSettings::Phase(_)) {
            let devices = self.devices();
            self.rates = classes.iter().map(|class| allocate::equal(total, devices, class.rate)).collect();
        } else {
            let claims: Vec<Claim> = (0..classes.len()).map(|index| self.claim(index)).collect();
            self.rates = allocate::water_fill(total, &claims);
        }
        for (rate, class) in self.rates.iter_mut().zip(classes) {
            *rate = rate.max(least_rate(class));
        }
    }

    fn claim(&self, index: usize) -> Claim {
        let class = &self.scenario.classes[index];
        // With the least rate among the floors, others are given less for it and the total holds.
        let floor = class.floor.max(least_rate(class));
        Claim { members: self.connected(index), weight: class.weight, floor, ceiling: ceiling(class) }
    }

    /// Sends out the rates that changed: with acknowledgements all, on a control topic those that are worth it.
    ///
    /// With both, the topic says only when devices begin or cease to be held back: rates in between look ahead for those
    /// who hear them one after the other, and would be wrong for all at once.
    fn announce(&mut self, turned: bool) {
        let (delays, phase) = (self.scenario.delays, self.decision.phase);
        let arrives = self.now + Span::from_secs_f64(delays.latency);
        for (class, rate) in self.rates.iter().copied().enumerate() {
            let listeners = u64::from(self.fleets[2 * class].connected());
            let news = rate != self.announced[class];
            let may_push = match delays.announce {
                Announce::Ack => false,
                Announce::Push => news,
                Announce::Both => turned,
            };
            let pushed = may_push && self.announcers[class].offer(self.now, phase, rate, listeners);
            if pushed {
                self.sums.advice += listeners;
            }
            if pushed || (news && delays.announce != Announce::Push) {
                self.announced[class] = rate;
                self.advice.push_back(Advice { arrives, class, rate, pushed });
            }
        }
    }

    fn deliver_advice(&mut self) {
        while let Some(advice) = self.advice.front().copied().filter(|advice| advice.arrives <= self.now) {
            self.advice.pop_front();
            let fleet = &mut self.fleets[2 * advice.class];
            if advice.pushed {
                fleet.announce(self.now, advice.rate);
            }
            fleet.acknowledge(advice.rate);
        }
    }

    /// Asks for instances, or sends some home.
    fn scale(&mut self, load: &Load) {
        self.instance_rate.observe(&load.reading, self.queue.consumers.len());
        let Some(scaler) = &mut self.scaler else { return };
        let signals = Signals {
            depth: load.reading.depth,
            phase: self.decision.phase,
            demand: load.demand,
            instance_rate: self.instance_rate.rate(),
        };
        let wanted = scaler.on_signals(self.now, &signals);
        let delay = Span::from_secs_f64(self.scenario.autoscale.map_or(0.0, |settings| settings.start_delay));
        while self.queue.consumers.len() + (self.starting.len() as u32) < wanted {
            self.starting.push_back(self.now + delay);
        }
        while self.queue.consumers.len() + self.starting.len() as u32 > wanted {
            if self.starting.pop_back().is_none() {
                self.queue.consumers.remove();
            }
        }
    }

    fn start_instances(&mut self) {
        while self.starting.front().is_some_and(|ready| *ready <= self.now) {
            self.starting.pop_front();
            self.queue.consumers.add(self.now.as_nanos());
        }
    }

    /// Adds up what the last period was like.
    fn add_up(&mut self, reading: &Reading) {
        let seconds = reading.elapsed.as_secs_f64();
        let instances = f64::from(self.queue.consumers.len());
        self.sums.instance_time += instances * seconds;
        let devices = self.devices();
        for index in 0..self.scenario.classes.len() {
            let members = self.connected(index) as f64;
            let interval = 1.0 / self.announced[index];
            if devices > 0 {
                self.sums.intervals += interval * seconds * members / devices as f64;
                self.sums.connected_time += seconds * members / devices as f64;
            }
            self.sums.max_interval = self.sums.max_interval.max(interval);
            if self.decision.phase != Phase::Idle {
                self.sums.classes[index].held_device_time += members * seconds;
            }
        }
        if self.decision.phase != Phase::Idle {
            self.sums.held_time += seconds;
            self.sums.held_departed += reading.departed;
            self.sums.held_capacity += instances * self.scenario.consumers.rate * self.speed() * seconds;
        }
    }

    fn sample(&mut self, load: &Load) {
        let elapsed = self.now.since(self.sampled.at).as_secs_f64();
        if elapsed < self.scenario.duration / MAX_POINTS {
            return;
        }
        let processed = self.sums.waits.count();
        let instances = self.queue.consumers.len();
        self.series.push(Point {
            time: self.now.as_secs_f64(),
            devices: load.devices,
            demand: load.demand,
            arrivals: (self.sums.sent - self.sampled.sent) as f64 / elapsed,
            departures: (processed - self.sampled.processed) as f64 / elapsed,
            capacity: f64::from(instances) * self.scenario.consumers.rate * self.speed(),
            allowed: if self.controller.is_some() { self.decision.total } else { load.demand },
            depth: load.reading.depth,
            delay: load.reading.delay.as_secs_f64(),
            phase: self.decision.phase.name(),
            instances,
            rates: self.announced.clone(),
        });
        self.sampled = Sampled { at: self.now, sent: self.sums.sent, processed };
    }

    fn outcome(mut self, seed: u64) -> Outcome {
        self.sums.queued = self.sums.waits.total() + self.queue.still_waited(self.now);
        Outcome {
            scenario: self.scenario.name.clone(),
            seed,
            measures: self.sums.measures(self.scenario, self.queue.depth()),
            events: self.sums.sent + self.sums.waits.count(),
            steps: self.sums.sent
                + self.sums.waits.count()
                + self.fleets.iter().map(Fleet::steps).sum::<u64>(),
            series: self.series,
            classes: self.scenario.classes.iter().map(|class| class.name.clone()).collect(),
        }
    }

    /// Devices of one class that are connected.
    fn connected(&self, class: usize) -> u64 {
        u64::from(self.fleets[2 * class].connected()) + u64::from(self.fleets[2 * class + 1].connected())
    }

    fn devices(&self) -> u64 {
        (0..self.scenario.classes.len()).map(|class| self.connected(class)).sum()
    }

    fn demand(&self) -> f64 {
        let classes = self.scenario.classes.iter().enumerate();
        classes.map(|(index, class)| self.connected(index) as f64 * class.rate).sum()
    }

    /// How fast consumers are now, relative to their full rate.
    fn speed(&self) -> f64 {
        let time = self.now.as_secs_f64() / self.scenario.duration;
        let points = &self.scenario.consumers.speed;
        let passed = points.partition_point(|[at, _]| *at <= time);
        passed.checked_sub(1).map_or(1.0, |last| points[last][1])
    }
}

/// The first moment of all, and whose it is.
fn earliest(due: &[Option<Moment>]) -> Option<(Moment, usize)> {
    due.iter().enumerate().filter_map(|(index, at)| at.map(|at| (at, index))).min()
}

/// The highest rate of a device of this class while devices are held back.
fn ceiling(class: &Class) -> f64 {
    class.ceiling.unwrap_or(class.rate).min(class.rate)
}

/// The least rate that a device of this class is ever told; above 0 in every scenario that passed its check.
fn least_rate(class: &Class) -> f64 {
    (LEAST_SHARE * class.rate).min(ceiling(class))
}

fn fleets(scenario: &Scenario, seed: u64) -> Vec<Fleet> {
    let listening = match scenario.delays.announce {
        Announce::Ack => Hears::WithAck,
        Announce::Push => Hears::AtOnce,
        Announce::Both => Hears::Both,
    };
    let mut fleets = Vec::new();
    for class in &scenario.classes {
        for hears in [listening, Hears::Never] {
            let spaced = hears != Hears::Never && scenario.spaced();
            let habits =
                Habits { own_rate: class.rate, jitter: class.jitter, spread: class.spread, hears, spaced };
            fleets.push(Fleet::new(class.devices, habits, Seeded::stream(seed, 2 + fleets.len() as u64)));
        }
    }
    fleets
}

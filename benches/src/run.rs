//! One run: everybody connects, devices send, consumers take, and afterwards all is accounted for.

mod drain;
mod fleet;
mod line;
mod meter;
mod owing;
mod patience;
mod sampler;
mod setup;
mod supply;
mod verdict;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use self::fleet::Fleet;
use self::line::Progress;
use self::owing::Owing;
use self::patience::Forward;
use self::sampler::Sampler;
use self::setup::{probe, route, start_relay, what_it_did};
use self::supply::Supply;
use crate::clock::{Clock, Nanos, SECOND};
use crate::peers::Peer;
use crate::process;
use crate::record::{Broker, Control, FORMAT, Note, NoteKind, Run};
use crate::relay::Relay;
use crate::scenario::{Action, EventSettings, Loaded, Scenario, Side};
use crate::settle::Settling;
use crate::stats::{Distribution, distribution, in_short, merge, percentiles};
use crate::transport::Route;
use crate::world::{Shared, Stage, World};

/// How often patterns, schedules and events are looked at.
const STEP: Nanos = SECOND / 20;
/// How long tasks may take to end.
const PARTING: Duration = Duration::from_secs(5);

/// Whether somebody wants the run to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Cuts the run short, and every run after it; what was measured is kept.
pub fn interrupt() {
    INTERRUPTED.store(true, Relaxed);
}

/// Whether somebody wants all runs to end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// Who is measured.
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// The name in its certificate.
    pub host: String,
    /// Who it is.
    pub broker: Broker,
    /// Its process, if it is known.
    pub pid: Option<u32>,
    /// The authorities that sign its certificate, PEM.
    pub authorities: Option<Vec<u8>>,
    /// Its admin endpoint, if it was started here with one.
    pub admin: Option<SocketAddr>,
    /// The process, if it was started here.
    pub peer: Option<Peer>,
}

impl Target {
    /// One that was there before.
    pub fn there(address: SocketAddr, host: &str, pid: Option<u32>) -> Self {
        let broker = Broker { name: "target".to_owned(), address: address.to_string(), ..Broker::default() };
        Self { address, host: host.to_owned(), broker, pid, authorities: None, admin: None, peer: None }
    }
}

/// Runs a scenario once. There is always a result: if something cuts the run short, it says what.
pub async fn run(loaded: &Loaded, target: &mut Target, repetition: u32) -> Run {
    let (started_unix, started) = process::wall_clock();
    let mut result = Run {
        format: FORMAT,
        scenario: loaded.scenario.name.clone(),
        about: loaded.scenario.about.clone(),
        scenario_file: loaded.text.clone(),
        broker: target.broker.clone(),
        repetition,
        started_unix,
        started,
        machine: process::machine(),
        generator: process::generator().to_owned(),
        seed: loaded.scenario.seed,
        ..Run::default()
    };
    match Experiment::prepare(&loaded.scenario, target).await {
        Ok(experiment) => experiment.run(target, &mut result).await,
        Err(error) => result.error = Some(error),
    }
    result
}

struct Experiment {
    world: Shared,
    fleet: Fleet,
    sampler: Sampler,
    supply: Supply,
    relay: Option<Relay>,
    events: Vec<EventSettings>,
    progress: Progress,
    forward: Forward,
    next_sample: Nanos,
    connecting: bool,
}

impl Experiment {
    async fn prepare(scenario: &Scenario, target: &Target) -> Result<Self, String> {
        let direct = route(scenario, target)?;
        let relay = match &scenario.relay {
            Some(settings) => Some(start_relay(settings, target.address).await?),
            None => None,
        };
        let through = |side: Side| match (&relay, scenario.relay.map(|relay| relay.side)) {
            (Some(relay), Some(chosen)) if chosen == side || chosen == Side::Both => {
                Route { address: relay.address, ..direct.clone() }
            }
            _ => direct.clone(),
        };
        let clock = Clock::start().map_err(|error| format!("cannot start a thread: {error}"))?;
        let run = (process::wall_clock().0 as u32).wrapping_mul(2_654_435_761) ^ std::process::id();
        let admin = scenario.admin.or(target.admin);
        let scenario = &Scenario { admin, ..scenario.clone() };
        let world =
            World::new(clock, run, scenario.clone(), through(Side::Devices), through(Side::Consumers));
        let world: Shared = Arc::new(world);
        probe(&world).await?;
        let mut events = scenario.events.clone();
        events.sort_by(|a, b| b.at.total_cmp(&a.at));
        Ok(Self {
            fleet: Fleet::start(&world)?,
            sampler: Sampler::new(&world, target.pid),
            supply: Supply::default(),
            progress: Progress::new(&scenario.name, &target.broker.name),
            forward: Forward { at: world.clock.now(), ..Forward::default() },
            next_sample: world.clock.now(),
            connecting: true,
            world,
            relay,
            events,
        })
    }

    async fn run(mut self, target: &mut Target, result: &mut Run) {
        result.error = self.measure(target, result).await.err();
        let measured = self.sampler.end();
        let cut_off = self.drain(result).await;
        let ended = self.world.clock.now();
        self.progress.finish();
        self.fleet.quit();
        let expected: u32 = self.world.scenario.classes.iter().map(|class| class.devices).sum();
        let done = self.fleet.join(PARTING).await;
        let mut latencies = self.world.latencies.measured();
        let mut waits = self.world.waits.measured();
        let owing = Owing::find(&self.world, &done, ended, &mut latencies, &mut waits);
        let (totals, mut classes) = verdict::totals(&self.world, &done, owing, &latencies, cut_off);
        let duration = measured.as_ref().map_or(0.0, |measured| measured.duration);
        verdict::measure_classes(&self.world, &done, &waits, duration, &mut classes);
        result.notes.extend(owing.notes());
        result.notes.extend(verdict::notes(&self.world, measured.as_ref(), done.len() == expected as usize));
        if let Some(relay) = &self.relay {
            result.notes.push(Note { kind: NoteKind::Relay, text: what_it_did(relay) });
        }
        if let Some(measured) = measured {
            result.duration = measured.duration;
            result.rates = measured.rates;
            result.broker_use = measured.broker;
            result.generator_use = measured.generator;
        }
        let all = together(&latencies);
        result.latency = in_short(&all);
        result.queue_wait = in_short(&together(&waits));
        result.percentiles = percentiles(&all);
        result.totals = totals;
        result.withheld = verdict::withheld(done.iter());
        result.farewells = verdict::farewells(&self.world);
        result.classes = classes;
        result.intervals = self.sampler.intervals;
        result.control = control(&self.supply, &self.world, result);
        self.world.clock.close();
    }

    /// Connects, warms up and measures.
    async fn measure(&mut self, target: &mut Target, result: &mut Run) -> Result<(), String> {
        let begun = self.world.clock.now();
        let connected = self.connect().await;
        result.connect_seconds = (self.world.clock.now() - begun) as f64 / SECOND as f64;
        connected?;
        self.connecting = false;
        let now = self.world.clock.now();
        self.fleet.devices_do(Stage::Active, now);
        self.forward.at = now;
        self.sample(false);
        let warm = now + (self.world.scenario.warmup * SECOND as f64) as Nanos;
        self.go_on(warm, target, false).await?;
        self.sample(false);
        self.sampler.begin(&self.world);
        let now = self.world.clock.now();
        self.look_at_supply(now);
        let end = self.world.time_of(1.0);
        let measured = self.go_on(end, target, true).await;
        let now = self.world.clock.now();
        self.look_at_supply(now);
        self.sample(true);
        self.world.measured_until.fetch_min(self.world.clock.now(), Relaxed);
        measured
    }

    fn look_at_supply(&mut self, now: Nanos) {
        self.supply.look(&self.world, self.fleet.demand(now), self.fleet.wanted_consumers(), now);
    }

    async fn connect(&mut self) -> Result<(), String> {
        let consumers = self.fleet.call_consumers(self.world.clock.now());
        self.wait(|world| world.counts.consumers.load(Relaxed) >= consumers).await?;
        let now = self.world.clock.now();
        let devices = self.fleet.wanted_devices(now);
        self.fleet.devices_do(Stage::Ready, now);
        self.wait(|world| world.counts.devices.load(Relaxed) >= devices).await
    }

    /// Waits for a state while connecting.
    async fn wait(&mut self, reached: impl Fn(&World) -> bool) -> Result<(), String> {
        while !reached(&self.world) {
            self.world.clock.sleep(Duration::from_millis(2)).await;
            self.look_for_progress()?;
        }
        Ok(())
    }

    /// Lets time pass until `end`.
    async fn go_on(&mut self, end: Nanos, target: &mut Target, measured: bool) -> Result<(), String> {
        let interval = (self.world.scenario.interval * SECOND as f64) as Nanos;
        loop {
            let now = self.world.clock.now();
            if now >= end {
                return Ok(());
            }
            self.world.clock.sleep_until((now + STEP).min(end).min(self.next_sample.max(now))).await;
            let now = self.world.clock.now();
            self.fleet.update(now);
            if measured {
                self.look_at_supply(now);
            }
            self.happen(now, target).await?;
            self.look_for_progress()?;
            // One at the very end would be a second one.
            if now >= self.next_sample && end.saturating_sub(now) > interval / 2 {
                self.sample(measured);
            }
        }
    }

    fn sample(&mut self, measured: bool) {
        let interval = self.sampler.sample(&self.world, measured, &mut self.supply);
        self.next_sample = self.world.clock.now() + (self.world.scenario.interval * SECOND as f64) as Nanos;
        self.progress.show(&interval);
    }

    /// Does what the scenario wants to happen now.
    async fn happen(&mut self, now: Nanos, target: &mut Target) -> Result<(), String> {
        while let Some(event) = self.events.pop() {
            if self.world.time_of(event.at) > now {
                self.events.push(event);
                return Ok(());
            }
            let who = event.who.as_deref();
            match (event.action, &self.relay, &mut target.peer) {
                (Action::DropDevices, _, _) => self.fleet.drop_devices(who, event.share),
                (Action::DropConsumers, _, _) => self.fleet.drop_consumers(who, event.share),
                (Action::StopRelay, Some(relay), _) => relay.stop(),
                (Action::ResumeRelay, Some(relay), _) => relay.resume(),
                (Action::StopRelay | Action::ResumeRelay, None, _) => {
                    return Err("there is no relay".to_owned());
                }
                (Action::RestartBroker, _, Some(peer)) => {
                    self.sampler.look_at_broker();
                    peer.restart().await.map_err(|error| error.to_string())?;
                    target.pid = Some(peer.pid());
                    self.sampler.follow_broker(target.pid);
                }
                (Action::RestartBroker, _, None) => {
                    return Err("a target that was not started here can't be restarted".to_owned());
                }
            }
        }
        Ok(())
    }
}

fn together(classes: &[Distribution]) -> Distribution {
    let mut all = distribution();
    classes.iter().for_each(|class| merge(&mut all, class));
    all
}

/// The measured part against what would have been right.
fn control(supply: &Supply, world: &World, run: &Run) -> Control {
    let settling = Settling::of(&run.intervals, run.duration);
    let gaps = world.gaps.in_short();
    let waits = run.queue_wait;
    let waited = waits.mean / 1000.0 * waits.count as f64;
    Control {
        mean_depth: (waits.count > 0 && run.duration > 0.0).then(|| waited / run.duration),
        mean_interval: gaps.map(|(mean, _)| mean),
        max_interval: gaps.map(|(_, longest)| longest),
        settle: settling.settle,
        settled: settling.settled,
        swing: settling.swing,
        ..supply.control()
    }
}

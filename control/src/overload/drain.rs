//! The default controller: hold the queue at a small target, and empty what is over it in a bounded time.

use crate::invalid::{self, Invalid};
use crate::overload::capacity::Capacity;
use crate::overload::excess::Excess;
use crate::overload::standing::Standing;
use crate::overload::turnover::Turnover;
use crate::overload::{Controller, Decision, Load, Phase};
use crate::time::{Moment, Span};

/// How fast the target grows while consumers starve now and then, and how fast it falls back, as shares in a second.
const STRETCH: (f64, f64) = (0.1, 0.01);
/// A depth within this share of its target is left alone, so that devices are not told of every little change.
const CALM: f64 = 0.3;
/// What arrives unasked is averaged over so many drain times: devices that still send in step are no excess.
const EXCESS_MEMORY: f64 = 4.0;
/// Devices that send less than they may are made up for by at most this share of the processing rate.
const LEAST_EXCESS: f64 = 0.5;
/// No longer delay is reckoned with, in seconds.
const LONGEST_LAG: f64 = 86_400.0;
/// No more than this many times the estimated processing rate is ever tried.
const MOST_BOOST: f64 = 100.0;

/// How devices hear of a new rate, on which the delay of the loop depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hears {
    /// At once, on a control topic.
    #[default]
    AtOnce,
    /// With the acknowledgement of their next message.
    WithAck,
}

/// The settings of the drain controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrainConfig {
    /// The delay at which the queue is held while publishers want more than consumers can take.
    pub target_delay: Span,
    /// The least depth at which it is held, so that slow consumers don't starve between two messages. A shorter queue is
    /// no overload, whatever its delay.
    pub target_depth: f64,
    /// How many times the target may grow when consumers starve all the same, as they do when messages come unevenly.
    pub most_stretch: f64,
    /// In what time a queue over its target is emptied, and one under it filled.
    pub drain_time: Span,
    /// The drain time is never shorter than so many delays of the loop, since a faster loop would swing.
    pub loop_delays: f64,
    /// How devices hear of a new rate.
    pub hears: Hears,
    /// The time from a decision to devices that could hear of it.
    pub latency: Span,
    /// The least share of the processing rate that is announced while there is one.
    pub floor: f64,
    /// The least share of the demand that is ever announced, since a device told to stop can't be told to start.
    pub least_share: f64,
    /// The growth of the rate in each delay of the loop while consumers wait for messages.
    pub probe: f64,
    /// How long the delay must stay over its target to count as overload.
    pub standing: Span,
    /// How much busy time the estimated processing rate remembers.
    pub memory: Span,
    /// Whether protection waits until the auto-scaler says that it has reached its limit.
    pub needs_saturation: bool,
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self {
            target_delay: Span::from_millis(120),
            target_depth: 1.0,
            most_stretch: 3.0,
            drain_time: Span::from_secs(2),
            loop_delays: 4.0,
            hears: Hears::AtOnce,
            latency: Span::ZERO,
            floor: 0.5,
            least_share: 0.01,
            probe: 1.1,
            standing: Span::from_millis(500),
            memory: Span::from_secs(4),
            needs_saturation: false,
        }
    }
}

impl DrainConfig {
    /// Builds the controller, or says which setting makes no sense.
    pub fn build(&self) -> Result<DrainController, Invalid> {
        let share =
            |key, value| invalid::check(key, value, "above 0 and under 1", value > 0.0 && value < 1.0);
        let factor = |key, value| invalid::check(key, value, "from 1 to 100", (1.0..=100.0).contains(&value));
        invalid::positive("target_delay", self.target_delay.as_secs_f64())?;
        invalid::not_negative("target_depth", self.target_depth)?;
        factor("most_stretch", self.most_stretch)?;
        invalid::positive("drain_time", self.drain_time.as_secs_f64())?;
        invalid::not_negative("loop_delays", self.loop_delays)?;
        share("floor", self.floor)?;
        share("least_share", self.least_share)?;
        factor("probe", self.probe)?;
        invalid::positive("memory", self.memory.as_secs_f64())?;
        Ok(DrainController {
            config: *self,
            capacity: Capacity::new(self.memory),
            standing: Standing::new(self.target_delay, self.standing),
            phase: Phase::Idle,
            saturated: false,
            held: None,
            consumers: 0,
            total: 0.0,
            depth: 0.0,
            boost: 1.0,
            stretch: 1.0,
            told: 0.0,
            excess: Excess::default(),
            turnover: Turnover::default(),
        })
    }
}

/// The drain controller.
#[derive(Debug, Clone)]
pub struct DrainController {
    config: DrainConfig,
    capacity: Capacity,
    standing: Standing,
    phase: Phase,
    saturated: bool,
    /// For how long the queue has held publishers: that fewer messages come is not for want of being told.
    held: Option<Span>,
    consumers: u32,
    total: f64,
    /// The depth, averaged over the time that devices take to hear.
    depth: f64,
    /// How far over the estimated processing rate consumers are being tried.
    boost: f64,
    /// How far the target has been raised because consumers starved.
    stretch: f64,
    /// What each device was told.
    told: f64,
    /// What comes beyond that.
    excess: Excess,
    turnover: Turnover,
}

impl Controller for DrainController {
    fn on_load(&mut self, now: Moment, load: &Load) {
        self.capacity.observe(&load.reading);
        let demand = load.sound_demand();
        let rate = self.capacity.rate_or_departures();
        let lag = self.lag(load);
        let period = load.reading.elapsed.as_secs_f64();
        self.stretch(load, period);
        let target = self.target(rate);
        self.smooth(load, lag, period);
        self.probe(load, target, period / (lag + period));
        self.turnover.observe(load.devices, period, lag);
        let drain_time = self.config.drain_time.as_secs_f64().max(self.config.loop_delays * (lag + period));
        self.watch_excess(load, lag, EXCESS_MEMORY * drain_time);
        // What is to arrive, then what devices must be told so that it does.
        let arrivals = rate * self.boost + gap(self.depth, target) / drain_time - self.excess(rate);
        let told = arrivals.max(demand * self.config.least_share) / self.turnover.growth(lag);
        let wanted = told.max(rate * self.config.floor);
        self.phase = self.next_phase(now, load, target, wanted);
        self.total = if self.phase == Phase::Idle { demand } else { wanted.min(demand) };
        self.told = self.total / load.devices.max(1) as f64;
    }

    fn on_saturation(&mut self, saturated: bool) {
        self.saturated = saturated;
    }

    /// When consumers come or go, what they process together changes before it can be measured.
    /// Those who are all away are expected back as they were.
    fn on_consumers(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        if count != self.consumers && self.consumers > 0 {
            self.capacity.scale(f64::from(count) / f64::from(self.consumers));
        }
        self.consumers = count;
        self.capacity.set_consumers(count);
    }

    fn on_held(&mut self, held: Option<Span>) {
        self.held = held;
    }

    fn decision(&self) -> Decision {
        Decision { phase: self.phase, total: self.total }
    }

    fn processing_rate(&self) -> Option<f64> {
        self.capacity.rate()
    }
}

impl DrainController {
    /// The depth to hold.
    fn target(&self, rate: f64) -> f64 {
        self.stretch * (rate * self.config.target_delay.as_secs_f64()).max(self.config.target_depth)
    }

    /// How many seconds devices take to hear of a decision.
    fn lag(&self, load: &Load) -> f64 {
        let until_acknowledged = match self.config.hears {
            Hears::WithAck if self.total > 0.0 => load.devices as f64 / self.total,
            _ => 0.0,
        };
        (self.config.latency.as_secs_f64() + until_acknowledged).min(LONGEST_LAG)
    }

    fn next_phase(&mut self, now: Moment, load: &Load, target: f64, wanted: f64) -> Phase {
        let demand = load.sound_demand();
        let long = load.reading.depth as f64 >= self.config.target_depth;
        let stands = self.standing.observe(now, &load.reading) && long;
        let may_protect = self.saturated || !self.config.needs_saturation;
        // Apart, so that a queue that is held at its target does not go to and fro between two phases.
        let (far_over, far_under) = (self.depth > 1.5 * target, self.depth < 0.5 * target);
        // A queue over its target is no burst when more is on its way than consumers can take; nor is one that would be over
        // it if it did not hold publishers all the time.
        let holds = self.held.is_some_and(|held| held >= self.config.standing);
        let over = self.depth > target || holds && !far_under;
        let more_to_come = over && self.capacity.rate().is_some_and(|rate| demand > rate);
        match self.phase {
            Phase::Idle if (stands || more_to_come) && may_protect => Phase::Protect,
            Phase::Protect if far_under => Phase::Recover,
            Phase::Recover if far_over && wanted < demand => Phase::Protect,
            Phase::Recover if wanted >= demand => Phase::Idle,
            same => same,
        }
    }

    /// Compares what came with what devices were told, while they are told anything.
    fn watch_excess(&mut self, load: &Load, lag: f64, memory: f64) {
        if self.phase == Phase::Idle {
            self.excess.reset(self.told);
        } else {
            self.excess.observe(&load.reading, load.devices, self.told, lag, memory);
        }
        if self.held.is_some() {
            self.excess.forgive();
        }
    }

    /// What comes beyond what was asked for, within reason.
    fn excess(&self, rate: f64) -> f64 {
        self.excess.rate().clamp(-LEAST_EXCESS * rate, rate)
    }

    /// Averages the depth over the lag: a loop that answers faster than devices hear makes them send in step.
    fn smooth(&mut self, load: &Load, lag: f64, period: f64) {
        let keep = if lag > 0.0 { libm::exp(-period / lag) } else { 0.0 };
        self.depth = self.depth * keep + load.reading.depth as f64 * (1.0 - keep);
    }

    /// Raises the target while consumers starve now and then, and lowers it slowly while they never do.
    fn stretch(&mut self, load: &Load, period: f64) {
        if self.phase == Phase::Idle {
            return;
        }
        let (up, down) = STRETCH;
        let growth = if load.reading.least_depth == 0 { up } else { -down };
        self.stretch = (self.stretch * libm::exp(growth * period)).clamp(1.0, self.config.most_stretch);
    }

    /// Tries more than the estimate while consumers wait for messages; `loops` is the part of a loop delay that passed.
    fn probe(&mut self, load: &Load, target: f64, loops: f64) {
        if self.phase == Phase::Idle || self.depth >= target {
            self.boost = 1.0;
        } else if load.reading.depth == 0 && loops > 0.0 {
            self.boost = (self.boost * libm::pow(self.config.probe, loops)).min(MOST_BOOST);
        }
    }
}

/// How many messages are missing to the calm zone around the target; negative when there are too many.
fn gap(depth: f64, target: f64) -> f64 {
    let (low, high) = ((1.0 - CALM) * target, (1.0 + CALM) * target);
    depth.clamp(low, high) - depth
}

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::phase::Threshold;
use super::*;
use crate::allocate::MAX_RATE;
use crate::flow::Flow;
use crate::time::Span;
use proptest::prelude::*;
use std::vec::Vec;

fn at(seconds: f64) -> Moment {
    Moment::from_secs_f64(seconds)
}

/// A queue in a world without chance: what arrives is what was decided, and consumers take `rate` a second.
struct World {
    flow: Flow,
    now: f64,
    arriving: f64,
    departing: f64,
}

impl World {
    const PERIOD: f64 = 0.5;

    fn new() -> Self {
        Self { flow: Flow::new(at(0.0)), now: 0.0, arriving: 0.0, departing: 0.0 }
    }

    /// Lets one control period pass with devices of 2 messages a second each.
    fn step(&mut self, controller: &mut dyn Controller, devices: u64, rate: f64) -> Decision {
        let demand = 2.0 * devices as f64;
        let sent = if self.now == 0.0 { demand } else { controller.decision().total.min(demand) };
        const PARTS: u32 = 50;
        let part = Self::PERIOD / f64::from(PARTS);
        for _ in 0..PARTS {
            self.now += part;
            self.arriving += sent * part;
            self.departing = if self.flow.depth() > 0 { self.departing + rate * part } else { rate * part };
            self.flow.arrive(at(self.now), self.arriving as u64);
            self.flow.depart(at(self.now), self.departing as u64);
            self.arriving = self.arriving.fract();
            self.departing = self.departing.fract();
        }
        let reading = self.flow.read(at(self.now));
        controller.on_load(at(self.now), &Load { reading, devices, demand });
        controller.decision()
    }

    fn steps(
        &mut self,
        controller: &mut dyn Controller,
        count: u32,
        devices: u64,
        rate: f64,
    ) -> Vec<Decision> {
        (0..count).map(|_| self.step(controller, devices, rate)).collect()
    }
}

fn phase() -> phase::PhaseController {
    PhaseConfig::default().build().unwrap()
}

fn drain() -> drain::DrainController {
    DrainConfig::default().build().unwrap()
}

#[test]
fn nobody_is_held_back_without_need() {
    for controller in [&mut phase() as &mut dyn Controller, &mut drain()] {
        let decisions = World::new().steps(controller, 60, 10, 33.0);
        assert!(decisions.iter().all(|d| *d == Decision { phase: Phase::Idle, total: 20.0 }));
    }
}

#[test]
fn the_paper_protects_at_98_percent_of_the_processing_rate_and_recovers_step_by_step() {
    let (mut world, mut controller) = (World::new(), phase());
    let held = world.steps(&mut controller, 20, 40, 33.0);
    let last = held.last().unwrap();
    assert_eq!(last.phase, Phase::Protect);
    assert!((last.total - 0.98 * 33.0).abs() < 0.7, "{last:?}");
    // Consumers become fast enough for all: the queue empties, and the rate grows by 1.1 a second up to the demand.
    let after = world.steps(&mut controller, 60, 40, 120.0);
    assert_eq!(*after.last().unwrap(), Decision { phase: Phase::Idle, total: 80.0 });
    let recovering = after.windows(2).filter(|pair| pair.iter().all(|d| d.phase == Phase::Recover));
    let growth: Vec<f64> = recovering.map(|pair| pair[1].total / pair[0].total).collect();
    assert!(growth.iter().all(|g| *g < 1.1 + 1e-9), "{growth:?}");
    assert!(growth.iter().filter(|g| (*g - 1.1).abs() < 1e-9).count() >= 2, "{growth:?}");
}

#[test]
fn drain_holds_the_target_depth_and_uses_all_of_the_processing_rate() {
    let (mut world, mut controller) = (World::new(), drain());
    world.steps(&mut controller, 40, 40, 33.0);
    let before = world.flow.totals().departed;
    let mut depths = Vec::new();
    for _ in 0..100 {
        world.step(&mut controller, 40, 33.0);
        depths.push(world.flow.depth() as f64);
    }
    let processed = (world.flow.totals().departed - before) as f64;
    assert!((processed / (50.0 * 33.0) - 1.0).abs() < 0.005, "{processed}");
    let mean = depths.iter().sum::<f64>() / depths.len() as f64;
    assert!((3.0..6.0).contains(&mean), "a target of 4, held at {mean}");
}

#[test]
fn a_threshold_lets_a_queue_grow_and_then_holds_it_there() {
    let (mut world, mut before) = (World::new(), 0);
    let mut controller = DrainConfig { target_depth: 250.0, ..DrainConfig::default() }.build().unwrap();
    while world.step(&mut controller, 40, 33.0).phase == Phase::Idle {
        before = world.flow.depth();
    }
    assert!(before >= 200, "protected at {before}");
    world.steps(&mut controller, 200, 40, 33.0);
    let depth = world.flow.depth();
    assert!((150..=350).contains(&depth), "held at {depth}");
}

#[test]
fn drain_empties_a_long_queue_in_a_bounded_time() {
    let (mut world, mut controller) = (World::new(), drain());
    world.steps(&mut controller, 40, 40, 33.0);
    world.flow.arrive(at(world.now), 100);
    // At half of the rate, 100 messages take 6 s, and the rest two drain times.
    world.steps(&mut controller, 20, 40, 33.0);
    assert!(world.flow.depth() < 10, "{}", world.flow.depth());
}

#[test]
fn both_find_a_processing_rate_that_rose_and_one_that_fell() {
    for controller in [&mut phase() as &mut dyn Controller, &mut drain()] {
        let mut world = World::new();
        for rate in [20.0, 40.0, 10.0] {
            world.steps(controller, 120, 40, rate);
            let found = controller.processing_rate().unwrap();
            assert!((found / rate - 1.0).abs() < 0.1, "{found} instead of {rate}");
        }
    }
}

#[test]
fn a_consumer_that_stops_leaves_a_trickle_by_which_devices_can_be_told_to_start_again() {
    for controller in [&mut phase() as &mut dyn Controller, &mut drain()] {
        let mut world = World::new();
        world.steps(controller, 20, 40, 33.0);
        let stopped = *world.steps(controller, 60, 40, 0.0).last().unwrap();
        assert!((0.8..2.5).contains(&stopped.total), "{stopped:?}");
        let back = *world.steps(controller, 400, 40, 33.0).last().unwrap();
        assert!(back.total > 25.0, "{back:?}");
    }
}

#[test]
fn drain_looks_ahead_when_consumers_join() {
    let (mut world, mut controller) = (World::new(), drain());
    controller.on_consumers(4);
    world.steps(&mut controller, 40, 40, 20.0);
    controller.on_consumers(8);
    let next = world.step(&mut controller, 40, 40.0);
    assert!(next.total > 35.0, "{next:?}");
}

#[test]
fn a_coupled_controller_waits_for_saturation() {
    let phase = PhaseConfig { needs_saturation: true, ..PhaseConfig::default() }.build().unwrap();
    let drain = DrainConfig { needs_saturation: true, ..DrainConfig::default() }.build().unwrap();
    for controller in [&mut { phase } as &mut dyn Controller, &mut { drain }] {
        let mut world = World::new();
        assert!(world.steps(controller, 20, 40, 33.0).iter().all(|d| d.phase == Phase::Idle));
        controller.on_saturation(true);
        assert_eq!(world.step(controller, 40, 33.0).phase, Phase::Protect);
    }
}

#[test]
fn a_burst_that_consumers_can_take_is_no_overload_for_drain() {
    let (mut world, mut controller) = (World::new(), drain());
    for _ in 0..20 {
        // 12 messages at once, every period, for consumers that take 16 in a period.
        world.flow.arrive(at(world.now), 12);
        assert_eq!(world.step(&mut controller, 2, 33.0).phase, Phase::Idle);
    }
}

#[test]
fn bad_settings_are_refused() {
    let phase = PhaseConfig::default();
    for bad in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
        assert!(PhaseConfig { protect: bad, ..phase }.build().is_err());
        assert!(PhaseConfig { recover: bad, ..phase }.build().is_err());
        assert!(PhaseConfig { least_share: bad, ..phase }.build().is_err());
        let drain = DrainConfig::default();
        assert!(DrainConfig { floor: bad, ..drain }.build().is_err());
        assert!(DrainConfig { probe: bad, ..drain }.build().is_err());
        assert!(DrainConfig { most_stretch: bad, ..drain }.build().is_err());
        assert!(DrainConfig { drain_time: Span::from_secs_f64(bad.min(0.0)), ..drain }.build().is_err());
    }
    assert!(DrainConfig { target_depth: f64::NAN, ..DrainConfig::default() }.build().is_err());
    assert!(Config::default().build().is_ok());
}

fn any_reading() -> impl Strategy<Value = Reading> {
    let count = prop_oneof![0u64..200, any::<u64>()];
    let span = prop_oneof![Just(0u64), 0u64..2_000_000_000, any::<u64>()].prop_map(Span::from_nanos);
    (span.clone(), count.clone(), count.clone(), span.clone(), count.clone(), span, count).prop_map(
        |(elapsed, depth, least, delay, departed, busy_time, busy_departed)| Reading {
            elapsed,
            depth,
            least_depth: least.min(depth),
            delay,
            arrived: departed,
            departed,
            busy_time,
            busy_departed,
        },
    )
}

fn any_load() -> impl Strategy<Value = Load> {
    let demand = prop_oneof![0.0..1000.0f64, any::<f64>(), Just(f64::NAN), Just(f64::INFINITY)];
    let devices = prop_oneof![Just(0u64), 1u64..1000, any::<u64>()];
    (any_reading(), devices, demand).prop_map(|(reading, devices, demand)| Load { reading, devices, demand })
}

fn any_config() -> impl Strategy<Value = Config> {
    let phase = prop_oneof![Just(Threshold::Depth(1)), Just(Threshold::Delay(Span::from_millis(100)))];
    prop_oneof![
        (phase, any::<bool>()).prop_map(|(threshold, needs_saturation)| Config::Phase(PhaseConfig {
            threshold,
            needs_saturation,
            ..PhaseConfig::default()
        })),
        (any::<bool>(), any::<bool>()).prop_map(|(acks, needs_saturation)| Config::Drain(DrainConfig {
            hears: if acks { drain::Hears::WithAck } else { drain::Hears::AtOnce },
            needs_saturation,
            ..DrainConfig::default()
        })),
    ]
}

proptest! {
    /// Any load at all, any clock: totals are finite, between nothing and the demand, and phases follow the arrows.
    #[test]
    fn decisions_are_finite_and_phases_follow_the_arrows(
        config in any_config(),
        loads in proptest::collection::vec((any::<u64>(), any::<bool>(), any::<u32>(), any_load()), 1..80),
    ) {
        let mut controller = config.build().unwrap();
        let mut phase = Phase::Idle;
        for (time, saturated, consumers, load) in loads {
            controller.on_saturation(saturated);
            controller.on_consumers(consumers);
            controller.on_load(Moment::from_nanos(time), &load);
            let decision = controller.decision();
            let demand = if load.demand > 0.0 { load.demand.min(MAX_RATE) } else { 0.0 };
            prop_assert!(decision.total.is_finite() && decision.total >= 0.0);
            prop_assert!(decision.total <= demand * (1.0 + 1e-9), "{:?} of {}", decision, demand);
            prop_assert!(phase.may_become(decision.phase), "{:?} to {:?}", phase, decision.phase);
            prop_assert!(controller.processing_rate().is_none_or(|rate| rate.is_finite() && rate >= 0.0));
            phase = decision.phase;
        }
    }

    /// The same events give the same decisions, whoever asks in between.
    #[test]
    fn the_same_events_give_the_same_decisions(
        config in any_config(),
        loads in proptest::collection::vec((any::<u64>(), any_load()), 1..40),
    ) {
        let run = || {
            let mut controller = config.build().unwrap();
            loads.iter().map(|(time, load)| {
                controller.on_load(Moment::from_nanos(*time), load);
                controller.decision()
            }).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

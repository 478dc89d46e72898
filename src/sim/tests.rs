//! What the simulator must show, over seeds, sizes and workloads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use proptest::prelude::*;

use super::scenario::{
    Announce, AutoscaleSettings, Class, ConsumerSettings, ControllerSettings, CouplingName, LoopSettings,
    Service, Workload,
};
use super::{Outcome, Scenario, run};

/// The case study's devices and instances under a controller.
fn case_study(pattern: &str, instances: u32, controller: ControllerSettings) -> Scenario {
    Scenario {
        name: pattern.to_owned(),
        about: String::new(),
        seed: 1,
        duration: 330.0,
        workload: Workload { pattern: Some(pattern.to_owned()), points: None },
        classes: vec![Class::new("heating", 40, 2.0)],
        consumers: ConsumerSettings::new(instances, 5.5),
        delays: LoopSettings::default(),
        controller,
        autoscale: None,
        queue_limit: 1_000_000,
        expect: Default::default(),
    }
}

/// The same with so many times the devices, and instances that are as many times as fast.
fn larger(mut scenario: Scenario, factor: u32) -> Scenario {
    scenario.classes[0].devices *= factor;
    scenario.consumers.rate *= f64::from(factor);
    scenario
}

fn told(announce: Announce, mut scenario: Scenario) -> Scenario {
    scenario.delays.announce = announce;
    scenario
}

fn phase() -> ControllerSettings {
    ControllerSettings::Phase(Default::default())
}

fn drain() -> ControllerSettings {
    ControllerSettings::Drain(Default::default())
}

fn outcome(scenario: &Scenario, seed: u64) -> Outcome {
    let outcome = run(scenario, seed, &mut |_| {}).unwrap();
    let get = |name| outcome.measure(name).unwrap();
    assert_eq!(get("sent"), get("processed") + get("waiting") + get("dropped"), "messages are conserved");
    outcome
}

/// The mean of a measure over seeds.
fn mean(scenario: &Scenario, seeds: std::ops::Range<u64>, measure: &str) -> f64 {
    let count = (seeds.end - seeds.start) as f64;
    seeds.map(|seed| outcome(scenario, seed).measure(measure).unwrap()).sum::<f64>() / count
}

#[track_caller]
fn assert_within(what: &str, value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{what}: {value} is not from {low} to {high}");
}

#[test]
fn the_papers_controller_on_the_case_study() {
    for instances in 3..=10 {
        let scenario = told(Announce::Ack, case_study("case-study", instances, phase()));
        // With 3 instances its 2% to spare are 0.33 messages a second, and 0.46 devices join in one, each of which
        // brings a message before it hears of any rate: the queue grows for as long as devices join.
        let longest = if instances == 3 { 0.4 } else { 0.25 };
        for seed in 1..=6 {
            let outcome = outcome(&scenario, seed);
            let what = format!("{instances} instances, seed {seed}");
            assert_within(&what, outcome.measure("processed_share").unwrap(), 0.985, 1.01);
            assert_within(&what, outcome.measure("mean_wait").unwrap(), 0.0, longest);
        }
    }
}

/// Every workload, 2 to 10 instances, both kinds of advice: near the limit, a short wait, and no worse than the paper's.
#[test]
fn the_drain_controller_whatever_the_workload() {
    for announce in [Announce::Push, Announce::Ack] {
        for pattern in ["case-study", "early-peak", "steep-peak", "slow-swell"] {
            for instances in 2..=10 {
                let ours = told(announce, case_study(pattern, instances, drain()));
                let paper = Scenario { controller: phase(), ..ours.clone() };
                let what = format!("{announce:?}, {pattern}, {instances} instances");
                let outcomes: Vec<Outcome> = (1..=4).map(|seed| outcome(&ours, seed)).collect();
                for outcome in &outcomes {
                    assert_within(&what, outcome.measure("processed_share").unwrap(), 0.995, 1.01);
                    assert_within(&what, outcome.measure("mean_wait").unwrap(), 0.0, 0.29);
                }
                let mean_of = |name| outcomes.iter().map(|o| o.measure(name).unwrap()).sum::<f64>() / 4.0;
                assert_within(&what, mean_of("mean_wait"), 0.0, 0.25);
                let ratio = mean_of("processed") / mean(&paper, 1..5, "processed");
                assert_within(&what, ratio, if instances == 2 { 0.997 } else { 0.998 }, 1.1);
            }
        }
    }
}

/// Acknowledgements for every rate and the control topic for the beginning and end: as good as either, for little.
#[test]
fn advice_costs_less_than_one_message_in_a_hundred() {
    let (mut advice, mut sent) = (0.0, 0.0);
    for pattern in ["case-study", "early-peak", "steep-peak", "slow-swell"] {
        for instances in [3, 6, 10] {
            let mut scenario = told(Announce::Both, case_study(pattern, instances, drain()));
            scenario.delays.budget = Some(0.01);
            for seed in 1..=3 {
                let outcome = outcome(&scenario, seed);
                let what = format!("{pattern}, {instances} instances, seed {seed}");
                assert_within(&what, outcome.measure("processed_share").unwrap(), 0.995, 1.01);
                assert_within(&what, outcome.measure("mean_wait").unwrap(), 0.0, 0.25);
                advice += outcome.measure("advice").unwrap();
                sent += outcome.measure("sent").unwrap();
            }
        }
    }
    assert_within("advice for each message", advice / sent, 0.001, 0.01);
}

/// Devices that can't be spaced out (MQTT 3.1.1, QoS 0) cost a longer wait where consumers are few, and no messages.
#[test]
fn without_spacing_the_drain_controller_still_processes_all() {
    for announce in [Announce::Push, Announce::Ack] {
        for pattern in ["case-study", "early-peak", "steep-peak", "slow-swell"] {
            for instances in [3, 6, 10] {
                let mut scenario = told(announce, case_study(pattern, instances, drain()));
                scenario.delays.spaced = Some(false);
                let what = format!("{announce:?}, {pattern}, {instances} instances");
                assert_within(&what, mean(&scenario, 1..5, "processed_share"), 0.995, 1.01);
                let longest = if instances == 3 { 0.4 } else { 0.3 };
                assert_within(&what, mean(&scenario, 1..5, "mean_wait"), 0.0, longest);
            }
        }
    }
}

/// The work of a run, counted and not timed, grows no faster than n log n with the devices.
#[test]
fn the_work_grows_no_faster_than_n_log_n() {
    let steps = |devices: u32| {
        let mut scenario = case_study("case-study", 30, drain());
        scenario.duration = 120.0;
        scenario.classes[0] = Class::new("meters", devices, 1.0 / 60.0);
        scenario.consumers.rate = f64::from(devices) * 22.0 / 100_000.0;
        let outcome = outcome(&scenario, 1);
        assert!(outcome.events > u64::from(devices / 4), "{devices} devices do something");
        assert!(outcome.steps > outcome.events);
        outcome.steps as f64
    };
    for devices in [10_000, 100_000, 1_000_000] {
        let share = steps(devices) / (f64::from(devices) * f64::from(devices).log2());
        assert_within(&format!("{devices} devices: steps over n log n"), share, 0.1, 1.0);
    }
}

/// All of the case study at full size; CONTRIBUTING.md has the command that times it.
#[test]
fn a_hundred_thousand_devices_finish_the_case_study() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/scenarios/hundred-thousand.toml");
    let scenario = Scenario::load(&file).unwrap();
    assert_eq!((scenario.classes[0].devices, scenario.duration), (100_000, 330.0));
    let outcome = outcome(&scenario, scenario.seed);
    assert!(outcome.agrees(), "{:?}", outcome.measures);
    assert!(outcome.events > 20_000_000, "{}", outcome.events);
}

#[test]
fn drain_comes_near_the_limit_on_random_workloads_with_jitter() {
    for seed in 1..=12 {
        let mut scenario = case_study("random", 6, drain());
        scenario.classes[0].jitter = 0.2;
        let paper = outcome(&Scenario { controller: phase(), ..scenario.clone() }, seed);
        let ours = outcome(&scenario, seed);
        let what = format!("seed {seed}");
        assert_within(&what, ours.measure("processed_share").unwrap(), 0.993, 1.03);
        assert_within(&what, ours.measure("mean_wait").unwrap(), 0.0, 0.35);
        assert_within(
            &what,
            ours.measure("processed").unwrap() / paper.measure("processed").unwrap(),
            0.99,
            1.1,
        );
    }
}

#[test]
fn size_does_not_matter() {
    for factor in [2, 10, 50] {
        let what = format!("{factor} times as large");
        let ours = outcome(&larger(case_study("case-study", 6, drain()), factor), 3);
        assert_within(&what, ours.measure("processed_share").unwrap(), 0.998, 1.005);
        assert_within(&what, ours.measure("mean_wait").unwrap(), 0.0, 0.15);
        let paper = told(Announce::Ack, larger(case_study("case-study", 6, phase()), factor));
        assert_within(&what, outcome(&paper, 3).measure("processed_share").unwrap(), 0.98, 1.01);
    }
}

#[test]
fn a_hundred_thousand_devices_that_send_once_in_a_minute() {
    let mut scenario = case_study("case-study", 30, drain());
    scenario.classes[0] = Class::new("meters", 100_000, 1.0 / 60.0);
    scenario.consumers.rate = 22.0;
    let outcome = outcome(&scenario, 1);
    assert_within("share", outcome.measure("processed_share").unwrap(), 0.995, 1.005);
    assert_within("wait", outcome.measure("mean_wait").unwrap(), 0.0, 0.15);
    assert!(outcome.events > 200_000);
}

#[test]
fn random_processing_times_cost_little() {
    let mut scenario = larger(case_study("case-study", 6, drain()), 5);
    scenario.consumers.service = Service::Exponential;
    assert_within("share", mean(&scenario, 1..5, "processed_share"), 0.99, 1.01);
    assert_within("wait", mean(&scenario, 1..5, "mean_wait"), 0.0, 0.25);
}

#[test]
fn rates_that_arrive_late_are_reckoned_with() {
    for announce in [Announce::Push, Announce::Ack] {
        for (latency, longest) in [(0.3, 0.15), (1.0, 0.2), (3.0, 0.3)] {
            let mut scenario = told(announce, case_study("case-study", 6, drain()));
            scenario.delays.latency = latency;
            let what = format!("{announce:?}, {latency} s late");
            assert_within(&what, mean(&scenario, 1..4, "processed_share"), 0.99, 1.01);
            assert_within(&what, mean(&scenario, 1..4, "mean_wait"), 0.0, longest);
        }
    }
}

/// Consumers that take longer for a message than a control period, and all begin at once, finish in step for ever.
#[test]
fn slow_consumers_that_work_in_step() {
    for announce in [Announce::Push, Announce::Ack] {
        for (instances, rate, devices) in [(20, 0.5, 20), (33, 1.0, 40), (100, 1.0, 100), (200, 0.2, 40)] {
            let mut scenario = told(announce, case_study("constant", instances, drain()));
            scenario.classes[0].devices = devices;
            scenario.consumers.rate = rate;
            let what = format!("{announce:?}, {instances} instances of {rate}/s");
            assert_within(&what, mean(&scenario, 1..4, "processed_share"), 0.995, 1.01);
            // Devices hear of a rate only after the first messages are done.
            assert_within(&what, mean(&scenario, 1..4, "mean_wait"), 0.0, 0.7);
        }
    }
}

#[test]
fn weights_floors_and_ceilings_hold_under_overload() {
    let class = |name: &str, weight: f64, floor: f64, ceiling: Option<f64>| Class {
        weight,
        floor,
        ceiling,
        ..Class::new(name, 20, 2.0)
    };
    for seed in 1..=3 {
        for factor in [1, 20] {
            let mut scenario = case_study("constant", 8, drain());
            scenario.duration = 120.0;
            scenario.classes = vec![
                class("heavy", 4.0, 0.0, None),
                class("light", 1.0, 0.0, None),
                class("kept", 1.0, 0.6, None),
                class("capped", 4.0, 0.0, Some(0.2)),
            ];
            scenario.classes.iter_mut().for_each(|class| class.devices *= factor);
            scenario.consumers.rate *= f64::from(factor);
            let outcome = outcome(&scenario, seed);
            let held = |name: &str| outcome.measure(&format!("class.{name}.held_rate")).unwrap();
            assert_within("weight 4 against 1", held("heavy") / held("light"), 3.8, 4.2);
            assert_within("the floor", held("kept"), 0.59, 0.65);
            assert_within("the ceiling", held("capped"), 0.19, 0.21);
            // 44 a second less 12 for the floors and 4 for the capped class, for 20 devices of weight 4 and 20 of 1.
            assert_within("what is left is used", held("heavy"), 1.08, 1.2);
            assert_within(
                "all of the processing rate is used",
                outcome.measure("held_use").unwrap(),
                0.99,
                1.01,
            );
        }
    }
}

#[test]
fn floors_over_the_capacity_keep_the_queue_short() {
    for announce in [Announce::Push, Announce::Ack] {
        let mut scenario = told(announce, case_study("constant", 8, drain()));
        scenario.duration = 120.0;
        // Floors of 60 a second for consumers of 44, and a class without a floor that wants 40.
        scenario.classes = vec![
            Class { floor: 1.5, ..Class::new("kept", 40, 2.0) },
            Class { weight: 0.0, ..Class::new("rest", 20, 2.0) },
        ];
        let outcome = outcome(&scenario, 1);
        let what = format!("{announce:?}");
        assert_within(&what, outcome.measure("mean_wait").unwrap(), 0.0, 1.0);
        assert_within(&what, outcome.measure("waiting").unwrap(), 0.0, 44.0);
        assert_within(&what, outcome.measure("class.rest.held_rate").unwrap(), 0.0, 0.2);
    }
}

#[test]
fn a_class_of_tiny_weight_recovers_after_an_overload() {
    for (announce, weight) in [(Announce::Ack, 1e-6), (Announce::Ack, 0.0), (Announce::Push, 0.0)] {
        let mut scenario = told(announce, case_study("constant", 8, drain()));
        scenario.workload =
            Workload { pattern: None, points: Some(vec![[0.0, 1.0], [0.3, 1.0], [0.31, 0.2]]) };
        scenario.classes =
            vec![Class::new("heavy", 40, 2.0), Class { weight, ..Class::new("light", 20, 2.0) }];
        let outcome = outcome(&scenario, 1);
        let held = outcome.series.iter().map(|point| point.rates[1]).fold(f64::MAX, f64::min);
        assert_within("held back", held, 0.0199, 0.0201);
        let last = outcome.series.last().unwrap();
        assert_eq!(last.rates[1], 2.0, "{announce:?}: told its own rate again");
        // 12 devices are left at their own rate of 2: after the longest interval of 50 s all have heard of it.
        let late: Vec<f64> =
            outcome.series.iter().filter(|p| p.time > 200.0).map(|point| point.arrivals).collect();
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert_within("all send at their own rate", mean, 23.0, 24.5);
    }
}

#[test]
fn a_demand_aware_auto_scaler_waits_little_and_beats_the_others() {
    let coupled = |coupling, controller, instances| {
        let mut scenario = case_study("case-study", instances, controller);
        scenario.autoscale = Some(AutoscaleSettings { coupling, ..AutoscaleSettings::default() });
        scenario
    };
    for instances in 3..=10 {
        let ours = coupled(CouplingName::DemandAware, drain(), instances);
        let state_aware = coupled(CouplingName::StateAware, phase(), instances);
        let what = format!("{instances} instances");
        assert_within(&what, mean(&ours, 1..4, "mean_wait"), 0.0, 0.25);
        assert_within(&what, mean(&ours, 1..4, "processed_share"), 0.98, 1.01);
        let ratio = mean(&ours, 1..4, "processed") / mean(&state_aware, 1..4, "processed");
        assert_within(&what, ratio, 0.998, 1.2);
    }
}

#[test]
fn an_overload_based_auto_scaler_is_off_while_devices_are_held_back() {
    let threshold = super::scenario::PhaseSettings { threshold_depth: Some(250), ..Default::default() };
    let mut scenario = case_study("case-study", 6, ControllerSettings::Phase(threshold));
    scenario.autoscale =
        Some(AutoscaleSettings { coupling: CouplingName::OverloadBased, ..AutoscaleSettings::default() });
    let outcome = outcome(&scenario, 1);
    let held = outcome.series.windows(2).filter(|pair| pair.iter().all(|point| point.phase != "idle"));
    // Instances that were asked for before may still start.
    let changes = held.filter(|pair| pair[0].instances != pair[1].instances).count();
    assert!(changes <= 2, "{changes} changes while devices were held back");
}

#[test]
fn consumers_that_slow_down_and_recover_are_followed() {
    let mut scenario = case_study("constant", 16, drain());
    scenario.consumers.speed = vec![[0.3, 0.3], [0.6, 1.0]];
    let outcome = outcome(&scenario, 1);
    assert_within("share", outcome.measure("processed_share").unwrap(), 0.985, 1.01);
    assert_within("wait", outcome.measure("mean_wait").unwrap(), 0.0, 0.25);
}

#[test]
fn devices_that_never_listen_cost_the_others_but_not_the_queue() {
    let mut scenario = case_study("constant", 8, drain());
    scenario.classes[0].deaf = 0.2;
    let outcome = outcome(&scenario, 1);
    assert_within("share", outcome.measure("processed_share").unwrap(), 0.99, 1.01);
    assert_within("wait", outcome.measure("mean_wait").unwrap(), 0.0, 1.5);
}

#[test]
fn a_bounded_queue_drops_and_counts() {
    let mut scenario = case_study("constant", 6, ControllerSettings::None);
    scenario.queue_limit = 100;
    let outcome = outcome(&scenario, 1);
    assert_eq!(outcome.measure("max_depth").unwrap(), 100.0);
    assert!(outcome.measure("dropped").unwrap() > 10_000.0);
}

#[test]
fn the_limit_is_the_integral_of_the_lesser_of_demand_and_capacity() {
    let outcome = outcome(&case_study("constant", 6, ControllerSettings::None), 1);
    assert!((outcome.measure("limit").unwrap() - 33.0 * 330.0).abs() < 1e-6);
    assert!((outcome.measure("offered").unwrap() - 80.0 * 330.0).abs() < 1e-6);
}

#[test]
fn the_limit_counts_no_message_that_devices_with_long_intervals_would_not_send() {
    for pattern in ["case-study", "steep-peak", "slow-swell"] {
        for rate in [2.0, 0.3, 0.1, 1.0 / 60.0] {
            let mut scenario = case_study(pattern, 1000, ControllerSettings::None);
            scenario.classes[0] = Class::new("meters", (4000.0 / rate) as u32, rate);
            scenario.duration = 120.0;
            scenario.consumers.rate = 100.0;
            let outcome = outcome(&scenario, 1);
            let share = outcome.measure("sent").unwrap() / outcome.measure("limit").unwrap();
            assert_within(&format!("{pattern}, {rate} a second"), share, 0.995, 1.005);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    for controller in [ControllerSettings::None, phase(), drain()] {
        let scenario = case_study("random", 5, controller);
        let bytes = |seed| serde_json::to_vec(&outcome(&scenario, seed)).unwrap();
        assert_eq!(bytes(5), bytes(5));
        assert_ne!(bytes(5), bytes(6));
    }
}

#[test]
fn an_empty_world_runs() {
    let mut scenario = case_study("constant", 1, drain());
    scenario.classes[0].devices = 0;
    let outcome = outcome(&scenario, 1);
    assert_eq!(outcome.measure("processed"), Some(0.0));
    assert_eq!(outcome.measure("processed_share"), Some(0.0));
}

/// One number of these, or one in between.
fn any_of(odd: &'static [f64], low: f64, high: f64) -> impl Strategy<Value = f64> {
    prop_oneof![proptest::sample::select(odd), low..high]
}

fn any_class() -> impl Strategy<Value = Class> {
    let numbers = (0u32..200, any_of(&[1e-6, 1e3], 0.01, 20.0), any_of(&[0.0, 1e6], 0.1, 8.0));
    let habits =
        (any_of(&[0.0, 1.0], 0.0, 1.0), any_of(&[0.0, 1.0], 0.0, 1.0), any_of(&[0.0, 1.0], 0.0, 1.0));
    (numbers, habits).prop_map(|((devices, rate, weight), (jitter, spread, deaf))| Class {
        weight,
        jitter,
        spread,
        deaf,
        ..Class::new("any", devices, rate)
    })
}

fn any_scenario() -> impl Strategy<Value = Scenario> {
    let announce = prop_oneof![Just(Announce::Push), Just(Announce::Ack), Just(Announce::Both)];
    let delays = (any_of(&[0.01, 2.0], 0.1, 1.0), any_of(&[0.0, 100.0], 0.0, 1.0), announce);
    let controller = prop_oneof![Just(ControllerSettings::None), Just(phase()), Just(drain())];
    let consumers = (1u32..20, any_of(&[1e-6, 1e9], 0.1, 50.0));
    (any_class(), delays, controller, consumers, 1u64..50, any::<bool>()).prop_map(
        |(class, (period, latency, announce), controller, (instances, rate), queue_limit, spaced)| {
            let mut scenario = case_study("random", instances, controller);
            scenario.duration = 5.0;
            scenario.classes = vec![class];
            scenario.consumers.rate = rate;
            scenario.queue_limit = queue_limit * queue_limit * queue_limit;
            let (budget, spaced) = (Some(0.01), Some(spaced));
            scenario.delays = LoopSettings { period, latency, announce, budget, spaced, ..scenario.delays };
            scenario
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any scenario that passes its check runs to its end: messages are conserved, every figure is a number, rates stay
    /// above zero and no higher than a device's own, and the same seed gives the same bytes.
    #[test]
    fn any_scenario_runs_and_keeps_its_bounds(scenario in any_scenario(), seed in any::<u64>()) {
        let first = outcome(&scenario, seed);
        prop_assert!(first.measures.iter().all(|measure| measure.value.is_finite() && measure.value >= 0.0));
        let own = scenario.classes[0].rate;
        prop_assert!(first.series.iter().all(|point| point.rates[0] > 0.0 && point.rates[0] <= own));
        let again = outcome(&scenario, seed);
        prop_assert_eq!(serde_json::to_vec(&first).unwrap(), serde_json::to_vec(&again).unwrap());
    }
}

//! Results that look like real ones, from a formula: four brokers, two scenarios, three runs each.

use tidegate_bench::compare::summarise;
use tidegate_bench::record::{
    Broker, BrokerResult, Comparison, FORMAT, Interval, Latency, Machine, Missing, Note, NoteKind,
    Percentile, Rates, Run, ScenarioComparison, Totals, Use,
};

/// How a broker behaves.
#[derive(Clone, Copy)]
struct Behaviour {
    name: &'static str,
    /// Accepted and delivered in a second.
    accepted: f64,
    delivered: f64,
    /// Whether it throws away what it can't deliver, instead of letting it wait.
    loses: bool,
    /// Half of the messages are at most so late, in milliseconds.
    delay: f64,
}

const fn behaviour(name: &'static str, accepted: f64, delivered: f64, loses: bool, delay: f64) -> Behaviour {
    Behaviour { name, accepted, delivered, loses, delay }
}

const FLOOD: [Behaviour; 4] = [
    behaviour("tidegate", 412_000.0, 412_000.0, false, 38.0),
    behaviour("mosquitto", 52_000.0, 6_700.0, true, 9.0),
    behaviour("nats", 30_400.0, 30_400.0, false, 31.0),
    behaviour("rumqttd", 415_000.0, 103_000.0, false, 2_800.0),
];

const SHARED: [Behaviour; 4] = [
    behaviour("tidegate", 20_000.0, 20_000.0, false, 0.6),
    behaviour("mosquitto", 20_000.0, 19_990.0, true, 0.5),
    behaviour("nats", 20_000.0, 20_000.0, false, 0.9),
    behaviour("rumqttd", 20_000.0, 20_000.0, false, 2.2),
];

/// Both scenarios.
pub fn comparison() -> Comparison {
    let flood =
        "Eight publishers send as fast as they may with QoS 1 to one consumer: what is accepted must arrive.";
    let shared = "100 publishers send 200 messages a second each to a shared group of ten consumers.";
    Comparison {
        format: FORMAT,
        started: "2026-01-31T12:00:00Z".to_owned(),
        machine: machine(),
        generator: "0.1.0".to_owned(),
        seconds: 688.0,
        unfinished: None,
        failures: Vec::new(),
        scenarios: vec![scenario("flood", flood, &FLOOD), scenario("shared", shared, &SHARED)],
        missing: vec![Missing {
            broker: "emqx".to_owned(),
            scenario: None,
            reason: "It is not installed: apt-get install emqx".to_owned(),
        }],
    }
}

/// One run.
pub fn run() -> Run {
    one_run("flood", "Eight publishers send as fast as they may.", FLOOD[1], 1)
}

fn scenario(name: &str, about: &str, brokers: &[Behaviour]) -> ScenarioComparison {
    let mut results: Vec<BrokerResult> = Vec::new();
    for behaviour in brokers {
        let runs: Vec<Run> = (1..=3).map(|repetition| one_run(name, about, *behaviour, repetition)).collect();
        let measures = summarise(&runs, results.first().map(|first| &first.measures));
        results.push(BrokerResult { broker: broker(behaviour.name), measures, runs });
    }
    ScenarioComparison {
        scenario: name.to_owned(),
        about: about.to_owned(),
        brokers: results,
        reference: None,
    }
}

fn one_run(scenario: &str, about: &str, behaviour: Behaviour, repetition: u32) -> Run {
    let luck = 1.0 + 0.04 * (f64::from(repetition) - 2.0);
    let rates = Rates {
        sent: behaviour.accepted * luck * 1.01,
        accepted: behaviour.accepted * luck,
        delivered: behaviour.delivered * luck,
    };
    let duration = 10.0;
    let expected = (rates.accepted * duration) as u64;
    let lost = if behaviour.loses { ((rates.accepted - rates.delivered) * duration) as u64 } else { 0 };
    let totals = Totals {
        sent: (rates.sent * duration) as u64,
        accepted: expected,
        expected,
        delivered: expected - lost,
        lost,
        connects: 9,
        ..Totals::default()
    };
    let percentiles = percentiles(behaviour.delay, totals.delivered);
    let at =
        |share: f64| percentiles.iter().rfind(|point| point.percentile <= share).map_or(0.0, |p| p.latency);
    let latency = Latency {
        count: totals.delivered,
        min: at(0.0) / 2.0,
        mean: at(60.0),
        p50: at(50.0),
        p90: at(90.0),
        p99: at(99.0),
        p999: at(99.9),
        max: 1.5 * at(100.0),
    };
    let mut run = Run {
        format: FORMAT,
        scenario: scenario.to_owned(),
        about: about.to_owned(),
        scenario_file: "[publishers]\ncount = 8\nqos = 1\n".to_owned(),
        broker: broker(behaviour.name),
        repetition,
        started: "2026-01-31T12:00:00Z".to_owned(),
        machine: machine(),
        generator: "0.1.0".to_owned(),
        duration,
        connect_seconds: 0.02,
        intervals: intervals(behaviour, luck, duration),
        totals,
        rates,
        latency,
        percentiles,
        broker_use: Some(Use { cpu: 1.1, rss: 24_000_000 }),
        generator_use: Use { cpu: 0.9, rss: 60_000_000 },
        ..Run::default()
    };
    if behaviour.accepted > 400_000.0 {
        let text = "Broker and generator used all of the 2 processors.".to_owned();
        run.notes.push(Note { kind: NoteKind::MachineSaturated, text });
    }
    if behaviour.name == "rumqttd" && repetition == 3 {
        run.error = Some("the broker closed 4 of 9 connections".to_owned());
        run.duration = 7.5;
    }
    if behaviour.name == "tidegate" && repetition == 1 && scenario == "flood" {
        let text = "The generator was late by more than 10 ms for 3% of the messages.".to_owned();
        run.notes.push(Note { kind: NoteKind::GeneratorLimited, text });
    }
    run
}

fn percentiles(half: f64, count: u64) -> Vec<Percentile> {
    let shares = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 99.999, 100.0];
    let point = |share: f64| {
        let nines = (100.0 / (100.0 - share.min(99.999))).log10();
        let count = (count as f64 * share / 100.0) as u64;
        Percentile { percentile: share, latency: half * (0.5 + 0.55 * nines + 0.3 * nines * nines), count }
    };
    shares.map(point).to_vec()
}

fn intervals(behaviour: Behaviour, luck: f64, duration: f64) -> Vec<Interval> {
    let surplus = if behaviour.loses { 0.0 } else { (behaviour.accepted - behaviour.delivered).max(0.0) };
    let kept = (behaviour.delivered * behaviour.delay / 1000.0).min(behaviour.delivered);
    (-1..=(2.0 * duration) as i32 + 2)
        .map(|half| {
            let t = f64::from(half) / 2.0 + 0.5;
            let sending = t <= duration;
            let wave = luck * (1.0 + 0.05 * (t * 2.3).sin() + 0.03 * (t * 7.1).cos());
            let waiting = (surplus * t.clamp(0.0, duration) + kept * wave).max(0.0);
            let late = behaviour.delay * (1.0 + if surplus > 0.0 { 3.0 * t.max(0.0) } else { 0.2 * wave });
            let rate = |per_second: f64| if sending { (per_second * wave / 2.0) as u64 } else { 0 };
            Interval {
                t,
                length: 0.5,
                sent: rate(behaviour.accepted * 1.01),
                accepted: rate(behaviour.accepted),
                delivered: rate(behaviour.delivered),
                devices: 8,
                consumers: 1,
                waiting: if sending { waiting as u64 } else { 0 },
                p50: Some(late / 2.0),
                p99: sending.then_some(late * 2.0),
                max: Some(late * 3.0),
                broker_cpu: Some(1.1 * wave),
                broker_rss: Some(24_000_000 + (t.max(0.0) * 1e6) as u64),
                generator_cpu: 0.9,
                ..Interval::default()
            }
        })
        .collect()
}

fn broker(name: &str) -> Broker {
    Broker {
        name: name.to_owned(),
        variant: String::new(),
        version: "2.0.1".to_owned(),
        configuration: "listener 40123 127.0.0.1\nmax_queued_messages 0\nmax_inflight_messages 0\n"
            .to_owned(),
        address: "127.0.0.1:40123".to_owned(),
    }
}

fn machine() -> Machine {
    Machine {
        processor: "Some Processor 9000".to_owned(),
        cores: 2,
        memory: 8_000_000_000,
        system: "Linux 6.1".to_owned(),
    }
}

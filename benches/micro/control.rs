//! What a controller's step and a fair allocation cost: `cargo bench -p tidegate-bench --bench control`.

#![allow(clippy::expect_used)]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use tidegate_control::allocate::{Claim, level, water_fill};
use tidegate_control::flow::Reading;
use tidegate_control::overload::{Config, DrainConfig, Load, PhaseConfig};
use tidegate_control::random::{Random, Seeded};
use tidegate_control::time::{Moment, Span};

const CLIENTS: u64 = 100_000;
const PERIOD: Span = Span::from_millis(100);

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    step(&mut criterion);
    allocation(&mut criterion);
    criterion.final_summary();
}

/// One control period of one queue, in a load that goes into overload and out of it all the time.
fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("controller step");
    group.throughput(Throughput::Elements(1));
    let loads = loads(512);
    let controllers =
        [("paper", Config::Phase(PhaseConfig::default())), ("drain", Config::Drain(DrainConfig::default()))];
    for (name, config) in controllers {
        let mut controller = config.build().expect("the default is sound");
        let mut period = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                period += 1;
                let now = Moment::from_nanos(period * PERIOD.as_nanos());
                controller.on_load(now, black_box(&loads[period as usize % loads.len()]));
                black_box(controller.decision())
            });
        });
    }
}

/// A queue that fills for 64 periods and empties for 64, of consumers that take 1,000 messages a second.
fn loads(count: u64) -> Vec<Load> {
    let mut random = Seeded::new(1);
    let mut depth = 0_u64;
    (0..count)
        .map(|k| {
            let arrived = if k % 128 < 64 { 150 + random.below(100) } else { random.below(50) };
            let departed = (depth + arrived).min(100);
            depth = depth + arrived - departed;
            let busy = if depth > 0 { PERIOD } else { Span::ZERO };
            let reading = Reading {
                elapsed: PERIOD,
                depth,
                least_depth: depth.saturating_sub(arrived),
                delay: Span::from_millis(depth),
                arrived,
                departed,
                busy_time: busy,
                busy_departed: if depth > 0 { departed } else { 0 },
            };
            Load { reading, devices: CLIENTS, demand: 2_000.0 }
        })
        .collect()
}

/// Rates for 100,000 clients: when each has its own claim, and when they come in eight classes.
fn allocation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allocation for 100,000 clients");
    group.throughput(Throughput::Elements(CLIENTS));
    let mut random = Seeded::new(2);
    let claims: Vec<Claim> = (0..CLIENTS).map(|_| claim(&mut random, 1)).collect();
    let wanted: f64 = claims.iter().map(|claim| claim.ceiling).sum();
    let granted: f64 = water_fill(wanted / 2.0, &claims).iter().sum();
    assert!((granted / wanted - 0.5).abs() < 1e-6, "half of what is wanted is given out");
    group.bench_function("a claim for each", |b| {
        b.iter(|| black_box(water_fill(black_box(wanted / 2.0), &claims)));
    });
    let classes: Vec<Claim> = (0..8).map(|_| claim(&mut random, CLIENTS / 8)).collect();
    let wanted: f64 = classes.iter().map(|claim| claim.ceiling * claim.members as f64).sum();
    group.bench_function("eight classes", |b| {
        b.iter(|| black_box(level(black_box(wanted / 2.0), &classes)));
    });
}

fn claim(random: &mut Seeded, members: u64) -> Claim {
    let ceiling = random.uniform_in(1.0, 10.0);
    Claim { members, weight: random.uniform_in(0.5, 4.0), floor: 0.1 * ceiling, ceiling }
}

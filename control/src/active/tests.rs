//! What must hold for every strategy, whatever it is told.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::backoff::{Announced, BackoffConfig};
use crate::random::Seeded;
use alloc::boxed::Box;
use alloc::vec::Vec;
use proptest::prelude::{Just, any, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy as Arbitrary;

const BOUNDS: Bounds = Bounds { shortest: Span::from_millis(500), longest: Span::from_secs(600) };

/// One of each, all within the same bounds.
fn all(step: Span, kept: f64, divisor: f64) -> Vec<Box<dyn Strategy>> {
    let (first, bounds) = (Span::from_secs(20), BOUNDS);
    let divided = DividedConfig { first, step, divisor, growth_cap: false, bounds };
    let capped = DividedConfig { growth_cap: true, ..divided };
    let regular = RegularConfig { fallback: capped, ..Default::default() };
    let tuned = SelfTuningConfig { first, step, losses: kept, bounds };
    alloc::vec![
        Box::new(SmoothedConfig { first, step, kept, bounds }.build().unwrap()),
        Box::new(divided.build().unwrap()),
        Box::new(capped.build().unwrap()),
        Box::new(MultiplicativeConfig { first, factor: kept, bounds }.build().unwrap()),
        Box::new(RandomChoiceConfig { first, bounds }.build().unwrap()),
        Box::new(ConstantConfig { interval: first }.build().unwrap()),
        Box::new(tuned.build().unwrap()),
        Box::new(regular.build().unwrap()),
    ]
}

/// Checks with any count, any time (also backwards) and any pressure.
fn checks() -> impl Arbitrary<Value = Vec<Check>> {
    let pressure = prop_oneof![Just(Pressure::None), Just(Pressure::Held), Just(Pressure::Slow)];
    let count = prop_oneof![0..4u32, any::<u32>()];
    let time = prop_oneof![0..1_000_000_000_000u64, any::<u64>()];
    let check = (time, count, any::<Option<u64>>(), pressure).prop_map(|(at, updates, change, pressure)| {
        let change = change.map(|nanos| Moment::from_nanos(nanos % 1_000_000_000_000));
        Check::found(Moment::from_nanos(at), updates).changed(change).under(pressure)
    });
    prop::collection::vec(check, 1..200)
}

proptest! {
    #[test]
    fn intervals_stay_within_bounds_and_never_shrink_under_pressure(
        step in 1..10_000_000u64, kept in 0.01..0.99f64, divisor in 1.001..100.0f64, seed in any::<u64>(), checks in checks(),
    ) {
        for mut strategy in all(Span::from_nanos(step * 1_000), kept, divisor) {
            let mut random = Seeded::new(seed);
            for check in &checks {
                let before = strategy.interval();
                let after = strategy.on_check(check, &mut random);
                prop_assert!(after == strategy.interval());
                prop_assert!(BOUNDS.shortest <= after && after <= BOUNDS.longest, "{after}");
                if check.pressure != Pressure::None {
                    prop_assert!(after >= before, "{before} to {after} under pressure");
                }
            }
        }
    }

    #[test]
    fn the_timer_never_asks_before_the_reply_and_replays_with_its_seed(
        seed in any::<u64>(), replies in prop::collection::vec((any::<u64>(), any::<u32>(), any::<Option<f64>>()), 1..100),
    ) {
        let run = || {
            let strategy = RegularConfig::default().build().unwrap();
            let mut timer = CheckTimer::new(strategy, BackoffConfig::default().build().unwrap());
            let mut random = Seeded::new(seed);
            let mut sent = Moment::START;
            let mut due = Vec::new();
            for (took, updates, rate) in &replies {
                let answered = sent + Span::from_nanos(took % 100_000_000_000);
                let announced = Announced { rate: *rate, delay: None };
                let reply = Reply { sent, answered, updates: *updates, last_change: Some(sent), announced };
                sent = timer.on_reply(&reply, &mut random);
                due.push((answered, sent));
            }
            due
        };
        let due = run();
        prop_assert!(due.iter().all(|(answered, next)| next >= answered));
        prop_assert!(due == run());
    }
}

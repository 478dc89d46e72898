#![allow(clippy::unwrap_used)]
use super::*;
use crate::random::Seeded;
use proptest::prelude::*;

const RIGOROUS: Level =
    Level::Rigorous { processing: Span::from_millis(10), network: Span::ZERO, queueing: 0.9 };

fn response(took: f64) -> Response {
    let announced = Announced::default();
    Response { took: Span::from_secs_f64(took), waited: Span::from_secs(5), announced, silent: false }
}

/// The paper's algorithm without its random part.
fn plain() -> BackoffConfig {
    BackoffConfig {
        level: RIGOROUS,
        first: FirstValue::LastEnding,
        minimum_responses: 0.0,
        variation: Variation::Normal { deviation: 0.0 },
        ..Default::default()
    }
}

fn next(backoff: &mut Backoff, response: &Response) -> f64 {
    backoff.on_response(response);
    backoff.wait(Span::from_secs(3), &mut Seeded::new(1)).as_secs_f64()
}

#[test]
fn grows_from_the_minimum_to_five_mean_responses_and_ends_at_once() {
    let mut backoff = plain().build().unwrap();
    let slow = response(0.5);
    let values: [f64; 7] = core::array::from_fn(|_| next(&mut backoff, &slow));
    assert_eq!(values, [0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]);
    assert_eq!(next(&mut backoff, &response(0.01)), 0.0);
}

#[test]
fn the_longest_backoff_is_still_varied() {
    let variation = Variation::Normal { deviation: 0.3 };
    let mut backoff = BackoffConfig { variation, ..plain() }.build().unwrap();
    let mut random = Seeded::new(1);
    let waits: [f64; 100] = core::array::from_fn(|_| {
        backoff.on_response(&response(0.5));
        backoff.wait(Span::from_secs(3), &mut random).as_secs_f64()
    });
    let shorter = waits[50..].iter().filter(|wait| **wait < 2.4).count();
    assert!(
        (10..=40).contains(&shorter),
        "{shorter} of 50 differ from the longest: clients would meet again"
    );
}

#[test]
fn the_next_congestion_starts_from_what_ended_the_last() {
    let mut backoff = plain().build().unwrap();
    for _ in 0..3 {
        next(&mut backoff, &response(0.5));
    }
    next(&mut backoff, &response(0.01));
    assert_eq!(next(&mut backoff, &response(0.5)), 0.4);
}

#[test]
fn or_from_what_lacks_to_the_last_good_wait() {
    let mut backoff = BackoffConfig { first: FirstValue::LastGood, ..plain() }.build().unwrap();
    next(&mut backoff, &response(0.01));
    // The wait was 5 s, the interval is 3 s now; t_max is 5 * (0.9 * 0.01 + 0.1 * 9) = 4.545.
    assert_eq!(next(&mut backoff, &response(9.0)), 2.0);
}

#[test]
fn or_from_the_response_where_nothing_is_known() {
    let mut backoff = BackoffConfig { minimum_responses: 4.0, ..plain() }.build().unwrap();
    assert_eq!(next(&mut backoff, &response(0.5)), 2.0);
}

#[test]
fn an_announced_rate_is_kept_without_congestion_and_ignored_unless_wanted() {
    let announced = Announced { rate: Some(0.1), delay: None };
    let hinted = Response { announced, ..response(0.01) };
    let mut backoff = BackoffConfig { first: FirstValue::ServerHint, ..plain() }.build().unwrap();
    assert_eq!(next(&mut backoff, &hinted), 7.0);
    assert!(backoff.is_held() && !backoff.is_congested());
    assert_eq!(next(&mut backoff, &response(0.01)), 0.0);
    assert!(!backoff.is_held());
    assert_eq!(next(&mut plain().build().unwrap(), &hinted), 0.0);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 5.0] {
        let announced = Announced { rate: Some(rate), delay: None };
        assert_eq!(next(&mut backoff, &Response { announced, ..hinted }), 0.0, "rate {rate}");
    }
}

#[test]
fn each_level_has_its_limit() {
    let congested = |level: Level, took, delay, mean| level.is_congested(took, delay, mean);
    assert!(!congested(RIGOROUS, 0.019, None, None) && congested(RIGOROUS, 0.0191, None, None));
    let mediate = Level::Mediate { assumed: Span::from_millis(100), network: Span::from_millis(20) };
    assert!(!congested(mediate, 0.12, None, None) && congested(mediate, 0.121, None, None));
    let announced = Some(Span::from_millis(300));
    assert!(!congested(mediate, 0.32, announced, None) && congested(mediate, 0.33, announced, None));
    let light = Level::Light { multiple: 2.0 };
    assert!(!congested(light, 99.0, None, None), "the first response has nothing to be compared with");
    assert!(!congested(light, 0.2, None, Some(0.1)) && congested(light, 0.21, None, Some(0.1)));
}

#[test]
fn the_light_level_drifts_up_under_lasting_load() {
    let mut backoff = BackoffConfig { level: Level::Light { multiple: 2.0 }, ..plain() }.build().unwrap();
    backoff.on_response(&response(0.01));
    assert!(backoff.on_response(&response(1.0)));
    let still = (0..100).filter(|_| backoff.on_response(&response(1.0))).count();
    assert!(still < 10, "after {still} slow responses slowness is the average");
}

#[test]
fn settings_out_of_range_are_refused() {
    let good = plain();
    let key = |config: BackoffConfig| config.build().unwrap_err().key;
    for multiplier in [1.9, 0.0, f64::NAN] {
        assert_eq!(key(BackoffConfig { multiplier, ..good }), "multiplier");
    }
    assert_eq!(key(BackoffConfig { minimum: Span::ZERO, ..good }), "minimum");
    assert_eq!(key(BackoffConfig { minimum_responses: -1.0, ..good }), "minimum_responses");
    assert_eq!(key(BackoffConfig { longest_responses: 0.0, ..good }), "longest_responses");
    assert_eq!(key(BackoffConfig { longest: Span::ZERO, ..good }), "longest");
    assert_eq!(key(BackoffConfig { smoothing: 1.0, ..good }), "smoothing");
    assert_eq!(key(BackoffConfig { variation: Variation::Normal { deviation: 1.1 }, ..good }), "deviation");
    assert_eq!(key(BackoffConfig { level: Level::Light { multiple: 1.0 }, ..good }), "multiple");
    let level = Level::Rigorous { processing: Span::from_millis(1), network: Span::ZERO, queueing: 1.0 };
    assert_eq!(key(BackoffConfig { level, ..good }), "queueing");
    let level = Level::Mediate { assumed: Span::ZERO, network: Span::ZERO };
    assert_eq!(key(BackoffConfig { level, ..good }), "assumed");
}

fn any_config() -> impl Strategy<Value = BackoffConfig> {
    let level = prop_oneof![
        Just(RIGOROUS),
        Just(Level::Mediate { assumed: Span::from_millis(50), network: Span::from_millis(10) }),
        (1.01..10.0f64).prop_map(|multiple| Level::Light { multiple }),
    ];
    let first =
        prop_oneof![Just(FirstValue::LastGood), Just(FirstValue::LastEnding), Just(FirstValue::ServerHint)];
    let variation = prop_oneof![
        Just(Variation::FullJitter),
        (0.0..=1.0f64).prop_map(|deviation| Variation::Normal { deviation })
    ];
    (level, first, variation, 1..5000u64, 0.0..10.0f64, 2.0..8.0f64, 0.1..50.0f64, 0.0..0.999f64).prop_map(
        |(level, first, variation, minimum, minimum_responses, multiplier, longest_responses, smoothing)| {
            BackoffConfig {
                level,
                first,
                minimum: Span::from_millis(minimum),
                minimum_responses,
                multiplier,
                longest_responses,
                longest: Span::from_secs(600),
                variation,
                smoothing,
            }
        },
    )
}

proptest! {
    #[test]
    fn it_is_zero_unless_congested_or_asked_and_always_bounded(
        config in any_config(),
        seed in any::<u64>(),
        responses in prop::collection::vec((0..u64::MAX / 4, any::<Option<f64>>(), any::<bool>(), 0..20u64), 1..60),
    ) {
        let mut backoff = config.build().unwrap();
        let mut random = Seeded::new(seed);
        for (nanos, rate, quick, interval) in responses {
            let took = Span::from_nanos(if quick { nanos % 2_000_000_000 } else { nanos });
            let announced = Announced { rate, delay: None };
            let congested =
                backoff.on_response(&Response { took, waited: Span::from_secs(3), announced, silent: false });
            let wait = backoff.wait(Span::from_secs(interval), &mut random);
            prop_assert!(wait <= config.longest);
            if !congested && !backoff.is_held() {
                prop_assert_eq!(wait, Span::ZERO);
            }
            if !backoff.is_held() {
                prop_assert!(wait.as_secs_f64() <= backoff.longest() * 1.000_001 + 1e-9);
            }
        }
    }
}

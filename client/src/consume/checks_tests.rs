#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use bytes::Bytes;
use tidegate_control::active::{Bounds, Check, DividedConfig, SelfTuningConfig, SmoothedConfig};
use tidegate_control::backoff::BackoffConfig;
use tidegate_control::random::Seeded;

use super::*;
use crate::consume::tracker::{Out, Purpose, Tracker, TrackerSettings};
use crate::net::Incoming;
use crate::protocol::{Answer, Missed};

fn at(seconds: f64) -> Moment {
    Moment::from_secs_f64(seconds)
}

fn checks(strategy: AnyStrategy, most: f64) -> Checks {
    let timer = CheckTimer::new(strategy, BackoffConfig::default().build().unwrap());
    Checks::new(Span::from_secs(5), timer, Bucket::new(at(0.0), most, 2.0).unwrap())
}

fn tuned() -> AnyStrategy {
    let bounds = Bounds { shortest: Span::from_millis(2_500), longest: Span::from_secs(60) };
    Box::new(SelfTuningConfig { bounds, ..Default::default() }.build().unwrap())
}

/// Goes to the next regular check; its number.
fn next(checks: &mut Checks, now: &mut Moment, random: &mut Seeded) -> u64 {
    loop {
        match checks.step(*now, false, false, random) {
            Ask::Now(id) => return id,
            Ask::At(moment) => *now = moment.max(*now),
        }
    }
}

/// The interval follows the papers' strategies exactly, for the same sequence of losses.
#[test]
fn intervals_are_those_of_control() {
    let make: [fn() -> AnyStrategy; 3] = [
        tuned,
        || Box::new(DividedConfig::default().build().unwrap()),
        || Box::new(SmoothedConfig::default().build().unwrap()),
    ];
    for make in make {
        let (mut checks, mut random, mut now) = (checks(make(), 10.0), Seeded::new(5), at(0.0));
        let (mut model, mut losses) = (make(), Seeded::new(9));
        checks.connected(now, &mut random);
        next(&mut checks, &mut now, &mut random);
        for _ in 0..200 {
            let missing = losses.below(4) as u32;
            let sent = now;
            now += Span::from_millis(20);
            checks.answered(missing, false, Announced::default(), now, &mut random);
            let expected = model.on_check(&Check::found(sent, missing), &mut losses);
            next(&mut checks, &mut now, &mut random);
            let waited = now.since(sent).as_secs_f64();
            assert!((waited - expected.as_secs_f64()).abs() < 1e-6, "{waited} where {expected} is due");
        }
    }
}

#[test]
fn a_gap_is_asked_for_out_of_turn_within_the_limit() {
    let (mut checks, mut random) = (checks(tuned(), 0.4), Seeded::new(1));
    assert_eq!(
        checks.step(at(0.0), true, false, &mut random),
        Ask::At(Moment::END),
        "not before the first connection"
    );
    checks.connected(at(0.0), &mut random);
    let due = checks.due.unwrap();
    assert_eq!(checks.step(at(0.0), true, false, &mut random), Ask::Now(1));
    assert_eq!(checks.step(at(0.1), true, false, &mut random), Ask::At(at(5.0)), "one at a time");
    assert!(checks.expects(1) && !checks.expects(2));
    checks.answered(1, false, Announced::default(), at(0.1), &mut random);
    assert_eq!(checks.due, Some(due), "the regular one stays");
    let mut made = 1;
    for tenth in 2..1_000 {
        let now = at(f64::from(tenth) / 10.0);
        if let Ask::Now(_) = checks.step(now, true, false, &mut random) {
            checks.answered(1, false, Announced::default(), now, &mut random);
            made += 1;
        }
    }
    assert!((38..=42).contains(&made), "{made} in 100 s");
}

/// Without the plugin nobody answers: a fleet must not ask for ever.
#[test]
fn where_nobody_ever_answers_checks_become_rare() {
    let (mut checks, mut random, mut now) = (checks(tuned(), 0.4), Seeded::new(1), at(0.0));
    checks.connected(now, &mut random);
    let mut made = Vec::new();
    while now < at(24.0 * 3_600.0) {
        match checks.step(now, false, true, &mut random) {
            Ask::Now(_) => made.push(now),
            Ask::At(moment) => now = moment.max(now),
        }
    }
    assert!(made.len() < 24 * 60, "{} in a day", made.len());
    assert!(made[2] < at(60.0), "but not at first");
    checks.connected(now, &mut random);
    assert_eq!(checks.unheard, 0, "there may be one who answers on another connection");
}

#[test]
fn a_later_time_is_kept_and_spread() {
    let mut returns = Vec::new();
    for seed in 0..100 {
        let (mut checks, mut random, mut now) = (checks(tuned(), 0.4), Seeded::new(seed), at(0.0));
        checks.connected(now, &mut random);
        next(&mut checks, &mut now, &mut random);
        let told = now;
        checks.delayed(Span::from_secs(20), now, &mut random);
        assert!(!matches!(checks.step(now + Span::from_secs(19), true, false, &mut random), Ask::Now(_)));
        next(&mut checks, &mut now, &mut random);
        returns.push(now.since(told).as_secs_f64());
    }
    returns.sort_by(f64::total_cmp);
    assert!(returns[0] >= 20.0 && returns[90] - returns[10] > 5.0, "{returns:?}");
}

/// What is missing may take many answers; the gateway may also fall silent, or ask to come back.
#[test]
fn as_long_as_there_is_more_nobody_gives_up() {
    let ends: [fn(&mut Checks, Moment, &mut Seeded); 4] = [
        |checks, now, random| checks.answered(1, false, Announced::default(), now, random),
        |checks, now, random| checks.delayed(Span::from_secs(1), now, random),
        |checks, now, random| {
            checks.step(now + Span::from_secs(60), false, false, random);
        },
        |checks, _, _| checks.disconnected(),
    ];
    for end in ends {
        let (mut checks, mut random, mut now) = (checks(tuned(), 0.4), Seeded::new(1), at(0.0));
        checks.connected(now, &mut random);
        for _ in 0..5 {
            assert!(next(&mut checks, &mut now, &mut random) > 0);
            checks.answered(100, true, Announced::default(), now, &mut random);
            assert!(checks.is_fetching(now));
        }
        assert!(!checks.is_fetching(now + Span::from_secs(60)), "unless it has no end");
        next(&mut checks, &mut now, &mut random);
        end(&mut checks, now, &mut random);
        assert!(!checks.is_fetching(now));
    }
}

/// Whoever is sent away waits, whatever the gateway calls it.
#[test]
fn the_response_time_begins_with_the_first_try() {
    let (mut checks, mut random, mut now) = (checks(tuned(), 0.4), Seeded::new(1), at(0.0));
    checks.connected(now, &mut random);
    next(&mut checks, &mut now, &mut random);
    let first = now;
    checks.delayed(Span::from_secs(20), now, &mut random);
    next(&mut checks, &mut now, &mut random);
    now += Span::from_millis(10);
    checks.answered(1, false, Announced::default(), now, &mut random);
    assert_eq!(checks.counts.last_response, now.since(first));
    assert!(checks.counts.last_response >= Span::from_secs(20));
    next(&mut checks, &mut now, &mut random);
    checks.answered(0, false, Announced::default(), now + Span::from_millis(10), &mut random);
    assert_eq!(checks.counts.last_response, Span::from_millis(10), "the next one is another one");
}

#[test]
fn silence_ends_and_lengthens_the_interval() {
    let (mut checks, mut random, mut now) = (checks(tuned(), 1.0), Seeded::new(1), at(0.0));
    checks.connected(now, &mut random);
    next(&mut checks, &mut now, &mut random);
    let before = checks.interval();
    next(&mut checks, &mut now, &mut random);
    assert_eq!(checks.counts.silent, 1);
    assert!(checks.interval() > before);
}

/// What the program sees of updates that come every 2 to 4 s over a link that drops a fifth of the notifications.
struct Lossy {
    seen: u64,
    checks: u64,
    updates: u64,
    last: u64,
}

fn lossy(strategy: AnyStrategy, seed: u64, seconds: f64, active: bool) -> Lossy {
    let settings = TrackerSettings {
        most_topics: 10,
        most_held: 100,
        most_held_bytes: 1_000_000,
        patience: Span::from_secs(10),
    };
    let (mut tracker, mut checks) = (Tracker::new(settings), checks(strategy, 0.4));
    let (mut random, mut world) = (Seeded::new(seed), Seeded::stream(seed, 1));
    let (mut head, mut seen, mut last, mut update) = (0u64, 0, 0, at(1.0));
    let answer = |head: u64, from: u64| {
        let missed = |seq: u64| Missed { topic: "t".into(), seq, payload: Bytes::new() };
        let updates = (from.max(head.saturating_sub(20)) + 1..=head).map(missed).collect();
        Answer { heads: vec![("t".into(), head)], updates, ..Answer::default() }
    };
    tracker.answered(answer(0, 0), Purpose::Start { last: true }, at(0.0));
    checks.connected(at(0.0), &mut random);
    let mut take = |out: Vec<Out>| {
        seen += out.len() as u64;
        last = out.last().and_then(|out| out.ready.seq).unwrap_or(last);
    };
    let mut now = at(0.0);
    while now < at(seconds) {
        take(tracker.expire(now));
        if now >= update {
            head += 1;
            update = now + Span::from_secs_f64(world.uniform_in(2.0, 4.0));
            if !world.chance(0.2) {
                let message = Incoming {
                    topic: "t".into(),
                    payload: Bytes::new(),
                    retain: false,
                    again: false,
                    seq: Some(head),
                    receipt: None,
                };
                take(tracker.came(message, None, now));
            }
        }
        if active
            && let Ask::Now(_) =
                checks.step(now, tracker.gap().is_some_and(|gap| gap <= now), false, &mut random)
        {
            let from = tracker.ask().unwrap().first().map_or(0, |(_, seq)| *seq);
            let brought = tracker.answered(answer(head, from), Purpose::Missing, now);
            checks.answered(brought.missing, false, Announced::default(), now, &mut random);
            take(brought.updates);
        }
        now += Span::from_millis(10);
    }
    Lossy { seen, checks: checks.counts.made, updates: head, last }
}

#[test]
fn over_a_lossy_link_a_third_of_the_losses_is_the_most_that_is_left() {
    let seconds = 3_600.0;
    let (mut passive_lost, mut active_lost) = (0, 0);
    for seed in 0..5 {
        let passive = lossy(tuned(), seed, seconds, false);
        let active = lossy(tuned(), seed, seconds, true);
        passive_lost += passive.updates - passive.seen;
        active_lost += active.updates - active.seen;
        let rate = active.checks as f64 / seconds;
        assert!(rate <= 0.4, "{rate} checks a second");
        assert!(active.updates - active.last <= 20, "it ends at {} of {}", active.last, active.updates);
    }
    assert!(passive_lost > 1_000);
    assert!(3 * active_lost <= passive_lost, "{active_lost} lost, where passively it is {passive_lost}");
}

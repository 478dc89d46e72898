#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;

fn at(seconds: f64) -> Moment {
    Moment::from_secs_f64(seconds)
}

#[test]
fn depth_delay_and_rates_of_a_short_story() {
    let mut flow = Flow::new(at(0.0));
    for k in 0..10 {
        flow.arrive(at(0.1 * f64::from(k)), 1);
    }
    assert_eq!(flow.depth(), 10);
    assert_eq!(flow.delay(at(1.0)), Span::from_secs(1));
    assert_eq!(flow.depart(at(1.0), 4), 4);
    assert_eq!(flow.delay(at(1.0)), Span::from_millis(600));
    let reading = flow.read(at(2.0));
    assert_eq!((reading.arrived, reading.departed, reading.depth), (10, 4, 6));
    assert_eq!(reading.arrival_rate(), 5.0);
}

#[test]
fn the_processing_rate_counts_busy_time_only() {
    let mut flow = Flow::new(at(0.0));
    flow.arrive(at(0.5), 30);
    flow.depart(at(0.9), 1);
    assert_eq!(flow.read(at(1.0)).processing_rate(), None, "it was idle when last read");
    for k in 1..=20 {
        flow.depart(at(1.0 + 0.1 * f64::from(k)), 1);
    }
    assert_eq!(flow.read(at(3.0)).processing_rate(), Some(10.0));
    flow.depart(at(3.5), 9);
    let reading = flow.read(at(5.0));
    assert_eq!((reading.busy_time, reading.busy_departed), (Span::from_millis(500), 9));
    assert_eq!(flow.read(at(6.0)).processing_rate(), None, "an idle queue says nothing");
}

#[test]
fn a_consumer_that_stops_is_seen_to_stop() {
    let mut flow = Flow::new(at(0.0));
    flow.arrive(at(0.5), 100);
    flow.read(at(1.0));
    assert_eq!(flow.read(at(2.0)).processing_rate(), Some(0.0));
    assert_eq!(flow.read(at(2.0)).processing_rate(), None, "no time went by");
}

#[test]
fn with_a_window_only_a_deeper_queue_is_busy() {
    let mut flow = Flow::with_window(at(0.0), 4);
    flow.arrive(at(0.0), 10);
    flow.read(at(1.0));
    flow.depart(at(2.0), 5);
    assert_eq!(flow.read(at(2.0)).processing_rate(), Some(5.0));
    assert_eq!(flow.read(at(3.0)).processing_rate(), Some(0.0));
    flow.depart(at(3.5), 1);
    assert_eq!(flow.read(at(4.0)).busy_time, Span::from_millis(500));
    assert_eq!(flow.read(at(5.0)).processing_rate(), None, "four messages may be in the hands of consumers");
}

#[test]
fn more_departures_than_messages_are_not_booked() {
    let mut flow = Flow::new(at(0.0));
    flow.arrive(at(0.0), 2);
    assert_eq!(flow.depart(at(1.0), 5), 2);
    assert_eq!(flow.depart(at(1.0), 5), 0);
    assert_eq!(flow.totals().departed, 2);
}

#[test]
fn what_is_missing_when_a_consumer_starves_is_lost() {
    let mut flow = Flow::new(at(0.0));
    flow.arrive(at(0.0), 7);
    flow.depart(at(1.0), 3);
    assert_eq!(flow.found_empty(at(2.0)), 4);
    assert_eq!((flow.depth(), flow.totals().lost), (0, 4));
    assert_eq!(flow.delay(at(3.0)), Span::ZERO);
}

#[test]
fn a_clock_that_is_set_back_stands_still() {
    let mut flow = Flow::new(at(0.0));
    flow.arrive(at(10.0), 1);
    flow.arrive(at(5.0), 1);
    flow.depart(at(6.0), 1);
    assert_eq!(flow.delay(at(12.0)), Span::from_secs(2), "the second came no earlier than the first");
    assert_eq!(flow.read(at(7.0)).elapsed, Span::from_secs(10));
    assert_eq!(flow.read(at(8.0)).elapsed, Span::ZERO);
    assert_eq!(flow.read(at(13.0)).elapsed, Span::from_secs(3));
}

#[test]
fn counters_may_wrap() {
    let mut flow = Flow::new(at(0.0));
    flow.totals.arrived = u64::MAX - 1;
    flow.totals.departed = u64::MAX - 1;
    flow.last = flow.totals;
    flow.arrive(at(1.0), 5);
    flow.arrive(at(2.0), 5);
    flow.depart(at(3.0), 6);
    assert_eq!(flow.depth(), 4);
    assert_eq!(flow.delay(at(3.0)), Span::from_secs(1));
    assert_eq!(flow.read(at(3.0)).arrived, 10);
}

#[test]
fn a_queue_that_can_count_no_further_stays_full() {
    let mut flow = Flow::new(at(0.0));
    flow.arrive(at(1.0), u64::MAX - 1);
    flow.arrive(at(2.0), 5);
    assert_eq!(flow.depth(), u64::MAX);
    flow.depart(at(3.0), 3);
    assert_eq!((flow.depth(), flow.delay(at(3.0))), (u64::MAX - 3, Span::from_secs(2)));
}

/// One thing that can happen to a queue, after so many milliseconds.
#[derive(Debug, Clone)]
enum Step {
    Arrive(u64, u64),
    Depart(u64, u64),
    Discard(u64, u64),
    Lose(u64, u64),
    Undo(u64, u64),
    Read(u64),
    ClockBack(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let ms = 0u64..400;
    prop_oneof![
        4 => (ms.clone(), 0u64..20).prop_map(|(t, n)| Step::Arrive(t, n)),
        4 => (ms.clone(), 0u64..20).prop_map(|(t, n)| Step::Depart(t, n)),
        1 => (ms.clone(), 0u64..5).prop_map(|(t, n)| Step::Discard(t, n)),
        1 => (ms.clone(), 0u64..5).prop_map(|(t, n)| Step::Lose(t, n)),
        1 => (ms.clone(), 0u64..10).prop_map(|(t, n)| Step::Undo(t, n)),
        1 => ms.clone().prop_map(Step::Read),
        1 => ms.prop_map(Step::ClockBack),
    ]
}

proptest! {
    /// The curves against a plain queue of arrival times.
    #[test]
    fn the_curves_conserve_and_know_the_head(steps in proptest::collection::vec(step(), 1..300)) {
        let mut flow = Flow::new(Moment::START);
        let mut model: VecDeque<Moment> = VecDeque::new();
        let (mut now, mut read) = (Moment::START, Totals::default());
        for step in steps {
            let go = |now: &mut Moment, ms: u64| { *now += Span::from_millis(ms); *now };
            match step {
                Step::Arrive(ms, n) => {
                    flow.arrive(go(&mut now, ms), n);
                    model.extend(vec![now; n as usize]);
                }
                Step::Depart(ms, n) => {
                    let left = flow.depart(go(&mut now, ms), n);
                    prop_assert_eq!(left, n.min(model.len() as u64));
                    model.drain(..left as usize);
                }
                Step::Discard(ms, n) => { model.drain(..flow.discard(go(&mut now, ms), n) as usize); }
                Step::Lose(ms, n) => { model.drain(..flow.lose(go(&mut now, ms), n) as usize); }
                Step::Undo(ms, n) => {
                    let undone = flow.undo(go(&mut now, ms), n);
                    prop_assert_eq!(undone, n.min(model.len() as u64));
                    model.truncate(model.len() - undone as usize);
                }
                Step::Read(ms) => {
                    let reading = flow.read(go(&mut now, ms));
                    prop_assert!(reading.least_depth <= reading.depth);
                    prop_assert!(reading.busy_time <= reading.elapsed);
                    prop_assert!(reading.busy_departed <= reading.departed);
                    prop_assert_eq!(reading.departed, flow.totals().departed - read.departed);
                    read = flow.totals();
                }
                Step::ClockBack(ms) => { prop_assert_eq!(flow.depart(now - Span::from_millis(ms), 0), 0); }
            }
            let totals = flow.totals();
            prop_assert_eq!(totals.waiting(), model.len() as u64);
            prop_assert_eq!(totals.arrived, totals.departed + totals.dropped + totals.lost + totals.waiting());
            let real = model.front().map_or(Span::ZERO, |head| now.since(*head));
            let span = model.front().map_or(Span::ZERO, |head| model.back().unwrap().since(*head));
            let error = flow.delay(now).as_secs_f64() - real.as_secs_f64();
            prop_assert!(error.abs() <= span.as_secs_f64() / 4.0 + 0.002, "off by {} of {}", error, real);
        }
    }

    /// Any numbers at all: no panic, no overflow, delays within the time that went by.
    #[test]
    fn wild_numbers_are_harmless(ops in proptest::collection::vec((any::<u64>(), any::<u64>(), 0u8..4), 1..60)) {
        let mut flow = Flow::with_window(Moment::START, 3);
        for (time, count, what) in ops {
            let now = Moment::from_nanos(time);
            match what {
                0 => flow.arrive(now, count),
                1 => { flow.depart(now, count); }
                2 => { flow.lose(now, count); }
                _ => { prop_assert!(flow.read(now).arrival_rate().is_finite()); }
            }
            prop_assert!(flow.delay(now).as_nanos() <= flow.now.as_nanos());
        }
    }
}

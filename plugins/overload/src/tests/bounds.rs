//! Whatever comes: bounded, counted, no panic.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_control::flow::Reading;
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{Delays, Operated, Publisher, QueueReport};

use super::world::World;
use crate::OverloadConfig;

pub(crate) fn report(id: u64, feeders: Vec<(u64, u32)>) -> QueueReport {
    let arrived = feeders.len() as u64;
    let elapsed = Span::from_millis(100);
    QueueReport {
        id,
        name: format!("c{id}:t/{id}").into(),
        group: None,
        filter: format!("t/{id}").into(),
        filters: Arc::new([format!("t/{id}").into()]),
        qos: 1,
        consumers: 1,
        reading: Reading { elapsed, depth: 1, arrived, ..Reading::default() },
        dropped: 0,
        lost: 0,
        in_flight: 0,
        waiting: 1,
        age: Span::ZERO,
        soonest: None,
        delays: Delays::default(),
        feeders,
        held: 0,
        never_holds: false,
        elsewhere: None,
    }
}

fn connect(world: &mut World, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let publisher = Publisher::new(format!("p{number}").into(), None, 60, 5);
        world.host.publishers.insert(number, Arc::new(publisher));
    }
}

#[test]
fn ten_thousand_queues_are_looked_after_and_no_more() {
    let mut world = World::new(OverloadConfig::default());
    connect(&mut world, 1..=1);
    let reports: Vec<_> = (1..=10_100).map(|id| report(id, vec![(1, 1)])).collect();
    world.tell(Moment::from_secs_f64(1.0), &reports);
    assert_eq!(world.plugin.queue_count(), 10_000);
    assert_eq!(world.ask("queues", "").1.as_array().unwrap().len(), 1_000);
    world.plugin.refresh_metrics();
    // queues that are no longer told of are forgotten, and so is who fed them
    world.tell(Moment::from_secs_f64(1.1), &reports[..5]);
    assert_eq!(world.plugin.queue_count(), 5);
    assert_eq!(world.ask("publishers", "queue=c3%3At%2F3").1["total"], 1);
}

/// A thousand busy queues do not hide the one that is in trouble, in answers and in metrics.
#[test]
fn the_overloaded_queue_is_the_last_to_vanish_from_view() {
    let mut world = World::new(OverloadConfig::default());
    connect(&mut world, 1..=1);
    let mut reports: Vec<_> = (1..=1_500).map(|id| report(id, vec![(1, 9)])).collect();
    reports.iter_mut().for_each(|busy| busy.reading.arrived = 900);
    let slow = reports.last_mut().unwrap();
    let (elapsed, delay, depth) = (Span::from_millis(100), Span::from_secs(2), 5_000);
    slow.reading = Reading {
        elapsed,
        depth,
        least_depth: depth,
        delay,
        arrived: 2,
        departed: 1,
        busy_time: elapsed,
        busy_departed: 1,
    };
    (slow.waiting, slow.age) = (depth, delay);
    for turn in 1..=10 {
        world.tell(Moment::from_secs_f64(f64::from(turn) * 0.1), &reports);
    }
    let (_, queues) = world.ask("queues", "");
    assert_eq!(
        (queues[0]["queue"].as_str(), queues[0]["phase"].as_str()),
        (Some("c1500:t/1500"), Some("protect"))
    );
    assert_eq!(queues[1]["phase"], "idle");
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || world.plugin.refresh_metrics());
    let text = recorder.handle().render();
    assert!(text.contains("tidegate_queue_phase{queue=\"c1500:t/1500\"} 1\n"), "{text}");
}

#[test]
fn a_queue_knows_a_hundred_thousand_publishers_and_no_more() {
    let mut world = World::new(OverloadConfig::default());
    connect(&mut world, 1..=100_050);
    let feeders = (1..=100_050).map(|number| (number, 1)).collect();
    world.tell(Moment::from_secs_f64(1.0), &[report(1, feeders)]);
    let (_, answer) = world.ask("publishers", "queue=c1%3At%2F1");
    assert_eq!(answer["total"], 100_000);
    assert_eq!(answer["publishers"].as_array().unwrap().len(), 1_000);
    // silent ones are forgotten after their window
    world.tell(Moment::from_secs_f64(12.0), &[report(1, vec![(1, 1)])]);
    assert_eq!(world.ask("publishers", "queue=c1%3At%2F1").1["total"], 1);
}

/// However many there are, those who are known stay known; only newcomers are not looked after.
#[test]
fn who_is_known_is_not_forgotten_when_there_are_too_many() {
    let mut world = World::new(OverloadConfig::default());
    connect(&mut world, 1..=100_000);
    let all = |id| report(id, (1..=100_000).map(|number| (number, 1)).collect());
    let mut full: Vec<_> = (1..=5).map(all).collect();
    world.tell(Moment::from_secs_f64(1.0), &full);
    full.push(report(6, vec![(1, 1)]));
    world.tell(Moment::from_secs_f64(8.0), &full);
    assert_eq!(world.ask("publishers", "queue=c6%3At%2F6").1["total"], 0);
    world.tell(Moment::from_secs_f64(14.0), &[report(1, Vec::new())]);
    assert_eq!(world.ask("publishers", "queue=c1%3At%2F1").1["total"], 100_000);
}

/// Who is held by a queue is silent for that reason, but not for ever.
#[test]
fn silent_publishers_of_a_queue_that_holds_others_are_forgotten() {
    let mut world = World::new(OverloadConfig::default());
    connect(&mut world, 1..=2);
    world.tell(Moment::from_secs_f64(1.0), &[report(1, vec![(1, 1), (2, 1)])]);
    let total = |world: &World| world.ask("publishers", "queue=c1%3At%2F1").1["total"].clone();
    for second in 2..=120 {
        let held = QueueReport { held: 1, ..report(1, vec![(1, 1)]) };
        world.tell(Moment::from_secs_f64(f64::from(second)), &[held]);
        if second == 30 {
            assert_eq!(total(&world), 2);
        }
    }
    assert_eq!(total(&world), 1);
}

#[test]
fn control_topics_are_no_queues_and_unknown_publishers_no_sources() {
    let mut world = World::new(OverloadConfig::default());
    let mut control = report(1, vec![(1, 1)]);
    control.filters = Arc::new(["$tide/v1/rate".into()]);
    world.tell(Moment::from_secs_f64(1.0), &[control, report(2, vec![(77, 5)])]);
    let (_, answer) = world.ask("queues", "");
    assert_eq!(answer.as_array().unwrap().len(), 1);
    assert_eq!((&answer[0]["queue"], &answer[0]["publishers"]), (&"c2:t/2".into(), &0.into()));
}

/// The clock jumps back by an hour and forward by a year: the loop goes on, and nothing is announced in a burst.
#[test]
fn a_clock_that_jumps_does_no_harm() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    world.devices("d", 20, 100.0, &[queue]);
    world.run(15.0);
    let (before, millis) = (world.announced.len(), world.millis);
    for _ in 0..20 {
        world.tell(Moment::from_secs_f64(1.0), &[]);
    }
    assert!(world.announced.len() - before <= 2, "{:?}", &world.announced[before..]);
    world.millis = millis;
    world.run(5.0);
    assert!(world.rate(0).is_finite());
    world.tell(Moment::from_secs_f64(3.2e7), &[]);
    world.tell(Moment::END, &[]);
    world.tell(Moment::START, &[]);
    assert_eq!(world.plugin.queue_count(), 0);
}

fn wild_report() -> impl Strategy<Value = QueueReport> {
    let numbers = (0..4u64, any::<u32>(), any::<[u64; 6]>(), any::<[u64; 3]>());
    let feeders = proptest::collection::vec((0..30u64, any::<u32>()), 0..30);
    (numbers, feeders, any::<[u32; Delays::STEPS]>(), any::<u32>()).prop_map(
        |((id, consumers, counts, times), feeders, delays, held)| {
            let mut report = report(id, feeders);
            let [depth, least_depth, arrived, departed, busy_departed, in_flight] = counts;
            let [elapsed, delay, busy_time] = times.map(Span::from_nanos);
            report.reading =
                Reading { elapsed, depth, least_depth, delay, arrived, departed, busy_time, busy_departed };
            (report.consumers, report.in_flight, report.held) = (consumers, in_flight, held);
            (report.dropped, report.lost) = (depth, arrived);
            report.delays = Delays { counts: delays };
            report
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn wild_numbers_give_rates_that_can_be_used(
        turns in proptest::collection::vec((any::<u64>(), proptest::collection::vec(wild_report(), 0..5)), 1..20),
    ) {
        let mut world = World::new(OverloadConfig::default());
        connect(&mut world, 1..=25);
        for (at, reports) in turns {
            world.tell(Moment::from_nanos(at), &reports);
            for publisher in world.host.publishers.values() {
                prop_assert!(publisher.rate() > 0.0, "{}", publisher.rate());
            }
            world.plugin.refresh_metrics();
            world.ask("queues", "");
        }
        for (_, topic, value) in &world.announced {
            prop_assert!(value.is_null() || value["rate"].is_null() || value["rate"].as_f64().unwrap() > 0.0
                || topic.ends_with("load"), "{} {}", topic, value);
        }
    }
}

//! What is announced: when, how often, how dear.

use std::collections::HashMap;

use tidegate_plugin::Operated;

use super::world::World;
use crate::{ClassConfig, OverloadConfig};

fn overloaded(subscribers: usize) -> World {
    let mut world = World::new(OverloadConfig::default());
    world.host.subscribers = subscribers;
    let queue = world.queue(1000.0);
    world.devices("d", 20, 100.0, &[queue]);
    world
}

#[test]
fn announcements_are_spaced_grow_in_number_and_are_repeated() {
    let mut world = overloaded(1);
    world.run(60.0);
    let mut last: HashMap<&str, u64> = HashMap::new();
    let mut seq = 0;
    for (at, topic, value) in &world.announced {
        let before = last.insert(topic, *at);
        assert!(before.is_none_or(|before| at - before >= 500), "{topic} at {at} and {before:?}");
        assert!(value["seq"].as_u64().unwrap() > seq, "{value}");
        seq = value["seq"].as_u64().unwrap();
        assert_eq!(value["v"], 1);
    }
    let rates: Vec<_> = world.announced.iter().filter(|(_, topic, _)| topic == "$tide/v1/rate").collect();
    let (at, _, value) = rates[0];
    assert_eq!(value["at_ms"].as_u64().unwrap(), 1_731_730_000_000 + at);
    assert_eq!(value["phase"], "protect");
    assert_eq!(value["queue"], "workers:sensors/0/#");
    let rate = value["rate"].as_f64().unwrap();
    assert_eq!(value["interval_ms"].as_u64().unwrap(), (1e3 / rate).round() as u64);
    assert_eq!(value["burst"], 1);
    for two in rates.windows(2) {
        assert!(two[1].0 - two[0].0 < two[0].2["ttl_ms"].as_u64().unwrap(), "it ran out: {two:?}");
    }
    let (end, _, last) = rates.last().unwrap();
    assert!(world.millis - end < last["ttl_ms"].as_u64().unwrap());
    let load = world.last("$tide/v1/load").unwrap();
    for field in ["response_ms", "queue_ms", "depth", "processing_rate"] {
        assert!(load[field].is_number(), "{field} in {load}");
    }
}

/// What was announced on a topic.
fn told<'a>(world: &'a World, topic: &str) -> Vec<&'a (u64, String, serde_json::Value)> {
    world.announced.iter().filter(|(_, on, _)| on == topic).collect()
}

/// What it cost to announce what was announced.
fn deliveries(world: &World) -> f64 {
    let cost = |topic: &String| tidegate_plugin::Host::subscribers(&world.host, topic);
    world.announced.iter().map(|(_, topic, _)| cost(topic)).sum::<usize>() as f64
}

fn messages(world: &World) -> f64 {
    world.devices.iter().map(|device| device.sent).sum::<u64>() as f64
}

/// From the start, at any time, and however many listen.
#[test]
fn advice_costs_at_most_one_message_in_a_hundred() {
    for subscribers in [1, 20, 100, 1000] {
        let mut world = overloaded(subscribers);
        for second in 0..90 {
            world.run(1.0);
            let (cost, messages) = (deliveries(&world), messages(&world));
            assert!(cost <= 0.008 * messages + 45.0, "{cost} for {messages} messages after {second} s");
        }
        assert!(subscribers > 100 || deliveries(&world) > 0.0, "{subscribers} hear nothing");
    }
}

/// A thousand listen and have sent what they like for long enough: all of them hear of a limit as soon as there is one, of
/// a rise and of the end, and it costs no more than it should.
#[test]
fn who_has_run_for_a_while_is_told_at_once() {
    for rate in [250.0, 500.0] {
        let mut world = World::new(OverloadConfig::default());
        world.host.subscribers = 1000;
        world.host.subscribers_of.insert("$tide/v1/load".into(), 10);
        let queue = world.queue(rate);
        world.devices("d", 20, rate / 25.0, &[queue]);
        world.run(1.25 * 4000.0 / (0.006 * 0.8 * rate));
        assert_eq!(told(&world, "$tide/v1/rate").len(), 0);
        let begin = world.millis;
        world.devices.iter_mut().for_each(|device| device.wants = rate / 5.0);
        world.run(20.0);
        let (at, _, value) = told(&world, "$tide/v1/rate")[0];
        assert!(at - begin < 2000, "told after {} ms", at - begin);
        let first = value["rate"].as_f64().unwrap();
        world.queues[queue].rate = 2.0 * rate;
        world.run(60.0);
        world.devices.iter_mut().for_each(|device| device.wants = rate / 20.0);
        world.run(30.0);
        let told = told(&world, "$tide/v1/rate");
        let rise = told.iter().filter_map(|(_, _, value)| value["rate"].as_f64()).fold(0.0, f64::max);
        assert!(rise > 1.2 * first, "no rise from {first} in {told:?}");
        assert!(told.last().unwrap().2["rate"].is_null(), "no end in {told:?}");
        for two in told.windows(2) {
            let ttl = two[0].2["ttl_ms"].as_u64().unwrap();
            assert!(two[1].0 - two[0].0 < ttl, "it ran out: {two:?}");
        }
        let (cost, messages) = (deliveries(&world), messages(&world));
        assert!(cost <= 0.008 * messages + 45.0, "{cost} for {messages} messages");
    }
}

/// Whoever was told a limit hears of its end, whenever that is: a limit is told only with enough left for that.
#[test]
fn who_was_told_a_limit_hears_of_its_end() {
    for subscribers in [5, 20, 40, 80, 200] {
        let mut world = overloaded(subscribers);
        // As soon as anybody was told, it is over.
        while told(&world, "$tide/v1/rate").is_empty() {
            world.run(0.1);
            assert!(world.millis < 200_000, "{subscribers} hear nothing");
        }
        world.devices.iter_mut().for_each(|device| device.wants = 1.0);
        world.run(30.0);
        let last = told(&world, "$tide/v1/rate").last().unwrap().2.clone();
        assert!(last["rate"].is_null(), "{subscribers}: {last}");
    }
}

/// Few messages and many to tell: what they are told holds until it can be told again.
#[test]
fn what_is_dear_to_tell_holds_longer() {
    let mut world = overloaded(500);
    world.run(400.0);
    let told = told(&world, "$tide/v1/rate");
    assert!((1..=6).contains(&told.len()), "{told:?}");
    assert!(told[0].2["ttl_ms"].as_u64().unwrap() >= 100_000, "{told:?}");
    for two in told.windows(2) {
        assert!(two[1].0 - two[0].0 < two[0].2["ttl_ms"].as_u64().unwrap(), "it ran out: {two:?}");
    }
}

/// Those of a class hear what is for everybody else, too, so they must have heard of their own before.
#[test]
fn nobody_hears_the_rate_of_others_before_its_own() {
    let (name, client) = ("gold".into(), Some("gold*".into()));
    let gold = ClassConfig { name, client, weight: 4.0, ..ClassConfig::default() };
    let mut world = World::new(OverloadConfig { classes: vec![gold], ..OverloadConfig::default() });
    world.host.subscribers_of.insert("$tide/v1/rate/class/gold".into(), 60);
    let queue = world.queue(1000.0);
    world.devices("gold", 4, 100.0, &[queue]);
    world.devices("d", 20, 100.0, &[queue]);
    world.run(30.0);
    let [gold, others] = ["$tide/v1/rate/class/gold", "$tide/v1/rate"].map(|topic| told(&world, topic)[0].0);
    assert!(gold <= others, "gold after {gold} ms, others after {others} ms");
}

/// Traffic ends while announcements are still to be paid for: nobody can be told, but who comes later reads what is true.
#[test]
fn newcomers_read_the_truth_whatever_it_costs() {
    let mut world = overloaded(5000);
    world.run(5.0);
    let rate = world.retained("$tide/v1/rate").unwrap()["rate"].as_f64().unwrap();
    assert!((rate / world.rate(0) - 1.0).abs() < 0.1, "{rate} {}", world.rate(0));
    world.queues[0].rate = 500.0;
    world.run(10.0);
    let rate = world.retained("$tide/v1/rate").unwrap()["rate"].as_f64().unwrap();
    assert!((rate / world.rate(0) - 1.0).abs() < 0.1, "{rate} {}", world.rate(0));
    assert_eq!(world.retained("$tide/v1/load").unwrap()["phase"], world.phase(0));
    let told = world.announced.len();
    assert!(told <= 3, "{:?}", world.announced);
    world.devices.iter_mut().for_each(|device| device.wants = 0.0);
    world.run(30.0);
    assert!(world.retained("$tide/v1/rate").unwrap()["rate"].is_null());
    assert_eq!(world.retained("$tide/v1/load").unwrap()["phase"], "idle");
}

/// What a client was told apart is gone for newcomers, also when there is nothing to pay for telling it.
#[test]
fn what_a_client_was_told_is_taken_back_from_the_store() {
    let mut world = World::new(OverloadConfig::default());
    let (slow, fast) = (world.queue(100.0), world.queue(1000.0));
    world.devices("both", 5, 100.0, &[slow, fast]);
    world.devices("only", 20, 100.0, &[fast]);
    world.run(25.0);
    let own = "$tide/v1/rate/client/both-1";
    assert!(world.retained(own).is_some());
    world.host.subscribers = 100_000;
    world.queues[slow].rate = 1000.0;
    world.run(30.0);
    assert!(world.retained(own).is_none());
}

#[test]
fn operators_get_answers() {
    let mut world = overloaded(1);
    world.run(10.0);
    let queue = world.view(0);
    assert_eq!((queue["publishers"].as_u64(), queue["consumers"].as_u64()), (Some(20), Some(1)));
    assert!((queue["processing_rate"].as_f64().unwrap() - 1000.0).abs() < 50.0, "{queue}");
    assert_eq!(queue["rates"][0]["class"], "default");
    let (status, answer) = world.ask("publishers", "queue=workers%3Asensors%2F0%2F%23");
    assert_eq!((status, answer["total"].as_u64()), (200, Some(20)));
    assert_eq!(answer["publishers"][0]["by"], "workers:sensors/0/#");
    assert_eq!(world.ask("publishers", "").0, 400);
    assert_eq!(world.ask("publishers", "queue=none").0, 404);
}

fn metrics(world: &World, recorder: &metrics_exporter_prometheus::PrometheusRecorder) -> String {
    metrics::with_local_recorder(recorder, || world.plugin.refresh_metrics());
    recorder.handle().render()
}

/// The value of a metric of the first queue.
fn value(text: &str, name: &str) -> String {
    let start = format!("tidegate_queue_{name}{{queue=\"workers:sensors/0/#\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start} in\n{text}")).to_owned()
}

/// What the gate did counts for the queue that limits the publisher, and for no other.
#[test]
fn what_the_gate_does_is_counted_for_the_queue_that_limits() {
    let mut world = World::new(OverloadConfig::default());
    let (slow, fast) = (world.queue(1000.0), world.queue(10_000.0));
    let devices = world.devices("d", 20, 100.0, &[slow, fast]);
    world.run(1.0);
    let publisher = std::sync::Arc::clone(&world.host.publishers[&world.devices[devices[0]].number]);
    world.run(5.0);
    let overrun = publisher.overrun().expect("it is limited");
    (0..3).for_each(|_| overrun.refused());
    overrun.dropped();
    let waits = tidegate_plugin::Waiting::start(overrun);
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let text = metrics(&world, &recorder);
    let shown = ["refused_total", "gate_dropped_total", "gate_held"].map(|name| value(&text, name));
    assert_eq!(shown, ["3", "1", "1"]);
    let seen =
        |queue: usize| ["refused", "gate_dropped", "gate_held"].map(|name| world.view(queue)[name].clone());
    assert_eq!(seen(slow), [3, 1, 1].map(serde_json::Value::from));
    assert_eq!(seen(fast), [0, 0, 0].map(serde_json::Value::from));
    drop(waits);
    assert_eq!(value(&metrics(&world, &recorder), "refused_total"), "3");
    // Who is not limited any more has nothing to count.
    world.devices.iter_mut().for_each(|device| device.wants = 1.0);
    world.run(60.0);
    assert!(publisher.rate().is_infinite() && publisher.overrun().is_none());
}

/// No limit is infinity, also for a queue that is gone and for those beyond the first ones.
#[test]
fn the_announced_rate_of_a_quiet_queue_is_no_limit() {
    let mut world = overloaded(1);
    world.run(5.0);
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let text = metrics(&world, &recorder);
    assert!(value(&text, "announced_rate").parse::<f64>().unwrap() < 2000.0, "{text}");
    assert!(text.contains("tidegate_queue_announced_rate{queue=\"other\"} inf\n"), "{text}");
    world.millis += 60_000;
    world.tell(world.now(), &[]);
    let text = metrics(&world, &recorder);
    assert_eq!((value(&text, "announced_rate"), value(&text, "phase")), ("inf".into(), "0".into()));
}

/// Who can't have a topic of its own is counted once, however often it is not told.
#[test]
fn who_is_left_out_is_counted_once() {
    let mut world = World::new(OverloadConfig::default());
    let (slow, fast) = (world.queue(100.0), world.queue(10_000.0));
    world.devices("odd/name", 5, 100.0, &[slow]);
    world.devices("d", 20, 10.0, &[fast]);
    world.run(20.0);
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let text = metrics(&world, &recorder);
    assert!(text.contains("tidegate_overload_left_out_total{what=\"client topic\"} 5\n"), "{text}");
}

#[test]
fn every_metric_is_written_and_labels_are_bounded() {
    let mut world = overloaded(1);
    for _ in 0..300 {
        let queue = world.queue(1000.0);
        world.devices("e", 1, 10.0, &[queue]);
    }
    world.run(3.0);
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let text = metrics(&world, &recorder);
    for name in crate::METRICS {
        assert!(text.contains(&format!("\n{name}")) || text.starts_with(name), "{name} is not in\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("tidegate_queue_depth{")).count(), 201);
    let arrived = |line: &&str| line.starts_with("tidegate_queue_arrived_total{");
    let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let shown: u64 = text.lines().filter(arrived).map(count).sum();
    // what arrived after the last turn is not yet counted
    let sent: u64 = world.devices.iter().map(|device| device.sent).sum();
    assert!(shown <= sent && shown > sent * 9 / 10, "{shown} of {sent}");
}

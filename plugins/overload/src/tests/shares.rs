//! Who gets what: weights, floors, ceilings, exemptions, several queues.

use super::world::World;
use crate::{ClassConfig, OverloadConfig, QueueRule};

fn class(name: &str) -> ClassConfig {
    ClassConfig { name: name.into(), client: Some(format!("{name}-*")), ..ClassConfig::default() }
}

fn sent(world: &World, devices: &[usize]) -> f64 {
    devices.iter().map(|device| world.devices[*device].sent as f64).sum::<f64>() / devices.len() as f64
}

#[test]
fn weights_floors_ceilings_and_exemptions_hold() {
    let classes = vec![
        ClassConfig { weight: 4.0, ..class("gold") },
        ClassConfig { floor: 30.0, ..class("floor") },
        ClassConfig { ceiling: Some(2.0), ..class("low") },
        ClassConfig { exempt: true, ..class("alarm") },
    ];
    let mut world = World::new(OverloadConfig { classes, ..OverloadConfig::default() });
    let queue = world.queue(1000.0);
    let groups =
        ["gold", "floor", "low", "alarm", "other"].map(|name| world.devices(name, 10, 100.0, &[queue]));
    world.run(20.0);
    let processed = world.measure(20.0)[queue];
    assert!(processed > 960.0, "{processed}");
    let [gold, floor, low, alarm, other] = groups.map(|devices| sent(&world, &devices) / 20.0);
    // 1000 = alarms, who send as much as they want and leave nothing
    assert!((99.0..=101.0).contains(&alarm), "alarm {alarm}");
    assert!(gold < 1.0 && other < 1.0 && low < 1.0, "{gold} {other} {low} {floor}");
}

#[test]
fn a_class_with_weight_four_gets_four_times() {
    let classes = vec![
        ClassConfig { weight: 4.0, ..class("gold") },
        ClassConfig { floor: 30.0, ..class("floor") },
        ClassConfig { ceiling: Some(2.0), ..class("low") },
        ClassConfig { exempt: true, ..class("alarm") },
    ];
    let mut world = World::new(OverloadConfig { classes, ..OverloadConfig::default() });
    let queue = world.queue(1000.0);
    let wants = [("gold", 100.0), ("floor", 100.0), ("low", 100.0), ("alarm", 18.0), ("other", 100.0)];
    let groups = wants.map(|(name, wants)| world.devices(name, 10, wants, &[queue]));
    world.run(20.0);
    let processed = world.measure(20.0)[queue];
    let [gold, floor, low, alarm, other] = groups.map(|devices| sent(&world, &devices) / 20.0);
    assert!(processed > 960.0, "{processed}");
    assert!((17.9..=18.1).contains(&alarm), "alarm {alarm}");
    assert!((28.0..=32.0).contains(&floor), "floor {floor}");
    assert!((1.8..=2.1).contains(&low), "low {low}");
    assert!((3.8..=4.2).contains(&(gold / other)), "gold {gold}, other {other}");
    // 100 = 18 + 30 + 2 + 4 x + x
    assert!((9.0..=11.0).contains(&other), "other {other}");
}

#[test]
fn who_wants_little_gets_it_and_leaves_the_rest() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    let modest = world.devices("modest", 50, 5.0, &[queue]);
    let greedy = world.devices("greedy", 10, 500.0, &[queue]);
    world.run(20.0);
    let processed = world.measure(20.0)[queue];
    assert!(processed > 960.0, "{processed}");
    assert!((sent(&world, &modest) / 20.0 - 5.0).abs() < 0.2);
    let greedy = sent(&world, &greedy) / 20.0;
    assert!((70.0..=78.0).contains(&greedy), "{greedy}");
}

/// Somebody who looks on gets every message too: that does not make publishers send twice as many.
#[test]
fn a_message_counts_once_however_many_queues_it_goes_to() {
    let mut world = World::new(OverloadConfig::default());
    let (queue, debug) = (world.queue(1000.0), world.queue(10_000.0));
    world.queues[debug].never_holds = true;
    world.devices("modest", 10, 42.0, &[queue, debug]);
    let greedy = world.devices("greedy", 6, 500.0, &[queue, debug]);
    world.run(30.0);
    let processed = world.measure(20.0)[queue];
    assert!(processed > 960.0, "{processed}");
    let (_, answer) = world.ask("publishers", "queue=workers%3Asensors%2F0%2F%23");
    for publisher in answer["publishers"].as_array().unwrap() {
        let is_greedy = publisher["client"].as_str().unwrap().starts_with("greedy");
        assert_eq!(publisher["pressed"], is_greedy, "{publisher}");
    }
    // what ten modest ones leave is for six greedy ones
    let rate = world.rate(greedy[0]);
    assert!((88.0..=105.0).contains(&rate), "{rate}");
    let demand = world.view(queue)["demand"].as_f64().unwrap();
    assert!(demand < 420.0 + 6.0 * 520.0, "{demand}");
}

#[test]
fn classes_by_topic() {
    let alarm = ClassConfig { topic: Some("alarm/*".into()), exempt: true, client: None, ..class("alarm") };
    let mut world = World::new(OverloadConfig { classes: vec![alarm], ..OverloadConfig::default() });
    let queue = world.queue(1000.0);
    let devices = world.devices("d", 20, 100.0, &[queue]);
    world.uses_topic(devices[3], "alarm/fire");
    world.uses_topic(devices[4], "weather");
    world.run(10.0);
    assert!(world.rate(3).is_infinite() && world.rate(4).is_finite());
    assert!(world.passes(devices[3]) && !world.passes(devices[4]));
    // a message is exempt, not all that its sender sends
    world.uses_topic(devices[4], "alarm/smoke");
    assert!(world.passes(devices[4]));
    world.run(0.2);
    assert!(world.rate(4).is_finite());
    world.uses_topic(devices[4], "weather");
    assert!(!world.passes(devices[4]));
    // what it asks of the gateway, and its will, are not among what it sends
    world.uses_topic(devices[3], "$tide/v1/check/d");
    world.run(0.2);
    assert!(world.rate(3).is_infinite());
    // who sends other things later is no longer exempt
    world.uses_topic(devices[3], "weather");
    world.run(2.0);
    assert!(world.rate(3).is_finite() && !world.passes(devices[3]));
    world.uses_topic(devices[3], "alarm/fire");
    assert!(world.passes(devices[3]));
}

/// A slow and a fast queue: who feeds both goes by the slow one, and is told apart where it is not as its class.
#[test]
fn the_lowest_rate_of_several_queues_counts() {
    let mut world = World::new(OverloadConfig::default());
    let (slow, fast) = (world.queue(100.0), world.queue(1000.0));
    let both = world.devices("both", 5, 100.0, &[slow, fast]);
    let only = world.devices("only", 20, 100.0, &[fast]);
    let odd = world.devices("o/d", 1, 100.0, &[slow]);
    world.run(25.0);
    let processed = world.measure(10.0);
    assert!(processed[slow] > 95.0 && processed[fast] > 950.0, "{processed:?}");
    let (low, high) = (world.rate(both[0]), world.rate(only[0]));
    assert!((15.0..=18.5).contains(&low), "{low}");
    assert!((43.0..=50.0).contains(&high), "what the slow queue leaves is used: {high}");
    assert!((world.rate(odd[0]) - low).abs() < 0.1 * low);
    // most of the class feed the fast queue: the others are told apart
    let class = world.last("$tide/v1/rate").unwrap();
    assert!((class["rate"].as_f64().unwrap() / high - 1.0).abs() < 0.06, "{class} {high}");
    assert_eq!(class["queue"], &*world.queues[fast].name);
    let own = world.last("$tide/v1/rate/client/both-1").unwrap();
    assert!((own["rate"].as_f64().unwrap() / low - 1.0).abs() < 0.06, "{own} {low}");
    assert!(world.last("$tide/v1/rate/client/only-6").is_none());
    assert!(world.announced.iter().all(|(_, topic, _)| !topic.contains("o/d")), "a topic of two levels");
    // when the slow queue is well again, what they were told is taken back
    world.queues[slow].rate = 1000.0;
    world.run(30.0);
    assert!(world.last("$tide/v1/rate/client/both-1").unwrap().is_null());
}

#[test]
fn queues_are_chosen_by_rules() {
    let rule = |filter: &str| QueueRule { filter: Some(filter.into()), ..QueueRule::default() };
    let configs = [
        (OverloadConfig { ignore: vec![rule("sensors/0/*")], ..OverloadConfig::default() }, false),
        (OverloadConfig { protect: vec![rule("sensors/1/*")], ..OverloadConfig::default() }, false),
        (OverloadConfig { protect: vec![rule("sensors/1/*"), rule("*")], ..OverloadConfig::default() }, true),
        (
            OverloadConfig {
                protect: vec![QueueRule { min_qos: 2, ..QueueRule::default() }],
                ..OverloadConfig::default()
            },
            false,
        ),
        (
            OverloadConfig {
                protect: vec![QueueRule { group: Some("work*".into()), ..QueueRule::default() }],
                ..OverloadConfig::default()
            },
            true,
        ),
    ];
    for (config, protected) in configs {
        let mut world = World::new(config.clone());
        let queue = world.queue(1000.0);
        world.devices("d", 20, 100.0, &[queue]);
        world.run(5.0);
        assert_eq!(world.rate(0).is_finite(), protected, "{config:?}");
    }
}

/// A rule may say when a queue is too long, and what its publishers want, unless their class says so.
#[test]
fn a_rule_has_a_threshold_and_a_default_rate() {
    let quick = QueueRule { filter: Some("sensors/0/*".into()), ..QueueRule::default() };
    let slow = QueueRule {
        filter: Some("sensors/1/*".into()),
        threshold: Some(400),
        default_rate: Some(70.0),
        ..QueueRule::default()
    };
    let known = ClassConfig { default_rate: Some(80.0), ..class("known") };
    let mut world = World::new(OverloadConfig {
        protect: vec![quick, slow],
        classes: vec![known],
        default_rate: Some(50.0),
        ..OverloadConfig::default()
    });
    let queues = [world.queue(500.0), world.queue(500.0)];
    for queue in queues {
        world.devices("known", 2, 80.0, &[queue]);
        world.devices("d", 10, 50.0, &[queue]);
    }
    world.run(30.0);
    let seen = |name: &str| queues.map(|queue| world.view(queue)[name].as_f64().unwrap());
    assert_eq!(seen("demand"), [2.0 * 80.0 + 10.0 * 50.0, 2.0 * 80.0 + 10.0 * 70.0]);
    let [quick, slow] = seen("depth");
    assert!(quick < 200.0 && (250.0..600.0).contains(&slow), "{quick} and {slow} wait");
}

/// A client subscribes to more, and another rule counts for its queue.
#[test]
fn another_rule_may_count_later() {
    let rule = |filter: &str, rate| QueueRule {
        filter: Some(filter.into()),
        default_rate: Some(rate),
        ..QueueRule::default()
    };
    let config =
        OverloadConfig { protect: vec![rule("a", 5.0), rule("b", 9.0)], ..OverloadConfig::default() };
    let mut world = World::new(config);
    let publisher = tidegate_plugin::Publisher::new("p".into(), None, 60, 5);
    world.host.publishers.insert(1, std::sync::Arc::new(publisher));
    for (turn, filters, demand) in [(1_u64, &["b"][..], 9.0), (2, &["b", "a"], 5.0), (3, &["b"], 9.0)] {
        let filters = filters.iter().map(|filter| (*filter).into()).collect();
        let told = tidegate_plugin::QueueReport { filters, ..super::report(1, vec![(1, 1)]) };
        world.tell(tidegate_control::time::Moment::from_secs_f64(turn as f64), &[told]);
        let (_, queues) = world.ask("queues", "");
        assert_eq!((&queues[0]["demand"], queues.as_array().unwrap().len()), (&demand.into(), 1));
    }
}

/// What the gateway itself holds nobody for is not protected either.
#[test]
fn a_queue_that_never_holds_is_left_alone() {
    for never_holds in [false, true] {
        let mut world = World::new(OverloadConfig::default());
        let queue = world.queue(1000.0);
        world.queues[queue].never_holds = never_holds;
        world.devices("d", 20, 100.0, &[queue]);
        world.run(5.0);
        assert_eq!(world.rate(0).is_finite(), !never_holds);
    }
}

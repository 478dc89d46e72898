//! The loop settles, follows consumers, and lets go.

use std::sync::Arc;

use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{Publisher, QueueControl, QueueReport};

use super::report;
use super::world::World;
use crate::{Algorithm, OverloadConfig};

const TARGET: Span = Span::from_millis(100);

fn assert_settled(world: &mut World, queue: usize, rate: f64) {
    let processed = world.measure(10.0)[queue];
    let worst = world.queues[queue].worst;
    assert!(processed >= 0.97 * rate, "{processed} of {rate} a second");
    assert!(worst <= TARGET.scale(2.0), "a delay of {worst}");
}

/// Twenty publishers of 100 messages a second, a consumer that takes 1,000.
#[test]
fn twice_the_load_settles_at_the_consumers_rate() {
    for default_rate in [None, Some(100.0)] {
        let mut world = World::new(OverloadConfig { default_rate, ..OverloadConfig::default() });
        let queue = world.queue(1000.0);
        world.devices("d", 20, 100.0, &[queue]);
        world.run(15.0);
        assert_eq!(world.phase(queue), "protect");
        assert_settled(&mut world, queue, 1000.0);
        let rate = world.rate(0);
        assert!((45.0..=55.0).contains(&rate), "{rate}");
        assert!(world.devices.iter().all(|device| (device.sent as f64 - 500.0).abs() < 50.0));
    }
}

/// Eight publishers as fast as they can, which the queue itself holds when it is long.
#[test]
fn a_flood_is_an_endless_demand() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    world.queues[queue].bound = 150;
    world.devices("flood", 8, 20_000.0, &[queue]);
    world.run(15.0);
    for _ in 0..10 {
        assert_settled(&mut world, queue, 1000.0);
        assert_ne!(world.phase(queue), "idle");
    }
}

#[test]
fn without_an_overload_nobody_is_told_anything() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    let devices = world.devices("d", 20, 45.0, &[queue]);
    world.run(30.0);
    assert_eq!(world.phase(queue), "idle");
    assert!(devices.iter().all(|device| world.rate(*device).is_infinite()));
    assert!(world.announced.is_empty(), "{:?}", world.announced);
}

#[test]
fn when_publishers_want_less_again_they_are_let_go() {
    for default_rate in [None, Some(100.0)] {
        let mut world = World::new(OverloadConfig { default_rate, ..OverloadConfig::default() });
        let queue = world.queue(1000.0);
        let devices = world.devices("d", 20, 100.0, &[queue]);
        world.run(20.0);
        assert_ne!(world.phase(queue), "idle");
        world.devices.iter_mut().for_each(|device| device.wants = 20.0);
        world.run(20.0);
        assert_eq!(world.phase(queue), "idle", "{default_rate:?}");
        assert!(devices.iter().all(|device| world.rate(*device).is_infinite()));
        assert!(world.last("$tide/v1/rate").unwrap()["rate"].is_null());
        // and are held back again when they want more
        world.devices.iter_mut().for_each(|device| device.wants = 100.0);
        world.run(15.0);
        assert_ne!(world.phase(queue), "idle");
        assert_settled(&mut world, queue, 1000.0);
    }
}

#[test]
fn the_rate_follows_the_consumers() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(500.0);
    world.devices("d", 50, 100.0, &[queue]);
    world.run(15.0);
    assert_settled(&mut world, queue, 500.0);
    for (rate, consumers) in [(1000.0, 2), (500.0, 1), (250.0, 1), (2000.0, 1)] {
        (world.queues[queue].rate, world.queues[queue].consumers) = (rate, consumers);
        world.run(20.0);
        assert_settled(&mut world, queue, rate);
    }
    // more than everybody wants
    world.queues[queue].rate = 10_000.0;
    world.run(20.0);
    assert_eq!(world.phase(queue), "idle");
    let processed = world.measure(10.0)[queue];
    assert!((processed - 5000.0).abs() < 50.0, "{processed}");
}

/// A queue that lets its publishers go and holds them again still holds them: that little comes is not their wish.
#[test]
fn who_is_held_again_and_again_wants_more() {
    let mut world = World::new(OverloadConfig::default());
    let publisher = Publisher::new("p".into(), None, 60, 5);
    world.host.publishers.insert(1, Arc::new(publisher));
    for turn in 1..=100 {
        let now = Moment::from_secs_f64(f64::from(turn) * 0.1);
        // it shows what it wants, and then waits most of the time
        let (sent, held) = if turn <= 30 { (10, 0) } else { (1, u32::from(turn % 3 == 0)) };
        world.tell(now, &[QueueReport { held, ..report(1, vec![(1, sent)]) }]);
        let demand = world.ask("queues", "").1[0]["demand"].as_f64().unwrap();
        assert!(turn <= 20 || demand > 90.0, "{demand} in turn {turn}");
    }
}

/// A queue that holds its publishers before it is over its target looks short, and is not: they are told what they may send.
#[test]
fn a_queue_that_holds_publishers_all_the_time_is_overloaded() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(200.0);
    // 55 ms of messages, where 60 ms are the target
    world.queues[queue].bound = 11;
    let devices = world.devices("d", 100, 20.0, &[queue]);
    world.run(10.0);
    assert_ne!(world.phase(queue), "idle");
    let announced: f64 = devices.iter().map(|device| world.rate(*device)).sum();
    assert!((150.0..=250.0).contains(&announced), "{announced}");
}

/// One that held them for a moment is not.
#[test]
fn a_queue_that_held_publishers_for_a_moment_is_not_overloaded() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(200.0);
    world.queues[queue].bound = 11;
    world.devices("d", 100, 1.5, &[queue]);
    for turn in 0..20 {
        // also so soon after each other that it counts as one that goes on holding them
        world.run(if turn < 10 { 3.0 } else { 1.0 });
        assert_eq!(world.phase(queue), "idle");
        world.devices("burst", 30, 1.0, &[queue]);
        let burst = world.devices.len() - 30..world.devices.len();
        world.run(0.3);
        world.disconnect(&burst.collect::<Vec<_>>());
    }
}

#[test]
fn a_consumer_that_stalls_or_goes_holds_nobody_for_long() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    let devices = world.devices("d", 20, 100.0, &[queue]);
    world.run(15.0);
    // a short stall slows publishers down
    world.queues[queue].rate = 0.0;
    world.run(5.0);
    assert!(world.rate(0) < 30.0, "{}", world.rate(0));
    world.queues[queue].rate = 1000.0;
    world.run(20.0);
    assert_settled(&mut world, queue, 1000.0);
    // a long one is given up on
    world.queues[queue].rate = 0.0;
    world.run(11.0);
    assert!(devices.iter().all(|device| world.rate(*device).is_infinite()));
    world.queues[queue].rate = 1000.0;
    world.run(60.0);
    assert_settled(&mut world, queue, 1000.0);
    // and so is a consumer that stays away
    world.queues[queue].consumers = 0;
    world.run(11.0);
    assert!(devices.iter().all(|device| world.rate(*device).is_infinite()));
    assert_eq!(world.phase(queue), "idle");
    world.queues[queue].consumers = 1;
    world.run(1.0);
    assert!(devices.iter().all(|device| world.rate(*device).is_finite()));
}

#[test]
fn consumers_that_restart_find_a_short_queue() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    world.queues[queue].consumers = 4;
    world.devices("d", 20, 100.0, &[queue]);
    world.run(15.0);
    assert_settled(&mut world, queue, 1000.0);
    let mut returns = |away: f64, back: &[u32]| {
        world.queues[queue].consumers = 0;
        world.run(away);
        let found = world.view(queue)["depth"].as_u64().unwrap();
        for count in back {
            world.queues[queue].consumers = *count;
            world.queues[queue].rate = 250.0 * f64::from(*count);
            world.run(1.0);
        }
        world.run(20.0);
        assert_settled(&mut world, queue, 1000.0);
        found
    };
    assert!(returns(5.0, &[4]) < 3200, "half of what they process and not all that is wanted");
    assert!(returns(5.0, &[1, 2, 3, 4]) < 3200, "one after the other");
}

#[test]
fn nobody_is_held_for_consumers_that_were_never_there() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    world.queues[queue].consumers = 0;
    let devices = world.devices("d", 20, 100.0, &[queue]);
    world.run(15.0);
    assert!(devices.iter().all(|device| world.rate(*device).is_infinite()));
    assert_eq!(world.phase(queue), "idle");
}

#[test]
fn slow_devices_and_slow_consumers_settle() {
    let mut world = World::new(OverloadConfig { default_rate: Some(2.0), ..OverloadConfig::default() });
    let queue = world.queue(16.5);
    world.devices("d", 40, 2.0, &[queue]);
    world.run(60.0);
    let processed = world.measure(60.0)[queue];
    assert!(processed >= 0.95 * 16.5, "{processed}");
    assert!(world.queues[queue].worst <= Span::from_millis(1000), "{}", world.queues[queue].worst);
}

#[test]
fn the_phase_machine_can_be_chosen() {
    let mut world = World::new(OverloadConfig { algorithm: Algorithm::Phase, ..OverloadConfig::default() });
    let queue = world.queue(1000.0);
    world.devices("d", 20, 100.0, &[queue]);
    world.run(20.0);
    let processed = world.measure(20.0)[queue];
    assert!(processed >= 0.9 * 1000.0, "{processed}");
}

#[test]
fn publishers_that_come_later_get_their_rate_at_once() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    world.devices("d", 20, 100.0, &[queue]);
    world.run(15.0);
    let late = world.devices("late", 1, 100.0, &[queue]);
    world.run(0.3);
    assert!(world.rate(late[0]).is_finite());
    // who connects again does too, though it is another connection with the same number
    let number = world.devices[0].number;
    let publisher = tidegate_plugin::Publisher::new("d-1".into(), None, 60, 5);
    world.host.publishers.insert(number, std::sync::Arc::new(publisher));
    world.run(0.3);
    assert!(world.rate(0).is_finite());
}

#[test]
fn those_who_leave_leave_their_share() {
    let mut world = World::new(OverloadConfig::default());
    let queue = world.queue(1000.0);
    let devices = world.devices("d", 40, 100.0, &[queue]);
    world.run(15.0);
    world.disconnect(&devices[..20]);
    world.run(10.0);
    let rate = world.rate(39);
    assert!((42.0..=58.0).contains(&rate), "{rate}");
    assert_eq!(world.view(queue)["publishers"], 20);
    assert_settled(&mut world, queue, 1000.0);
}

/// A queue whose auto-scaler can still add consumers is left alone.
#[test]
fn protection_can_wait_for_the_auto_scaler() {
    let mut world = World::new(OverloadConfig { needs_saturation: true, ..OverloadConfig::default() });
    let queue = world.queue(1000.0);
    world.devices("d", 20, 100.0, &[queue]);
    world.run(3.0);
    let name = std::sync::Arc::clone(&world.queues[queue].name);
    let view = world.plugin.state(&name).unwrap();
    assert_eq!((view.phase.name(), view.consumers), ("idle", 1));
    assert!((view.demand - 2000.0).abs() < 200.0, "{view:?}");
    world.plugin.set_saturated(&|queue| *queue == *name);
    world.run(0.5);
    assert_eq!(world.phase(queue), "protect");
    assert!(world.plugin.state("none").is_none());
}

//! What nodes before one broker announce, in virtual time.

use super::world::World;

#[test]
fn two_nodes_announce_what_one_would() {
    let announced = |shape: &[(u64, usize)]| {
        let mut world = World::new(shape);
        world.announced(40_000);
        world.announced(40_000)
    };
    let one = announced(&[(6, 2)]);
    assert!((190.0..=215.0).contains(&one), "{one}: two consumers take 100 messages a second each");
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)]),
        ("devices everywhere", [(3, 2), (3, 0)]),
        ("apart", [(6, 0), (0, 2)]),
        ("uneven", [(5, 1), (1, 1)]),
    ] {
        let two = announced(&shape);
        assert!((two / one - 1.0).abs() <= 0.05, "{name}: two announce {two}, one {one}");
    }
}

/// The same where nothing is even: messages come many at a time, take their time to the broker, and consumers theirs with them.
#[test]
fn what_is_uneven_evens_out() {
    let announced = |work, shape: &[(u64, usize)], seed| {
        let mut world = World::rough(shape, seed);
        world.work = work;
        world.announced(40_000);
        let (before, announced) = (world.done, world.announced(40_000));
        (announced, (world.done - before) as f64 / 40.0)
    };
    for work in [10, 2] {
        let one: f64 = (1..=2).map(|seed| announced(work, &[(6, 2)], seed).0).sum::<f64>() / 2.0;
        for (name, shape) in [
            ("both everywhere", [(3, 1), (3, 1)]),
            ("devices everywhere", [(3, 2), (3, 0)]),
            ("consumers at the other node", [(3, 0), (3, 2)]),
            ("apart", [(6, 0), (0, 2)]),
            ("apart, the other way round", [(0, 2), (6, 0)]),
            ("uneven", [(5, 1), (1, 1)]),
        ] {
            for seed in 1..=2 {
                let (two, done) = announced(work, &shape, seed);
                let told = format!("{work} ms, {name}, {seed}: two announce {two}, one {one}");
                // of 200 a second, devices send a quarter of what may wait at a time
                let band = if work == 10 { 0.08 } else { 0.03 };
                assert!((two / one - 1.0).abs() <= band, "{told}");
                assert!(done >= (1.0 - band) * one, "{told}: consumers were done with {done} a second");
            }
        }
    }
}

/// The broker loses about as many messages as may wait: consumers are hardly slower for it, though nobody is told.
#[test]
fn messages_that_the_broker_lost_are_not_waited_for() {
    for (work, lost) in [(10, 5), (10, 20), (2, 10), (2, 60)] {
        let mut world = World::new(&[(6, 2)]);
        world.work = work;
        world.announced(20_000);
        world.losing = lost;
        world.announced(20_000);
        let (before, share) = (world.done, work as f64 / 2_000.0 / 20.0);
        world.announced(20_000);
        let busy = (world.done - before) as f64 * share;
        assert!(busy >= 0.94, "{work} ms, {lost} lost: consumers are busy to {busy}");
    }
}

/// As many messages as may wait come and go faster than nodes speak, and within a turn of the control loop.
#[test]
fn a_queue_that_is_quicker_than_news_is_known_all_the_same() {
    let settled = |transit, shape: &[(u64, usize)]| {
        let mut world = World::new(shape);
        (world.work, world.transit) = (2, transit);
        world.announced(40_000);
        (world.done, world.most) = (0, 0);
        (world.announced(40_000), world.done, world.most)
    };
    let (one, ..) = settled(0, &[(6, 2)]);
    assert!((950.0..=1_050.0).contains(&one), "{one}: two consumers take 500 messages a second each");
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)].as_slice()),
        ("devices everywhere, consumers at the node that knows the queue for longer", &[(3, 2), (3, 0)]),
        ("devices everywhere, consumers at the other one", &[(3, 0), (3, 2)]),
        ("apart, devices at the node that knows the queue for longer", &[(6, 0), (0, 2)]),
        ("apart, consumers there", &[(0, 2), (6, 0)]),
        ("uneven", &[(5, 1), (1, 1)]),
        ("three, devices at the first", &[(6, 0), (0, 1), (0, 1)]),
        ("three, devices at the last", &[(0, 1), (0, 1), (6, 0)]),
        ("three, consumers at the last", &[(3, 0), (3, 0), (0, 2)]),
    ] {
        for transit in [0, 50] {
            let (all, done, most) = settled(transit, shape);
            let told = format!("{name}, news take {transit} ms");
            assert!((all / one - 1.0).abs() <= 0.05, "{told}: they announce {all}, one {one}");
            assert!(done >= 38_800, "{told}: consumers were done with {done} messages of 40,000");
            assert!(most <= 100, "{told}: {most} messages waited, which takes longer than 100 ms");
        }
    }
}

/// Devices flooded the broker before their node had heard of the queue. Nobody counted that, and brokers send consumers more
/// than they can be at work on. Once the flood is over, nodes announce what one does that knew of the queue from the start.
#[test]
fn a_flood_that_nobody_counted_changes_nothing() {
    let announced = |flood, shape: &[(u64, usize)]| {
        let mut world = World::new(shape);
        (world.waiting, world.sent) = (flood, 1_000);
        world.announced(40_000);
        world.announced(20_000)
    };
    let one = announced(0, &[(6, 2)]);
    for (flood, name, shape) in [
        (300, "both everywhere", [(3, 1), (3, 1)].as_slice()),
        (300, "devices everywhere", &[(3, 2), (3, 0)]),
        (300, "apart", &[(6, 0), (0, 2)]),
        (1_000, "apart", &[(6, 0), (0, 2)]),
        (300, "uneven", &[(5, 1), (1, 1)]),
        (1_000, "three", &[(2, 0), (2, 1), (2, 1)]),
    ] {
        let all = announced(flood, shape);
        assert!((all / one - 1.0).abs() <= 0.05, "{name} after {flood}: they announce {all}, one {one}");
    }
}

/// A flood that nobody counted is over when devices begin to send: they do not fill the place that it left in the books.
#[test]
fn nobody_sends_what_a_flood_left_uncounted() {
    for (name, shape) in [
        ("one", [(6, 2)].as_slice()),
        ("both everywhere", &[(3, 1), (3, 1)]),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
        ("uneven", &[(5, 1), (1, 1)]),
        ("three", &[(2, 0), (2, 1), (2, 1)]),
    ] {
        let mut world = World::new(shape);
        world.waiting = 1_000;
        let devices = world.nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.for_each(|device| device.next += 5_000.0);
        world.announced(5_000);
        let mut most = 0;
        for _ in 0..20 {
            world.announced(1_000);
            most = most.max(world.waiting);
        }
        assert!(most <= 50, "{name}: {most} messages wait");
    }
}

/// Devices come to a queue that holds them from their first message on, so that they never show what they want. Once
/// consumers are done with what was there, these do not wait for devices that are told far too little.
#[test]
fn who_is_held_from_the_start_is_not_taken_to_want_nothing() {
    for (name, shape) in [
        ("one", [(6, 2)].as_slice()),
        ("both everywhere", &[(3, 1), (3, 1)]),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
    ] {
        let mut world = World::new(shape);
        (world.waiting, world.sent) = (1_000, 1_000);
        let devices = world.nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.for_each(|device| device.next += 1_000.0);
        world.announced(7_000);
        let all = world.announced(5_000);
        assert!((190.0..=210.0).contains(&all), "{name}: they announce {all}, and consumers take 200");
    }
}

/// What nodes say comes late now and then: a machine is busy, or the network.
#[test]
fn late_news_change_nothing() {
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)].as_slice()),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
        ("uneven", &[(5, 1), (1, 1)]),
    ] {
        // with what they say in any case, that is for up to 0.7 s and for up to 2 s
        for silence in [(500, 5_000), (1_800, 10_000)] {
            let mut world = World::new(shape);
            world.sent = 1_000;
            // they have heard of each other
            world.announced(1_000);
            world.silence = silence;
            world.announced(20_000);
            let all = world.announced(20_000);
            let told = format!("{name}, silent for {silence:?}: they announce {all}, and consumers take 200");
            assert!((190.0..=210.0).contains(&all), "{told}");
        }
    }
}

/// Clients come and go, so that nodes have news all the time.
#[test]
fn early_news_change_nothing() {
    for (name, shape) in [
        ("both everywhere", [(3, 1), (3, 1)].as_slice()),
        ("devices everywhere", &[(3, 2), (3, 0)]),
        ("apart", &[(6, 0), (0, 2)]),
        ("uneven", &[(5, 1), (1, 1)]),
    ] {
        let mut world = World::new(shape);
        world.eager = true;
        world.announced(40_000);
        let all = world.announced(20_000);
        assert!((190.0..=210.0).contains(&all), "{name}: they announce {all}, and consumers take 200");
    }
}

/// A node that is silent for its ttl leaves its share to the others.
#[test]
fn a_silent_nodes_share_is_given_back() {
    let mut world = World::new(&[(3, 2), (3, 0)]);
    world.announced(40_000);
    let before = world.nodes[0].announced();
    world.nodes.pop();
    world.announced(1_000);
    let meanwhile = world.nodes[0].announced();
    assert!(meanwhile < 1.4 * before, "{meanwhile} after {before}: it may come back");
    world.announced(20_000);
    let after = world.announced(20_000);
    assert!(after > 1.5 * before, "{after} after {before}");
}

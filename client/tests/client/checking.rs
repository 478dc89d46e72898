//! A subscriber against the real gateway with all its plugins, over a link that drops a fifth of the notifications.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tidegate_client::control::active::ConstantConfig;
use tidegate_client::control::time::Span;
use tidegate_client::{Connection, Publisher, Subscriber, Via};

use crate::gateway::Gateway;
use crate::lossy::lossy_relay;
use crate::publishing::connection;
use crate::{soon, until};

/// Every update or its newer successor, in order and once, and far fewer losses than without checks.
#[tokio::test]
async fn over_a_lossy_link_what_is_dropped_is_fetched() {
    const UPDATES: u64 = 75;
    let gateway = Gateway::real(&[]);
    let relay = lossy_relay(gateway.address("mqtt")).await;
    let subscriber = |id: &str| {
        let connection = Connection::new(&format!("mqtt://{relay}"), id).unwrap();
        Subscriber::builder(connection).filter_with("room/#", tidegate_client::Qos::AtMostOnce)
    };
    // Several updates a second, and checks more often than that: everything is faster than in a building.
    let often = ConstantConfig { interval: Span::from_millis(40) }.build().unwrap();
    let mut active = subscriber("active").strategy(often).most_checks(40.0).start().unwrap();
    let mut passive = subscriber("passive").passive_only().start().unwrap();
    until("a first answer", || active.stats().checks > 0 && active.stats().response > Duration::ZERO).await;
    until("the other one", || passive.stats().connections > 0).await;
    let source = Publisher::builder(Connection::new(&gateway.url(), "source").unwrap()).start().unwrap();
    for n in 1..=UPDATES {
        source.offer("room/1/temp", n.to_string());
        soon("delivery", source.delivered()).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let (mut seen, mut fetched, mut lost, mut last) = (0, 0, 0, 0);
    while last < UPDATES {
        let update = soon("an update", active.next()).await.unwrap();
        let number: u64 = String::from_utf8_lossy(&update.payload).parse().unwrap();
        assert!(number > last, "{number} after {last}");
        (seen, lost, last) = (seen + 1, lost + update.lost_before, number);
        fetched += u64::from(update.via == Via::Active);
    }
    let mut came = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(200), passive.next()).await {
        came += 1;
    }
    let (active_lost, passive_lost) = (UPDATES - seen, UPDATES - came);
    println!(
        "of {UPDATES} updates the passive one lost {passive_lost}, the active one {active_lost}, fetched {fetched}"
    );
    assert!(passive_lost > 0 && fetched > 0);
    assert_eq!(seen + lost, UPDATES, "what is lost is counted");
    assert!(3 * active_lost <= passive_lost, "{active_lost} of {passive_lost} are still lost");
}

/// More topics than one answer can tell of: it takes several to know where things stand, and nothing old is taken for news.
#[tokio::test]
async fn a_start_that_takes_several_answers_fetches_nothing_old() {
    const TOPICS: usize = 200;
    let gateway = Gateway::real(&["check.max_payload=1000", "check.max_answer_bytes=2000"]);
    let source = Publisher::builder(Connection::new(&gateway.url(), "source").unwrap()).start().unwrap();
    for n in 0..TOPICS {
        assert!(source.offer(&format!("room/{n}"), "old"));
    }
    soon("delivery", source.delivered()).await;
    let often = ConstantConfig { interval: Span::from_millis(40) }.build().unwrap();
    let builder = Subscriber::builder(Connection::new(&gateway.url(), "screen").unwrap()).filter("room/#");
    let mut screen = builder.strategy(often).most_checks(40.0).start().unwrap();
    // More than it takes to tell of all.
    until("many answers", || screen.stats().answered_checks > 20).await;
    for n in [0, TOPICS - 1] {
        source.offer(&format!("room/{n}"), "new");
        assert_eq!(soon("the update", screen.next()).await.unwrap().payload, "new");
    }
    assert_eq!(screen.stats().active + screen.stats().passive, 2);
}

/// More topics than one check can name: they are asked for in parts, and what was dropped is found in each of them.
#[tokio::test]
async fn thousands_of_topics_are_asked_for_in_parts() {
    const TOPICS: usize = 5_000;
    let gateway = Gateway::real(&["check.max_answer=200"]);
    let relay = lossy_relay(gateway.address("mqtt")).await;
    let often = ConstantConfig { interval: Span::from_millis(40) }.build().unwrap();
    let connection = Connection::new(&format!("mqtt://{relay}"), "active").unwrap();
    let builder = Subscriber::builder(connection).filter_with("room/#", tidegate_client::Qos::AtMostOnce);
    let mut active = builder.strategy(often).most_checks(40.0).buffer(2 * TOPICS).start().unwrap();
    until("a first answer", || active.stats().answered_checks > 0).await;
    let source = Publisher::builder(Connection::new(&gateway.url(), "source").unwrap());
    let source = source.buffer(TOPICS, 1_000_000).window(64).start().unwrap();
    for n in 0..TOPICS {
        assert!(source.offer(&format!("room/{n}/temperature at the window"), n.to_string()));
    }
    soon("delivery", source.delivered()).await;
    let (mut topics, mut fetched) = (HashSet::new(), 0);
    while topics.len() < TOPICS {
        let update = soon("an update", active.next()).await.unwrap();
        fetched += u64::from(update.via == Via::Active);
        assert!(topics.insert(update.topic), "each comes once");
    }
    assert!(fetched > 100, "{fetched} were fetched");
    let round = active.stats().answered_checks + 10;
    until("a round", || active.stats().answered_checks > round).await;
    assert_eq!((active.stats().refused_checks, active.stats().silent_checks), (0, 0));
}

/// More topics than the subscriber keeps track of, each with a history that would fill several answers: what is missing of those
/// that it does track is fetched all the same.
#[tokio::test]
async fn topics_beyond_the_bound_do_not_crowd_out_the_others() {
    const TOPICS: usize = 20;
    const TRACKED: usize = 3;
    const UPDATES: usize = 30;
    let gateway = Gateway::real(&[]);
    let relay = lossy_relay(gateway.address("mqtt")).await;
    let often = ConstantConfig { interval: Span::from_millis(40) }.build().unwrap();
    let connection = Connection::new(&format!("mqtt://{relay}"), "active").unwrap();
    let builder = Subscriber::builder(connection).filter_with("room/#", tidegate_client::Qos::AtMostOnce);
    let builder = builder.strategy(often).most_checks(40.0).most_topics(TRACKED).answer_limit(5);
    let mut active = builder.start().unwrap();
    until("a first answer", || active.stats().answered_checks > 0).await;
    let source =
        Publisher::builder(Connection::new(&gateway.url(), "source").unwrap()).window(64).start().unwrap();
    for update in 0..UPDATES {
        for topic in 0..TOPICS {
            assert!(source.offer(&format!("room/{topic}/temp"), update.to_string()));
        }
        soon("delivery", source.delivered()).await;
    }
    let (mut seen, mut fetched) = (HashMap::<String, usize>::new(), 0);
    while seen.values().filter(|count| **count == UPDATES).count() < TRACKED {
        let update = soon("an update", active.next()).await.unwrap();
        assert_eq!(update.lost_before, 0);
        fetched += usize::from(update.via == Via::Active);
        *seen.entry(update.topic).or_default() += 1;
    }
    assert!(fetched > 0 && seen.values().any(|count| *count < UPDATES), "{fetched} fetched, {seen:?}");
}

/// Consumers whose sources all change at the same moment, on a gateway that answers fewer checks than they would make: all are
/// answered, some with a later time, and none with silence.
#[tokio::test]
async fn a_herd_over_the_limit_is_never_met_with_silence() {
    const HERD: usize = 60;
    let gateway = Gateway::with(&["listen.mqtt=127.0.0.1:0", "check.max_rate=20.0"]);
    let often = || ConstantConfig { interval: Span::from_secs(1) }.build().unwrap();
    let mut herd: Vec<Subscriber> = (0..HERD)
        .map(|number| {
            let connection = connection(&gateway.url(), &format!("consumer-{number}"));
            let builder = Subscriber::builder(connection).filter(format!("herd/{number}")).strategy(often());
            builder.patience(crate::PATIENCE).start().unwrap()
        })
        .collect();
    until("all connected", || herd.iter().all(|consumer| consumer.stats().connections == 1)).await;
    let source = Publisher::builder(connection(&gateway.url(), "source")).start().unwrap();
    // The first may come before a subscription is in force.
    for change in 0..5 {
        for number in 0..HERD {
            assert!(source.offer(&format!("herd/{number}"), change));
        }
        soon("delivery", source.delivered()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for consumer in &mut herd {
        while soon("an update", consumer.next()).await.unwrap().payload != "4" {}
    }
    until("all answered", || herd.iter().all(|consumer| consumer.stats().answered_checks > 0)).await;
    let stats: Vec<_> = herd.iter().map(Subscriber::stats).collect();
    let sum = |count: fn(&tidegate_client::SubscriberStats) -> u64| stats.iter().map(count).sum::<u64>();
    assert!(sum(|stats| stats.delayed_checks) > 0, "the limit was not reached");
    assert_eq!((sum(|stats| stats.silent_checks), sum(|stats| stats.refused_checks)), (0, 0));
}

/// Members of a shared group get a part each: what the others got is neither missing nor fetched.
#[tokio::test]
async fn a_member_of_a_group_misses_nothing() {
    let gateway = Gateway::real(&[]);
    let often = || ConstantConfig { interval: Span::from_millis(50) }.build().unwrap();
    let member = |id: &str| {
        let builder = Subscriber::builder(Connection::new(&gateway.url(), id).unwrap());
        builder.filter("$share/workers/job/#").strategy(often()).most_checks(40.0).start().unwrap()
    };
    let (mut one, mut other) = (member("one"), member("other"));
    let source = Publisher::builder(Connection::new(&gateway.url(), "source").unwrap()).start().unwrap();
    until("both", || one.stats().connections == 1 && other.stats().connections == 1).await;
    let (mut jobs, mut shares) = (Vec::new(), [0, 0]);
    // The first jobs may come before the group is there.
    for n in 0.. {
        source.offer("job/1", n);
        soon("delivery", source.delivered()).await;
        let patience = Duration::from_millis(if jobs.is_empty() { 200 } else { 20_000 });
        let update = tokio::select! {
            update = one.next() => (0, update.unwrap()),
            update = other.next() => (1, update.unwrap()),
            () = tokio::time::sleep(patience) => { assert!(jobs.is_empty(), "job {n} is lost"); continue },
        };
        let (member, update) = update;
        assert_eq!((update.via, update.lost_before), (Via::Passive, 0));
        shares[member] += 1;
        jobs.push(String::from_utf8_lossy(&update.payload).into_owned());
        if jobs.len() == 50 {
            break;
        }
    }
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    assert_eq!((one.stats().checks, other.stats().active), (0, 0), "there is nothing to ask for");
}

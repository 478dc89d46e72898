//! The generator against the real gateway: what it reports is what happened.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{gateway, notes, run_against, scenario, swallower};
use tidegate_bench::record::{NoteKind, Run};
use tidegate_bench::relay::{Plan, Relay};
use tidegate_bench::report::{run_html, run_markdown};
use tidegate_bench::run::{Target, run};

/// Nothing is lost, repeated or out of order, and everything adds up.
fn assert_clean(run: &Run) {
    let totals = &run.totals;
    assert_eq!(run.error, None);
    assert!(totals.sent > 0 && run.latency.count > 0, "nothing happened: {totals:?}");
    assert_eq!(
        (totals.lost, totals.duplicates, totals.out_of_order),
        (0, 0, 0),
        "{totals:?} {:?}",
        run.notes
    );
    assert_eq!((totals.refused, totals.foreign, totals.unaccepted), (0, 0, 0), "{totals:?}");
    assert_eq!(totals.accepted, totals.sent, "{totals:?}");
    assert_eq!(totals.delivered, totals.expected, "{totals:?}");
    let summed: u64 = run.intervals.iter().map(|interval| interval.sent).sum();
    assert_eq!(summed, totals.sent, "intervals and totals agree");
    let summed: u64 = run.intervals.iter().map(|interval| interval.delivered).sum();
    assert_eq!(summed, totals.delivered, "intervals and totals agree");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_qos_and_version_is_counted_alike() {
    let address = gateway().await;
    for version in ["3.1.1", "5"] {
        for qos in 0..3 {
            let text = format!(
                r#"
                name = "each"
                duration = 0.5
                warmup = 0.1
                interval = 0.1
                version = "{version}"
                [[class]]
                name = "device"
                devices = 5
                rate = 200.0
                qos = {qos}
                topic = "each/%i"
                [[consumers]]
                name = "all"
                instances = 2
                filter = "each/#"
                qos = {qos}
                [[consumers]]
                name = "third"
                instances = 1
                filter = "each/3"
                qos = {qos}
                "#
            );
            let result = run_against(address, &text).await;
            assert_clean(&result);
            assert!(result.totals.expected > 2 * result.totals.accepted, "two get all, one gets a fifth");
            assert_eq!(result.classes[0].accepted, result.totals.accepted);
            assert!(result.classes[0].fairness.unwrap() > 0.5, "{:?}", result.classes);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_group_is_checked_as_a_whole_while_it_grows_and_shrinks() {
    let text = r#"
        name = "shared"
        duration = 3.0
        warmup = 0.1
        interval = 0.1
        [[class]]
        name = "device"
        devices = 4
        rate = 100.0
        qos = 1
        topic = "shared/%i"
        [[consumers]]
        name = "worker"
        instances = 3
        group = "g"
        filter = "shared/#"
        qos = 1
        rate = 2000.0
        schedule = [[0.0, 1], [0.2, 3], [0.6, 1]]
    "#;
    let result = run_against(gateway().await, text).await;
    assert_eq!(result.error, None);
    assert_eq!(result.totals.lost, 0, "{:?}", result.totals);
    let seen: Vec<u32> = result.intervals.iter().map(|interval| interval.consumers).collect();
    let grown = seen.iter().position(|count| *count == 3).unwrap_or_else(|| panic!("it grew: {seen:?}"));
    assert!(seen[..grown].contains(&1) && seen[grown..].contains(&1), "it shrank: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_owed_to_a_group_while_nobody_is_in_it() {
    let text = r#"
        name = "empty"
        duration = 2.0
        warmup = 0.1
        interval = 0.1
        [[class]]
        name = "device"
        devices = 4
        rate = 100.0
        qos = 1
        topic = "empty/%i"
        [[consumers]]
        name = "worker"
        instances = 2
        group = "g"
        filter = "empty/#"
        qos = 1
        schedule = [[0.0, 2], [0.3, 0], [0.6, 2]]
    "#;
    let result = run_against(gateway().await, text).await;
    let totals = &result.totals;
    assert_eq!(result.error, None);
    assert!(result.intervals.iter().any(|interval| interval.t > 0.0 && interval.consumers == 0));
    let delivered_late: u64 = result.intervals.iter().filter(|i| i.t > 1.4).map(|i| i.delivered).sum();
    assert!(delivered_late > 0, "they came back: {totals:?}");
    assert!(totals.expected + 20 < totals.accepted, "what nobody asked for is not owed: {totals:?}");
    assert_eq!(
        (totals.lost, totals.undelivered, totals.duplicates),
        (0, 0, 0),
        "{totals:?} {:?}",
        result.notes
    );
    assert_eq!(totals.expected, totals.delivered - totals.repeated - totals.unaccepted, "{totals:?}");
    assert!(
        result.notes.iter().any(|note| note.text.contains("not there all the time")),
        "{:?}",
        result.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_processes_one_message_at_a_time() {
    let text = r#"
        name = "slow"
        duration = 2.0
        warmup = 0.0
        drain = 20.0
        [[class]]
        name = "device"
        devices = 2
        rate = 500.0
        topic = "slow/%i"
        [[consumers]]
        instances = 1
        filter = "slow/#"
        rate = 100.0
    "#;
    let result = run_against(gateway().await, text).await;
    assert_eq!(result.error, None);
    // Ten times too much comes in; nothing makes a worker faster than it is, however late it is woken.
    let in_time: u64 =
        result.intervals.iter().filter(|i| i.t <= result.duration + 1e-6).map(|i| i.delivered).sum();
    assert!(in_time as f64 <= 100.0 * (result.duration + 0.1), "{in_time} in {} s", result.duration);
    assert!(in_time > 0, "{in_time}");
    assert!(result.latency.max > 100.0, "what waits grows old: {:?}", result.latency);
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_come_and_go_with_the_pattern_and_after_a_drop() {
    let text = r#"
        name = "pattern"
        duration = 2.0
        warmup = 0.0
        interval = 0.1
        workload = { points = [[0.0, 0.2], [0.4, 1.0], [1.0, 0.2]] }
        event = [{ at = 0.4, do = "drop-devices" }]
        [connect]
        backoff = 0.0
        [[class]]
        name = "device"
        devices = 20
        rate = 20.0
        qos = 1
        topic = "pattern/%i"
        [[consumers]]
        instances = 1
        filter = "pattern/#"
        qos = 1
    "#;
    let result = run_against(gateway().await, text).await;
    assert_eq!(result.error, None);
    assert_eq!(result.totals.lost, 0, "{:?}", result.totals);
    let devices: Vec<u32> = result.intervals.iter().map(|interval| interval.devices).collect();
    assert!(*devices.iter().max().unwrap() >= 15, "{devices:?}");
    assert!(result.totals.connects >= 30, "those that were dropped came back: {:?}", result.totals);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_loop_keeps_its_window() {
    let text = r#"
        name = "closed"
        duration = 0.5
        warmup = 0.1
        [[class]]
        name = "device"
        devices = 2
        window = 10
        qos = 1
        topic = "closed/%i"
        topics = 1
        [[consumers]]
        instances = 1
        filter = "closed/#"
        qos = 1
    "#;
    assert_clean(&run_against(gateway().await, text).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_go_round_over_topics_are_expected_where_they_belong() {
    let text = r#"
        name = "round"
        duration = 0.5
        warmup = 0.0
        [[class]]
        name = "commander"
        devices = 2
        rate = 400.0
        topic = "command/%t"
        topics = 10
        [[consumers]]
        instances = 8
        filter = "command/%i"
    "#;
    let result = run_against(gateway().await, text).await;
    assert_eq!((result.error.as_deref(), result.totals.lost), (None, 0));
    let share = result.totals.expected as f64 / result.totals.accepted as f64;
    assert!((share - 0.8).abs() < 0.05, "eight of ten topics have a consumer: {share}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_relay_did_is_what_is_reported() {
    // One device and one consumer, so that two messages that change places are of the same flow.
    let text = |qos: u8| {
        format!(
            r#"
            name = "relay"
            duration = 1.0
            warmup = 0.1
            [relay]
            side = "consumers"
            drop = 0.05
            repeat = 0.07
            swap = 0.06
            [[class]]
            name = "device"
            devices = 1
            rate = 2000.0
            qos = {qos}
            topic = "relay/x"
            [[consumers]]
            instances = 1
            filter = "relay/#"
            qos = 0
            "#
        )
    };
    let address = gateway().await;
    for qos in [0, 1] {
        let result = run_against(address, &text(qos)).await;
        assert_eq!(result.error, None);
        let note = notes(&result, NoteKind::Relay);
        let numbers: Vec<u64> =
            note.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
        let [seen, dropped, repeated, swapped] = numbers[..] else { panic!("{note}") };
        assert!(dropped > 2 && repeated > 2 && swapped > 2, "{note}");
        let totals = &result.totals;
        assert_eq!(seen, totals.accepted, "the gateway itself lost nothing");
        assert_eq!(
            (totals.lost, totals.duplicates, totals.out_of_order),
            (dropped, repeated, swapped),
            "{totals:?}"
        );
        assert_eq!(totals.delivered, seen - dropped + repeated);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_on_the_way_to_the_broker_is_lost_too() {
    let relay =
        Relay::start(gateway().await, Plan { drop: 0.2, seed: 3, towards_broker: true, ..Plan::default() });
    let relay = relay.await.unwrap();
    let text = r#"
        name = "upstream"
        duration = 0.5
        warmup = 0.0
        [[class]]
        name = "device"
        devices = 4
        rate = 300.0
        topic = "up/%i"
        [[consumers]]
        instances = 1
        filter = "up/#"
    "#;
    let result = run(&scenario(text), &mut Target::there(relay.address, "localhost", None), 1).await;
    let dropped = relay.deeds.dropped.load(std::sync::atomic::Ordering::Relaxed);
    assert!(dropped > 5);
    assert_eq!(result.totals.lost, dropped, "{:?}", result.totals);
    assert_eq!((result.totals.duplicates, result.totals.out_of_order), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_follow_slow_down_and_others_do_not() {
    use common::advisor::{Way, advisor};
    let ways = [
        Way::Topic("$tide/v1/rate"),
        Way::Topic("$tide/v1/rate/class/meter"),
        Way::Topic("$tide/v1/rate/client/meter0"),
        Way::Ack,
    ];
    for way in ways {
        let address = advisor(way, "10.0").await;
        let text = |follows: bool| {
            format!(
                r#"
                name = "follow"
                version = "5"
                duration = 1.0
                warmup = 0.5
                [[class]]
                name = "meter"
                devices = 1
                rate = 200.0
                qos = 1
                topic = "meter/%i"
                follows = {follows}
                "#
            )
        };
        let following = run_against(address, &text(true)).await;
        assert_eq!(following.error, None);
        // 300 messages if it did not listen; 15 and what goes out before it has heard.
        assert!(following.totals.sent < 100, "{way:?}: {:?}", following.totals);
        let rates: Vec<f64> = following.intervals.iter().filter_map(|interval| interval.rate).collect();
        assert!(rates.contains(&10.0), "{way:?}: {rates:?}");
        // 200 a second while it was there, less what it was told: the rate never rises again.
        let withheld = following.withheld.unwrap();
        let (wanted, connected) = (withheld.wanted, withheld.connected);
        assert!(connected > 0.3 && connected <= following.duration + 0.01, "{way:?}: {withheld:?}");
        assert!((wanted - 200.0 * connected).abs() < 0.01, "{way:?}: {withheld:?}");
        assert!(withheld.seconds > 0.0 && withheld.seconds <= connected, "{way:?}: {withheld:?}");
        assert!((withheld.messages - 190.0 * withheld.seconds).abs() < 0.01, "{way:?}: {withheld:?}");
        let sent = following.rates.sent * following.duration;
        assert!((withheld.messages + sent - wanted).abs() < 0.25 * wanted, "{way:?}: {sent} {withheld:?}");
        assert_eq!(following.classes[0].withheld, following.withheld);
        for report in [run_markdown(&following), run_html(&following)] {
            assert!(report.contains("Withheld as told") && report.contains("% withheld"), "{report}");
        }
        let deaf = run_against(address, &text(false)).await;
        assert_eq!(deaf.withheld, None);
        assert!(deaf.totals.sent > 150, "{way:?}: {:?}", deaf.totals);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_cannot_keep_up_says_so() {
    let address = swallower().await;
    let text = |rate: &str| {
        format!(
            "name = \"much\"\nduration = 1.0\nwarmup = 0.0\ndrain = 0.0\n\
             class = [{{ name = \"d\", devices = 1, rate = {rate}, topic = \"much\" }}]"
        )
    };
    let limited = |run: &Run| !notes(run, NoteKind::GeneratorLimited).is_empty();
    let result = run_against(address, &text("1e7")).await;
    assert!(result.rates.sent < 9e6, "this machine is too fast for this test: {:?}", result.rates);
    assert!(limited(&result), "{:?}", result.notes);
    // Other tests of this process may take all processors for a moment: it is enough not to be accused once.
    for _ in 0..20 {
        if !limited(&run_against(address, &text("10.0")).await) {
            return;
        }
    }
    panic!("a generator that has nothing to do is always called limited");
}

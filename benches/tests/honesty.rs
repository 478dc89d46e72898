//! What a generator is tempted to leave out, or to blame on somebody else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::shouter::shouter;
use common::{gateway, notes, run_against};
use tidegate_bench::record::NoteKind;

/// A stall from the middle of the measured part to its end, on one side of the broker.
fn stall(side: &str, qos: u8) -> String {
    format!(
        r#"
        name = "stall"
        duration = 2.0
        warmup = 0.2
        drain = 0.5
        interval = 0.1
        patience = 60.0
        event = [{{ at = 0.5, do = "stop-relay" }}]
        relay = {{ side = "{side}" }}
        [[class]]
        name = "device"
        devices = 2
        rate = 200.0
        qos = {qos}
        window = 50
        topic = "stall/%i"
        [[consumers]]
        instances = 1
        filter = "stall/#"
        qos = {qos}
        "#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_that_lasts_to_the_end_is_in_the_latencies() {
    let address = gateway().await;
    for (side, qos) in [("devices", 1), ("devices", 0), ("consumers", 1)] {
        let run = run_against(address, &stall(side, qos)).await;
        let (totals, latency) = (&run.totals, &run.latency);
        assert_eq!(run.error, None);
        // A second of the two was stalled: 400 messages that were meant for it have no later time than the end.
        assert!(latency.max >= 950.0, "{side}, qos {qos}: {latency:?}");
        assert!(latency.p90 >= 500.0 && latency.p50 < 900.0, "{side}, qos {qos}: {latency:?}");
        let due = 2.0 * 200.0 * run.duration;
        assert!((latency.count as f64 - due).abs() < 0.1 * due, "each counts once: {due} {latency:?}");
        let told = notes(&run, NoteKind::Late);
        if (side, qos) == ("devices", 1) {
            // The windows of two devices are full, the rest is still due.
            assert!((100..=400).contains(&totals.unsent), "{totals:?}");
            assert!((50..=120).contains(&totals.outstanding), "{totals:?}");
            assert!(told.contains(&format!("{} messages were due", totals.unsent)), "{told}");
        } else {
            // A gateway whose consumer takes nothing may make publishers wait: then some are not even sent.
            assert!(qos == 1 || totals.unsent == 0, "{side}, qos {qos}: {totals:?}");
            let late = totals.unsent + totals.outstanding;
            assert!((200..=650).contains(&late), "{side}, qos {qos}: {totals:?}");
        }
        assert!(told.contains(&format!("{} deliveries", totals.outstanding)), "{told}");
        let told = notes(&run, NoteKind::Check);
        assert!(told.contains("waiting ended after") && told.contains("nothing came for the last"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_draining_is_in_the_latencies() {
    // The consumer takes nothing in the second half.
    let text = stall("devices", 1).replace("event = ", "#").replace("filter", "speed = [[0.5, 0.0]]\nfilter");
    let run = run_against(gateway().await, &text).await;
    assert_eq!((run.error.as_deref(), run.totals.lost, run.totals.outstanding), (None, 0, 0));
    assert!(run.latency.max >= 950.0 && run.latency.p90 >= 500.0, "{:?}", run.latency);
    assert_eq!(notes(&run, NoteKind::Check), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_by_the_broker_is_not_called_a_limit_of_the_generator() {
    // After the stall more than one batch has room at once.
    let text = stall("devices", 1)
        .replace("event = [", "event = [{ at = 0.2, do = \"stop-relay\" }, ")
        .replace("at = 0.5, do = \"stop-relay\"", "at = 0.6, do = \"resume-relay\"")
        .replace("devices = 2", "devices = 1")
        .replace("rate = 200.0", "rate = 2000.0")
        .replace("window = 50", "window = 300");
    let run = run_against(gateway().await, &text).await;
    assert_eq!((run.error.as_deref(), run.totals.lost), (None, 0));
    assert!(run.latency.max >= 700.0, "{:?}", run.latency);
    // A busy machine makes the generator late indeed, but not by as much as the stall.
    let told = notes(&run, NoteKind::GeneratorLimited);
    let worst = told.split("at worst ").nth(1).map_or(0.0, |rest| {
        rest.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(f64::MAX)
    });
    assert!(worst < 400.0, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_neither_throughput_nor_fast_deliveries() {
    let text = stall("consumers", 0)
        .replace("event = ", "#")
        .replace("side = \"consumers\"", "side = \"consumers\", repeat = 0.5");
    let run = run_against(gateway().await, &text).await;
    let totals = &run.totals;
    assert!(run.error.is_none() && totals.duplicates > 200, "{totals:?}");
    let summed =
        |count: fn(&tidegate_bench::record::Interval) -> u64| run.intervals.iter().map(count).sum::<u64>();
    assert_eq!(summed(|interval| interval.delivered), totals.delivered - totals.duplicates);
    assert_eq!(summed(|interval| interval.duplicates), totals.duplicates);
    assert!(run.rates.delivered < 1.1 * run.rates.sent, "{:?}", run.rates);
    assert!(run.latency.count <= totals.sent, "{:?}", run.latency);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_the_generator_sent_again_are_not_the_brokers_duplicates() {
    let text = r#"
        name = "again"
        duration = 1.5
        warmup = 0.1
        connect = { backoff = 0.02 }
        [[class]]
        name = "device"
        devices = 8
        qos = 1
        window = 50
        topic = "again/%i"
        [[consumers]]
        instances = 1
        filter = "again/#"
        qos = 1
    "#;
    let events: String =
        (1..10).map(|at| format!("[[event]]\nat = 0.{at}\ndo = \"drop-devices\"\n")).collect();
    let run = run_against(gateway().await, &format!("{text}\n{events}")).await;
    let totals = &run.totals;
    assert_eq!((run.error.as_deref(), totals.lost), (None, 0), "{totals:?}");
    assert!(totals.resent > 0 && totals.repeated > 0, "{totals:?}");
    assert_eq!(totals.duplicates, 0, "the gateway delivered what it was sent: {totals:?}");
    assert_eq!(
        totals.expected,
        totals.delivered - totals.duplicates - totals.repeated - totals.unaccepted + totals.lost
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_up_after_a_silence_is_told_with_what_was_owed() {
    let text = stall("consumers", 1).replace("drain = 0.5", "drain = 60.0");
    let run = run_against(gateway().await, &text).await;
    let told = notes(&run, NoteKind::Check);
    let owed = run.intervals.last().unwrap().waiting;
    // How much the gateway accepts before it makes publishers wait is its own business.
    assert!(owed > 50, "{told}");
    assert!(told.contains(&format!("{owed} deliveries were still owed and ")), "{told}");
    assert!(told.contains(" messages not acknowledged; what would have come later counts as lost"), "{told}");
    assert!(told.contains("nothing came for the last"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_nothing_to_do_is_not_accused() {
    let text = r#"
        name = "idle"
        duration = 2.0
        warmup = 0.1
        patience = 0.5
        [[class]]
        name = "device"
        devices = 20
        rate = 0.00001
        qos = 1
        topic = "idle/%i"
        [[consumers]]
        instances = 20
        filter = "idle/#"
        qos = 1
    "#;
    let run = run_against(gateway().await, text).await;
    assert_eq!((run.error.as_deref(), run.totals.sent, run.totals.connects), (None, 0, 40));
    assert_eq!(notes(&run, NoteKind::Check), "");
    // A consumer that stalls by design is no fault of the target either.
    let text = text
        .replace("rate = 0.00001", "window = 10")
        .replace("filter", "speed = [[0.2, 0.0], [0.9, 1.0]]\nreceive_buffer = 4096\nfilter");
    let run = run_against(gateway().await, &text).await;
    assert_eq!(run.error, None);
    assert!(run.totals.delivered > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_meant_for_somebody_else_is_no_delivery() {
    let text = r#"
        name = "astray"
        duration = 0.5
        warmup = 0.1
        [[class]]
        name = "device"
        devices = 3
        rate = 100.0
        topic = "astray/%i"
        [[consumers]]
        instances = 3
        filter = "astray/%i"
    "#;
    let run = run_against(shouter(Duration::ZERO).await, text).await;
    let totals = &run.totals;
    assert_eq!(run.error, None);
    assert!(totals.sent > 100, "{totals:?}");
    assert_eq!((totals.delivered, totals.foreign), (totals.sent, 2 * totals.sent), "{totals:?}");
    assert_eq!((totals.lost, totals.unaccepted, run.intervals.last().unwrap().waiting), (0, 0, 0));
    let summed: u64 = run.intervals.iter().map(|interval| interval.delivered).sum();
    assert_eq!(summed, totals.sent);
    assert!(run.latency.count <= totals.sent, "{:?}", run.latency);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_still_coming_at_the_end_of_the_wait_is_not_called_lost() {
    // 500 messages a second come, at most 50 go.
    let text = r#"
        name = "tail"
        duration = 0.5
        warmup = 0.1
        drain = 1.0
        [[class]]
        name = "device"
        devices = 5
        rate = 100.0
        topic = "tail/%i"
        [[consumers]]
        instances = 1
        filter = "tail/#"
    "#;
    let run = run_against(shouter(Duration::from_millis(20)).await, text).await;
    let totals = &run.totals;
    assert_eq!((run.error.as_deref(), totals.lost, totals.duplicates), (None, 0, 0), "{totals:?}");
    assert!(totals.delivered > 0 && totals.undelivered > 50, "{totals:?}");
    assert_eq!(totals.expected, totals.delivered + totals.undelivered, "{totals:?}");
    let told = notes(&run, NoteKind::Check);
    assert!(told.contains("counts as undelivered, not as lost"), "{told}");
    // Silence is another matter, however short the wait.
    let run = run_against(gateway().await, &stall("consumers", 1)).await;
    assert!(run.totals.lost > 50 && run.totals.undelivered == 0, "{:?}", run.totals);
}

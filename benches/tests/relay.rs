//! What the generator reports agrees with what a relay did that keeps its own books.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::witness::{Deed, Mischief, Truth, Witness};
use common::{gateway, run_against};
use tidegate_bench::record::Run;

/// Three publishers with two topics each; two consumers that get all, one that gets one topic, and a shared group.
fn text(version: &str, qos: u8) -> String {
    format!(
        r#"
        name = "witness"
        duration = 1.0
        warmup = 0.1
        drain = 60.0
        version = "{version}"
        [[class]]
        name = "device"
        devices = 3
        rate = 200.0
        qos = {qos}
        topic = "seen/%i/%t"
        topics = 2
        [[consumers]]
        name = "all"
        instances = 2
        filter = "seen/#"
        qos = {qos}
        [[consumers]]
        name = "one"
        instances = 1
        filter = "seen/1/0"
        qos = {qos}
        [[consumers]]
        name = "member"
        instances = 3
        group = "team"
        filter = "seen/#"
        qos = {qos}
        "#
    )
}

/// The report in the words of the truth.
fn reported(run: &Run) -> Truth {
    let totals = &run.totals;
    Truth {
        sent: totals.sent,
        accepted: totals.accepted,
        expected: totals.expected,
        delivered: totals.delivered,
        lost: totals.lost,
        duplicates: totals.duplicates,
        out_of_order: totals.out_of_order,
    }
}

async fn assert_honest(version: &str, qos: u8) {
    let witness = Witness::start(gateway().await, Mischief::Deeds).await;
    let run = run_against(witness.address, &text(version, qos)).await;
    assert_eq!(run.error, None);
    let (truth, deeds) = (witness.truth(), witness.deeds());
    assert_eq!(reported(&run), truth, "MQTT {version}, QoS {qos}: {deeds:?} {:?}", run.notes);
    let totals = &run.totals;
    assert_eq!(
        (totals.repeated, totals.unaccepted, totals.undelivered, totals.foreign),
        (0, 0, 0, 0),
        "{totals:?}"
    );
    // The relay was no idler: each deed was done, and shows.
    let done = |deed: Deed| deeds.get(&deed).copied().unwrap_or(0);
    let (repeated, strayed) = (done(Deed::Repeat), done(Deed::Stray));
    let echoed = if qos == 2 { 0 } else { done(Deed::Echo) };
    assert!(
        done(Deed::Drop) > 2 && repeated > 2 && done(Deed::Echo) > 2 && done(Deed::Swap) > 2,
        "{deeds:?}"
    );
    assert_eq!(strayed > 0, qos > 0, "{deeds:?}");
    assert_eq!(truth.duplicates, repeated + echoed + strayed);
    // one that was dropped may have gone astray to another member before
    assert!(truth.lost > 2 && truth.out_of_order > 2, "{truth:?}");
    let lost: u64 = run.classes.iter().map(|class| class.lost).sum();
    assert_eq!(lost, totals.lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once() {
    assert_honest("3.1.1", 0).await;
    assert_honest("5", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_least_once() {
    assert_honest("3.1.1", 1).await;
    assert_honest("5", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_once() {
    assert_honest("3.1.1", 2).await;
    assert_honest("5", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_again_after_the_generator_dropped_a_connection_is_no_duplicate_of_the_broker() {
    let text = r#"
        name = "dropped"
        duration = 2.0
        warmup = 0.1
        drain = 60.0
        connect = { backoff = 0.05 }
        event = [
            { at = 0.2, do = "drop-consumers", share = 0.4 },
            { at = 0.5, do = "drop-consumers", share = 0.4 },
            { at = 0.8, do = "drop-consumers", share = 0.4 },
        ]
        [[class]]
        name = "device"
        devices = 2
        rate = 200.0
        qos = 1
        topic = "dropped/%i"
        [[consumers]]
        name = "member"
        instances = 6
        group = "team"
        filter = "dropped/#"
        qos = 1
        "#;
    let witness = Witness::start(gateway().await, Mischief::Deafness).await;
    let run = run_against(witness.address, text).await;
    let (truth, totals) = (witness.truth(), &run.totals);
    assert_eq!(run.error, None);
    assert!(totals.connects > 2 + 6, "somebody was dropped: {totals:?}");
    assert!(truth.duplicates > 5, "the broker has delivered again what it could not know: {truth:?}");
    // What was on its way to a connection when that was dropped came only once.
    assert!(totals.repeated > 0 && totals.repeated <= truth.duplicates, "{totals:?} {truth:?}");
    assert_eq!((totals.duplicates, totals.lost), (0, 0), "{totals:?} {truth:?}");
    assert_eq!((totals.accepted, totals.expected), (truth.accepted, truth.expected));
}

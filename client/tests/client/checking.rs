//! A subscriber against the real gateway with the check plugin, over a link that drops a fifth of the notifications.

use std::time::Duration;

use tidegate_client::control::active::ConstantConfig;
use tidegate_client::control::time::Span;
use tidegate_client::{Publisher, Subscriber, Via};

use crate::gateway::Gateway;
use crate::lossy::lossy_relay;
use crate::publishing::connection;
use crate::{soon, until};

/// Every update or its newer successor, in order and once, and far fewer losses than without checks.
#[tokio::test]
async fn over_a_lossy_link_what_is_dropped_is_fetched() {
    const UPDATES: u64 = 75;
    let gateway = Gateway::start();
    let relay = lossy_relay(gateway.address("mqtt")).await;
    let subscriber = |id: &str| {
        let connection = connection(&format!("mqtt://{relay}"), id);
        Subscriber::builder(connection).filter_with("room/#", tidegate_client::Qos::AtMostOnce)
    };
    // Several updates a second, and checks more often than that: everything is faster than in a building.
    let often = ConstantConfig { interval: Span::from_millis(40) }.build().unwrap();
    let mut active = subscriber("active").strategy(often).most_checks(40.0).start().unwrap();
    let mut passive = subscriber("passive").passive_only().start().unwrap();
    until("a first answer", || active.stats().checks > 0 && active.stats().response > Duration::ZERO).await;
    until("the other one", || passive.stats().connections > 0).await;
    let source = Publisher::builder(connection(&gateway.url(), "source")).start().unwrap();
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

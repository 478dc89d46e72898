//! Cables that are pulled and brokers that are killed.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_client::{Policy, Publisher, Reconnect, Version};

use crate::gateway::Gateway;
use crate::publishing::{connection, listener};
use crate::relay::{Cable, Relay};
use crate::{soon, until};

fn quick() -> Reconnect {
    Reconnect::default().first(Duration::from_millis(500)).longest(Duration::from_secs(3))
}

/// The cable is out: nothing is closed, nothing is carried. The sensor loop goes on, memory stays bounded, and when the
/// cable is back everything that matters arrives.
async fn pulled(version: Version) {
    let gateway = Gateway::start();
    let mut updates = listener(&gateway.url(), "pulled/#").await;
    let relay = Relay::to(gateway.address("mqtt")).await;
    let connection = connection(&relay.url(), "meter").version(version).keep_alive(Duration::from_secs(5));
    let publisher = Publisher::builder(connection.reconnect(quick())).policy(Policy::Mean).start().unwrap();
    until("a connection", || publisher.stats().connections == 1).await;
    relay.set(Cable::Out);
    let (mut sum, mut alarms) = (0.0, 0);
    // A minute of samples, ten a second, and an alarm every second; longer than the keep-alive needs to see the break.
    for n in 0..600 {
        assert!(publisher.offer("pulled/temp", f64::from(n)));
        sum += f64::from(n);
        if n % 10 == 0 {
            publisher.offer_urgent("pulled/alarm", (n / 10).to_string()).unwrap();
            alarms += 1;
        }
        assert!(publisher.buffered_bytes() < 4_000, "{}", publisher.buffered_bytes());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stats = publisher.stats();
    assert!(stats.is_conserved() && stats.refused == 0 && stats.urgent_refused == 0, "{stats:?}");
    relay.set(Cable::In);
    soon("all of it", publisher.delivered()).await;
    let (mut got, mut count, mut next) = (0.0, 0, 0);
    while count < 600 || next < alarms {
        let update = soon("a message", updates.next()).await.unwrap();
        if update.topic == "pulled/alarm" {
            let number: i32 = String::from_utf8_lossy(&update.payload).parse().unwrap();
            assert!(number <= next, "alarm {number} where {next} was to come");
            next = next.max(number + 1);
            continue;
        }
        let value: serde_json::Value = serde_json::from_slice(&update.payload).unwrap();
        let samples = value["count"].as_u64().unwrap();
        (got, count) = (got + value["mean"].as_f64().unwrap() * samples as f64, count + samples);
    }
    assert_eq!(count, 600, "no sample twice, none lost");
    assert!((got - sum).abs() < 1e-6, "{got} {sum}");
}

#[tokio::test]
async fn a_pulled_cable_neither_blocks_nor_grows_nor_loses() {
    pulled(Version::V5).await;
}

#[tokio::test]
async fn a_pulled_cable_with_mqtt_3() {
    pulled(Version::V311).await;
}

/// The broker is killed with everything it knew, and started again: all come back, spread, and no alarm is lost.
#[tokio::test]
async fn a_killed_broker_is_found_again_by_all_spread_over_time() {
    const FLEET: usize = 100;
    let gateway = Gateway::start();
    let address = gateway.address("mqtt");
    let relay = Relay::to(address).await;
    let reconnect = Reconnect::default().first(Duration::from_secs(4));
    let fleet: Vec<Publisher> = (0..FLEET)
        .map(|member| {
            let connection = connection(&relay.url(), &format!("member-{member}")).reconnect(reconnect);
            Publisher::builder(connection).start().unwrap()
        })
        .collect();
    until("all connected", || fleet.iter().all(|publisher| publisher.stats().connections == 1)).await;
    relay.accepted.lock().clear();
    gateway.kill();
    for (member, publisher) in fleet.iter().enumerate() {
        for alarm in 0..3 {
            publisher.offer_urgent(&format!("killed/{member}"), format!("{member} {alarm}")).unwrap();
        }
    }
    let gateway = Gateway::start_on(address);
    relay.accepted.lock().clear();
    let mut updates = listener(&gateway.url(), "killed/#").await;
    until("all are back", || fleet.iter().all(|publisher| publisher.stats().connections == 2)).await;
    for publisher in &fleet {
        soon("its alarms", publisher.delivered()).await;
        assert_eq!(publisher.stats().urgent_delivered, 3);
    }
    // The listener may have come after the first alarms: what counts here is that what came is in order.
    let mut last: HashMap<String, String> = HashMap::new();
    while let Ok(Some(update)) = tokio::time::timeout(Duration::from_secs(1), updates.next()).await {
        let text = String::from_utf8_lossy(&update.payload).into_owned();
        let before = last.insert(update.topic.clone(), text.clone());
        assert!(before.is_none_or(|before| before <= text), "{} in {}", text, update.topic);
    }
    let times = relay.accepted.lock().clone();
    let start = times[0];
    let seconds: Vec<f64> = times.iter().map(|time| (*time - start).as_secs_f64()).collect();
    let peak =
        seconds.iter().map(|from| seconds.iter().filter(|time| (*from..from + 1.0).contains(*time)).count());
    // Who tried before the gateway was there again has waited for longer, and does not count for the spread.
    let most = seconds.len() * 9 / 10;
    let (peak, spread) = (peak.max().unwrap() as f64, seconds[most]);
    assert!(spread > 2.0, "most within {spread} s");
    let mean = most as f64 / spread;
    println!("{} accepted over {spread:.1} s, {mean:.1} a second on average, {peak} at most", times.len());
    // In step they would all come in the same second. That it is twice the mean at most is for `must_show restart`, on an idle
    // machine, and for the test of the windows in virtual time.
    assert!(peak <= 3.0 * mean, "{peak} in a second, {mean} on average over {spread} s");
}

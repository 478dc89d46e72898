//! Publishers that are told the same rate at the same moment.

use std::time::{Duration, Instant};

use tidegate_client::{Connection, Policy, Publisher, Subscriber};

use crate::gateway::Gateway;
use crate::publishing::{Controller, connection, listener};
use crate::until;

/// Five times less than they would send, a message in four seconds each: in step, every other window of two seconds would
/// hold twice its share. The sum of their rates is what was announced, no two seconds hold nearly as much as that, and no
/// sample is discarded. The bands are wide, since the machine may be busy; `must_show fleet` has those that are promised, and
/// a test of the outbox holds to them in virtual time.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_keeps_the_rate_and_does_not_send_in_step() {
    const FLEET: u32 = 200;
    const RATE: f64 = 0.25;
    let gateway = Gateway::start();
    let mut controller = Controller::start(&gateway.url());
    let mut updates = listener(&gateway.url(), "fleet/#").await;
    let fleet: Vec<Publisher> = (0..FLEET)
        .map(|member| {
            let connection = connection(&gateway.url(), &format!("member-{member}"));
            Publisher::builder(connection).policy(Policy::Mean).rate(1.25).start().unwrap()
        })
        .collect();
    until("all connected", || fleet.iter().all(|publisher| publisher.stats().connections == 1)).await;
    // All at the same moment, as the gateway does it.
    controller.announce("rate", &RATE.to_string(), Duration::from_secs(600)).await;
    until("all told", || fleet.iter().all(|publisher| publisher.rate() == Some(RATE))).await;
    let received = tokio::spawn(async move {
        let (mut times, mut sum, mut count) = (Vec::new(), 0.0, 0);
        while count < u64::from(FLEET) * 40 {
            let Some(update) = updates.next().await else { break };
            times.push(Instant::now());
            let value: serde_json::Value = serde_json::from_slice(&update.payload).unwrap();
            let samples = value["count"].as_u64().unwrap();
            (sum, count) = (sum + value["mean"].as_f64().unwrap() * samples as f64, count + samples);
        }
        (times, sum, count)
    });
    // They sample in step, twice a second, for twenty seconds.
    let (start, mut offered) = (Instant::now(), 0.0);
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    for step in 0..40 {
        ticks.tick().await;
        for (member, publisher) in fleet.iter().enumerate() {
            let sample = f64::from(step) + member as f64 / 7.0;
            offered += sample;
            assert!(publisher.offer(&format!("fleet/{member}"), sample));
        }
    }
    let sampled = Instant::now();
    controller.announce("rate", "null", Duration::from_secs(600)).await;
    let (times, sum, count) = crate::soon("every sample", received).await.unwrap();
    assert_eq!(count, u64::from(FLEET) * 40);
    assert!((sum - offered).abs() < 1e-6 * offered, "{sum} {offered}");
    let held: Vec<f64> =
        times.iter().filter(|time| **time < sampled).map(|time| (*time - start).as_secs_f64()).collect();
    let seconds = (sampled - start).as_secs_f64();
    let share = held.len() as f64 / (f64::from(FLEET) * RATE * seconds);
    assert!((0.8..=1.1).contains(&share), "{share} of the rate announced");
    let window = f64::from(FLEET) * RATE * 2.0;
    let peak = held.iter().map(|from| held.iter().filter(|time| (*from..from + 2.0).contains(*time)).count());
    let peak = peak.max().unwrap() as f64;
    println!("share {share:.3}, peak of two seconds {peak}, {:.2} times its share", peak / window);
    assert!(peak <= 1.8 * window, "{peak} in two seconds, {window} is the share");
}

/// The real gateway tells forty publishers that want five times what the consumer can take: all are held back, and the
/// mean of what arrives is that of what was offered.
#[tokio::test(flavor = "multi_thread")]
async fn the_real_gateway_holds_a_fleet_back_and_no_sample_is_discarded() {
    const FLEET: u64 = 40;
    let gateway = Gateway::real(&[]);
    let connection = |client: String| Connection::new(&gateway.url(), &client).unwrap();
    let builder = Subscriber::builder(connection("worker".into())).filter("fleet/#");
    let mut updates = builder.passive_only().start().unwrap();
    until("the worker", || updates.stats().connections == 1).await;
    let fleet: Vec<Publisher> = (0..FLEET)
        .map(|member| {
            let builder = Publisher::builder(connection(format!("member-{member}"))).policy(Policy::Mean);
            builder.rate(2.5).start().unwrap()
        })
        .collect();
    until("all connected", || fleet.iter().all(|publisher| publisher.stats().connections == 1)).await;
    let received = std::sync::Arc::new(parking_lot::Mutex::new((0.0, 0)));
    let sums = received.clone();
    tokio::spawn(async move {
        while let Some(update) = updates.next().await {
            assert_eq!(update.lost_before, 0);
            let value: serde_json::Value = serde_json::from_slice(&update.payload).unwrap();
            let (mean, count) = (value["mean"].as_f64().unwrap(), value["count"].as_u64().unwrap());
            let (sum, total) = *sums.lock();
            *sums.lock() = (sum + mean * count as f64, total + count);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let (mut offered, mut count, mut told) = (0.0, 0, false);
    while !told {
        for (member, publisher) in fleet.iter().enumerate() {
            let sample = count as f64 + member as f64 / 7.0;
            (offered, count) = (offered + sample, count + 1);
            assert!(publisher.offer(&format!("fleet/{member}"), sample));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        told = fleet.iter().all(Publisher::is_held_back);
        assert!(count < FLEET * 1_000, "the gateway never held all of them back");
    }
    until("every sample", || received.lock().1 >= count).await;
    let (sum, total) = *received.lock();
    assert_eq!(total, count);
    assert!((sum - offered).abs() < 1e-6 * offered, "{sum} {offered}");
    for stats in fleet.iter().map(Publisher::stats) {
        assert!(stats.is_conserved() && stats.dropped + stats.replaced + stats.refused == 0, "{stats:?}");
    }
}

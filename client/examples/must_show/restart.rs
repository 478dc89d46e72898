//! The gateway is killed with everything it knew, and started again.

use std::time::{Duration, Instant};

use tidegate_client::Publisher;

use crate::gateway::Gateway;
use crate::relay::Relay;
use crate::{Shown, connection, peak, until};

const FLEET: usize = 500;
const OUTAGE: Duration = Duration::from_secs(4);

pub(crate) async fn run() -> Shown {
    let gateway = Gateway::start("127.0.0.1:0", &[]);
    let address = gateway.address;
    let relay = Relay::to(address).await;
    let mut fleet = Vec::new();
    for member in 0..FLEET {
        let connection = connection(&relay.url(), &format!("member-{member}"));
        fleet.push(Publisher::builder(connection).start().unwrap());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    until("all connected", || fleet.iter().all(|publisher| publisher.stats().connections == 1)).await;
    // Longer than the first window, so that this counts as a connection that was good.
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(gateway);
    for (member, publisher) in fleet.iter().enumerate() {
        for alarm in 0..3 {
            publisher.offer_urgent(&format!("killed/{member}"), format!("{member} {alarm}")).unwrap();
        }
    }
    tokio::time::sleep(OUTAGE).await;
    let _gateway = Gateway::start(&address.to_string(), &[]);
    relay.accepted.lock().clear();
    until("all are back", || fleet.iter().all(|publisher| publisher.stats().connections == 2)).await;
    let all = |publisher: &Publisher| publisher.stats().urgent_waiting == 0;
    until("all alarms", || fleet.iter().all(all)).await;
    report(&relay.accepted.lock(), &fleet)
}

fn report(accepted: &[Instant], fleet: &[Publisher]) -> Shown {
    let mut shown = Shown::default();
    let seconds: Vec<f64> = accepted.iter().map(|time| (*time - accepted[0]).as_secs_f64()).collect();
    let spread = seconds.last().copied().unwrap_or(0.0);
    let (most, mean) = (peak(&seconds, 1.0), seconds.len() as f64 / spread);
    let text = format!(
        "{most} at most, {mean:.0} on average over {spread:.1} s, {:.2} times; {} for {FLEET} clients",
        most as f64 / mean,
        seconds.len()
    );
    shown.show("connections a second", text, most as f64 <= 2.0 * mean);
    let delivered: u64 = fleet.iter().map(|publisher| publisher.stats().urgent_delivered).sum();
    let text = format!("{delivered} of {}", 3 * FLEET);
    shown.show("alarms delivered", text, delivered == 3 * FLEET as u64);
    shown
}

//! The network cable is out for a minute, or for a few seconds when it is to be quick: nothing is closed, nothing is carried.

use std::time::{Duration, Instant};

use tidegate_client::{Policy, Publisher};

use crate::gateway::Gateway;
use crate::relay::{Cable, Relay};
use crate::{Shown, connection, until};

const BUFFER: usize = 10_000;

pub(crate) async fn run(quick: bool) -> Shown {
    let offers = if quick { 300 } else { 6_000 };
    let gateway = Gateway::start("127.0.0.1:0", &[]);
    let relay = Relay::to(gateway.address).await;
    let connection = connection(&relay.url(), "meter").keep_alive(Duration::from_secs(5));
    let builder = Publisher::builder(connection).policy(Policy::Batch { samples: 1_000, bytes: 5_000 });
    let publisher = builder.buffer(100, BUFFER).urgent_buffer(50, 1_000).start().unwrap();
    until("a connection", || publisher.stats().connections == 1).await;
    relay.set(Cable::Out);
    let (mut longest, mut largest, mut refused) = (Duration::ZERO, 0, 0);
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    for n in 0..offers {
        ticks.tick().await;
        let before = Instant::now();
        publisher.offer(&format!("cable/{}", n % 10), format!("{n:020}"));
        if n % 100 == 0 {
            refused += u64::from(publisher.offer_urgent("cable/alarm", n.to_string()).is_err());
        }
        longest = longest.max(before.elapsed());
        largest = largest.max(publisher.buffered_bytes());
    }
    let stats = publisher.stats();
    relay.set(Cable::In);
    until("what was kept", || publisher.stats().waiting == 0 && publisher.stats().urgent_waiting == 0).await;
    let after = publisher.stats();
    let mut shown = Shown::default();
    // A quick run is one on a busy machine, where only waiting for the network would show.
    let bound = Duration::from_millis(if quick { 1_500 } else { 100 });
    shown.show("the longest offer", format!("{longest:?}"), longest < bound);
    shown.show("bytes buffered at most", format!("{largest} of {BUFFER}"), largest <= BUFFER);
    let text = format!(
        "{} waiting, {} dropped, {} refused, of {}",
        stats.waiting, stats.dropped, stats.refused, stats.offered
    );
    shown.show("every sample is accounted for", text, stats.is_conserved() && after.is_conserved());
    let alarms = offers / 100;
    let text = format!("{} of {alarms}, {refused} told that there is no room", after.urgent_delivered);
    shown.show("alarms delivered", text, after.urgent_delivered + refused == alarms);
    shown
}

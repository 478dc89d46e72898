//! A thermometer: ten samples a second, sent as often as the gateway allows, as means with their count.
//!
//! `cargo run -p tidegate-client --example thermometer -- mqtt://localhost:1883 thermometer-1`
//!
//! A number of seconds after that ends it, and `TIDE_PREFIX` names another prefix for the control topics.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use tidegate_client::{Connection, Policy, Publisher};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let broker = arguments.next().unwrap_or_else(|| "mqtt://localhost:1883".into());
    let client = arguments.next().unwrap_or_else(|| "thermometer-1".into());
    let seconds: u64 = arguments.next().map_or(Ok(u64::MAX), |text| text.parse())?;
    let prefix = std::env::var("TIDE_PREFIX").unwrap_or_else(|_| "$tide/v1".into());

    let connection = Connection::new(&broker, &client)?.prefix(prefix);
    let publisher = Publisher::builder(connection).policy(Policy::Mean).rate(5.0).start()?;
    let topic = format!("room/{client}/temp");
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for tick in 0..seconds.saturating_mul(10) {
        ticks.tick().await;
        let temperature = 21.0 + (tick as f64 / 50.0).sin();
        publisher.offer(&topic, temperature);
        if temperature > 21.99 {
            // Goes first, in order, and is kept until the broker has it; here nobody minds when there are too many.
            let _ = publisher.offer_urgent(&format!("alarm/{client}"), format!("hot: {temperature:.2}"));
        }
        if tick % 50 == 49 {
            let stats = publisher.stats();
            let (sent, samples) = (stats.delivered_messages, stats.delivered_samples);
            println!(
                "{sent} messages for {samples} samples, {} wait, rate {:?}",
                stats.waiting,
                publisher.rate()
            );
        }
    }
    publisher.delivered().await;
    println!(
        "done: {} messages for {} samples",
        publisher.stats().delivered_messages,
        publisher.stats().offered
    );
    publisher.close().await;
    Ok(())
}

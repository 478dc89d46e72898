//! A dashboard: shows updates as they come, and fetches those that went missing.
//!
//! `cargo run -p tidegate-client --example dashboard -- mqtt://localhost:1883 dashboard-1 'room/+/temp'`
//!
//! A number of updates after that ends it, and `TIDE_PREFIX` names another prefix for the control topics.
#![allow(clippy::print_stdout)]

use std::error::Error;

use tidegate_client::{Connection, Subscriber, Via};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let broker = arguments.next().unwrap_or_else(|| "mqtt://localhost:1883".into());
    let client = arguments.next().unwrap_or_else(|| "dashboard-1".into());
    let filter = arguments.next().unwrap_or_else(|| "room/+/temp".into());
    let updates: u64 = arguments.next().map_or(Ok(u64::MAX), |text| text.parse())?;
    let prefix = std::env::var("TIDE_PREFIX").unwrap_or_else(|_| "$tide/v1".into());

    let connection = Connection::new(&broker, &client)?.prefix(prefix);
    let mut subscriber = Subscriber::builder(connection).filter(filter).start()?;
    for _ in 0..updates {
        let Some(update) = subscriber.next().await else { break };
        let mark = if update.via == Via::Active { " (was missing)" } else { "" };
        let lost = if update.lost_before > 0 {
            format!(" ({} lost before)", update.lost_before)
        } else {
            String::new()
        };
        println!("{}: {}{mark}{lost}", update.topic, String::from_utf8_lossy(&update.payload));
    }
    let stats = subscriber.stats();
    println!(
        "done: {} came, {} fetched, {} lost, {} checks",
        stats.passive, stats.active, stats.lost, stats.checks
    );
    subscriber.close().await;
    Ok(())
}

//! The client against the real gateway, in a process of its own, and against a scripted broker for what no real one
//! does on request.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod checking;
mod connection;
mod examples;
mod fleet;
mod gateway;
mod lossy;
mod outage;
mod publishing;
mod relay;
mod scripted;
mod subscribing;

use std::future::Future;
use std::time::Duration;

/// How long a test waits for something that must happen. Generous: the machine may be slow and shared.
const PATIENCE: Duration = Duration::from_secs(40);

/// The prefix under which tests play the controller: the gateway's own is not for clients to write to.
const PLAYED: &str = "played/v1";

/// What must happen in time.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// Waits until something is so.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    soon(what, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

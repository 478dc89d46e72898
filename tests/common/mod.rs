//! What the end-to-end tests share: a server under test, and a raw MQTT client of our own that knows nothing
//! of `src/wire`, so that a mistake there cannot hide itself.
//!
//! `TIDEGATE_TEST_SERVER=mosquitto` runs the same tests against Mosquitto, to check the tests themselves.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod client;
pub mod decode;
pub mod flood;
pub mod packet;
pub mod property;
pub mod server;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a test waits for something that must happen. Generous: the machine may be slow and shared.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

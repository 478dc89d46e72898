//! Gateways inside a program: they come and go without leaving anything behind.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate::config::Settings;
use tidegate::gateway::Gateway;
use tidegate::listen::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

#[path = "common/mod.rs"]
mod common;

use common::PATIENCE;
use common::packet::{Connect, Encode, Publish, Subscribe, Version};

const ROUNDS: usize = 50;

/// A client of a gateway that subscribes, publishes a message to itself, and has got it.
async fn use_it(gateway: &Gateway) -> DuplexStream {
    let (mut ours, theirs) = tokio::io::duplex(4096);
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    tokio::spawn(gateway.clone().serve(Stream::other(theirs, peer)));
    let mut bytes = Connect::v311("c").encode(Version::V311);
    bytes.extend(Subscribe::new(1, &[("t", 0), ("$share/g/u", 1)]).encode(Version::V311));
    bytes.extend(Publish::new("t", "the message").encode(Version::V311));
    ours.write_all(&bytes).await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"the message") {
        let read = ours.read_buf(&mut got);
        assert_ne!(tokio::time::timeout(PATIENCE, read).await.expect("an answer").unwrap(), 0);
    }
    ours
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_gateway_gives_its_threads_back() {
    // rumqttd's router cannot be stopped: one stays, and the next gateway uses it again
    let expected = threads() + 1;
    for round in 0..ROUNDS {
        let gateway = Gateway::builder(Settings::default()).build().unwrap();
        let client = use_it(&gateway).await;
        assert!(threads() > expected, "nobody dispatches");
        // sometimes the client leaves first, sometimes the program lets go of its gateway first
        if round % 2 == 0 {
            drop(client);
            drop(gateway);
        } else {
            drop(gateway);
            drop(client);
        }
        let deadline = Instant::now() + PATIENCE;
        while threads() != expected {
            assert!(Instant::now() < deadline, "{} threads instead of {expected}", threads());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

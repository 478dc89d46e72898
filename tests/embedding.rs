//! Gateways inside a program: they come and go without leaving anything behind, and one can be all that the command is.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate::config::{Settings, Sources, load};
use tidegate::gateway::Gateway;
use tidegate::listen::Stream;
use tidegate::plugin::{self, Hook, Plugin, Refusal, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

#[path = "common/mod.rs"]
mod common;

use common::PATIENCE;
use common::client::Client;
use common::packet::{Connect, Encode, Publish, Subscribe, Version};
use common::server::free_address;

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
        // fewer when another test has ended meanwhile
        while threads() > expected {
            assert!(Instant::now() < deadline, "{} threads instead of {expected}", threads());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

const INSIDE: &str = "TIDEGATE_TEST_INSIDE";

/// Refuses what is published to `mine/...`.
struct Mine;

impl Plugin for Mine {
    fn name(&self) -> &'static str {
        "mine"
    }

    fn connect(&self, _: &plugin::Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(Some(Box::new(Self)))
    }
}

impl Hook for Mine {
    fn on_publish(&mut self, publish: &plugin::Publish<'_>) -> Verdict {
        if !publish.topic.starts_with("mine/") {
            return Verdict::Continue;
        }
        Verdict::Refuse(Refusal { code: 0x99, reason: "mine".into(), retry_after: None })
    }
}

/// Does nothing unless the test below starts it in a process of its own: it ends by a signal.
#[test]
fn inside() {
    let Ok(settings) = std::env::var(INSIDE) else { return };
    let set = settings.split(' ').map(str::to_owned).collect();
    let loaded = load(&Sources { set, ..Sources::default() }).unwrap();
    tidegate::serve_with(&loaded, vec![Box::new(Mine)]).unwrap();
}

/// Plugins, users and rules, metrics and signals, with one call.
#[test]
fn a_program_with_a_plugin() {
    let rules = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedding-rules");
    std::fs::write(&rules, "deny everyone publish forbidden/#\neveryone any #\n").unwrap();
    let (mqtt, admin) = (free_address(), free_address());
    let settings = format!("listen.mqtt={mqtt} admin.listen={admin} access.rules={}", rules.display());
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inside", "--nocapture"])
        .env(INSIDE, settings)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(admin).is_err() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut client = Client::connect(mqtt, &Connect::v5("c"));
    assert_eq!(client.publish(Publish::new("mine/x", "x").qos(1)), 0x99);
    assert_eq!(client.publish(Publish::new("forbidden/x", "x").qos(1)), 0x87);
    assert_eq!(client.publish(Publish::new("fine", "x").qos(1)) & 0x80, 0);
    let metrics = common::server::get(admin, "/metrics");
    assert!(metrics.contains(r#"plugin="mine",reason="0x99"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"plugin="access",reason="0x87"} 1"#), "{metrics}");
    let killed = std::process::Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.unwrap().success());
    client.expect_closed(&[0x8B]);
    assert!(child.wait().unwrap().success());
}

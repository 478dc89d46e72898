//! Several nodes before one broker: together they announce what one would.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::client::End;
use common::decode::Packet;
use common::packet::*;
use common::server::{Server, Setup, Target};
use serde_json::Value as Json;

/// Messages a second that one consumer processes.
const PACE: f64 = 100.0;
const QUEUE: &str = "w:s/#";

fn mosquitto(name: &str) -> Server {
    Server::start(name, &Setup { target: Some(Target::Mosquitto), ..Setup::default() })
}

fn node(name: &'static str, upstream: &Server) -> Server {
    let settings = vec![
        ("mode", "proxy".to_owned()),
        ("plugins", r#"["access","overload","gate"]"#.into()),
        ("proxy.upstream", upstream.mqtt.to_string()),
        ("proxy.node.id", name.into()),
        ("proxy.node.ttl_ms", "2000".into()),
    ];
    Server::start(name, &Setup { settings, target: Some(Target::ProxyAlone), ..Setup::default() })
}

/// Clients that run beside the test until it is over.
#[derive(Default)]
struct Scene {
    over: Arc<AtomicBool>,
    taken: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Scene {
    /// A member of the group that takes messages at its pace.
    fn consumer(&mut self, server: &Server) {
        let mut client = server.client(Version::V311);
        client.subscribe("$share/w/s/#", 1);
        let (over, taken) = (Arc::clone(&self.over), Arc::clone(&self.taken));
        self.threads.push(std::thread::spawn(move || {
            let mut next = Instant::now();
            while !over.load(SeqCst) {
                match client.recv_within(Duration::from_millis(200)) {
                    Ok(Packet::Publish(publish)) => {
                        // at an even pace, whatever runs beside it; time without a message is not made up for
                        let now = Instant::now();
                        next =
                            next.max(now - Duration::from_millis(100)) + Duration::from_secs_f64(1.0 / PACE);
                        std::thread::sleep(next.saturating_duration_since(now));
                        client.acknowledge(&publish);
                        taken.fetch_add(1, SeqCst);
                    }
                    Ok(_) | Err(End::Timeout) => {}
                    Err(End::Closed) => return,
                }
            }
        }));
    }

    /// A publisher that sends whatever it may.
    fn publisher(&mut self, server: &Server) {
        let mut client = server.client(Version::V311);
        let over = Arc::clone(&self.over);
        self.threads.push(std::thread::spawn(move || {
            let mut open = 0;
            while !over.load(SeqCst) {
                while open < 10 {
                    let id = client.packet_id();
                    if client.try_send(&Publish::new("s/1", "x").qos(1).id(id)).is_err() {
                        return;
                    }
                    open += 1;
                }
                match client.recv_within(Duration::from_millis(200)) {
                    Ok(Packet::Ack(_)) => open -= 1,
                    Ok(_) | Err(End::Timeout) => {}
                    Err(End::Closed) => return,
                }
            }
        }));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What a node says of the group's queue.
fn told(server: &Server) -> Option<Json> {
    let answer = server.get("/api/v1/queues");
    let line = answer.lines().find(|line| line.starts_with('['))?;
    let queues: Json = serde_json::from_str(line).expect("JSON");
    queues.as_array()?.iter().find(|queue| queue["queue"] == QUEUE).cloned()
}

/// What the publishers of a node may send together; none while they may send what they like.
fn announced(server: &Server) -> Option<f64> {
    let told = told(server)?;
    let rate = told["rates"].as_array()?.iter().find(|rate| rate["class"] == "default")?["rate"].as_f64()?;
    Some(rate * told["publishers"].as_u64()? as f64)
}

/// The mean of what all publishers at these nodes may send together, over five seconds, once everybody has a limit.
fn mean(servers: &[&Server]) -> f64 {
    let deadline = Instant::now() + PATIENCE;
    let (mut sum, mut count) = (0.0, 0);
    while count < 50 {
        assert!(
            Instant::now() < deadline,
            "no limit: {:?}",
            servers.iter().map(|s| told(s)).collect::<Vec<_>>()
        );
        match servers.iter().map(|server| announced(server)).sum::<Option<f64>>() {
            Some(total) => (sum, count) = (sum + total, count + 1),
            None => (sum, count) = (0.0, 0),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    sum / f64::from(count)
}

/// Waits until a node says something of the queue that is wanted.
fn wait_for(server: &Server, what: &str, wanted: impl Fn(&Json) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !told(server).is_some_and(|told| wanted(&told)) {
        assert!(Instant::now() < deadline, "{what}: {:?}", told(server));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The mean over five seconds comes to be near a rate. On a machine that others use, consumers are not quite even; how near
/// it is when they are is tested in virtual time, beside the code.
fn expect_near(servers: &[&Server], rate: f64) {
    let mut seen = Vec::new();
    while seen.len() < 12 {
        let mean = mean(servers);
        if (mean / rate - 1.0).abs() <= 0.25 {
            return;
        }
        seen.push(mean);
    }
    panic!("{rate} would be right, announced were {seen:?}");
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics");
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Publishers are at both nodes: what all may send together is what one node would say, which is what consumers take.
/// Then one node is killed, and its share goes to the publishers of the other.
#[test]
fn two_nodes_announce_what_one_would() {
    let upstream = mosquitto("two-upstream");
    let (a, b) = (node("two-a", &upstream), node("two-b", &upstream));
    let mut scene = Scene::default();
    scene.consumer(&a);
    scene.consumer(&a);
    (0..3).for_each(|_| scene.publisher(&a));
    (0..3).for_each(|_| scene.publisher(&b));
    for node in [&a, &b] {
        wait_for(node, "three here and three there", |told| {
            (told["publishers"].as_u64(), told["publishers_elsewhere"].as_u64()) == (Some(3), Some(3))
        });
    }
    expect_near(&[&a, &b], 2.0 * PACE);
    b.signal("KILL");
    wait_for(&a, "the share of the silent node is given back", |told| told["publishers_elsewhere"] == 0);
    expect_near(&[&a], 2.0 * PACE);
}

/// All publishers are at one node and all consumers at the other: both know the queue all the same.
#[test]
fn a_queue_is_known_where_nobody_consumes_it() {
    let upstream = mosquitto("apart-upstream");
    let (a, b) = (node("apart-a", &upstream), node("apart-b", &upstream));
    let mut scene = Scene::default();
    scene.consumer(&b);
    scene.consumer(&b);
    let mut listener = a.client(Version::V311);
    listener.subscribe("$tide/v1/node/apart-b", 0);
    listener.wait_for("two consumers", |packet| match packet {
        Packet::Publish(publish) => {
            String::from_utf8_lossy(&publish.payload).contains(r#""consumers":2"#).then_some(())
        }
        _ => None,
    });
    (0..4).for_each(|_| scene.publisher(&a));
    wait_for(&a, "consumers elsewhere", |told| told["consumers"] == 2 && told["phase"] != "idle");
    wait_for(&b, "publishers elsewhere", |told| told["publishers_elsewhere"] == 4);
    expect_near(&[&a], 2.0 * PACE);
}

/// Nonsense on the topics of nodes is counted and changes nothing.
#[test]
fn nonsense_is_counted_and_ignored() {
    let upstream = mosquitto("nonsense-upstream");
    let (a, _b) = (node("nonsense-a", &upstream), node("nonsense-b", &upstream));
    let heard = || metric(&a, "tidegate_nodes_heard");
    let deadline = Instant::now() + PATIENCE;
    while heard() != 1 {
        assert!(Instant::now() < deadline, "the other node is not heard");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut hostile = upstream.client(Version::V311);
    let queue = r#"{"group":"w","filters":["s/#"],"arrived":1,"done":0,"in_flight":99999999999,"waiting":0,"consumers":1}"#;
    let wrong = |node: &str, queues: &str| {
        format!(
            r#"{{"v":1,"node":"{node}","run":9,"seq":1,"at_ms":1,"interval_ms":200,"ttl_ms":2000,"clients":0,"queues":[{queues}]}}"#
        )
    };
    let payloads = [
        ("x", "nonsense".to_owned()),
        ("x", "{}".into()),
        ("x", "[".repeat(100_000)),
        ("x", wrong("x", queue)),
        ("x", wrong("y", "")),
        ("x", "\u{0}".repeat(600_000)),
        ("no.node", wrong("no.node", "")),
        ("nonsense-a", wrong("nonsense-a", "").replace(r#""run":9"#, r#""run":99999999999999"#)),
    ];
    for (node, payload) in &payloads {
        let topic = format!("$tide/v1/node/{node}");
        assert_eq!(hostile.publish(Publish::new(&topic, payload.as_str()).qos(1)), 0);
    }
    let deadline = Instant::now() + PATIENCE;
    while metric(&a, "tidegate_node_nonsense_total") < payloads.len() as u64 {
        assert!(Instant::now() < deadline, "{}", metric(&a, "tidegate_node_nonsense_total"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(heard(), 1, "the other node is still there, and nobody else");
    assert_eq!(told(&a), None, "a queue that was made up");
    // clients of the gateway cannot speak for nodes, and may listen
    let mut client = a.client(Version::V5);
    assert_eq!(client.publish(Publish::new("$tide/v1/node/x", "{}").qos(1)), 0x87);
    client.subscribe("$tide/v1/node/nonsense-b", 0);
    let message: Json = serde_json::from_slice(&client.receive().payload).expect("JSON");
    assert_eq!(message["node"], "nonsense-b");
}

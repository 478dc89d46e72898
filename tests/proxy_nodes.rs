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

/// Waits until all nodes with consumers have said so where a node can hear it.
fn hear_of_consumers(node: &Server, nodes: &[Server], shape: &[(&'static str, usize, usize)]) {
    if nodes.len() == 1 {
        return;
    }
    let mut listener = node.client(Version::V311);
    for (name, _, consumers) in shape.iter().filter(|(.., consumers)| *consumers > 0) {
        listener.subscribe(&format!("$tide/v1/node/{name}"), 0);
        let words = format!(r#""consumers":{consumers}"#);
        listener.wait_for("consumers", |packet| match packet {
            Packet::Publish(publish) => {
                String::from_utf8_lossy(&publish.payload).contains(&words).then_some(())
            }
            _ => None,
        });
    }
}

/// Waits until a node says something of the queue that is wanted.
fn wait_for(server: &Server, what: &str, wanted: impl Fn(&Json) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !told(server).is_some_and(|told| wanted(&told)) {
        assert!(Instant::now() < deadline, "{what}: {:?}", told(server));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Nodes before a Mosquitto of their own, with publishers and consumers at each.
struct Layout {
    name: &'static str,
    nodes: Vec<Server>,
    scene: Scene,
    _upstream: Server,
}

impl Layout {
    /// So many publishers and consumers at each node; everybody knows of the queue before anything is sent to it.
    fn start(name: &'static str, shape: &[(&'static str, usize, usize)]) -> Self {
        let upstream = mosquitto(name);
        let nodes: Vec<Server> = shape.iter().map(|(name, ..)| node(name, &upstream)).collect();
        let mut scene = Scene::default();
        for (node, (_, _, consumers)) in nodes.iter().zip(shape) {
            (0..*consumers).for_each(|_| scene.consumer(node));
        }
        nodes.iter().for_each(|node| hear_of_consumers(node, &nodes, shape));
        for (node, (_, publishers, _)) in nodes.iter().zip(shape) {
            (0..*publishers).for_each(|_| scene.publisher(node));
        }
        Self { name, nodes, scene, _upstream: upstream }
    }

    /// What all publishers may send together; none while some may send what they like.
    fn announced(&self) -> Option<f64> {
        self.nodes
            .iter()
            .map(|node| {
                told(node)
                    .filter(|told| told["publishers"] == 0)
                    .map_or_else(|| announced(node), |_| Some(0.0))
            })
            .sum()
    }

    fn taken(&self) -> u64 {
        self.scene.taken.load(SeqCst)
    }
}

/// For each layout the mean of what all its publishers may send together, over ten seconds in which everybody has a
/// limit, and what its consumers took in a second meanwhile.
fn means(layouts: &[Layout]) -> Vec<(f64, f64)> {
    let deadline = Instant::now() + 3 * PATIENCE;
    let (mut sums, mut count) = (vec![0.0; layouts.len()], 0);
    let (mut began, mut taken) = (Instant::now(), Vec::new());
    while count < 100 {
        assert!(Instant::now() < deadline, "no limit");
        match layouts.iter().map(Layout::announced).collect::<Option<Vec<f64>>>() {
            Some(announced) if count > 0 => {
                sums.iter_mut().zip(announced).for_each(|(sum, announced)| *sum += announced);
                count += 1;
            }
            Some(_) => {
                (sums, count) = (vec![0.0; layouts.len()], 1);
                (began, taken) = (Instant::now(), layouts.iter().map(Layout::taken).collect());
            }
            None => count = 0,
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let seconds = began.elapsed().as_secs_f64();
    let rates = layouts.iter().zip(taken).map(|(layout, before)| (layout.taken() - before) as f64 / seconds);
    sums.into_iter().map(|sum| sum / f64::from(count - 1)).zip(rates).collect()
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics");
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// However publishers and consumers are spread over two nodes, all publishers together are told what one node would tell
/// them, within 5%. All layouts run at the same time, each with a Mosquitto of its own.
#[test]
fn two_nodes_announce_what_one_would() {
    let layouts = [
        Layout::start("one", &[("one-a", 6, 2)]),
        Layout::start("everywhere", &[("everywhere-a", 3, 1), ("everywhere-b", 3, 1)]),
        Layout::start("publishers", &[("publishers-a", 3, 2), ("publishers-b", 3, 0)]),
        Layout::start("apart", &[("apart-a", 6, 0), ("apart-b", 0, 2)]),
        Layout::start("uneven", &[("uneven-a", 5, 1), ("uneven-b", 1, 1)]),
    ];
    // the first ten seconds are for settling; on a machine that others use, consumers are not always even
    let mut off = Vec::new();
    for turn in 0..6 {
        let means = means(&layouts);
        let (one, _) = means[0];
        for (layout, (announced, taken)) in layouts.iter().zip(&means) {
            eprintln!(
                "{turn} {:<12} announced {announced:6.1} a second, {:5.3} of one node's; consumers took {taken:6.1}",
                layout.name,
                announced / one
            );
        }
        let far = |(layout, (announced, _)): (&Layout, &(f64, f64))| {
            ((announced / one - 1.0).abs() > 0.05).then(|| (layout.name, announced / one))
        };
        off = layouts.iter().zip(&means).filter_map(far).collect();
        for layout in layouts.iter().filter(|layout| off.iter().any(|(name, _)| *name == layout.name)) {
            layout
                .nodes
                .iter()
                .for_each(|node| eprintln!("{}: {}", layout.name, told(node).unwrap_or_default()));
        }
        if turn > 0 && off.is_empty() {
            return;
        }
    }
    panic!("not within 5% of what one node announces: {off:?}");
}

/// One node is killed: its share goes to the publishers of the other.
#[test]
fn a_silent_nodes_share_is_given_back() {
    let layout = Layout::start("two", &[("two-a", 3, 2), ("two-b", 3, 0)]);
    let [a, b] = &layout.nodes[..] else { panic!("two nodes") };
    for node in [a, b] {
        wait_for(node, "three here and three there", |told| {
            (told["publishers"].as_u64(), told["publishers_elsewhere"].as_u64()) == (Some(3), Some(3))
        });
    }
    let share = |told: &Json| told["rates"][0]["rate"].as_f64();
    wait_for(a, "a share", |told| share(told).is_some_and(|rate| rate < 1.5 * PACE / 3.0));
    b.signal("KILL");
    wait_for(a, "the share of the silent node is given back", |told| told["publishers_elsewhere"] == 0);
    wait_for(a, "all of it", |told| share(told).is_some_and(|rate| rate > 1.7 * PACE / 3.0));
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

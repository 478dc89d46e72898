//! Proxy mode with a RabbitMQ and a NATS behind it that are asked how long their queues are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::client::Client;
use common::packet::*;
use common::server::{Server, Setup, Target, free_address};
use serde_json::Value as Json;

/// A broker that ends, with all that it started, when this value goes.
struct Broker {
    mqtt: SocketAddr,
    http: SocketAddr,
    supervisor: Child,
}

/// Runs the commands, one a line, in sessions of their own, and ends them when standard input closes.
const SUPERVISE: &str = r#"
log=$1; shift
for command in "$@"; do
    setsid sh -c "exec $command" >>"$log" 2>&1 </dev/null &
    all="$all -$!"
done
cat >/dev/null
kill -9 $all
wait
"#;

impl Broker {
    fn start(
        name: &str,
        mqtt: SocketAddr,
        http: SocketAddr,
        variables: &[(&str, String)],
        commands: &[&str],
    ) -> Self {
        let mut supervisor = Command::new("sh");
        supervisor.arg("-c").arg(SUPERVISE).arg("supervise").arg(folder(name).join("log")).args(commands);
        supervisor.envs(variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::piped());
        let supervisor = supervisor.spawn().expect("sh");
        Self { mqtt, http, supervisor }
    }

    fn client(&self, id: &str) -> Client {
        Client::connect(self.mqtt, &Connect::v311(id))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// An empty folder for a broker.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources").join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn rabbitmq() -> Broker {
    let _ = std::fs::remove_dir_all(folder("rabbitmq"));
    let home = folder("rabbitmq");
    let [mqtt, http, peers, names] = std::array::from_fn(|_| free_address());
    let mut text = String::from(
        "listeners.tcp = none\nmqtt.allow_anonymous = true\ncollect_statistics_interval = 200\n",
    );
    let _ = writeln!(
        text,
        "mqtt.listeners.tcp.1 = {mqtt}\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {}",
        http.port()
    );
    std::fs::write(home.join("rabbitmq.conf"), text).expect("a file");
    std::fs::write(home.join("enabled_plugins"), "[rabbitmq_mqtt,rabbitmq_management].").expect("a file");
    let file = |name: &str| home.join(name).display().to_string();
    let variables = [
        ("HOME", file("")),
        ("RABBITMQ_NODENAME", format!("tidegate-{}@localhost", mqtt.port())),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
        ("RABBITMQ_CONFIG_FILE", file("rabbitmq.conf")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins")),
        ("RABBITMQ_MNESIA_BASE", file("mnesia")),
        ("RABBITMQ_LOG_BASE", file("logs")),
        ("RABBITMQ_PID_FILE", file("pid")),
        ("RABBITMQ_DIST_PORT", peers.port().to_string()),
        // it would start one that nobody ends
        ("ERL_EPMD_PORT", names.port().to_string()),
    ];
    let names = format!("epmd -address 127.0.0.1 -port {}", names.port());
    let commands = [&*names, "/usr/lib/rabbitmq/bin/rabbitmq-server"];
    Broker::start("rabbitmq", mqtt, http, &variables, &commands)
}

fn nats() -> Broker {
    let _ = std::fs::remove_dir_all(folder("nats"));
    let home = folder("nats");
    let [mqtt, http, own] = std::array::from_fn(|_| free_address());
    let file = home.join("nats.conf");
    let text = format!(
        "server_name: test\nlisten: \"{own}\"\nhttp: \"{http}\"\njetstream {{ store_dir: \"{}\" }}\nmqtt {{ listen: \"{mqtt}\" }}\n",
        home.join("store").display()
    );
    std::fs::write(&file, text).expect("a file");
    Broker::start("nats", mqtt, http, &[], &[&format!("/usr/sbin/nats-server -c {}", file.display())])
}

/// What is at a path, as guest; nothing while nobody answers.
fn ask(address: SocketAddr, path: &str) -> Option<Json> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let login = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=";
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{login}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

/// Messages that RabbitMQ says it has for the worker.
fn of_rabbitmq(broker: &Broker) -> Option<u64> {
    let queue = ask(broker.http, "/api/queues/%2F/mqtt-subscription-workerqos1")?;
    queue.get("messages")?.as_u64()
}

/// Messages that NATS says it has for its one consumer.
fn of_nats(broker: &Broker) -> Option<u64> {
    let all = ask(broker.http, "/jsz?accounts=true&streams=true&consumers=true")?;
    let streams = all["account_details"][0]["stream_detail"].as_array()?;
    let stream = streams.iter().find(|stream| stream["name"] == "$MQTT_msgs")?;
    let consumer = &stream["consumer_detail"][0];
    Some(consumer["num_pending"].as_u64()? + consumer["num_ack_pending"].as_u64()?)
}

/// Messages that the gateway shows for the worker.
fn of_gateway(server: &Server) -> Option<u64> {
    let queues = ask(server.admin, "/api/v1/queues")?;
    let queue = queues.as_array()?.iter().find(|queue| queue["queue"] == "client/worker:work/#")?.clone();
    Some(queue["depth"].as_u64()? + queue["in_flight"].as_u64()?)
}

fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + 2 * PATIENCE;
    while !happens() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The gateway shows what the broker says, also of messages that came without passing it; when the broker does not answer,
/// that is logged and counted, and what passes still counts.
fn agrees(kind: &str, broker: Broker, of_broker: fn(&Broker) -> Option<u64>) {
    let source = format!(
        r#"[{{ kind = "{kind}", url = "http://{}", user = "guest", password = "guest", interval_ms = 200 }}]"#,
        broker.http
    );
    let settings = vec![
        ("mode", "proxy".to_owned()),
        ("plugins", r#"["access","overload"]"#.into()),
        ("proxy.upstream", broker.mqtt.to_string()),
        // nobody is to wait
        ("queue.max_delay_ms", "600000".into()),
        ("overload.source", source),
    ];
    let server =
        Server::start(kind, &Setup { settings, target: Some(Target::ProxyAlone), ..Setup::default() });
    eventually("the broker serves", || server.attempt(&Connect::v311("early")).connack.code == 0);
    let mut worker = server.connect(&Connect::v311("worker"));
    worker.subscribe("work/#", 1);
    let mut through = server.client(Version::V311);
    let mut beside = broker.client("beside");
    for _ in 0..20 {
        through.publish(Publish::new("work/a", "seen").qos(1));
        through.publish(Publish::new("work/a", "seen").qos(1));
        beside.publish(Publish::new("work/b", "not seen").qos(1));
    }
    let agreed = |count: u64| of_broker(&broker) == Some(count) && of_gateway(&server) == Some(count);
    eventually("both have 60 messages", || agreed(60));
    (0..25).for_each(|_| drop(worker.receive()));
    eventually("both have 35 messages", || agreed(35));
    let metric = |name: &str| {
        let text = server.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |number| number.trim().parse().expect("a number"))
    };
    assert!(metric("tidegate_source_answers_total") >= 1.0);
    let (failures, said) =
        (metric("tidegate_source_failures_total"), "the source of queue lengths does not answer");
    let lines = || std::fs::read_to_string(&server.log).expect("a log").matches(said).count();
    let before = lines();
    let address = broker.http;
    drop(broker);
    eventually("it has ended", || TcpStream::connect(address).is_err());
    eventually("it is missed", || metric("tidegate_source_failures_total") >= failures + 3.0);
    assert_eq!(lines(), before + 1, "once, however often it is asked");
}

#[test]
fn rabbitmq_and_the_gateway_agree() {
    agrees("rabbitmq", rabbitmq(), of_rabbitmq);
}

#[test]
fn nats_and_the_gateway_agree() {
    agrees("nats", nats(), of_nats);
}

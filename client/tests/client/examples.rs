//! Every example runs, in Rust, Python and JavaScript, and follows a rate that is announced.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rumqttc::v5::mqttbytes::v5::{Packet, PubAck, PubAckProperties, PubAckReason};
use serde_json::Value;

use crate::gateway::Gateway;
use crate::publishing::{Controller, listener};
use crate::scripted::{Answer, Scripted};
use crate::{PLAYED, soon};

/// The directory that cargo builds into.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned()
}

/// An example of this crate, which `cargo test` builds.
fn example(name: &str) -> Command {
    let deps = std::env::current_exe().unwrap();
    let path = deps.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build -p tidegate-client --examples", path.display());
    let mut command = Command::new(path);
    command.env("TIDE_PREFIX", PLAYED);
    command
}

/// A file that `./test` installs.
fn installed(path: &str) -> PathBuf {
    let file = target().join("peers").join(path);
    assert!(file.exists(), "{} is missing: ./test peers installs it", file.display());
    file
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/other-languages").join(name)
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs to the end, which must be a success; what it wrote.
async fn run(mut command: Command) -> String {
    let name = format!("{command:?}");
    let output = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output());
    let output = soon(&name, output).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{name}:\n{text}");
    text
}

/// A thermometer that would send 5 messages a second for three seconds is told to send one: its samples all arrive, in few
/// messages. `samples_a_second` is what it measures: whoever ignores the rate has a fifth of that in a message, whoever
/// follows it most of it.
async fn thermometer(name: &str, samples_a_second: u64, command: impl FnOnce(&Gateway) -> Command) {
    let gateway = Gateway::start();
    let mut controller = Controller::start(&gateway.url());
    controller.announce("rate", "50", Duration::from_secs(600)).await;
    controller.announce(&format!("rate/client/{name}"), "1", Duration::from_secs(600)).await;
    let mut updates = listener(&gateway.url(), "room/+/temp").await;
    let text = run(command(&gateway)).await;
    let done = text.lines().rev().find_map(|line| line.strip_prefix("done: ")).expect(&text);
    let messages: u64 = done.split(' ').next().unwrap().parse().unwrap();
    let mut samples = 0;
    for _ in 0..messages {
        let update = soon("a message", updates.next()).await.unwrap();
        let value: serde_json::Value = serde_json::from_slice(&update.payload).unwrap();
        assert!((19.9..22.1).contains(&value["mean"].as_f64().unwrap()), "{value}");
        samples += value["count"].as_u64().unwrap();
    }
    println!("{name}: {messages} messages for {samples} samples");
    let enough = messages * samples_a_second * 3 / 10;
    assert!(messages >= 1 && samples >= enough, "{messages} messages for {samples} samples: {text}");
}

/// A broker refuses the first message (0x97) and tells a rate with that. Its samples go again, nothing is sent in the time
/// that it names, and the rate holds until the end, since nobody said that it ends.
async fn refused(command: impl FnOnce(&Scripted) -> Command) {
    let mut messages = 0;
    let broker = Scripted::start(move |packet| {
        let Packet::Publish(publish) = packet else { return None };
        messages += 1;
        let refuse = messages == 1;
        let reason = if refuse { PubAckReason::QuotaExceeded } else { PubAckReason::Success };
        let hints =
            [("tide-rate", "0.5"), ("tide-wait-ms", "1000")].map(|(key, value)| (key.into(), value.into()));
        let properties = PubAckProperties { reason_string: None, user_properties: hints.into() };
        let properties = Some(properties).filter(|_| refuse);
        Some(Answer::send([Packet::PubAck(PubAck { pkid: publish.pkid, reason, properties })]))
    })
    .await;
    let text = run(command(&broker)).await;
    let topic = broker.seen.lock().iter().find_map(|packet| match packet {
        Packet::Publish(publish) => Some(String::from_utf8_lossy(&publish.topic).into_owned()),
        _ => None,
    });
    let counts: Vec<u64> = broker
        .payloads(&topic.expect("a message"))
        .iter()
        .map(|payload| serde_json::from_str::<Value>(payload).unwrap()["count"].as_u64().unwrap())
        .collect();
    assert!(counts[1] > counts[0], "what was refused is part of the next: {counts:?}");
    let (accepted, samples) = (counts.len() - 1, counts[1..].iter().sum::<u64>());
    let expected = format!("done: {accepted} messages for {samples} samples at 0.5 a second");
    assert!(text.contains(&expected), "{expected}: {text}");
    assert!(accepted <= 9, "twelve seconds, half a message in each: {counts:?}");
}

/// Whoever doubts that it is simple may count.
#[test]
fn forty_lines_are_enough() {
    for name in ["thermometer.py", "thermometer.cjs"] {
        let lines = std::fs::read_to_string(script(name)).unwrap().lines().count();
        assert!(lines <= 40, "{name} has {lines} lines");
    }
}

#[tokio::test]
async fn thermometer_in_rust() {
    thermometer("rust", 10, |gateway| {
        let mut command = example("thermometer");
        command.args([&gateway.url(), "rust", "3"]);
        command
    })
    .await;
}

fn python(port: u16, seconds: &str) -> Command {
    let mut command = Command::new(installed("venv/bin/python"));
    let port = port.to_string();
    command.arg(script("thermometer.py")).args(["127.0.0.1", &port, "python", seconds, PLAYED]);
    command
}

fn javascript(url: &str, seconds: &str) -> Command {
    let module = installed("node/node_modules/mqtt/package.json");
    let modules = module.parent().and_then(Path::parent).unwrap().to_owned();
    let mut command = Command::new("node");
    command.env("NODE_PATH", modules).arg(script("thermometer.cjs"));
    command.args([url, "javascript", seconds, PLAYED]);
    command
}

#[tokio::test]
async fn thermometer_in_python() {
    thermometer("python", 20, |gateway| python(gateway.address("mqtt").port(), "3")).await;
}

#[tokio::test]
async fn thermometer_in_javascript() {
    thermometer("javascript", 20, |gateway| javascript(&gateway.url(), "3")).await;
}

#[tokio::test]
async fn a_refusal_in_python() {
    refused(|broker| python(broker.address.port(), "12")).await;
}

#[tokio::test]
async fn a_refusal_in_javascript() {
    refused(|broker| javascript(&broker.url(), "12")).await;
}

/// The measurements are for an idle machine; that they can be made, and that the books balance, holds on any.
#[tokio::test]
async fn must_show_runs() {
    let mut command = example("must_show");
    command.args(["quick", "cable"]).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output());
    let output = soon("must_show", output).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for line in ["bytes buffered at most", "every sample is accounted for", "alarms delivered"] {
        assert!(text.contains(&format!("  holds          {line}")), "{line}: {text}");
    }
    assert!(output.status.success(), "{text}");
}

#[tokio::test]
async fn dashboard_in_rust() {
    let gateway = Gateway::start();
    let mut thermometer = example("thermometer");
    thermometer.args([&gateway.url(), "source", "60"]).stdout(Stdio::null());
    let _thermometer = Running(thermometer.spawn().unwrap());
    let mut dashboard = example("dashboard");
    dashboard.args([&gateway.url(), "dashboard", "room/+/temp", "5"]);
    let text = run(dashboard).await;
    assert_eq!(text.lines().filter(|line| line.starts_with("room/source/temp: {")).count(), 5, "{text}");
    assert!(text.contains("done: 5 came, 0 fetched, 0 lost"), "{text}");
}

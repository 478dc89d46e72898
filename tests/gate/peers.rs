//! Real clients that know nothing of rates.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_gate::GateConfig;

use crate::common::packet::Connect;
use crate::house::{House, Pace};
use crate::strict;

/// A house where the client `legacy` has a rate, and a consumer that checks it.
fn with_legacy(rate: f64, count: usize, run: impl FnOnce(&House) -> std::process::Child) {
    let config: GateConfig = strict();
    let house = House::start(config, |_| {});
    house.set_rate("legacy", rate);
    let mut consumer = house.connect(&Connect::v311("consumer"));
    consumer.subscribe("flood", 1);
    let pace = Pace::start(rate, &config);
    let child = run(&house);
    for number in 0..count {
        assert_eq!(consumer.receive().text(), format!("{number}"));
        // Those that could wait no longer are beside the rate.
        pace.check((number + 1).saturating_sub(house.counts.snapshot().overdue as usize));
    }
    let ended = child.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && output.is_empty(), "{}: {output}", ended.status);
    assert!(house.counts.snapshot().delayed > 0);
}

fn mosquitto(qos: &'static str, rate: f64, count: usize) {
    with_legacy(rate, count, |house| {
        let port = house.address.port().to_string();
        let mut child = Command::new("mosquitto_pub")
            .args(["-p", &port, "-i", "legacy", "-t", "flood", "-q", qos, "-k", "5", "-l"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mosquitto_pub, from the package mosquitto-clients");
        let mut stdin = child.stdin.take().unwrap();
        let lines: String = (0..count).map(|number| format!("{number}\n")).collect();
        std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
        child
    });
}

#[test]
fn mosquitto_pub_at_qos0() {
    mosquitto("0", 100.0, 300);
}

#[test]
fn mosquitto_pub_at_qos1() {
    mosquitto("1", 100.0, 300);
}

/// Longer than one and a half times its keep-alive.
#[test]
fn mosquitto_pub_over_its_keep_alive() {
    mosquitto("1", 0.001, 10);
}

const PAHO: &str = r#"
import sys, threading
import paho.mqtt.client as mqtt
port, version, qos, count = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "legacy", protocol=version)
done = threading.Event()
lost = []
client.on_disconnect = lambda *reason: done.is_set() or lost.append(reason)
client.connect("127.0.0.1", port, 2)
client.loop_start()
infos = [client.publish("flood", str(number), qos) for number in range(count)]
for info in infos:
    info.wait_for_publish(30)
    assert info.is_published()
done.set()
client.disconnect()
client.loop_stop()
assert not lost, lost
"#;

/// What `./test` installs.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    target.join("peers/venv/bin/python")
}

fn paho(version: &'static str, qos: &'static str, rate: f64, count: usize) {
    with_legacy(rate, count, |house| {
        let (port, count) = (house.address.port().to_string(), count.to_string());
        Command::new(python())
            .args(["-c", PAHO, &port, version, qos, &count])
            .stderr(Stdio::piped())
            .spawn()
            .expect("a Python with paho-mqtt, which ./test installs under target/peers")
    });
}

#[test]
fn paho_at_qos1_over_its_keep_alive() {
    paho("4", "1", 5.0, 30);
}

#[test]
fn paho_at_qos2_with_mqtt5() {
    paho("5", "2", 20.0, 60);
}

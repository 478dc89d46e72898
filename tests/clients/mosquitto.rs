//! mosquitto_pub and mosquitto_sub over TCP.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, unique};
use crate::peers::{Background, program, run};
use crate::server;

/// mosquitto_pub for this server.
pub(crate) fn publisher(version: &str) -> Command {
    let mut command = Command::new(program("mosquitto_pub", "mosquitto-clients"));
    command.args(["-V", version, "-h", "127.0.0.1", "-p", &server().mqtt.port().to_string()]);
    command
}

/// mosquitto_sub for this server, which prints messages as `MSG qos retain topic payload`.
pub(crate) fn subscriber(version: &str) -> Command {
    // Its debug lines tell when it is subscribed, but are not flushed when written to a pipe.
    let mut command = Command::new("stdbuf");
    command.args(["-oL", &program("mosquitto_sub", "mosquitto-clients"), "-V", version, "-d"]);
    command.args(["-F", "MSG %q %r %t %p"]);
    command.args(["-h", "127.0.0.1", "-p", &server().mqtt.port().to_string()]);
    command
}

/// Starts a subscriber and waits until the server granted its subscription.
pub(crate) fn start(command: &mut Command) -> Background {
    let mut background = Background::start(command);
    background.line("Subscribed ");
    background
}

/// Messages of every QoS arrive with their QoS, in order.
#[test]
fn messages_at_each_qos() {
    for version in ["mqttv311", "mqttv5"] {
        let topic = unique("mosquitto/");
        let mut subscriber = start(subscriber(version).args(["-t", &format!("{topic}/#"), "-q", "2"]));
        for qos in ["0", "1", "2"] {
            let topic = format!("{topic}/{qos}");
            run(publisher(version).args(["-t", &topic, "-q", qos, "-m", "one message"]));
            assert_eq!(subscriber.line("MSG "), format!("{qos} 0 {topic} one message"));
        }
    }
}

/// A long series through one connection, from lines on standard input.
#[test]
fn series_of_lines() {
    for (version, qos) in [("mqttv311", "1"), ("mqttv5", "2")] {
        let topic = unique("lines/");
        let mut subscriber = start(subscriber(version).args(["-t", &topic, "-q", qos]));
        let mut pipeline = Command::new("sh");
        pipeline.args(["-c", r#"seq 1 1000 | "$@" -l"#, "sh"]);
        let publisher = publisher(version);
        pipeline.arg(publisher.get_program()).args(publisher.get_args()).args(["-t", &topic, "-q", qos]);
        run(&mut pipeline);
        for n in 1..=1_000 {
            assert_eq!(subscriber.line("MSG "), format!("{qos} 0 {topic} {n}"));
        }
    }
}

/// A retained message is there for those who come later, until it is deleted.
#[test]
fn retained() {
    for version in ["mqttv311", "mqttv5"] {
        let topic = unique("kept/");
        run(publisher(version).args(["-t", &topic, "-q", "1", "-r", "-m", "kept"]));
        let mut late = Background::start(subscriber(version).args(["-t", &topic, "-q", "1"]));
        assert_eq!(late.line("MSG "), format!("1 1 {topic} kept"));
        run(publisher(version).args(["-t", &topic, "-q", "1", "-r", "-n"]));
        assert_eq!(late.line("MSG "), format!("1 0 {topic} "));
        let mut later = start(subscriber(version).args(["-t", &topic, "-q", "1"]));
        run(publisher(version).args(["-t", &topic, "-q", "1", "-m", "live"]));
        assert_eq!(later.line("MSG "), format!("1 0 {topic} live"));
    }
}

/// The will of a client that is killed.
#[test]
fn will() {
    for version in ["mqttv311", "mqttv5"] {
        let topic = unique("will/");
        let mut watcher = start(subscriber(version).args(["-t", &topic, "-q", "2"]));
        let will = ["--will-topic", &topic, "--will-payload", "gone", "--will-qos", "2"];
        start(subscriber(version).args(["-t", "nothing"]).args(will)).kill();
        assert_eq!(watcher.line("MSG "), format!("2 0 {topic} gone"));
    }
}

/// What is published while a persistent subscriber is away waits for it.
#[test]
fn persistent_session() {
    for version in ["mqttv311", "mqttv5"] {
        let (topic, id) = (unique("away/"), unique("mosquitto"));
        let mut arguments = vec!["-t", &topic, "-q", "1", "-i", &id, "-c"];
        if version == "mqttv5" {
            arguments.extend(["-x", "600"]);
        }
        run(subscriber(version).args(&arguments).arg("-E"));
        run(publisher(version).args(["-t", &topic, "-q", "1", "-m", "waiting"]));
        let mut back = Background::start(subscriber(version).args(&arguments));
        assert_eq!(back.line("MSG "), format!("1 0 {topic} waiting"));
    }
}

/// A payload of a megabyte.
#[test]
fn large_payload() {
    let topic = unique("large/");
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("large-payload");
    std::fs::write(&file, "0123456789abcdef".repeat(65_536)).expect("a file");
    let mut subscriber = start(subscriber("mqttv5").args(["-t", &topic, "-q", "1"]));
    run(publisher("mqttv5").args(["-t", &topic, "-q", "1", "-f"]).arg(&file));
    let line = subscriber.line("MSG ");
    assert_eq!(line.len(), format!("1 0 {topic} ").len() + 1_048_576);
}

/// MQTT 5 properties come through.
#[test]
fn properties() {
    let topic = unique("props/");
    let mut command = subscriber("mqttv5");
    command.args(["-t", &topic, "-F", "PROPS %C|%R|%D|%P"]);
    let mut subscriber = start(&mut command);
    let mut publisher = publisher("mqttv5");
    publisher.args(["-t", &topic, "-m", "x"]);
    for property in [
        &["content-type", "text/plain"][..],
        &["response-topic", "answer"],
        &["correlation-data", "4711"],
        &["user-property", "b", "1"],
        &["user-property", "a", "2"],
    ] {
        publisher.args(["-D", "publish"]).args(property);
    }
    run(&mut publisher);
    assert_eq!(subscriber.line("PROPS "), "text/plain|answer|4711|b:1 a:2");
}

/// Two members of a shared group get every message once, and both get some.
#[test]
fn shared_group() {
    for version in ["mqttv311", "mqttv5"] {
        let topic = unique("work/");
        let filter = format!("$share/{}/{topic}", unique("workers"));
        let mut members = [(); 2].map(|()| start(subscriber(version).args(["-t", &filter, "-q", "1"])));
        for n in 0..20 {
            run(publisher(version).args(["-t", &topic, "-q", "1", "-m", &n.to_string()]));
        }
        let mut got = [0; 2];
        let mut texts = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while texts.len() < 20 {
            assert!(Instant::now() < deadline, "got only {texts:?}");
            for (member, count) in members.iter_mut().zip(&mut got) {
                while let Some(line) = member.line_within("MSG ", Duration::from_millis(20)) {
                    texts.push(line.rsplit(' ').next().expect("a payload").parse::<u32>().expect("a number"));
                    *count += 1;
                }
            }
        }
        texts.sort_unstable();
        assert_eq!(texts, (0..20).collect::<Vec<_>>());
        assert!(got[0] > 0 && got[1] > 0, "one member got nothing: {got:?}");
    }
}

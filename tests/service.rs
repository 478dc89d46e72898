//! The binary as an operator runs it: signals, users and rules, the admin endpoint, the configuration.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::client::{Client, End};
use common::packet::Version::{V5, V311};
use common::packet::*;
use common::server::{Server, Setup, binary, free_address, tail};
use common::{PATIENCE, unique};

fn start(name: &str, settings: Vec<(&'static str, String)>) -> Server {
    Server::start(name, &Setup { settings, ..Setup::default() })
}

/// A file for this test.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

/// Waits until it is so.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Adds a user to a file with `tidegate passwd`, the password on standard input.
fn add_user(users: &Path, user: &str, password: &str) {
    let mut child = Command::new(binary())
        .arg("passwd")
        .args([users.as_os_str(), user.as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("tidegate passwd");
    writeln!(child.stdin.take().expect("piped"), "{password}").expect("the password is read");
    assert!(child.wait().expect("an end").success(), "tidegate passwd failed");
}

/// SIGTERM: MQTT 5 clients are told (0x8B), all connections end, and the process ends by itself.
#[test]
fn sigterm_drains() {
    let server = start("sigterm", vec![]);
    let (mut five, mut three, mut idle) = (server.client(V5), server.client(V311), server.open(V5));
    let mut handshaking = Client::open(server.ws, V5);
    // the clients before it are accepted when it is
    server.client(V5).ping();
    server.signal("TERM");
    five.expect_closed(&[0x8B]);
    three.expect_closed(&[]);
    assert_eq!(idle.recv_within(PATIENCE), Err(End::Closed));
    assert_eq!(handshaking.recv_within(PATIENCE), Err(End::Closed));
    eventually("the end of the process", || !server.runs());
    assert!(!tail(&server.log, 20).contains("did not leave"), "{}", tail(&server.log, 20));
    assert!(tail(&server.log, 1).contains("stopped"), "{}", tail(&server.log, 5));
}

/// Users made by `tidegate passwd` get in with their password only, and nobody without.
#[test]
fn users() {
    let users = file("service-users", "");
    add_user(&users, "alice", "wonderland");
    let settings = vec![("access.users", users.display().to_string()), ("access.anonymous", "false".into())];
    let server = start("users", settings);
    let attempt = |version, user: Option<&str>, password: Option<&str>| {
        let connect = Connect {
            user: user.map(Into::into),
            password: password.map(Into::into),
            ..Connect::new(version, &unique("user"))
        };
        Client::attempt(server.mqtt, &connect).connack.code
    };
    for (version, refusals) in [(V311, &[0x04, 0x05][..]), (V5, &[0x86, 0x87])] {
        assert_eq!(attempt(version, Some("alice"), Some("wonderland")), 0);
        let bad = [
            attempt(version, Some("alice"), Some("looking glass")),
            attempt(version, Some("bob"), Some("wonderland")),
            attempt(version, Some("alice"), None),
            attempt(version, None, None),
        ];
        assert!(bad.iter().all(|code| refusals.contains(code)), "{bad:02x?}");
    }
}

/// SIGHUP reads users and rules again; a file with a mistake changes nothing.
#[test]
fn sighup_reloads() {
    let rules = file("service-rules", "everyone any open/#\n");
    let server = start("sighup", vec![("access.rules", rules.display().to_string())]);
    let granted = || server.client(V5).try_subscribe("later/topic", 1) == [1];
    assert!(!granted());
    std::fs::write(&rules, "everyone any open/#\neveryone any later/#\n").expect("a file");
    assert!(!granted(), "files are read again on SIGHUP, not before");
    server.signal("HUP");
    eventually("the reload", granted);
    std::fs::write(&rules, "this is no rule\n").expect("a file");
    server.signal("HUP");
    eventually("the complaint", || tail(&server.log, 5).contains("line 1"));
    assert!(granted(), "what was read before stays");
}

/// `%c` and `%u` in rules, for publish and subscribe; what is denied is not delivered.
#[test]
fn rules_with_names() {
    let rules = file("service-names", "everyone publish up/%c/#\neveryone subscribe up/#\n");
    let server = start("names", vec![("access.rules", rules.display().to_string())]);
    let mut watcher = server.client(V5);
    watcher.subscribe("up/#", 1);
    let mut device = server.connect(&Connect::v5("device-1"));
    assert_eq!(device.publish(Publish::new("up/device-2/x", "forged").qos(1)), 0x87);
    assert!(device.publish(Publish::new("up/device-1/x", "own").qos(1)) < 0x80);
    assert_eq!(watcher.receive().text(), "own");
    // 3.1.1 has no way to refuse one message: it is acknowledged or the connection ends.
    let mut old = server.connect(&Connect::v311("device-3"));
    old.send(&Publish::new("up/device-1/x", "forged").qos(1).id(1));
    let _ = old.recv_within(PATIENCE);
    assert!(device.publish(Publish::new("up/device-1/x", "again").qos(1)) < 0x80);
    assert_eq!(watcher.receive().text(), "again");
}

/// `/healthz`, `/readyz` and `/metrics`, which counts what happens.
#[test]
fn admin_endpoint() {
    let server = start("admin", vec![]);
    for path in ["/healthz", "/readyz"] {
        assert!(server.get(path).starts_with("HTTP/1.1 200"), "{path}: {}", server.get(path));
    }
    let mut client = server.client(V5);
    client.subscribe("metrics/topic", 1);
    client.publish(Publish::new("metrics/topic", "x").qos(1));
    client.receive();
    let text = server.get("/metrics");
    assert!(text.contains("tidegate_clients_connected 1\n"), "{text}");
    assert!(server.get("/nothing").starts_with("HTTP/1.1 404"));
}

/// Every metric says what it means.
#[test]
fn metrics_have_help() {
    let server = start("help", vec![]);
    let text = server.get("/metrics");
    let names = |mark: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        lines.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    };
    let (types, helps) = (names("# TYPE "), names("# HELP "));
    assert!(types.iter().any(|name| name == "tidegate_messages_published_total"), "{text}");
    let missing: Vec<_> = types.iter().filter(|name| !helps.contains(name)).collect();
    assert!(missing.is_empty(), "without HELP: {missing:?}");
}

/// Lines of the log with these words.
fn lines_with(server: &Server, words: &[&str]) -> Vec<String> {
    let text = std::fs::read_to_string(&server.log).expect("a log");
    let with = |line: &&str| words.iter().all(|word| line.contains(word));
    text.lines().filter(with).map(str::to_owned).collect()
}

/// What is refused is counted by plugin and reason code, and the log says who asked.
#[test]
fn refusals_are_counted_and_logged() {
    let rules = file("service-refusals", "everyone any open/#\n");
    let server = start("refusals", vec![("access.rules", rules.display().to_string())]);
    let mut client = server.connect(&Connect::v5("curious\nclient"));
    for _ in 0..2 {
        assert_eq!(client.publish(Publish::new("secret/topic", "x").qos(1)), 0x87);
    }
    assert_eq!(client.publish(Publish::new("$SYS/topic", "x").qos(1)), 0x87);
    assert_eq!(client.try_subscribe("secret/#", 1), [0x80]);
    assert_eq!(client.try_subscribe("a/#/b", 1), [0x8F]);
    let text = server.get("/metrics");
    for (what, plugin, reason, count) in [
        ("publish", "access", "0x87", 2),
        ("publish", "gateway", "0x87", 1),
        ("subscribe", "access", "0x80", 1),
        ("subscribe", "gateway", "0x8f", 1),
    ] {
        let line = format!(
            "tidegate_refusals_total{{what=\"{what}\",plugin=\"{plugin}\",reason=\"{reason}\"}} {count}\n"
        );
        assert!(text.contains(&line), "no {line} in {text}");
    }
    // an identifier with a line break does not make a line of its own
    let words = ["curious\\nclient", "127.0.0.1:", "secret/topic", "access", "0x87"];
    assert_eq!(lines_with(&server, &words).len(), 2);
    client.send(&[0x00, 0x00]);
    client.expect_closed(&[0x81]);
    eventually("the line", || {
        lines_with(&server, &["protocol error", "curious\\nclient", "127.0.0.1:"]).len() == 1
    });
}

/// A client that breaks the rules all the time does not fill the disk; what was left out is told.
#[test]
fn the_log_is_bounded() {
    const COUNT: usize = 5_000;
    let rules = file("service-bounded", "everyone any open/#\n");
    let server = start("bounded", vec![("access.rules", rules.display().to_string())]);
    let mut client = server.client(V5);
    for _ in 0..COUNT / 500 {
        let one = Publish::new("secret/topic", "x").encode(V5);
        client.send(&one.repeat(500));
    }
    client.ping();
    let written = || lines_with(&server, &["secret/topic"]).len();
    let left_out = || {
        let number =
            |line: String| line.split("left_out=").nth(1)?.split_whitespace().next()?.parse::<usize>().ok();
        lines_with(&server, &["left_out="]).into_iter().filter_map(number).sum::<usize>()
    };
    eventually("the number of lines left out", || written() + left_out() == COUNT);
    assert!(written() < COUNT / 2, "{} lines", written());
}

/// A client that is refused reads why, however much it has sent before it looks.
#[test]
fn a_refusal_can_be_read() {
    let users = file("service-nobody", "");
    add_user(&users, "alice", "wonderland");
    let settings = vec![("access.users", users.display().to_string()), ("access.anonymous", "false".into())];
    let server = start("refusal", settings);
    let mut stream = TcpStream::connect(server.mqtt).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut bytes = Connect::v5("nobody").encode(V5);
    bytes.extend(Publish::new("t", "x".repeat(1000)).encode(V5).repeat(100));
    stream.write_all(&bytes).expect("taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the end, not an error");
    assert_eq!((answer[0], answer[3]), (0x20, 0x87), "{answer:?}");
    // it goes on sending for a while, and that is no error either
    stream.write_all(&bytes[..100]).expect("taken");
}

/// One port on both families: each listener has its own.
#[test]
fn ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return; // this machine has no IPv6
    }
    let port = free_address().port();
    let server = start("ipv6", vec![("listen.mqtt", format!("127.0.0.1:{port},[::1]:{port}"))]);
    let four = format!("127.0.0.1:{port}").parse().expect("an address");
    let six = format!("[::1]:{port}").parse().expect("an address");
    let mut subscriber = Client::connect(six, &Connect::v5("six"));
    subscriber.subscribe("t", 1);
    Client::connect(four, &Connect::v5("four")).publish(Publish::new("t", "from four").qos(1));
    assert_eq!(subscriber.receive().text(), "from four");
    assert!(tail(&server.log, 20).contains(&format!("[::1]:{port}")));
}

/// Connections that come faster than `listen.max_accept_rate` are closed and counted; later ones are welcome.
#[test]
fn accept_rate() {
    const COUNT: usize = 60;
    let server = start("accept-rate", vec![("listen.max_accept_rate", "3".into())]);
    let refused = || {
        let line = "tidegate_connections_refused_total{reason=\"rate\"} ";
        let text = server.get("/metrics");
        text.lines().find_map(|text| text.strip_prefix(line)?.parse::<usize>().ok()).expect("a count")
    };
    let clients: Vec<_> = (0..COUNT).map(|_| server.open(V5)).collect();
    eventually("the refusal of some", || refused() > 0);
    let counted = |closed: usize| closed == refused();
    let mut closed = 0;
    for mut client in clients {
        // who was let in is answered, who was not finds the connection closed
        let sent = client.try_send(&Connect::v5(&unique("rate")));
        closed += usize::from(sent.is_err() || client.recv_within(PATIENCE).is_err());
    }
    assert!(closed > 0 && closed < COUNT, "{closed} of {COUNT} turned away");
    assert!(counted(closed), "{closed} closed, {} counted", refused());
    eventually("a welcome", || {
        let mut client = server.open(V5);
        client.try_send(&Connect::v5(&unique("rate"))).is_ok() && client.recv_within(PATIENCE).is_ok()
    });
}

/// A start prints version, addresses, mode and configuration file.
#[test]
fn banner() {
    let server = start("banner", vec![]);
    server.client(V5);
    eventually("the banner", || {
        let text = tail(&server.log, 20);
        let addresses = [server.mqtt, server.ws, server.admin].map(|address| address.to_string());
        text.contains(env!("CARGO_PKG_VERSION"))
            && text.contains("broker")
            && text.contains("configuration")
            && addresses.iter().all(|address| text.contains(address.as_str()))
    });
}

/// Unknown keys and impossible values are refused with key, value and what would be right; nothing starts.
#[test]
fn bad_configuration() {
    for (setting, words) in [
        ("session.max_keep_alife=60", &["max_keep_alife", "session.max_keep_alive"][..]),
        ("session.max_keep_alive=never", &["session.max_keep_alive", "never"]),
        ("listen.mqtt=nowhere", &["listen.mqtt", "nowhere", "127.0.0.1:1883"]),
    ] {
        for command in ["check", "serve"] {
            let output = Command::new(binary())
                .env_remove("TIDEGATE_TEST_BINARY")
                .args([command, "--set", setting])
                .output()
                .expect("tidegate");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{command} {setting} succeeded");
            assert!(words.iter().all(|word| text.contains(word)), "{command} {setting}: {text}");
        }
    }
}

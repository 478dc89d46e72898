//! The command itself, with brokers that it starts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

use tidegate_bench::record::{Comparison, Run};

const BENCH: &str = env!("CARGO_BIN_EXE_tidegate-bench");

/// The gateway's program, built if it is not there.
fn tidegate() -> PathBuf {
    static BUILD: Once = Once::new();
    let program = Path::new(BENCH).with_file_name("tidegate");
    BUILD.call_once(|| {
        if !program.is_file() {
            let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let built = Command::new(cargo).args(["build", "-p", "tidegate"]).current_dir(folder).status();
            assert!(built.unwrap().success());
        }
    });
    program
}

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    command.args(arguments).env("TIDEGATE", tidegate()).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_installed(program: &str) -> bool {
    Path::new("/usr/sbin").join(program).is_file() || Command::new(program).arg("-h").output().is_ok()
}

const SMALL: &str = r#"
    name = "small"
    about = "A little of everything."
    duration = 0.6
    warmup = 0.2
    interval = 0.2
    [[class]]
    name = "device"
    devices = 3
    rate = 100.0
    qos = 1
    topic = "small/%i"
    [[consumers]]
    instances = 1
    filter = "small/#"
    qos = 1
"#;

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_run_starts_the_gateway_over_every_transport_and_writes_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for transport in ["tcp", "tls", "ws", "wss"] {
        let scenario = SMALL.replace("duration", &format!("transport = \"{transport}\"\nduration"));
        let scenario = file(&folder, "small.toml", &scenario);
        let (json, html) = (file(&folder, "out.json", ""), file(&folder, "out.html", ""));
        let output = bench(&["run", &scenario, "--json", &json, "--html", &html]);
        assert!(output.status.success(), "{transport}: {}", text(&output.stderr));
        let result: Run = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert!(result.totals.delivered > 50 && result.totals.lost == 0, "{transport}: {:?}", result.totals);
        assert_eq!((result.broker.name.as_str(), result.error.as_deref()), ("tidegate", None));
        assert!(result.broker.configuration.contains("127.0.0.1"), "it is printed");
        assert!(result.broker_use.unwrap().rss > 1_000_000);
        assert!(std::fs::read_to_string(&html).unwrap().starts_with("<!doctype html>"));
        assert!(text(&output.stdout).contains("delivered"));
    }
}

#[test]
fn a_scenario_with_an_unknown_key_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = file(&folder, "mine.toml", &SMALL.replace("warmup", "warm_up"));
    let output = bench(&["run", &scenario]);
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("mine.toml") && error.contains("warm_up") && error.contains("warmup"), "{error}");
}

#[test]
fn an_unreachable_target_fails_and_leaves_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, json) = (file(&folder, "small.toml", SMALL), file(&folder, "out.json", ""));
    let output = bench(&["run", &scenario, "--target", "127.0.0.1:1", "--json", &json]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("cannot connect to 127.0.0.1:1"), "{}", text(&output.stderr));
    let result: Run = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(result.error.unwrap().contains("cannot connect"));
    let output = bench(&["run", "flood", "--target", "nowhere"]);
    assert!(text(&output.stderr).contains("host:port"), "{}", text(&output.stderr));
}

#[test]
fn a_gateway_that_is_not_built_is_named_with_the_command_that_builds_it() {
    let output =
        Command::new(BENCH).args(["run", "flood"]).env("TIDEGATE", "/no/such/program").output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("cargo build --release"), "{}", text(&output.stderr));
}

#[test]
fn a_band_that_is_missed_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!("expect = {{ lost = [0, 0], delivered = [1e6, 1e7] }}\n{SMALL}");
    let output = bench(&["run", &file(&folder, "small.toml", &scenario)]);
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("delivered is") && !error.contains("lost is"), "{error}");
}

#[test]
fn brokers_are_compared_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, json) = (file(&folder, "small.toml", SMALL), file(&folder, "out.json", ""));
    let output =
        bench(&["compare", &scenario, "--with", "mosquitto,nats,rumqttd", "--runs", "2", "--json", &json]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Comparison = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let brokers = &result.scenarios[0].brokers;
    for (name, program) in
        [("tidegate", "sh"), ("rumqttd", "sh"), ("mosquitto", "mosquitto"), ("nats", "nats-server")]
    {
        let found = brokers.iter().find(|result| result.broker.name == name);
        if !is_installed(program) {
            let missing = result.missing.iter().find(|missing| missing.broker == name).expect("it is named");
            assert!(missing.reason.contains("apt-get install"), "{missing:?}");
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("{name}: {:?}", result.missing));
        assert_eq!(found.runs.len(), 2);
        assert!(
            !found.broker.version.is_empty() && !found.broker.configuration.is_empty(),
            "{:?}",
            found.broker
        );
        assert_eq!(found.runs.iter().map(|run| run.repetition).collect::<Vec<_>>(), [1, 2]);
        let delivered = found.measures["delivered"];
        assert!(
            delivered.low <= delivered.median
                && delivered.median <= delivered.high
                && delivered.median > 50.0
        );
        assert_eq!(delivered.ratio.is_none(), name == "tidegate");
        assert!(found.runs.iter().all(|run| run.totals.lost == 0 && run.error.is_none()), "{name}");
    }
}

#[test]
fn what_a_peer_cannot_do_is_said() {
    if !is_installed("nats-server") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let scenario = file(&folder, "small.toml", &SMALL.replace("instances", "group = \"g\"\ninstances"));
    let output = bench(&["run", &scenario, "--broker", "nats"]);
    assert!(text(&output.stderr).contains("shared subscriptions"), "{}", text(&output.stderr));
}

#[test]
fn the_sink_shows_what_the_generator_can_send() {
    use std::io::{BufRead, BufReader};
    let mut sink = Command::new(BENCH).arg("sink").stdout(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    let stdout = BufReader::new(sink.stdout.take().unwrap());
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = || lines.recv_timeout(std::time::Duration::from_secs(30)).expect("the sink counts on");
    let line = next();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let scenario = "name = \"x\"\nduration = 0.5\nwarmup = 0.1\ndrain = 0.5\n\
                    class = [{ name = \"d\", devices = 4, topic = \"x/%i\" }]";
    let json = file(&folder, "out.json", "");
    let output = bench(&["run", &file(&folder, "x.toml", scenario), "--target", &address, "--json", &json]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Run = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    // Each line of the sink says what came in a second; together they are what the generator says it sent.
    let mut taken = 0;
    while taken < result.totals.accepted {
        taken += next().split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    assert!(taken > 0 && taken == result.totals.accepted, "{taken} {:?}", result.totals);
    assert!(text(&output.stdout).contains("sent"), "{}", text(&output.stdout));
    sink.kill().unwrap();
    sink.wait().unwrap();
}

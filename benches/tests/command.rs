//! The command itself, with brokers that it starts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tidegate_bench::record::{Comparison, Run};

const BENCH: &str = env!("CARGO_BIN_EXE_tidegate-bench");

/// The gateway's program, built if it is not there.
fn tidegate() -> PathBuf {
    common::build_tidegate();
    Path::new(BENCH).with_file_name("tidegate")
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
fn an_output_that_can_not_be_written_fails_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = file(&folder, "small.toml", SMALL);
    let nowhere = folder.path().join("no/such/out").to_str().unwrap().to_owned();
    let good = folder.path().join("good.json").to_str().unwrap().to_owned();
    for command in ["run", "compare"] {
        for option in ["--html", "--markdown"] {
            let output = bench(&[command, &scenario, "--json", &good, option, &nowhere]);
            let error = text(&output.stderr);
            assert!(
                !output.status.success() && error.contains(option) && error.contains(&nowhere),
                "{error}"
            );
            assert!(!error.contains("delivered") && output.stdout.is_empty(), "nothing ran: {error}");
            assert!(!Path::new(&good).exists());
        }
    }
}

#[test]
fn a_closed_standard_output_loses_no_file() {
    use std::io::Read;
    let folder = tempfile::tempdir().unwrap();
    let scenario = file(&folder, "small.toml", SMALL);
    for (command, more) in [("run", None), ("compare", Some("--with=tidegate"))] {
        let outputs = ["json", "html", "md"].map(|name| folder.path().join(format!("{command}.{name}")));
        let [json, html, markdown] = outputs.each_ref().map(|path| path.to_str().unwrap());
        let mut program = Command::new(BENCH);
        program.args([command, &scenario, "--json", json, "--html", html, "--markdown", markdown]).args(more);
        program
            .env("TIDEGATE", tidegate())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(child.wait().unwrap().success(), "{command}: {errors}");
        for path in &outputs {
            assert!(std::fs::metadata(path).unwrap().len() > 200, "{}", path.display());
        }
    }
}

#[test]
fn results_say_seed_commit_and_machine() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = file(&folder, "small.toml", SMALL);
    let version = bench(&["--version"]);
    let version = text(&version.stdout).trim().trim_start_matches("tidegate-bench ").to_owned();
    assert!(version.starts_with(env!("CARGO_PKG_VERSION")) && version.ends_with(')'), "{version}");
    for command in ["run", "compare"] {
        let outputs = ["json", "html", "md"].map(|name| folder.path().join(format!("{command}.{name}")));
        let [json, html, markdown] = outputs.each_ref().map(|path| path.to_str().unwrap());
        let mut arguments = vec![command, &scenario, "--seed", "4711", "--json", json, "--html", html];
        arguments.extend(["--markdown", markdown]);
        if command == "compare" {
            arguments.extend(["--with", "tidegate", "--runs", "1"]);
        }
        let output = bench(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        let run = if command == "run" { &found } else { &found["scenarios"][0]["brokers"][0]["runs"][0] };
        assert_eq!(run["seed"], 4711);
        assert_eq!(found["generator"], version.as_str());
        let machine = &found["machine"];
        assert!(machine["cores"].as_u64().unwrap() > 0 && machine["memory"].as_u64().unwrap() > 0);
        for path in [html, markdown] {
            let report = std::fs::read_to_string(path).unwrap().replace('\\', "");
            let system = machine["system"].as_str().unwrap();
            for words in ["4711", &version, system, "processor"] {
                assert!(report.contains(words), "{path}: {words}");
            }
        }
    }
}

#[test]
fn a_comparison_that_is_cut_short_or_outside_of_its_bands_fails_with_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let json = file(&folder, "out.json", "");
    let expect = format!("expect = {{ delivered = [1e6, 1e7] }}\n{SMALL}");
    // A broker that is restarted for good with nobody coming back: the patience ends before.
    let cut = SMALL.replace(
        "duration = 0.6",
        "duration = 20.0\npatience = 0.5\nconnect = { backoff = 60.0, backoff_max = 60.0 }",
    );
    let cut = format!("{cut}\n[[event]]\nat = 0.01\ndo = \"restart-broker\"\n");
    for (scenario, words) in [(&expect, "delivered is"), (&cut, "was cut short")] {
        let scenario = file(&folder, "small.toml", scenario);
        let output = bench(&["compare", &scenario, "--with", "tidegate", "--runs", "1", "--json", &json]);
        let error = text(&output.stderr);
        assert!(!output.status.success(), "{error}");
        let last = error.lines().last().unwrap();
        assert!(last.starts_with("error: small tidegate 1") && last.contains(words), "{error}");
        let result: Comparison = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(result.scenarios[0].brokers[0].runs.len(), 1, "the results were kept");
        assert!(error.lines().any(|line| line.contains("1 run: about")), "the estimate: {error}");
        assert!(error.lines().any(|line| line.starts_with("[1 of 1")), "the progress: {error}");
    }
}

#[test]
fn a_target_from_elsewhere_is_not_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!("{SMALL}\n[[event]]\nat = 0.5\ndo = \"restart-broker\"\n");
    let output = bench(&["run", &file(&folder, "small.toml", &scenario), "--target", "127.0.0.1:1"]);
    assert!(text(&output.stderr).contains("restarts the broker"), "{}", text(&output.stderr));
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

const STUDY: &str = r#"
    [reference]
    name = "elsewhere"
    about = "Made up."
    [reference.values]
    slow = { mean_instances = 1.5 }
    [variant.slow]
    about = "The consumer takes its time."
    consumers = [{ instances = 1, filter = "small/#", qos = 1, rate = 100.0 }]
    against = { base = { queue_wait_p99 = [1.0, 1e9] } }
    expect = { processed_share = [0.5, 1.5], mean_instances = [0.9, 1.1], "class.device.accepted" = [1, 1e9], lost = [0, 0] }
    [variant.never]
    about = "Not part of the study."
    expect = { delivered = [1e9, 1e10] }
"#;

#[test]
fn a_study_puts_the_variants_of_a_scenario_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = file(&folder, "small.toml", &format!("study = [\"base\", \"slow\"]\n{SMALL}{STUDY}"));
    let outputs = ["json", "html", "md"].map(|name| folder.path().join(format!("study.{name}")));
    let [json, html, markdown] = outputs.each_ref().map(|path| path.to_str().unwrap());
    let outputs = ["--json", json, "--html", html, "--markdown", markdown];
    let output = bench(&[&["study", &scenario, "--with", "rumqttd"][..], &outputs].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Comparison = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let [part] = &result.scenarios[..] else { panic!("{:?}", result.scenarios.len()) };
    let labels: Vec<String> = part.brokers.iter().map(|result| result.broker.label()).collect();
    assert_eq!(labels, ["base", "slow", "base (rumqttd)"]);
    let slow = &part.brokers[1];
    assert!(slow.measures["queue_wait_p99"].median > part.brokers[0].measures["queue_wait_p99"].median);
    assert!(slow.measures["processed_share"].median > 0.5 && slow.runs[0].totals.lost == 0);
    assert!(!part.brokers[0].measures.contains_key("processed_share"), "it takes all at once");
    for path in [html, markdown] {
        let report = std::fs::read_to_string(path).unwrap();
        assert!(report.contains("elsewhere: 1.5") && report.contains("Made up."), "{path}");
    }
    let table = text(&output.stdout);
    assert!(table.contains("(elsewhere: 1.5)") && table.contains("base (rumqttd)"), "{table}");

    let wanting = scenario.replace("small.toml", "wanting.toml");
    let bad = std::fs::read_to_string(&scenario).unwrap().replace("[0.9, 1.1]", "[7, 8]");
    std::fs::write(&wanting, bad).unwrap();
    let output = bench(&["study", &wanting, "--only", "slow"]);
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("mean_instances is"), "{error}");
    assert!(error.contains("slow is not held against base, which is not run"), "{error}");
    assert!(!error.contains("queue_wait_p99 of slow"), "{error}");
    let output = bench(&["study", &scenario, "--only", "never"]);
    assert!(text(&output.stderr).contains("one of base, slow"), "{}", text(&output.stderr));
}

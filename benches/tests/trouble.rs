//! Targets and files that are not as they should be: a clear error, and what was measured until then is kept.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Whim, gateway, moody, run_against};
use tidegate_bench::report::{run_html, run_markdown};
use tidegate_bench::scenario::{BUILT_IN, Scenario};

const SCENARIO: &str = r#"
    name = "trouble"
    duration = 30.0
    warmup = 0.0
    drain = 1.0
    interval = 0.1
    patience = 1.0
    connect = { timeout = 1.0 }
    [[class]]
    name = "device"
    devices = 3
    rate = 200.0
    qos = 1
    topic = "trouble/%i"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let result = run_against(address, SCENARIO).await;
    let error = result.error.unwrap();
    assert!(error.contains(&address.to_string()) && error.contains("refused"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_mqtt() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        }
    });
    let error = run_against(address, SCENARIO).await.error.unwrap();
    assert!(error.contains("cannot connect"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_closes_half_way() {
    let result = run_against(moody(Whim::Close, 200).await, SCENARIO).await;
    let error = result.error.as_ref().unwrap();
    assert!(error.contains("closed its connections"), "{error}");
    assert!(result.totals.accepted >= 150 && result.totals.disconnects > 0, "{:?}", result.totals);
    assert!(result.intervals.iter().map(|interval| interval.accepted).sum::<u64>() == result.totals.accepted);
    assert!(result.duration < 25.0, "it was cut short");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_takes_every_connection_and_closes_it() {
    let consumers = "[[consumers]]\ninstances = 1\nfilter = \"trouble/#\"\n";
    for (whim, qos, consumers) in [
        (Whim::HangUp, "qos = 1", ""),
        (Whim::HangUp, "qos = 0", ""),
        (Whim::HangUp, "qos = 1", consumers),
        (Whim::HangUpLater, "qos = 1", consumers),
        (Whim::HangUpLater, "qos = 0", ""),
    ] {
        let text = SCENARIO.replace("qos = 1", qos);
        let result = run_against(moody(whim, 0).await, &format!("{text}\n{consumers}")).await;
        let error = result.error.as_deref().unwrap_or("it was not cut short");
        assert!(error.contains("closed its connections"), "{whim:?}, {qos}: {error}");
        assert!(error.contains("the target closed the connection"), "{whim:?}, {qos}: {error}");
        let totals = &result.totals;
        assert!(totals.disconnects > 0 && totals.connects > 0, "what was seen is kept: {totals:?}");
        assert!(result.duration < 29.0 && totals.connects < 1000, "it is not attacked: {totals:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_connections() {
    let result = run_against(moody(Whim::Deny, 0).await, SCENARIO).await;
    let error = result.error.unwrap();
    let expected = "the target refused the connection with code 0x05 (not authorised)";
    assert!(error.contains("cannot connect to") && error.contains(expected), "{error}");
    assert_eq!(result.totals.connects, 0);
    // One that has second thoughts.
    let result = run_against(moody(Whim::Deny, 200).await, SCENARIO).await;
    let error = result.error.unwrap();
    assert!(error.contains(expected), "{error}");
    assert!(result.totals.accepted >= 150 && result.totals.failed_connects > 0, "{:?}", result.totals);
    assert!(!result.intervals.is_empty() && result.duration < 29.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_stops_reading_half_way() {
    for qos in ["qos = 1", "qos = 0\npayload = 10000"] {
        let text = SCENARIO.replace("qos = 1", qos);
        let result = run_against(moody(Whim::StopReading, 200).await, &text).await;
        let error = result.error.as_ref().unwrap();
        assert!(error.contains("takes and delivers nothing"), "{error}");
        assert!(result.totals.accepted >= 150, "{:?}", result.totals);
        assert!(!result.intervals.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_subscriptions_or_closes_at_once() {
    let consumers = "[[consumers]]\ninstances = 1\nfilter = \"trouble/#\"\n";
    for (whim, expected) in [
        (Whim::Refuse, "refused the subscription trouble/#"),
        (Whim::Hang, "nothing"),
        (Whim::GrantNothing, "answered the subscription trouble/# for QoS 0 with the codes []"),
    ] {
        let result = run_against(moody(whim, 0).await, &format!("{SCENARIO}\n{consumers}")).await;
        let error = result.error.unwrap();
        assert!(error.contains(expected), "{error}");
        assert!(result.totals.connects < 100, "it is not attacked: {:?}", result.totals);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_grants_less_than_was_asked_for() {
    let text = SCENARIO.replace("duration = 30.0", "duration = 0.3")
        + "[[consumers]]\ninstances = 2\nfilter = \"trouble/#\"\nqos = 1\n";
    let result = run_against(moody(Whim::GrantLess, 0).await, &text).await;
    let expected = "2 subscriptions were granted less than they asked for: trouble/# has QoS 0 instead of 1";
    assert!(result.notes.iter().any(|note| note.text == expected), "{:?}", result.notes);
    let result = run_against(moody(Whim::Close, u64::MAX).await, &text).await;
    assert!(!result.notes.iter().any(|note| note.text.contains("granted")), "{:?}", result.notes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_confirms_what_nobody_asked_for() {
    let text = SCENARIO.replace("duration = 30.0", "duration = 0.3")
        + "[[consumers]]\ninstances = 2\nfilter = \"trouble/#\"\n";
    let result = run_against(moody(Whim::Unsubscribe, 0).await, &text).await;
    assert_eq!(result.error, None);
    let seen: Vec<u32> = result.intervals.iter().map(|interval| interval.consumers).collect();
    assert!(seen.iter().all(|count| *count == 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_says_why_it_ends_connections() {
    let (address, used) = common::dismisser::dismisser(&[0x97, 0x8B, 0x97, 0x98, 0x97, 0x00]).await;
    let text = SCENARIO.replace("duration = 30.0", "version = \"5\"\nduration = 3.0");
    let result = run_against(address, &text).await;
    assert_eq!(result.error, None);
    let told: Vec<(u8, u64)> = result.farewells.iter().map(|one| (one.code, one.count)).collect();
    assert_eq!(told, used.lock().clone().into_iter().collect::<Vec<_>>());
    assert_eq!(told, [(0x00, 1), (0x8B, 1), (0x97, 3), (0x98, 1)]);
    assert_eq!(result.totals.disconnects, 6, "{:?}", result.totals);
    let quota = &result.farewells[2];
    assert_eq!((quota.meaning.as_str(), quota.words.as_str()), ("quota exceeded", "no"));
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["farewells"][2]["count"], 3);
    assert!(
        result.notes.iter().any(|note| note.text.contains("6 connections were lost")),
        "{:?}",
        result.notes
    );
    let words = "1 with 0x00 no reason given, 1 with 0x8b shutting down, 3 with 0x97 quota exceeded, \
                 1 with 0x98 ended by its operator";
    for report in [run_markdown(&result), run_html(&result)] {
        assert!(
            report.contains(&format!("6 connections broken (the broker's reasons: {words})"))
                || report.contains(&format!("6 connections broken (the broker&#39;s reasons: {words})")),
            "{report}"
        );
        assert!(report.contains("Connections ended by the broker"), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_stops_half_way() {
    let text = format!(
        "{SCENARIO}\n[[consumers]]\ninstances = 1\nfilter = \"trouble/#\"\n[relay]\nside = \"both\"\n\
         [[event]]\nat = 0.02\ndo = \"stop-relay\"\n"
    );
    let result = run_against(gateway().await, &text).await;
    assert!(result.error.as_ref().unwrap().contains("takes and delivers nothing"), "{:?}", result.error);
    assert!(result.totals.delivered > 0 && result.latency.count > 0);
}

#[test]
fn every_scenario_that_comes_with_the_program_loads_with_its_variants() {
    for (name, text) in BUILT_IN {
        let loaded = Scenario::load(name).unwrap();
        assert_eq!(loaded.scenario.name, name, "file and name are the same");
        assert_eq!(loaded.text, text);
        assert!(!loaded.scenario.about.is_empty());
        for variant in loaded.scenario.variants.keys() {
            let varied = Scenario::load(&format!("{name}@{variant}")).unwrap();
            assert_eq!(varied.scenario.name, format!("{name}@{variant}"));
            assert_ne!(varied.scenario.about, loaded.scenario.about, "a variant says what it shows");
        }
    }
}

#[test]
fn every_file_in_the_folder_comes_with_the_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(BUILT_IN.iter().any(|(known, _)| *known == name), "{name}");
        assert_eq!(
            Scenario::load(path.to_str().unwrap()).unwrap().scenario,
            Scenario::load(name).unwrap().scenario
        );
    }
}

#[test]
fn mistakes_in_a_file_are_named_with_file_key_and_value() {
    let good = BUILT_IN[0].1;
    for (from, to, expected) in [
        ("duration = 5.0", "duration = 5.0\nduratoin = 6.0", &["duratoin", "unknown field"][..]),
        ("duration = 5.0", "duration = -5.0", &["duration", "-5"]),
        ("duration = 5.0", "duration = \"long\"", &["duration", "long"]),
        ("qos = 1\ntopic", "qos = 3\ntopic", &["qos", "3", "sensor"]),
        ("topic = \"fan-in/%i\"", "topic = \"fan-in/+\"", &["topic", "fan-in/+"]),
        ("rate = 100.0", "rate = nan", &["rate", "NaN"]),
        ("rate = 100.0", "payload = 3", &["payload", "3", "24"]),
        ("drain = 5.0", "workload = { pattern = \"camel\" }", &["camel", "case-study"]),
        ("drain = 5.0", "expect = { speed = [0.0, 1.0] }", &["expect.speed", "delivered"]),
        ("drain = 5.0", "version = \"4\"", &["version", "4"]),
        ("drain = 5.0", "event = [{ at = 0.5, do = \"dance\" }]", &["dance", "drop-devices"]),
        ("drain = 5.0", "variant = { x = { dration = 1.0 } }", &["variant.x", "dration"]),
        ("devices = 200", "devices = 900000", &["900000"]),
    ] {
        assert!(good.contains(from), "{from}");
        let error = Scenario::parse("mine.toml", &good.replacen(from, to, 1), None).unwrap_err().to_string();
        for part in expected.iter().chain(&["mine.toml"]) {
            assert!(error.contains(part), "{to}: {part:?} is missing in {error}");
        }
    }
    assert!(Scenario::load("no-such").unwrap_err().to_string().contains("fan-in"));
    assert!(Scenario::load("no/such.toml").unwrap_err().to_string().contains("no/such.toml"));
    assert!(Scenario::load("flood@nothing").unwrap_err().to_string().contains("qos0"));
}

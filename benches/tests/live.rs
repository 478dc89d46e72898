//! Parts of a scenario that need a real broker: restarts, sessions that outlive connections, the auto-scaler.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{build_tidegate, gateway, run_against, scenario};
use tidegate_bench::peers::Kind;
use tidegate_bench::record::NoteKind;
use tidegate_bench::run::run;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_restarted_is_found_again() {
    build_tidegate();
    let text = r#"
        name = "restart"
        duration = 4.0
        warmup = 0.2
        drain = 5.0
        interval = 0.1
        patience = 30.0
        event = [{ at = 0.25, do = "restart-broker" }]
        [[class]]
        name = "device"
        devices = 4
        rate = 50.0
        qos = 1
        topic = "restart/%i"
        [[consumers]]
        instances = 2
        filter = "restart/#"
        qos = 1
    "#;
    let loaded = scenario(text);
    let mut target = Kind::Tidegate.start(&loaded.scenario).await.unwrap();
    let before = target.pid;
    let result = run(&loaded, &mut target, 1).await;
    let after = target.pid;
    target.peer.unwrap().stop().await;
    assert_eq!(result.error, None);
    assert!(before.is_some() && after.is_some() && before != after, "{before:?} {after:?}");
    let totals = &result.totals;
    assert!(totals.disconnects >= 6 && totals.connects >= 12, "all were lost and came back: {totals:?}");
    let late: u64 = result.intervals.iter().filter(|i| i.t > 3.0).map(|i| i.delivered).sum();
    assert!(late > 0, "it goes on afterwards: {totals:?}");
    assert_eq!((totals.duplicates, totals.unsent), (0, 0), "{totals:?}");
    // Time and memory are those of both processes: what the whole used is what its intervals used.
    let (used, end) = (result.broker_use.unwrap(), result.duration + 1e-6);
    let measured = || result.intervals.iter().filter(|one| one.t - one.length > -1e-6 && one.t <= end);
    let summed: f64 = measured().map(|one| one.broker_cpu.unwrap() * one.length).sum();
    assert!((summed - used.cpu * result.duration).abs() < 1e-3, "{summed} {used:?} {}", result.duration);
    assert!(summed > 0.0 && used.rss > 1_000_000, "{summed} {used:?}");
    assert!(
        measured().filter(|one| one.t > 3.0).all(|one| one.broker_rss.is_some_and(|rss| rss > 1_000_000))
    );
    assert!(
        result.notes.iter().any(|note| note.text.contains("not there all the time")),
        "{:?}",
        result.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_was_there_before_is_not_restarted() {
    let text = "name = \"x\"\nduration = 0.5\nwarmup = 0.0\nevent = [{ at = 0.1, do = \"restart-broker\" }]\n\
                class = [{ name = \"d\", devices = 1, rate = 50.0, topic = \"x\" }]";
    let error = run_against(gateway().await, text).await.error.unwrap();
    assert!(error.contains("not started here"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_outlives_its_connection_misses_nothing() {
    let address = gateway().await;
    for (version, qos) in [("3.1.1", 1), ("5", 1), ("5", 2)] {
        let text = format!(
            r#"
            name = "persistent"
            duration = 2.0
            warmup = 0.2
            interval = 0.05
            version = "{version}"
            connect = {{ backoff = 0.4 }}
            [[event]]
            at = 0.2
            do = "drop-consumers"
            [[event]]
            at = 0.6
            do = "drop-consumers"
            [[class]]
            name = "device"
            devices = 4
            rate = 100.0
            qos = {qos}
            topic = "persistent/%i"
            [[consumers]]
            name = "keeper-{qos}-{version}-"
            instances = 2
            filter = "persistent/#"
            qos = {qos}
            persistent = true
            "#
        );
        let result = run_against(address, &text).await;
        let totals = &result.totals;
        assert_eq!(result.error, None);
        assert_eq!(totals.connects, 4 + 2 * 3, "each consumer came back twice: {totals:?}");
        assert!(result.intervals.iter().any(|i| i.t > 0.0 && i.consumers < 2), "they were away for a while");
        assert_eq!((totals.lost, totals.duplicates), (0, 0), "{version}, qos {qos}: {totals:?}");
        assert_eq!(totals.expected, 2 * totals.accepted, "nothing is forgiven: {totals:?}");
        assert!(result.latency.max > 20.0, "what waited for them is late: {:?}", result.latency);
    }
}

/// The answer of an admin endpoint.
async fn ask(admin: &str, path: &str) -> serde_json::Value {
    let mut stream = tokio::net::TcpStream::connect(admin).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let json = answer.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(json).unwrap()
}

/// Four hundred messages a second for consumers that process a hundred each.
fn scaled(admin: &str, plugins: &str) -> String {
    format!(
        r#"
        name = "scaled"
        duration = 4.0
        warmup = 0.2
        drain = 10.0
        interval = 0.1
        admin = "{admin}"
        broker.tidegate = ["admin.listen={admin}", "plugins={plugins}", "autoscale.coupling=state-aware"]
        autoscale = {{ min = 1, upper = 20, interval = 0.5, start_delay = 0.1, coupling = "state-aware" }}
        [[class]]
        name = "device"
        devices = 4
        rate = 100.0
        qos = 1
        topic = "scaled/%i"
        [[consumers]]
        instances = 3
        group = "workers"
        filter = "scaled/#"
        qos = 1
        rate = 100.0
        "#
    )
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_auto_scaler_starts_consumers_and_tells_the_gateway() {
    build_tidegate();
    let admin = free_address();
    let loaded = scenario(&scaled(&admin, r#"[\"access\",\"overload\",\"autoscale\"]"#));
    let mut target = Kind::Tidegate.start(&loaded.scenario).await.unwrap();
    let result = run(&loaded, &mut target, 1).await;
    let said = ask(&admin, "/api/v1/scale?queue=workers:scaled/%23").await;
    target.peer.unwrap().stop().await;
    assert_eq!(result.error, None);
    let seen: Vec<u32> = result.intervals.iter().map(|interval| interval.consumers).collect();
    assert_eq!((seen.first(), seen.iter().max()), (Some(&1), Some(&3)), "{seen:?}");
    assert_eq!((result.totals.lost, result.totals.duplicates), (0, 0), "{:?}", result.totals);
    let state = (&said["instances"], &said["max"], &said["saturated"]);
    assert_eq!(state, (&3.into(), &3.into(), &true.into()), "{said}");
    assert!(!result.notes.iter().any(|note| note.text.contains("auto-scaler")), "{:?}", result.notes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_endpoint_that_does_not_listen_is_noted() {
    let text = scaled(&free_address(), "[]").replace("duration = 4.0", "duration = 1.0");
    let result = run_against(gateway().await, &text).await;
    assert_eq!(result.error, None);
    let told = |note: &&tidegate_bench::record::Note| note.text.contains("the auto-scaler could not tell");
    let note = result.notes.iter().find(told).unwrap_or_else(|| panic!("{:?}", result.notes));
    assert!(note.kind == NoteKind::Check && note.text.contains("refused"), "{note:?}");
}

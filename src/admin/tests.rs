#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate_plugin::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server::Limits;
use super::*;
use crate::config::AdminSettings;

fn settings() -> AdminSettings {
    AdminSettings { listen: vec!["127.0.0.1:0".parse().unwrap()] }
}

/// Starts an admin endpoint whose metrics are its own, refreshed by adding one to a counter.
fn start(limits: Limits) -> (SocketAddr, Ready) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (metrics, ready) = (recorder.handle(), Ready::default());
    let refresh: Refresh = Arc::new(move || {
        metrics::with_local_recorder(&recorder, || metrics::counter!("scrapes_total").increment(1));
    });
    let ask: Ask = Arc::new(|request: &Request<'_>| {
        let known = request.path == "echo";
        known.then(|| Response::ok(format!("[{:?},{}]", request.query, request.body.len())))
    });
    let admin = Admin::bind(&settings(), routes(metrics, refresh, ask, ready.clone())).unwrap();
    let address = admin.local_addresses()[0];
    tokio::spawn(admin.with_limits(limits).run(std::future::pending()));
    (address, ready)
}

async fn send(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    finish(client).await
}

/// All that comes until the server closes.
async fn finish(mut client: TcpStream) -> String {
    let mut answer = String::new();
    let reading = client.read_to_string(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("not closed within 30 s");
    if let Err(error) = read {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    answer
}

async fn get(address: SocketAddr, path: &str) -> String {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await
}

#[tokio::test]
async fn metrics_are_refreshed_and_rendered() {
    let (address, _) = start(Limits::default());
    let answer = get(address, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("scrapes_total 1\n"), "{answer}");
    assert!(get(address, "/metrics").await.contains("scrapes_total 2\n"));
}

#[tokio::test]
async fn health_is_always_good_and_readiness_follows_its_handle() {
    let (address, ready) = start(Limits::default());
    let health = get(address, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with("\r\n\r\nok\n"), "{health}");
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503 "));
    ready.set(true);
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200 "));
    ready.set(false);
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503 "));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn plugins_answer_under_api() {
    let (address, _) = start(Limits::default());
    let answer = get(address, "/api/v1/echo?queue=a").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: application/json"), "{answer}");
    assert!(answer.ends_with("[\"queue=a\",0]"), "{answer}");
    let post = "POST /api/v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
    assert!(send(address, post).await.ends_with("[\"\",3]"));
    assert!(get(address, "/api/v1/nobody").await.starts_with("HTTP/1.1 404 "));
    let large = format!(
        "POST /api/v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n{}",
        "x".repeat(70_000)
    );
    assert!(send(address, &large).await.starts_with("HTTP/1.1 413 "));
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let (address, _) = start(Limits::default());
    assert!(get(address, "/").await.starts_with("HTTP/1.1 404 "));
    assert!(get(address, "/metrics/x").await.starts_with("HTTP/1.1 404 "));
    let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    assert!(send(address, post).await.starts_with("HTTP/1.1 405 "));
    let head = send(address, "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn hostile_requests_are_refused() {
    let (address, _) = start(Limits::default());
    assert!(send(address, "\x10\x0c\x00\x04MQTT\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    let endless = format!("GET / HTTP/1.1\r\nx: {}\r\n", "y".repeat(1_000_000));
    let mut client = TcpStream::connect(address).await.unwrap();
    let _ = client.write_all(endless.as_bytes()).await;
    finish(client).await;
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn slow_clients_cannot_stay_and_others_come_in() {
    let limits = Limits { head: Duration::from_millis(100), connections: 2, ..Limits::default() };
    let (address, _) = start(limits);
    let silent = TcpStream::connect(address).await.unwrap();
    let mut stuck = TcpStream::connect(address).await.unwrap();
    stuck.write_all(b"GET /healthz HTTP/1.1\r\nHost").await.unwrap();
    let third = tokio::spawn(async move { get(address, "/healthz").await });
    assert_eq!(finish(silent).await, "");
    finish(stuck).await;
    assert!(third.await.unwrap().starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn no_connection_lasts() {
    let never = axum::routing::get(async || std::future::pending::<()>().await);
    let admin = Admin::bind(&settings(), axum::Router::new().route("/never", never)).unwrap();
    let address = admin.local_addresses()[0];
    let limits = Limits { connection: Duration::from_millis(100), ..Limits::default() };
    tokio::spawn(admin.with_limits(limits).run(std::future::pending()));
    assert_eq!(get(address, "/never").await, "");
}

#[tokio::test]
async fn an_address_in_use_says_what_to_do() {
    let (address, _) = start(Limits::default());
    let taken = AdminSettings { listen: vec![address] };
    let error = Admin::bind(&taken, axum::Router::new()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} (`admin.listen`)")), "{error}");
}

#[tokio::test]
async fn no_address_is_no_endpoint() {
    let admin = Admin::bind(&AdminSettings { listen: Vec::new() }, axum::Router::new()).unwrap();
    assert!(admin.local_addresses().is_empty());
    admin.run(async {}).await;
}

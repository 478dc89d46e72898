//! Clients that people use, against the real server: mosquitto_pub and mosquitto_sub, paho-mqtt, mqtt.js,
//! rumqttc; over TCP, TLS, WebSocket and secure WebSocket.
//!
//! `./test` installs them. A client that is missing fails its tests with the command that installs it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod certificates;
mod mosquitto;
mod mosquitto_tls;
mod peers;
mod rumqttc_v4;
mod rumqttc_v5;
mod scripts;

use std::sync::OnceLock;

use certificates::Certificates;
use common::server::{Server, Setup};

/// The server that all tests of this binary share, with TLS.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let certificates = certificates();
        let tls = Some((certificates.server.clone(), certificates.server_key.clone()));
        // Mosquitto breaks 3.1.1 connections that have more messages in flight than this.
        let mosquitto = "max_inflight_messages 0\n";
        Server::start("clients", &Setup { tls, mosquitto, ..Setup::default() })
    })
}

/// Certificates made for this run.
fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| Certificates::make("shared"))
}

//! paho-mqtt (Python) and mqtt.js (Node), each driven by a script that checks what it gets.

use std::path::Path;
use std::process::Command;

use crate::common::unique;
use crate::peers::{installed, program, run};
use crate::{certificates, server};

const PIP: &str = "python3 -m venv target/peers/venv && target/peers/venv/bin/pip install paho-mqtt==2.1.0";
const NPM: &str = "npm install --prefix target/peers/node mqtt@5.16.0";

/// Runs `paho_client.py` over a transport (`tcp` or `websockets`), perhaps with TLS.
fn paho(transport: &str, port: u16, tls: bool) {
    for version in ["3.1.1", "5"] {
        let mut command = Command::new(installed("venv/bin/python", PIP));
        command.arg(script("paho_client.py"));
        command.args([&port.to_string(), transport, version, &unique("paho")]);
        if tls {
            command.arg(&certificates().authority);
        }
        let text = run(&mut command);
        assert!(text.ends_with("all checks passed\n"), "{text}");
    }
}

/// Runs `mqttjs_client.cjs` with a URL.
fn mqttjs(scheme: &str, port: u16) {
    let module = installed("node/node_modules/mqtt/package.json", NPM);
    let modules = module.parent().and_then(Path::parent).expect("node_modules").to_owned();
    for version in ["4", "5"] {
        let mut command = Command::new(program("node", "nodejs"));
        command.env("NODE_PATH", &modules).env("NODE_EXTRA_CA_CERTS", &certificates().authority);
        command.arg(script("mqttjs_client.cjs"));
        let path = if scheme.starts_with("ws") { "/mqtt" } else { "" };
        command.args([&format!("{scheme}://127.0.0.1:{port}{path}"), version, &unique("mqttjs")]);
        let text = run(&mut command);
        assert!(text.ends_with("all checks passed\n"), "{text}");
    }
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

#[test]
fn paho_over_tcp() {
    paho("tcp", server().mqtt.port(), false);
}

#[test]
fn paho_over_tls() {
    paho("tcp", server().mqtts.port(), true);
}

#[test]
fn paho_over_websocket() {
    paho("websockets", server().ws.port(), false);
}

#[test]
fn paho_over_secure_websocket() {
    paho("websockets", server().wss.port(), true);
}

#[test]
fn mqttjs_over_websocket() {
    mqttjs("ws", server().ws.port());
}

#[test]
fn mqttjs_over_secure_websocket() {
    mqttjs("wss", server().wss.port());
}

#[test]
fn mqttjs_over_tcp() {
    mqttjs("mqtt", server().mqtt.port());
}

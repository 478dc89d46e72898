//! mosquitto_pub and mosquitto_sub over TLS.

use std::process::Command;

use crate::certificates::Certificates;
use crate::common::server::{Server, Setup};
use crate::common::unique;
use crate::mosquitto::start;
use crate::peers::{program, run, run_any};
use crate::{certificates, server};

fn tls(program_name: &str, version: &str, server: &Server, certificates: &Certificates) -> Command {
    let mut command = Command::new("stdbuf");
    command.args(["-oL", &program(program_name, "mosquitto-clients"), "-V", version]);
    command.args(["-h", "127.0.0.1", "-p", &server.mqtts.port().to_string()]);
    command.arg("--cafile").arg(&certificates.authority);
    command
}

fn publisher(version: &str) -> Command {
    tls("mosquitto_pub", version, server(), certificates())
}

/// Messages of every QoS through TLS.
#[test]
fn messages_over_tls() {
    for version in ["mqttv311", "mqttv5"] {
        let topic = unique("tls/");
        let mut command = tls("mosquitto_sub", version, server(), certificates());
        let mut subscriber = start(command.args(["-d", "-F", "MSG %q %p", "-t", &topic, "-q", "2"]));
        for qos in ["0", "1", "2"] {
            run(publisher(version).args(["-t", &topic, "-q", qos, "-m", "secret"]));
            assert_eq!(subscriber.line("MSG "), format!("{qos} secret"));
        }
    }
}

/// A client that trusts another authority does not talk to us.
#[test]
fn unknown_authority() {
    let stranger = Certificates::make("stranger");
    let mut command = tls("mosquitto_pub", "mqttv5", server(), &stranger);
    let (success, text) = run_any(command.args(["-t", "never", "-m", "x"]));
    assert!(!success, "published to a server it does not trust: {text}");
}

/// Clear text on the TLS port gets nowhere, and the port serves on.
#[test]
fn clear_text_on_the_tls_port() {
    let mut command = Command::new(program("mosquitto_pub", "mosquitto-clients"));
    command.args(["-h", "127.0.0.1", "-p", &server().mqtts.port().to_string(), "-t", "never", "-m", "x"]);
    assert!(!run_any(&mut command).0, "published in clear text on the TLS port");
    run(publisher("mqttv5").args(["-t", &unique("tls/"), "-q", "1", "-m", "x"]));
}

/// Where client certificates are required, a client gets in with one and not without.
#[test]
fn client_certificates() {
    let certificates = certificates();
    let setup = Setup {
        tls: Some((certificates.server.clone(), certificates.server_key.clone())),
        settings: vec![
            ("tls.client_ca", certificates.authority.display().to_string()),
            ("tls.require_client_certificate", "true".into()),
        ],
        ..Setup::default()
    };
    let server = Server::start("client-certificates", &setup);
    let publisher = || {
        let mut command = tls("mosquitto_pub", "mqttv5", &server, certificates);
        command.args(["-t", "certificates", "-q", "1", "-m", "x"]);
        command
    };
    assert!(!run_any(&mut publisher()).0, "published without a certificate");
    let mut with = publisher();
    with.arg("--cert").arg(&certificates.client).arg("--key").arg(&certificates.client_key);
    run(&mut with);
}

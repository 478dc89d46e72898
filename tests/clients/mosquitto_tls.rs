//! mosquitto_pub and mosquitto_sub over TLS.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::certificates::Certificates;
use crate::common::server::{Server, Setup};
use crate::common::{PATIENCE, unique};
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

/// SIGHUP reads the certificate again: new connections get the new one, those that are open go on.
#[test]
fn certificates_are_reloaded() {
    let (old, new) = (Certificates::make("before"), Certificates::make("after"));
    let files = Certificates::make("served");
    let serve = |certificates: &Certificates| {
        std::fs::copy(&certificates.server, &files.server).expect("a copy");
        std::fs::copy(&certificates.server_key, &files.server_key).expect("a copy");
    };
    serve(&old);
    let tls_files = Some((files.server.clone(), files.server_key.clone()));
    let server = Server::start("certificates-reload", &Setup { tls: tls_files, ..Setup::default() });
    let published = |trusted: &Certificates| {
        let mut command = tls("mosquitto_pub", "mqttv5", &server, trusted);
        run_any(command.args(["-t", "reload", "-q", "1", "-m", "x"])).0
    };
    let mut command = tls("mosquitto_sub", "mqttv5", &server, &old);
    let mut subscriber = start(command.args(["-d", "-F", "MSG %p", "-t", "reload", "-q", "1"]));
    assert!(published(&old) && !published(&new));
    assert_eq!(subscriber.line("MSG "), "x");
    // a certificate without its key is refused, and the old ones stay
    std::fs::copy(&new.server, &files.server).expect("a copy");
    server.signal("HUP");
    wait_for_line(&server, "not read again");
    assert!(published(&old) && !published(&new));
    serve(&new);
    server.signal("HUP");
    wait_for_line(&server, "were read again");
    assert!(published(&new) && !published(&old));
    // one before the mistake, one after it, one with the new certificate
    for _ in 0..2 {
        assert_eq!(subscriber.line("MSG "), "x");
    }
}

fn wait_for_line(server: &Server, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&server.log).is_ok_and(|text| text.contains(words)) {
        assert!(Instant::now() < deadline, "the log never says `{words}`");
        std::thread::sleep(Duration::from_millis(10));
    }
}

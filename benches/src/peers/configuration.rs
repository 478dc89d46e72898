//! Configurations that let each broker show what it can: no queue is cut, nothing is written to a disk that need not be.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::{Kind, certificate, free_port, rumqttd};
use crate::codec::Version;
use crate::scenario::{CouplingName, Scenario};
use crate::transport::Kind as Transport;

/// What a broker is started with.
pub(super) struct Prepared {
    /// Command line.
    pub(super) arguments: Vec<String>,
    /// For people.
    pub(super) text: String,
    /// Who signs its certificate.
    pub(super) authorities: Option<Vec<u8>>,
    /// Its admin endpoint, if it has one.
    pub(super) admin: Option<SocketAddr>,
}

/// What a broker lacks for a scenario, if anything.
pub(super) fn unable(kind: Kind, scenario: &Scenario) -> Option<String> {
    let versions: Vec<Version> = versions(scenario).collect();
    let qos2 = scenario.classes.iter().any(|class| class.qos == 2)
        || scenario.consumers.iter().any(|one| one.qos == 2);
    let groups = scenario.consumers.iter().any(|consumers| consumers.group.is_some());
    let plain = scenario.transport == Transport::Tcp;
    let reason = match kind {
        Kind::Tidegate | Kind::BeforeMosquitto | Kind::Mosquitto => return None,
        Kind::Nats if versions.contains(&Version::V5) => "it speaks MQTT 3.1.1 only",
        Kind::Nats if groups => "it has no shared subscriptions for MQTT clients",
        Kind::Nats if qos2 => "it has no QoS 2 (before 2.10)",
        Kind::Rumqttd if versions.iter().any(|version| *version != versions[0]) => {
            "it needs a port for each MQTT version"
        }
        Kind::Nats | Kind::Rumqttd if !plain => "it is started for plain TCP only",
        Kind::Nats | Kind::Rumqttd => return None,
    };
    Some(reason.to_owned())
}

/// Writes the configuration into the folder; `upstream` is the broker behind a proxy.
pub(super) fn prepare(
    kind: Kind,
    scenario: &Scenario,
    folder: &Path,
    port: u16,
    upstream: Option<SocketAddr>,
) -> io::Result<Prepared> {
    let mut authorities = None;
    if scenario.transport.is_secure() {
        authorities = Some(certificate::write(folder)?);
    }
    let admin = if kind.is_gateway() { admin_of(scenario)? } else { None };
    let file = folder.join("broker.conf");
    let name = file.display().to_string();
    let strings =
        |arguments: &[&str]| arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
    let (text, arguments) = match kind {
        Kind::Tidegate | Kind::BeforeMosquitto => {
            let mut arguments = strings(&["serve", "--config", &name]);
            for setting in &scenario.broker.tidegate {
                arguments.extend(strings(&["--set", setting]));
            }
            (proxy(upstream) + &tidegate(scenario, port, admin), arguments)
        }
        Kind::Mosquitto => (mosquitto(scenario, port), strings(&["-c", &name])),
        Kind::Nats => (nats(folder, port, free_port()?), strings(&["-c", &name])),
        Kind::Rumqttd => {
            let v5 = versions(scenario).next() == Some(Version::V5);
            (rumqttd::configuration(port, v5), strings(&["rumqttd", "--config", &name]))
        }
    };
    std::fs::write(&file, &text)?;
    let folder = folder.display().to_string();
    let settings: Vec<String> =
        scenario.broker.tidegate.iter().map(|setting| format!("# --set {setting}\n")).collect();
    let settings = if kind.is_gateway() { settings.concat() } else { String::new() };
    Ok(Prepared { arguments, text: (text + &settings).replace(&folder, "."), authorities, admin })
}

/// Where the gateway is to hear of the auto-scaler, if there is one that works together with it.
fn admin_of(scenario: &Scenario) -> io::Result<Option<SocketAddr>> {
    let coupled = scenario.autoscale.is_some_and(|settings| settings.coupling != CouplingName::Apart);
    match scenario.admin {
        None if coupled => Ok(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))),
        admin => Ok(admin),
    }
}

fn versions(scenario: &Scenario) -> impl Iterator<Item = Version> {
    let devices = scenario.classes.iter().map(|class| class.version);
    let consumers = scenario.consumers.iter().map(|consumers| consumers.version);
    devices.chain(consumers).map(|version| version.unwrap_or(scenario.version))
}

fn tidegate(scenario: &Scenario, port: u16, admin: Option<SocketAddr>) -> String {
    let listener = match scenario.transport {
        Transport::Tcp => "mqtt",
        Transport::Tls => "mqtts",
        Transport::Ws => "ws",
        Transport::Wss => "wss",
    };
    let mqtt = if listener == "mqtt" { "" } else { "mqtt = []\n" };
    let admin = admin.map_or("[]".to_owned(), |admin| format!("\"{admin}\""));
    let mut text = format!(
        "[listen]\n{mqtt}{listener} = \"127.0.0.1:{port}\"\n\n[admin]\nlisten = {admin}\n\n[log]\nlevel = \"warn\"\n"
    );
    if scenario.transport.is_secure() {
        text += "\n[tls]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n";
    }
    text
}

/// What makes the gateway a proxy before a Mosquitto, whose configuration is shown with it.
fn proxy(upstream: Option<SocketAddr>) -> String {
    let Some(upstream) = upstream else { return String::new() };
    let shown: Vec<String> = behind(upstream.port()).lines().map(|line| format!("# {line}\n")).collect();
    format!(
        "# the Mosquitto behind it keeps 1,000 messages for a consumer and 20 in flight, as it does unless told otherwise\n\
         {}mode = \"proxy\"\n\n[proxy]\nupstream = \"{upstream}\"\nqueue_limit = 1020\n\n",
        shown.concat()
    )
}

/// The Mosquitto behind a proxy, with its own limits of what waits.
pub(super) fn behind(port: u16) -> String {
    let mut text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\npersistence false\n\
         log_type error\nlog_type warning\n"
    );
    if rustix::process::geteuid().is_root() {
        text += "user root\n";
    }
    text
}

fn mosquitto(scenario: &Scenario, port: u16) -> String {
    let mut text = format!(
        "listener {port} 127.0.0.1\n\
         allow_anonymous true\n\
         set_tcp_nodelay true\n\
         # no limit of what waits, as many messages in flight to each consumer as MQTT allows\n\
         max_queued_messages 0\n\
         max_queued_bytes 0\n\
         max_inflight_messages 0\n\
         max_inflight_bytes 0\n\
         persistence false\n\
         log_type error\n\
         log_type warning\n"
    );
    if rustix::process::geteuid().is_root() {
        text += "user root\n";
    }
    if matches!(scenario.transport, Transport::Ws | Transport::Wss) {
        text += "protocol websockets\n";
    }
    if scenario.transport.is_secure() {
        text += "certfile certificate.pem\nkeyfile key.pem\n";
    }
    text
}

/// As much as any scenario here lets wait; the broker takes it only as it is needed.
const NATS_PENDING: u64 = 8 << 30;

fn nats(folder: &Path, port: u16, client_port: u16) -> String {
    format!(
        "server_name: bench\n\
         listen: \"127.0.0.1:{client_port}\"\n\
         max_connections: 200000\n\
         # what may wait for a connection that is slow to read, in bytes (64 MB unless said), and how long a write may\n\
         # take (10 s unless said): beyond either it would be cut off\n\
         max_pending: {NATS_PENDING}\n\
         write_deadline: \"120s\"\n\
         jetstream {{ store_dir: \"{}/jetstream\" }}\n\
         mqtt {{\n  listen: \"127.0.0.1:{port}\"\n  # in flight to a consumer; all filters of a client together may have 65535\n  max_ack_pending: 10000\n}}\n",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    /// The configuration that is printed for a kind.
    fn printed(kind: Kind) -> String {
        let folder = tempfile::tempdir().unwrap();
        let scenario = Scenario::load("flood").unwrap().scenario;
        let prepared = prepare(kind, &scenario, folder.path(), 1883, None).unwrap();
        let written = std::fs::read_to_string(folder.path().join("broker.conf")).unwrap();
        let shown = written.replace(&folder.path().display().to_string(), ".");
        assert_eq!(prepared.text, shown, "what is printed is what is used");
        shown
    }

    #[test]
    fn no_queue_of_a_peer_is_cut_and_what_can_not_be_lifted_is_said() {
        for (kind, words) in [
            (Kind::Mosquitto, &["max_queued_messages 0", "max_queued_bytes 0", "max_inflight_messages "][..]),
            (Kind::Nats, &["max_pending: 8589934592", "write_deadline: \"120s\"", "max_ack_pending: 10000"]),
            (Kind::Rumqttd, &["compiled in: at most 100 messages in flight", "max_segment_size = 104857600"]),
        ] {
            let text = printed(kind);
            assert!(words.iter().all(|words| text.contains(words)), "{text}");
        }
    }

    #[test]
    fn settings_of_the_gateway_are_printed() {
        let folder = tempfile::tempdir().unwrap();
        let mut scenario = Scenario::load("flood").unwrap().scenario;
        scenario.broker.tidegate = vec!["session.max_inflight=7".to_owned()];
        let prepared = prepare(Kind::Tidegate, &scenario, folder.path(), 1883, None).unwrap();
        assert!(prepared.text.contains("# --set session.max_inflight=7"), "{}", prepared.text);
        assert!(prepared.arguments.contains(&"session.max_inflight=7".to_owned()));
    }

    #[test]
    fn a_proxy_shows_the_broker_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let scenario = Scenario::load("flood").unwrap().scenario;
        let upstream = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 1884)));
        let prepared = prepare(Kind::BeforeMosquitto, &scenario, folder.path(), 1883, upstream).unwrap();
        for words in [
            "# listener 1884 127.0.0.1",
            "mode = \"proxy\"",
            "upstream = \"127.0.0.1:1884\"",
            "# --set plugins",
        ] {
            assert!(prepared.text.contains(words), "{}", prepared.text);
        }
    }
}

//! Values that parse but cannot be.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use figment::Figment;

use super::error::Problem;
use super::{
    AutoscaleSettings, CheckSettings, GateSettings, ListenSettings, Mode, Settings, explain, host_and_port,
    keys, load,
};

/// The largest packet that MQTT's four length bytes can announce.
const LARGEST_PACKET: u64 = 268_435_460;

/// The specification obliges a server to accept client identifiers of this length ([MQTT-3.1.3-5]).
const SHORTEST_CLIENT_ID_LIMIT: u64 = 23;

/// The plugins that there are.
const PLUGINS: [&str; 5] = ["access", "autoscale", "check", "gate", "overload"];

/// Names every value that cannot be.
pub(super) fn check(figment: &Figment, settings: &Settings) -> Vec<Problem> {
    let mut checks = Checks { figment, problems: Vec::new() };
    checks.numbers(settings);
    checks.listeners(settings);
    checks.proxy(settings);
    checks.tls(settings);
    checks.plugins(settings);
    checks.access(settings);
    checks.gate(&settings.gate);
    checks.active_checks(&settings.check, settings.session.max_packet_size);
    checks.autoscale(&settings.autoscale);
    checks.files(settings);
    checks.holds(settings);
    checks.overload(settings);
    checks.sources(settings);
    checks.log(settings);
    checks.problems
}

struct Checks<'a> {
    figment: &'a Figment,
    problems: Vec<Problem>,
}

impl Checks<'_> {
    fn refuse(&mut self, key: &str, reason: impl Into<String>) {
        self.problems.push(explain::problem(self.figment, key, reason));
    }

    fn refuse_if(&mut self, wrong: bool, key: &str, reason: &str) {
        if wrong {
            self.refuse(key, reason);
        }
    }

    fn within(&mut self, key: &str, value: u64, least: u64, most: u64) {
        if value < least {
            self.refuse(key, format!("must be at least {least}"));
        } else if value > most {
            self.refuse(key, format!("must be at most {most}"));
        }
    }

    /// As `within`, for numbers that need not be whole; NaN is in no range.
    fn between(&mut self, key: &str, value: f64, least: f64, most: f64) {
        self.refuse_if(
            !(least..=most).contains(&value),
            key,
            &format!("must be a number from {least} to {most}"),
        );
    }

    fn numbers(&mut self, settings: &Settings) {
        let (listen, session, queue) = (&settings.listen, &settings.session, &settings.queue);
        let least_one = [
            ("listen.max_connections", listen.max_connections as u64),
            ("listen.connect_timeout", listen.connect_timeout.into()),
            ("listen.max_buffer", listen.max_buffer as u64),
            ("listen.max_buffer_total", listen.max_buffer_total as u64),
            ("session.receive_maximum", session.receive_maximum.into()),
            ("session.max_inflight", session.max_inflight.into()),
            ("session.max_subscriptions", session.max_subscriptions as u64),
            ("queue.max_messages", queue.max_messages as u64),
            ("queue.max_bytes", queue.max_bytes as u64),
            ("queue.max_delay_ms", queue.max_delay_ms),
            ("queue.progress_timeout", queue.progress_timeout),
            ("queue.left_timeout", queue.left_timeout),
        ];
        for (key, value) in least_one {
            self.within(key, value, 1, u64::MAX);
        }
        self.within("overload.period_ms", settings.overload.period_ms, 10, 10_000);
        self.within("session.max_packet_size", session.max_packet_size.into(), 64, LARGEST_PACKET);
        let longest = u16::MAX.into();
        self.within("session.max_client_id", session.max_client_id as u64, SHORTEST_CLIENT_ID_LIMIT, longest);
    }

    fn listeners(&mut self, settings: &Settings) {
        let addresses = all_addresses(settings);
        if addresses.iter().all(|(key, _)| *key == "admin.listen") {
            self.refuse("listen.mqtt", "nobody could connect; set one of listen.mqtt, .mqtts, .ws and .wss");
        }
        for (index, (key, address)) in addresses.iter().enumerate() {
            if let Some((other_key, other)) =
                addresses[..index].iter().find(|(_, other)| collide(*address, *other))
            {
                let reason =
                    format!("{address} collides with {other} of {other_key}; choose another port or address");
                self.refuse(key, reason);
            }
        }
    }

    fn proxy(&mut self, settings: &Settings) {
        let proxy = &settings.proxy;
        self.refuse_if(
            settings.mode == Mode::Proxy && proxy.upstream.is_empty(),
            "mode",
            "needs proxy.upstream, the broker's address, such as \"127.0.0.1:1884\"",
        );
        if let Some(wrong) = proxy.upstream.iter().find(|address| host_and_port(address).is_none()) {
            let reason =
                format!("{wrong:?} is not a host and a port, such as \"broker:1883\" or \"[::1]:1883\"");
            self.refuse("proxy.upstream", reason);
        }
        let own =
            |address: &str| address.parse().is_ok_and(|address| settings.listen.mqtt.contains(&address));
        self.refuse_if(
            settings.mode == Mode::Proxy && proxy.upstream.iter().any(|address| own(address)),
            "proxy.upstream",
            "is an address that Tidegate itself listens on (listen.mqtt)",
        );
        self.within("proxy.timeout_ms", proxy.timeout_ms, 100, 60_000);
        self.within("proxy.retry_ms", proxy.retry_ms, 10, 60_000);
        self.within("proxy.max_retry_ms", proxy.max_retry_ms, proxy.retry_ms.min(600_000), 600_000);
        self.within("proxy.max_inflight", proxy.max_inflight.into(), 1, u16::MAX.into());
        self.within("proxy.jitter_ms", proxy.jitter_ms, 0, 60_000);
        self.refuse_if(
            !proxy.node.id.is_empty() && !crate::proxy::node::is_node_id(&proxy.node.id),
            "proxy.node.id",
            "must be a name of 1 to 64 letters, digits, `-` and `_`, or empty",
        );
        self.refuse_if(
            !proxy.node.id.is_empty() && settings.plugins.iter().any(|name| name == "check"),
            "proxy.node.id",
            "nodes would number the same topics each for itself, and subscribers take messages for repeated ones: leave \"check\" out of plugins",
        );
        self.within("proxy.node.interval_ms", proxy.node.interval_ms, 20, 10_000);
        self.within("proxy.node.ttl_ms", proxy.node.ttl_ms, proxy.node.interval_ms.saturating_mul(2), 60_000);
        self.refuse_if(
            proxy.certificate.is_some() != proxy.key.is_some(),
            "proxy.certificate",
            "needs proxy.key beside it, and the other way round",
        );
        self.refuse_if(
            proxy.tls && proxy.ca.is_none(),
            "proxy.tls",
            "needs proxy.ca, the authorities that sign the broker's certificate, a PEM file",
        );
        for (key, given) in [
            ("proxy.ca", proxy.ca.is_some()),
            ("proxy.certificate", proxy.certificate.is_some()),
            ("proxy.server_name", !proxy.server_name.is_empty()),
        ] {
            self.refuse_if(given && !proxy.tls, key, "would not count, since proxy.tls is off");
        }
    }

    fn tls(&mut self, settings: &Settings) {
        let (listen, tls) = (&settings.listen, &settings.tls);
        let whole = tls.certificate.is_some() && tls.key.is_some();
        let missing = "needs tls.certificate and tls.key, both PEM files";
        self.refuse_if(!listen.mqtts.is_empty() && !whole, "listen.mqtts", missing);
        self.refuse_if(!listen.wss.is_empty() && !whole, "listen.wss", missing);
        self.refuse_if(
            tls.certificate.is_some() && tls.key.is_none(),
            "tls.certificate",
            "needs tls.key beside it",
        );
        self.refuse_if(
            tls.key.is_some() && tls.certificate.is_none(),
            "tls.key",
            "needs tls.certificate beside it",
        );
        self.refuse_if(
            tls.require_client_certificate && tls.client_ca.is_none(),
            "tls.require_client_certificate",
            "needs tls.client_ca, the authorities that sign client certificates",
        );
    }

    fn access(&mut self, settings: &Settings) {
        let (access, tls) = (&settings.access, &settings.tls);
        self.refuse_if(
            !access.anonymous && access.users.is_none() && tls.client_ca.is_none(),
            "access.anonymous",
            "nobody could connect; set access.users to a file made by `tidegate passwd`, or tls.client_ca",
        );
    }

    fn plugins(&mut self, settings: &Settings) {
        for (index, name) in settings.plugins.iter().enumerate() {
            if !PLUGINS.contains(&name.as_str()) {
                let near = keys::nearest_of(name, &PLUGINS).map(|near| format!("; did you mean {near:?}?"));
                let known = PLUGINS.join(", ");
                let reason = format!("there is no plugin {name:?}, only {known}{}", near.unwrap_or_default());
                self.refuse("plugins", reason);
            } else if settings.plugins[..index].contains(name) {
                self.refuse("plugins", format!("{name:?} is there twice"));
            }
        }
        let access = &settings.access;
        let wanted = !access.anonymous || access.users.is_some() || access.rules.is_some();
        self.refuse_if(
            wanted && !settings.plugins.iter().any(|name| name == "access"),
            "plugins",
            "\"access\" is missing, so that access.anonymous, access.users and access.rules would not count",
        );
        let place = |plugin: &str| settings.plugins.iter().position(|name| name == plugin);
        self.refuse_if(
            matches!((place("gate"), place("overload")), (Some(gate), Some(overload)) if gate < overload),
            "plugins",
            "\"gate\" must come after \"overload\", which says of each message whether it is exempt",
        );
    }

    fn gate(&mut self, gate: &GateSettings) {
        self.between("gate.slack", gate.slack, 0.0, 10.0);
        self.within("gate.grace_ms", gate.grace_ms, 0, 600_000);
        self.within("gate.burst", gate.burst.into(), 1, 1_000_000);
        self.within("gate.burst_ms", gate.burst_ms, 20, 60_000);
        self.within("gate.qos0_wait_ms", gate.qos0_wait_ms, 0, 3_600_000);
        self.within("gate.close_after", gate.close_after, 1, 86_400);
    }

    fn active_checks(&mut self, check: &CheckSettings, max_packet: u32) {
        if let Some(filter) = check.track.iter().find(|filter| !tidegate_control::topic::is_filter(filter)) {
            self.refuse("check.track", format!("{filter:?} is not a topic filter"));
        }
        self.within("check.max_topics", check.max_topics as u64, 1, 100_000_000);
        self.within("check.max_updates", check.max_updates as u64, 1, 1_000_000);
        self.between("check.max_rate", check.max_rate, 1.0, 1e6);
        self.within("check.max_wait_ms", check.max_wait_ms, 0, 60_000);
        self.within("check.max_waiting", check.max_waiting as u64, 1, 10_000_000);
        self.within("check.max_looks", check.max_looks, 1, u64::MAX);
        self.within("check.max_answer", check.max_answer as u64, 1, 1_000_000);
        self.within("check.max_check", check.max_check as u64, 64, max_packet.into());
        self.refuse_if(
            check.max_waiting_bytes < check.max_check.saturating_mul(16),
            "check.max_waiting_bytes",
            "must be at least 16 times check.max_check",
        );
        self.refuse_if(
            check.max_answer_bytes < check.max_payload,
            "check.max_answer_bytes",
            "must be at least check.max_payload, or the largest messages would never be answered",
        );
        self.refuse_if(
            check.max_bytes < check.max_payload.saturating_mul(tidegate_check::SHELVES),
            "check.max_bytes",
            "must be at least 16 times check.max_payload",
        );
    }

    fn autoscale(&mut self, autoscale: &AutoscaleSettings) {
        self.within("autoscale.state_ttl", autoscale.state_ttl, 1, 86_400);
        self.between("autoscale.utilisation", autoscale.utilisation, 0.01, 1.0);
    }

    fn files(&mut self, settings: &Settings) {
        let mut settings = settings.clone();
        for (key, path) in load::paths(&mut settings) {
            if let Some(reason) = path.as_ref().and_then(unusable) {
                self.refuse(key, reason);
            }
        }
    }

    fn holds(&mut self, settings: &Settings) {
        let empty = |hold: &super::Hold| *hold == super::Hold::default();
        self.refuse_if(
            settings.queue.never_hold.iter().any(empty),
            "queue.never_hold",
            "an entry without user, client and filter would match every consumer; give one of them",
        );
    }

    fn overload(&mut self, settings: &Settings) {
        self.within("overload.window", settings.overload.window, 1, 3600);
        self.within("overload.ttl_ms", settings.overload.ttl_ms, 1000, 600_000);
        self.within("overload.target_delay_ms", settings.overload.target_delay_ms, 1, 600_000);
        let checked = tidegate_overload::OverloadConfig::from(settings).check();
        if let Err((key, error)) = checked
            && self.problems.iter().all(|problem| problem.key != key)
        {
            self.refuse(&key, error.to_string());
        }
    }

    fn sources(&mut self, settings: &Settings) {
        let sources = &settings.overload.source;
        self.refuse_if(
            settings.mode != Mode::Proxy && !sources.is_empty(),
            "overload.source",
            "would not count: only mode = \"proxy\" has a broker behind it to ask",
        );
        for (index, source) in sources.iter().enumerate() {
            let key = |name: &str| format!("overload.source.{index}.{name}");
            self.refuse_if(
                source.place().is_none(),
                &key("url"),
                "must be http://, a host and a port, such as \"http://127.0.0.1:15672\"",
            );
            self.within(&key("interval_ms"), source.interval_ms, 100, 60_000);
            self.within(&key("timeout_ms"), source.timeout_ms, 10, 60_000);
        }
    }

    fn log(&mut self, settings: &Settings) {
        if let Err(reason) = log_level(&settings.log.level) {
            self.refuse("log.level", reason);
        }
    }
}

fn all_addresses(settings: &Settings) -> Vec<(&'static str, SocketAddr)> {
    let ListenSettings { mqtt, mqtts, ws, wss, .. } = &settings.listen;
    [
        ("listen.mqtt", mqtt),
        ("listen.mqtts", mqtts),
        ("listen.ws", ws),
        ("listen.wss", wss),
        ("admin.listen", &settings.admin.listen),
    ]
    .into_iter()
    .flat_map(|(key, addresses)| addresses.iter().map(move |address| (key, *address)))
    .collect()
}

/// Whether both cannot be listened on; port 0 is a new port each time.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let same_family = one.is_ipv4() == other.is_ipv4();
    let same_ip = one.ip() == other.ip() || is_any(one.ip()) || is_any(other.ip());
    one.port() != 0 && one.port() == other.port() && same_family && same_ip
}

fn is_any(address: IpAddr) -> bool {
    address.is_unspecified()
}

fn unusable(path: &PathBuf) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => None,
        Ok(_) => Some(format!("{} is not a file", path.display())),
        Err(error) => Some(format!("cannot use the file {}: {error}", path.display())),
    }
}

/// Levels and directives. The filter's own parser takes any word for a module, `inof` too.
fn log_level(text: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for directive in text.split(',').map(str::trim) {
        if directive.contains(['=', '[']) || LEVELS.contains(&directive.to_lowercase().as_str()) {
            continue;
        }
        let near = keys::nearest_of(directive, &LEVELS).map(|near| format!("; did you mean \"{near}\"?"));
        return Err(format!(
            "must be one of {}, or directives such as \"info,tidegate=debug\"{}",
            LEVELS.join(", "),
            near.unwrap_or_default()
        ));
    }
    let parsed = tracing_subscriber::EnvFilter::builder().parse(text);
    parsed.map(|_| ()).map_err(|error| format!("is not a log filter: {error}"))
}

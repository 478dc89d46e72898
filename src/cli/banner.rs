//! What is told at the start.

use std::fmt::{self, Display, Write};
use std::net::SocketAddr;

use tidegate_overload::OverloadConfig;

use crate::config::{Loaded, Mode, Settings};

/// Version, mode, file and addresses, a line each.
pub(super) fn banner(
    loaded: &Loaded,
    listening: &[(impl Display, SocketAddr)],
    admin: &[SocketAddr],
) -> String {
    let mode = match loaded.settings.mode {
        Mode::Broker => "broker",
        Mode::Proxy => "proxy",
    };
    let mut text = format!("Tidegate {}, {mode} mode\n", env!("CARGO_PKG_VERSION"));
    // Writing to a String cannot fail.
    let _ = lines(&mut text, loaded, listening, admin);
    text
}

/// What the operator should know before strangers find out.
pub(super) fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    let exposed = exposed(settings);
    if !exposed.is_empty() && settings.access.anonymous && settings.access.rules.is_none() {
        warnings.push(open_to_all(settings, &exposed));
    }
    let admin: Vec<_> = settings.admin.listen.iter().copied().filter(is_reachable).collect();
    if !admin.is_empty() {
        warnings.push(format!(
            "the admin endpoint on {} has no authentication: everybody who can reach it can read the metrics",
            join(&admin)
        ));
    }
    let on = |plugin: &str| settings.plugins.iter().any(|name| name == plugin);
    if on("gate") && !on("overload") {
        warnings.push(
            "the plugin \"gate\" does nothing, since without \"overload\" nobody has a rate that it could hold \
             publishers to: add \"overload\" to plugins, or leave \"gate\" out"
                .into(),
        );
    }
    if on("overload") {
        warnings.extend(targets_too_high(settings));
    }
    warnings
}

/// Rules with a target delay that can't be reached, since queues hold their publishers before.
fn targets_too_high(settings: &Settings) -> impl Iterator<Item = String> {
    let most = OverloadConfig::from(settings).longest_target().as_nanos() / 1_000_000;
    let rules = settings.overload.protect.iter().enumerate();
    let over =
        rules.filter_map(move |(index, rule)| Some((index, rule.target_delay_ms.filter(|ms| *ms > most)?)));
    over.map(move |(index, target)| {
        format!(
            "overload.protect.{index}.target_delay_ms = {target}: no more than {most} counts, 0.6 of queue.max_delay_ms, over \
             which a queue holds its publishers itself"
        )
    })
}

fn lines(
    text: &mut String,
    loaded: &Loaded,
    listening: &[(impl Display, SocketAddr)],
    admin: &[SocketAddr],
) -> fmt::Result {
    match &loaded.file {
        Some(path) => writeln!(text, "  configuration  {}", path.display())?,
        None => writeln!(text, "  configuration  built-in defaults")?,
    }
    if loaded.settings.mode == Mode::Proxy {
        writeln!(text, "  {:<13}  {}", "upstream", loaded.settings.proxy.upstream.join(", "))?;
    }
    for (transport, address) in listening {
        writeln!(text, "  {transport:<13}  {address}")?;
    }
    for address in admin {
        writeln!(text, "  {:<13}  http://{address}/metrics", "admin")?;
    }
    Ok(())
}

/// Addresses that other machines may reach without a certificate of their own.
fn exposed(settings: &Settings) -> Vec<SocketAddr> {
    let listen = &settings.listen;
    let secure = [&listen.mqtts, &listen.wss];
    let plain = [&listen.mqtt, &listen.ws];
    let closed = settings.tls.require_client_certificate;
    plain
        .into_iter()
        .chain(secure.into_iter().filter(|_| !closed))
        .flatten()
        .copied()
        .filter(is_reachable)
        .collect()
}

fn is_reachable(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

fn open_to_all(settings: &Settings, exposed: &[SocketAddr]) -> String {
    let remedy = if settings.access.users.is_some() {
        "access.users is set, but access.anonymous lets everybody in without a name: set access.anonymous = false, \
         or access.rules"
    } else {
        "set access.users (made by `tidegate passwd`) with access.anonymous = false, or access.rules"
    };
    format!(
        "everybody who can reach {} may connect, publish and subscribe to everything; {remedy}",
        join(exposed)
    )
}

fn join(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

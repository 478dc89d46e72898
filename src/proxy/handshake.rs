//! From the first byte of a client to the upstream's answer to its CONNECT.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_plugin::Publisher;

use super::connect::Changes;
use super::pair::{Made, Pair};
use super::upstreams::Connected;
use super::{Proxy, connect};
use crate::broker::clock::moment;
use crate::broker::connection::handshake::{
    Refused, answer_bad_connect, ask_about_will, ask_plugins, candidate, last_words, read_connect,
};
use crate::chain::Hooks;
use crate::listen::Stream;
use crate::wire::{Connack, Connect, Encoder, ReasonCode, Version};

/// Reads CONNECT, asks the plugins, passes it on. `None` when there is no connection to serve.
pub(super) async fn accept(proxy: Arc<Proxy>, mut stream: Stream) -> Option<Pair> {
    let patience = Duration::from_secs(proxy.settings.listen.connect_timeout.into());
    let maximum = proxy.settings.session.max_packet_size as usize;
    let mut input = Vec::new();
    let read = tokio::time::timeout(patience, read_connect(maximum, &proxy.stats, &mut stream, &mut input));
    let read = tokio::select! {
        read = read => read,
        () = proxy.drained() => return None,
    };
    let (connect, end) = match read {
        Ok(Ok(found)) => found,
        Ok(Err(None)) | Err(_) => return None,
        Ok(Err(Some(error))) => {
            if proxy.lines.client.allows(proxy.clock.now()) {
                tracing::info!(peer = %stream.peer(), %error, "closed: what came is not a CONNECT that can be read");
            }
            proxy.stats.protocol_errors.add(1);
            proxy.stats.connects_refused.add(1);
            answer_bad_connect(stream, &input, error).await;
            return None;
        }
    };
    let packet: Vec<u8> = input.drain(..end).collect();
    let encoder = Encoder {
        version: connect.version,
        maximum: connect.maximum_packet_size.unwrap_or(u32::MAX),
        problem_information: connect.request_problem_information,
    };
    let (peer, certificate) = (stream.peer(), stream.certificate().map(str::to_owned));
    let admitting = tokio::time::timeout(patience, admit(&proxy, peer, certificate, &connect));
    let late = || Refused::new(ReasonCode::SERVER_BUSY, "checking the credentials took too long");
    let reached = match admitting.await.unwrap_or_else(|_| Err(late())) {
        Ok(admitted) => {
            let packet = passed_on(&proxy, &connect, packet, &admitted);
            reach(&proxy, peer, connect.version, &packet).await.map(|upstream| (admitted, upstream))
        }
        Err(refused) => Err(refused),
    };
    match reached {
        Ok((admitted, upstream)) => {
            let Admitted { hooks, client_id, assigned, publisher, .. } = admitted;
            let made =
                Made { client: (stream, input), upstream, hooks, client_id, assigned, publisher, encoder };
            Some(Pair::new(proxy, made, &connect))
        }
        Err(refused) => {
            refuse(&proxy, stream, &connect, &encoder, &refused).await;
            None
        }
    }
}

struct Admitted {
    hooks: Hooks,
    /// The plugins throw the will away.
    without_will: bool,
    client_id: Arc<str>,
    /// The proxy chose the identifier, and the client must be told.
    assigned: bool,
    publisher: Arc<Publisher>,
}

async fn admit(
    proxy: &Proxy,
    peer: SocketAddr,
    certificate: Option<String>,
    connect: &Connect,
) -> Result<Admitted, Refused> {
    if proxy.draining() {
        return Err(Refused::new(ReasonCode::SERVER_UNAVAILABLE, "the server is shutting down"));
    }
    let candidate = candidate(connect, (peer, certificate), connect.keep_alive, &proxy.settings.session)?;
    let (client_id, publisher) = (Arc::clone(&candidate.id), Arc::clone(&candidate.publisher));
    let mut hooks = ask_plugins(&proxy.chain, candidate).await?;
    let mut without_will = false;
    if let Some(will) = &connect.will {
        if proxy.control.owns(&will.topic) {
            return Err(Refused::new(ReasonCode::NOT_AUTHORIZED, "the will's topic is reserved"));
        }
        without_will = !ask_about_will(&mut hooks, will, moment(proxy.clock.now()))?;
        proxy.stats.discarded.add(without_will.into());
    }
    // A client of MQTT 3.1.1 never learns its identifier: there the upstream's choice is as good as ours.
    let assigned = connect.client_id.is_empty() && connect.version == Version::V5;
    Ok(Admitted { hooks, without_will, client_id, assigned, publisher })
}

/// The CONNECT that the upstream gets.
fn passed_on(proxy: &Proxy, connect: &Connect, packet: Vec<u8>, admitted: &Admitted) -> Vec<u8> {
    let id = admitted.assigned.then_some(&*admitted.client_id);
    let changes = Changes { id, without_will: admitted.without_will };
    if changes.is_none() {
        return packet;
    }
    proxy.counts.changed.add(1);
    // it was decoded, so that its length is sound and its body too
    let body = 1 + packet[1..].iter().take_while(|byte| **byte & 0x80 != 0).count() + 1;
    connect::rewrite(connect.version, &packet[body..], changes).unwrap_or(packet)
}

async fn reach(
    proxy: &Proxy,
    peer: SocketAddr,
    version: Version,
    connect: &[u8],
) -> Result<Connected, Refused> {
    let maximum = proxy.settings.session.max_packet_size as usize;
    let connected = proxy.upstreams.connect(connect, version, Some(peer), maximum, &proxy.watch()).await;
    let text = "the broker behind the gateway cannot be reached";
    connected.ok_or_else(|| Refused::new(ReasonCode::SERVER_UNAVAILABLE, text))
}

async fn refuse(proxy: &Proxy, stream: Stream, connect: &Connect, encoder: &Encoder, refused: &Refused) {
    proxy.stats.connects_refused.add(1);
    if proxy.lines.client.allows(proxy.clock.now()) {
        let (peer, client) = (stream.peer(), &connect.client_id);
        tracing::info!(%peer, client, reason = refused.text, "connection refused");
    }
    let connack =
        Connack { reason: refused.reason, reason_string: Some(&refused.text), ..Connack::default() };
    let mut output = Vec::new();
    encoder.connack(&mut output, &connack);
    last_words(stream, &output).await;
}

//! From the first byte to CONNACK.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::time::Moment;
use tidegate_plugin::{Publish, Publisher, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::alias::{InboundAliases, OutboundAliases};
use super::{Connection, Ending, part};
use crate::broker::Broker;
use crate::broker::clock::moment;
use crate::broker::lifecycle::Owner;
use crate::broker::session::{KeptWill, Session};
use crate::broker::stats::Stats;
use crate::broker::window::Window;
use crate::chain::{Candidate, Chain, Hooks};
use crate::config::SessionSettings;
use crate::listen::Stream;
use crate::wire::{Connack, Connect, Encoder, Packet, ReasonCode, Version, Will, WireError, decode, frame};

/// Reads CONNECT and answers it. `None` when there is no connection to serve.
pub(super) async fn accept(broker: Arc<Broker>, mut stream: Stream) -> Option<Connection> {
    let patience = Duration::from_secs(broker.settings.listen.connect_timeout.into());
    let mut input = Vec::new();
    let maximum = broker.settings.session.max_packet_size as usize;
    let read = tokio::time::timeout(patience, read_connect(maximum, &broker.stats, &mut stream, &mut input));
    let read = tokio::select! {
        read = read => read,
        // whoever has not said who it is, is not told that the gateway stops
        () = broker.drained() => return None,
    };
    let connect = match read {
        Ok(Ok((connect, end))) => {
            input.drain(..end);
            connect
        }
        Ok(Err(None)) => return None,
        Ok(Err(Some(error))) => {
            if broker.lines.protocol_error.allows(broker.clock.now()) {
                tracing::info!(peer = %stream.peer(), %error, "closed: what came is not a CONNECT that can be read");
            }
            broker.stats.protocol_errors.add(1);
            broker.stats.connects_refused.add(1);
            answer_bad_connect(stream, &input, error).await;
            return None;
        }
        Err(_) => {
            tracing::debug!(peer = %stream.peer(), "no CONNECT in time");
            return None;
        }
    };
    let encoder = Encoder {
        version: connect.version,
        maximum: connect.maximum_packet_size.unwrap_or(u32::MAX),
        problem_information: connect.request_problem_information,
    };
    let (peer, certificate) = (stream.peer(), stream.certificate().map(str::to_owned));
    let busy = |text| Refused::new(ReasonCode::SERVER_BUSY, text);
    let admission = async {
        if connect.will.is_some() {
            let room = tokio::time::timeout(patience, broker.own.room()).await;
            room.map_err(|_| busy("too many wills wait to be published"))?;
        }
        let asked = tokio::time::timeout(patience, admit(&broker, peer, certificate, &connect));
        asked.await.unwrap_or_else(|_| Err(busy("checking the credentials took too long")))
    };
    match admission.await {
        Ok(admitted) => Some(establish(broker, stream, input, encoder, *connect, admitted)),
        Err(refusal) => {
            broker.stats.connects_refused.add(1);
            if broker.lines.connect_refused.allows(broker.clock.now()) {
                tracing::info!(%peer, client = connect.client_id, reason = refusal.text, "connection refused");
            }
            let connack =
                Connack { reason: refusal.reason, reason_string: Some(&refusal.text), ..Connack::default() };
            let mut output = Vec::new();
            encoder.connack(&mut output, &connack);
            last_words(stream, &output).await;
            None
        }
    }
}

struct Admitted {
    hooks: Hooks,
    /// Whether the will is to be published when the time comes.
    will: bool,
    client_id: Arc<str>,
    assigned: bool,
    publisher: Arc<Publisher>,
}

/// Why a client is not let in.
pub(crate) struct Refused {
    pub(crate) reason: ReasonCode,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(reason: ReasonCode, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }
}

/// CONNECT and how many bytes of the input it is. `Err(None)`: the client went away without saying anything wrong.
pub(crate) async fn read_connect(
    maximum: usize,
    stats: &Stats,
    stream: &mut Stream,
    input: &mut Vec<u8>,
) -> Result<(Box<Connect>, usize), Option<WireError>> {
    let mut chunk = [0; 2048];
    loop {
        if let Some(found) = frame(input, maximum).map_err(Some)? {
            let end = found.header + found.body;
            let packet = decode(None, found, &input[found.header..end]).map_err(Some)?;
            let Packet::Connect(connect) = packet else {
                return Err(Some(WireError::protocol("the first packet is not CONNECT")));
            };
            return Ok((connect, end));
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return Err(None),
            Ok(count) => {
                stats.bytes_received.add(count as u64);
                input.extend_from_slice(&chunk[..count]);
            }
        }
    }
}

/// A client whose CONNECT can't be read is told why where its version has a way to.
pub(crate) async fn answer_bad_connect(stream: Stream, input: &[u8], error: WireError) {
    // the protocol level follows the name, whatever that says
    let level = frame(input, usize::MAX).ok().flatten().and_then(|found| {
        let body = &input[found.header..];
        let name = usize::from(u16::from_be_bytes([*body.first()?, *body.get(1)?]));
        body.get(2 + name).copied()
    });
    let version = if level == Some(5) { Version::V5 } else { Version::V311 };
    let connect = input.first().is_some_and(|first| first >> 4 == 1);
    if !connect || version == Version::V311 && error.reason != ReasonCode::UNSUPPORTED_PROTOCOL_VERSION {
        return;
    }
    let encoder = Encoder { version, maximum: u32::MAX, problem_information: true };
    let mut output = Vec::new();
    let connack = Connack { reason: error.reason, reason_string: Some(error.what), ..Connack::default() };
    encoder.connack(&mut output, &connack);
    last_words(stream, &output).await;
}

pub(crate) async fn last_words(mut stream: Stream, bytes: &[u8]) {
    let write = tokio::time::timeout(Duration::from_millis(super::LINGER), stream.write_all(bytes));
    // a client that does not take its refusal is closed without
    if let Ok(Ok(())) = write.await {
        part(stream).await;
    }
}

async fn admit(
    broker: &Broker,
    peer: SocketAddr,
    certificate: Option<String>,
    connect: &Connect,
) -> Result<Admitted, Refused> {
    if broker.draining() {
        return Err(Refused::new(ReasonCode::SERVER_UNAVAILABLE, "the server is shutting down"));
    }
    if let Some(method) = &connect.authentication_method {
        let text = format!("authentication method {method:?} is not supported");
        return Err(Refused::new(ReasonCode::BAD_AUTHENTICATION_METHOD, text));
    }
    let assigned = connect.client_id.is_empty();
    if assigned && connect.version == Version::V311 && !connect.clean_start {
        let text = "an empty client identifier needs a clean session";
        return Err(Refused::new(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, text));
    }
    let keep_alive = keep_alive(broker, connect).0;
    let candidate = candidate(connect, (peer, certificate), keep_alive, &broker.settings.session)?;
    let (client_id, publisher) = (Arc::clone(&candidate.id), Arc::clone(&candidate.publisher));
    let mut hooks = ask_plugins(&broker.chain, candidate).await?;
    let will = match &connect.will {
        Some(will) => ask_about_will(&mut hooks, will, moment(broker.clock.now()))?,
        None => false,
    };
    if connect.will.is_some() && !will {
        broker.stats.discarded.add(1);
    }
    Ok(Admitted { hooks, will, client_id, assigned, publisher })
}

/// What plugins see of a client, under its identifier or a fresh one.
pub(crate) fn candidate(
    connect: &Connect,
    (peer, certificate): (SocketAddr, Option<String>),
    keep_alive: u16,
    settings: &SessionSettings,
) -> Result<Candidate, Refused> {
    let id: Arc<str> = match connect.client_id.len() {
        0 => fresh_client_id().into(),
        length if length <= settings.max_client_id => connect.client_id.as_str().into(),
        _ => {
            let text = format!("the client identifier is longer than {} bytes", settings.max_client_id);
            return Err(Refused::new(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, text));
        }
    };
    let user = connect.user.as_deref().or(certificate.as_deref()).map(Arc::from);
    let level = if connect.version == Version::V5 { 5 } else { 4 };
    let publisher = Arc::new(Publisher::new(Arc::clone(&id), user, keep_alive, level));
    let (user, password) = (connect.user.clone(), connect.password.clone());
    Ok(Candidate { id, user, password, peer, certificate, publisher })
}

/// Asks the plugins whether a client may connect.
pub(crate) async fn ask_plugins(chain: &Chain, candidate: Candidate) -> Result<Hooks, Refused> {
    let asked = chain.connect(Arc::new(candidate)).await;
    asked.map_err(|refusal| Refused::new(ReasonCode(refusal.code), refusal.reason))
}

/// Whether the will is to be published when the time comes.
pub(crate) fn ask_about_will(hooks: &mut Hooks, will: &Will, now: Moment) -> Result<bool, Refused> {
    if super::packets::reserved(&will.topic) {
        return Err(Refused::new(ReasonCode::NOT_AUTHORIZED, "the will's topic is reserved"));
    }
    let publish = Publish {
        topic: &will.topic,
        payload: &will.payload,
        qos: will.qos as u8,
        retain: will.retain,
        now,
        waited: Duration::ZERO,
    };
    match hooks.on_will(&publish) {
        Verdict::Refuse(refusal) | Verdict::Close(refusal) => {
            Err(Refused::new(ReasonCode(refusal.code), format!("the will is refused: {}", refusal.reason)))
        }
        Verdict::Drop => Ok(false),
        // nothing follows that could wait
        Verdict::Continue | Verdict::Delay(_) => Ok(true),
    }
}

fn establish(
    broker: Arc<Broker>,
    stream: Stream,
    input: Vec<u8>,
    encoder: Encoder,
    connect: Connect,
    admitted: Admitted,
) -> Connection {
    let settings = &broker.settings.session;
    let now = broker.clock.now();
    let v5 = connect.version == Version::V5;
    let (keep_alive, told_keep_alive) = keep_alive(&broker, &connect);
    let expiry = connect.session_expiry.min(settings.max_expiry);
    let clean_start = connect.clean_start;
    // its class was asked for when the plugins were asked about the will
    let urgent = admitted.publisher.passes();
    let will = connect.will.filter(|_| admitted.will).map(|will| Box::new(KeptWill { will, urgent }));
    let user = admitted.publisher.user.clone();
    let owner = Owner { clean_start, expiry, user, will, publisher: admitted.publisher };
    let fence = broker.spine.fence();
    let attached = broker.attach(&admitted.client_id, owner);
    let mut output = Vec::with_capacity(128);
    let connack = Connack {
        session_present: attached.present,
        reason: ReasonCode::SUCCESS,
        session_expiry: (expiry != connect.session_expiry).then_some(expiry),
        receive_maximum: Some(settings.receive_maximum),
        maximum_packet_size: Some(settings.max_packet_size),
        assigned_client_id: admitted.assigned.then_some(&*admitted.client_id),
        topic_alias_maximum: Some(settings.topic_alias_maximum),
        server_keep_alive: told_keep_alive,
        ..Connack::default()
    };
    encoder.connack(&mut output, &connack);
    broker.stats.connects.add(1);
    tracing::debug!(client = &*admitted.client_id, peer = %stream.peer(), v5, present = attached.present, "connected");
    let session = attached.session;
    let window = Window::new(connect.receive_maximum.min(settings.max_inflight));
    let resend = resume(&broker, &session, &window);
    let outbound_aliases =
        OutboundAliases::new(connect.topic_alias_maximum.min(settings.topic_alias_maximum));
    let mut connection = Connection {
        stream,
        session,
        number: attached.connection,
        gate: attached.gate,
        told_rate: 0,
        hooks: admitted.hooks,
        encoder,
        window,
        silence: u64::from(keep_alive) * 1500,
        seen: now,
        timer: Pin::from(Box::new(tokio::time::sleep(Duration::from_secs(3600)))),
        timer_at: 0,
        input_ready: !input.is_empty(),
        pause: super::Pause::No,
        turn: super::turn::Turn::default(),
        input,
        output,
        written: 0,
        unflushed: false,
        held: None,
        held_since: None,
        deaf_since: 0,
        fence: Some(fence),
        offered: None,
        inbound_aliases: InboundAliases::default(),
        outbound_aliases,
        resend,
        delivered: 0,
        ending: Ending::No,
        will: true,
        broker,
    };
    connection.arm(now + if connection.silence > 0 { connection.silence } else { super::IDLE_TIMER });
    connection
}

/// The keep-alive that holds, and whether the client is told because it asked for another one.
fn keep_alive(broker: &Broker, connect: &Connect) -> (u16, Option<u16>) {
    let limit = broker.settings.session.max_keep_alive;
    let too_long = limit != 0 && (connect.keep_alive == 0 || connect.keep_alive > limit);
    let told = (connect.version == Version::V5 && too_long).then_some(limit);
    (told.unwrap_or(connect.keep_alive), told)
}

/// What a resumed session sends again, in order; its groups may give it messages again.
fn resume(broker: &Broker, session: &Session, window: &Window) -> VecDeque<u16> {
    let mut state = session.state.lock();
    for subscription in state.subscriptions.values() {
        if let crate::broker::tree::Target::Group(group) = &subscription.target {
            group.resume(session.number, window.size(), broker.clock.now(), &broker.limits);
        }
    }
    state.inflight.start_again()
}

/// An identifier that nobody can guess: 128 bits from the standard library's random hash keys.
fn fresh_client_id() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("tide-{:016x}{:016x}", random(), random())
}

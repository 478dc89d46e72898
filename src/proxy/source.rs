//! What the broker behind the proxy says of its queues, where it can be asked over HTTP (`[[overload.source]]`).

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::body::Body;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::Proxy;
use super::node::Owner;
use super::queue::Word;
use crate::broker::clock::Millis;
use crate::config::{SourceKind, SourceSettings, host_and_port};

/// More messages than any queue has.
const MOST_MESSAGES: u64 = 1 << 40;
/// Bytes of the largest answer that is read.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error("no answer in time")]
    Late,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the question cannot be asked: {0}")]
    Question(#[from] hyper::http::Error),
    #[error("it answers {0}")]
    Refused(StatusCode),
    #[error("its answer is longer than {MOST_BYTES} bytes")]
    Long,
    #[error("its answer cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// Messages for each client, by what the source calls it.
type Lengths = HashMap<String, u64>;

/// Asks every source while the proxy lives.
pub(super) fn start(proxy: &Arc<Proxy>) {
    for source in &proxy.settings.overload.source {
        tokio::spawn(follow(Arc::downgrade(proxy), source.clone()));
    }
}

async fn follow(proxy: Weak<Proxy>, source: SourceSettings) {
    let mut turn = tokio::time::interval(Duration::from_millis(source.interval_ms));
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (patience, mut silent) = (Duration::from_millis(source.timeout_ms), false);
    loop {
        turn.tick().await;
        let begun = tokio::time::Instant::now();
        let asked = tokio::time::timeout(patience, ask(&source)).await.unwrap_or(Err(SourceError::Late));
        let Some(proxy) = proxy.upgrade() else { return };
        let url = &*source.url;
        // a line for each change, not for each question
        match asked {
            Ok(lengths) => {
                proxy.counts.source_answers.add(1);
                if std::mem::take(&mut silent) {
                    tracing::info!(url, "the source of queue lengths answers again");
                }
                proxy.hear_source(&source, &lengths, begun.elapsed());
            }
            Err(error) => {
                proxy.counts.source_failures.add(1);
                if !std::mem::replace(&mut silent, true) {
                    tracing::warn!(url, %error, "the source of queue lengths does not answer; only what passes counts");
                }
            }
        }
    }
}

impl Proxy {
    /// Takes in an answer that took so long, and is of some moment in that time or a while before.
    fn hear_source(&self, source: &SourceSettings, lengths: &Lengths, took: Duration) {
        let now = self.clock.now();
        let age = source.kind.age() + took.as_millis() as Millis;
        // one question may go unanswered
        let until = now + 2 * source.interval_ms + source.timeout_ms;
        for listed in self.sessions.list() {
            let (Owner::Client(client), filters) = listed.describe() else { continue };
            if filters.is_empty() {
                continue;
            }
            if let Some(length) = lengths.get(&source.kind.name_of(client)) {
                let (queue, word) =
                    (listed.queue(), Word { length: (*length).min(MOST_MESSAGES), age, until });
                if queue.hear_broker(now, word) {
                    self.ledger.enter(queue.number, Arc::clone(queue) as _);
                }
            }
        }
    }
}

impl SourceKind {
    /// How old what it says may be, in milliseconds: RabbitMQ counts every five seconds unless it is told otherwise.
    fn age(self) -> Millis {
        match self {
            Self::Rabbitmq => 6_000,
            Self::Nats => 500,
        }
    }

    fn question(self, vhost: &str) -> String {
        match self {
            Self::Rabbitmq => format!("/api/queues/{}?columns=name,messages", encoded(vhost)),
            Self::Nats => "/jsz?accounts=true&streams=true&consumers=true".into(),
        }
    }

    /// What it calls a client.
    fn name_of(self, client: String) -> String {
        match self {
            Self::Rabbitmq => client,
            Self::Nats => nats_name(&client),
        }
    }

    fn read(self, answer: &[u8]) -> Result<Lengths, serde_json::Error> {
        match self {
            Self::Rabbitmq => read_rabbitmq(answer),
            Self::Nats => read_nats(answer),
        }
    }
}

async fn ask(source: &SourceSettings) -> Result<Lengths, SourceError> {
    // the configuration's check has seen that it is one
    let (authority, base) = source.place().unwrap_or_default();
    let place = host_and_port(authority).unwrap_or_default();
    let stream = TcpStream::connect(place).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // ends with this question
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let path = format!("{base}{}", source.kind.question(&source.vhost));
    let mut request = Request::get(path).header(HOST, authority);
    if !source.user.is_empty() {
        let login = base64(format!("{}:{}", source.user, source.password).as_bytes());
        request = request.header(AUTHORIZATION, format!("Basic {login}"));
    }
    let answer = sender.send_request(request.body(String::new())?).await?;
    if !answer.status().is_success() {
        return Err(SourceError::Refused(answer.status()));
    }
    let (mut body, mut bytes) = (answer.into_body(), Vec::new());
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > MOST_BYTES {
            return Err(SourceError::Long);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(source.kind.read(&bytes)?)
}

/// RabbitMQ's MQTT plugin has a queue for each client and QoS.
fn read_rabbitmq(answer: &[u8]) -> Result<Lengths, serde_json::Error> {
    #[derive(Deserialize)]
    struct Listed {
        name: String,
        /// Missing until it was counted for the first time.
        messages: Option<u64>,
    }
    let listed: Vec<Listed> = serde_json::from_slice(answer)?;
    let mut lengths = Lengths::new();
    for queue in listed {
        let client = queue.name.strip_prefix("mqtt-subscription-");
        let client = client.and_then(|name| name.strip_suffix("qos0").or(name.strip_suffix("qos1")));
        if let (Some(client), Some(messages)) = (client, queue.messages) {
            add(&mut lengths, client, messages);
        }
    }
    Ok(lengths)
}

/// NATS has a consumer in one stream for each subscription of QoS 1, named after the client.
fn read_nats(answer: &[u8]) -> Result<Lengths, serde_json::Error> {
    #[derive(Deserialize)]
    struct Listed {
        #[serde(default)]
        account_details: Vec<Account>,
    }
    #[derive(Deserialize)]
    struct Account {
        #[serde(default)]
        stream_detail: Vec<Stream>,
    }
    #[derive(Deserialize)]
    struct Stream {
        name: String,
        #[serde(default)]
        consumer_detail: Vec<Consumer>,
    }
    #[derive(Deserialize)]
    struct Consumer {
        name: String,
        #[serde(default)]
        num_pending: u64,
        #[serde(default)]
        num_ack_pending: u64,
    }
    let listed: Listed = serde_json::from_slice(answer)?;
    let mut lengths = Lengths::new();
    let streams = listed.account_details.into_iter().flat_map(|account| account.stream_detail);
    for consumer in streams.filter(|stream| stream.name == "$MQTT_msgs").flat_map(|one| one.consumer_detail) {
        if let Some((client, _)) = consumer.name.split_once('_') {
            add(&mut lengths, client, consumer.num_pending.saturating_add(consumer.num_ack_pending));
        }
    }
    Ok(lengths)
}

fn add(lengths: &mut Lengths, client: &str, messages: u64) {
    let length = lengths.entry(client.to_owned()).or_default();
    *length = length.saturating_add(messages);
}

/// What NATS calls a client in the names of its consumers: eight digits of a hash.
fn nats_name(client: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let hash = digest(&SHA256, client.as_bytes());
    hash.as_ref().iter().take(8).map(|byte| char::from(DIGITS[usize::from(*byte) % 62])).collect()
}

/// As part of a path.
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn answers_are_read_whatever_else_is_in_them() {
        let answer = br#"[{"name":"mqtt-subscription-aqos0","messages":1},{"name":"mqtt-subscription-aqos1","messages":41,"x":0},
            {"name":"mqtt-subscription-newqos1"},{"name":"orders","messages":7}]"#;
        assert_eq!(read_rabbitmq(answer).unwrap(), Lengths::from([("a".to_owned(), 42)]));
        let answer = br#"{"account_details":[{"stream_detail":[{"name":"$MQTT_msgs","consumer_detail":[
            {"name":"abc_1","num_pending":5,"num_ack_pending":2},{"name":"abc_2","num_pending":1}]},{"name":"other"}]},{}]}"#;
        assert_eq!(read_nats(answer).unwrap(), Lengths::from([("abc".to_owned(), 8)]));
        for nonsense in [&b""[..], b"{", b"<html>", b"[1]"] {
            assert!(read_rabbitmq(nonsense).is_err() && read_nats(nonsense).is_err());
        }
    }

    #[test]
    fn what_is_sent_is_encoded() {
        for (plain, text) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("guest:guest", "Z3Vlc3Q6Z3Vlc3Q=")] {
            assert_eq!(base64(plain.as_bytes()), text);
        }
        assert_eq!(encoded("/"), "%2F");
        assert_eq!(SourceKind::Rabbitmq.question("a b"), "/api/queues/a%20b?columns=name,messages");
    }
}

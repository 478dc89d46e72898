//! The gateway's own connection to the upstream, on which nodes hear of each other.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use super::message::MOST_BYTES;
use crate::config::NodeSettings;
use crate::listen::Stream;
use crate::proxy::frames::{self, header};
use crate::proxy::upstreams::{Connected, random_below};
use crate::proxy::{Proxy, connack};
use crate::wire::{Frame, Version};

/// Seconds of the keep-alive: something is said much more often.
const KEEP_ALIVE: u16 = 30;
/// Our own messages come back as well: when nothing at all comes for so many intervals, the connection is dead.
const SILENT_INTERVALS: u32 = 20;
/// Bytes of a packet that is looked at.
const LONGEST: usize = 2 * MOST_BYTES;
/// What is new here is said at once, but no sooner after what was said before, and not so often that saying it takes more than
/// a small part of the time, or that others have much to read: clients can make news.
const SOONEST: Duration = Duration::from_millis(20);
const PART_OF_TIME: u32 = 20;
const FOR_EACH_BYTE: Duration = Duration::from_micros(4);
/// Longer messages are read on a thread where nobody waits for that.
const LONG: usize = 16 * 1024;

/// Keeps the connection while the proxy lives.
pub(super) async fn run(proxy: Weak<Proxy>) {
    let mut failures = 0;
    while let Some(alive) = proxy.upgrade() {
        let settings = alive.settings.proxy.clone();
        let ended = serve(&alive, &mut failures).await;
        let draining = alive.draining();
        if let Err(why) = ended
            && !draining
        {
            alive.counts.node_failures.add(1);
            if alive.lines.upstream.allows(alive.clock.now()) {
                tracing::warn!(why, "the connection on which nodes hear of each other ended");
            }
        }
        drop(alive);
        if draining {
            return;
        }
        let pause = (settings.retry_ms << u32::min(failures, 16)).min(settings.max_retry_ms);
        failures += 1;
        let pause = pause / 2 + random_below(pause / 2 + 1);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Connects, subscribes, then says and hears until that ends.
async fn serve(proxy: &Arc<Proxy>, failures: &mut u32) -> Result<(), &'static str> {
    let Some(nodes) = &proxy.nodes else { return Ok(()) };
    let settings = &proxy.settings.proxy.node;
    let packet = connect(settings, &nodes.topic).ok_or("its CONNECT would be too long")?;
    let connected = proxy.upstreams.connect(&packet, Version::V311, None, LONGEST, &proxy.watch()).await;
    let Connected { mut stream, mut input, .. } = connected.ok_or("the upstream cannot be reached")?;
    accepted(&mut input)?;
    let patience = Duration::from_millis(proxy.settings.proxy.timeout_ms);
    send(&mut stream, &subscribe(&nodes.all), patience).await?;
    let interval = Duration::from_millis(settings.interval_ms);
    let mut turn = tokio::time::interval(interval);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let (mut chunk, mut skip) = (vec![0; 16 * 1024], 0);
    // before when nothing more is said, and whether there is something new to say
    let (mut rest, mut news) = (heard, false);
    loop {
        handle(proxy, &mut input, &mut skip).await?;
        tokio::select! {
            read = stream.read(&mut chunk) => match read {
                Ok(count) if count > 0 => {
                    heard = Instant::now();
                    *failures = 0;
                    input.extend_from_slice(&chunk[..count]);
                    continue;
                }
                _ => return Err("the upstream closed it"),
            },
            _ = turn.tick() => {}
            () = nodes.news.notified(), if !news => {
                news = true;
                continue;
            }
            () = tokio::time::sleep_until(rest), if news => turn.reset(),
            () = proxy.drained() => {
                send(&mut stream, &publish(&nodes.topic, b""), patience).await?;
                // DISCONNECT: no will
                return send(&mut stream, &[0xE0, 0], patience).await;
            }
        }
        if heard.elapsed() > interval * SILENT_INTERVALS + patience {
            return Err("nothing came for too long");
        }
        news = false;
        let began = Instant::now();
        let payload = tell(proxy).await?;
        rest = began + pause_after(payload.len(), began.elapsed());
        proxy.counts.node_told.add(1);
        send(&mut stream, &publish(&nodes.topic, &payload), patience).await?;
    }
}

/// How long nothing new is said after so many bytes, which it took so long to find.
fn pause_after(bytes: usize, took: Duration) -> Duration {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    SOONEST.max(took * PART_OF_TIME).max(FOR_EACH_BYTE * bytes)
}

/// What this node says: to look at a hundred thousand sessions takes its time, and others wait for this thread.
async fn tell(proxy: &Arc<Proxy>) -> Result<Vec<u8>, &'static str> {
    let proxy = Arc::clone(proxy);
    let telling = move || proxy.nodes.as_ref().map_or_else(Vec::new, |nodes| nodes.tell(&proxy));
    tokio::task::spawn_blocking(telling).await.map_err(|_| "what this node sees could not be told")
}

async fn send(stream: &mut Stream, packet: &[u8], patience: Duration) -> Result<(), &'static str> {
    let sending = async {
        stream.write_all(packet).await?;
        stream.flush().await
    };
    match timeout(patience, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the upstream closed it"),
        Err(_) => Err("the upstream takes nothing"),
    }
}

/// Takes the CONNACK from what came.
fn accepted(input: &mut Vec<u8>) -> Result<(), &'static str> {
    let Some(found) = frames::find(input, Version::V311, LONGEST)? else {
        return Err("no CONNACK came");
    };
    let end = found.header + found.body;
    let answer = connack::read(Version::V311, &input[found.header..end])?;
    input.drain(..end);
    if answer.accepted { Ok(()) } else { Err("the upstream refuses it (`proxy.node`: user and password)") }
}

/// Handles the whole packets in what came. What is too long to be a node's message is thrown away as it comes and counted:
/// it may be retained, so that a connection that ended because of it would end again and again. `skip` is how much of it is
/// still to come.
async fn handle(proxy: &Arc<Proxy>, input: &mut Vec<u8>, skip: &mut usize) -> Result<(), &'static str> {
    let mut at = 0;
    loop {
        let thrown = (*skip).min(input.len() - at);
        (at, *skip) = (at + thrown, *skip - thrown);
        let rest = &input[at..];
        // the first byte is looked at however long the packet is
        frames::find(&rest[..rest.len().min(1)], Version::V311, LONGEST)?;
        if let Some((body, start)) = frames::varint(rest, 1)
            && start + body > LONGEST
        {
            proxy.counts.node_nonsense.add(1);
            *skip = start + body;
            continue;
        }
        let Some(Frame { first, header, body }) = frames::find(rest, Version::V311, LONGEST)? else { break };
        let (start, end) = (at + header, at + header + body);
        if body > LONG {
            let (proxy, long) = (Arc::clone(proxy), input[start..end].to_vec());
            let reading = move || packet(&proxy, first, &long);
            tokio::task::spawn_blocking(reading).await.map_err(|_| "a message could not be read")??;
        } else {
            packet(proxy, first, &input[start..end])?;
        }
        at = end;
    }
    input.drain(..at);
    Ok(())
}

fn packet(proxy: &Arc<Proxy>, first: u8, body: &[u8]) -> Result<(), &'static str> {
    match first >> 4 {
        frames::PUBLISH => {
            let message = frames::delivered(Version::V311, first, body)?;
            if let Some(nodes) = &proxy.nodes {
                nodes.hear(proxy, message.topic, &body[message.payload..]);
            }
            Ok(())
        }
        frames::SUBACK if body.get(2).is_none_or(|code| *code >= 0x80) => {
            Err("the upstream refuses the subscription to the nodes' topics")
        }
        _ => Ok(()),
    }
}

/// A clean session whose will takes back what was said.
fn connect(settings: &NodeSettings, topic: &str) -> Option<Vec<u8>> {
    let (user, password) = (&settings.user, &settings.password);
    // clean session, will, will retain
    let mut flags = 0b0010_0110;
    flags |= if user.is_empty() { 0 } else { 0b1000_0000 };
    flags |= if password.is_empty() { 0 } else { 0b0100_0000 };
    let mut body = b"\0\x04MQTT\x04".to_vec();
    body.push(flags);
    body.extend(KEEP_ALIVE.to_be_bytes());
    text(&mut body, &format!("tidegate-node-{}", settings.id))?;
    text(&mut body, topic)?;
    text(&mut body, "")?;
    for given in [user, password].into_iter().filter(|given| !given.is_empty()) {
        text(&mut body, given)?;
    }
    Some(packet_of(0x10, &body))
}

fn subscribe(filter: &str) -> Vec<u8> {
    let mut body = vec![0, 1];
    // a filter made of the prefix, which is short
    let _ = text(&mut body, filter);
    body.push(0);
    packet_of(0x82, &body)
}

/// QoS 0, retained.
fn publish(topic: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(payload.len() + topic.len() + 2);
    // a topic made of the prefix, which is short
    let _ = text(&mut body, topic);
    body.extend_from_slice(payload);
    packet_of(0x31, &body)
}

fn packet_of(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 5);
    header(&mut packet, first, body.len());
    packet.extend_from_slice(body);
    packet
}

fn text(body: &mut Vec<u8>, text: &str) -> Option<()> {
    body.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
    body.extend_from_slice(text.as_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use tokio::net::{TcpListener, TcpStream};

    use super::super::talk_tests::{node, said};
    use super::*;
    use crate::chain::Chain;
    use crate::config::Settings;
    use crate::wire::{Packet, decode, frame};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A node that speaks so often, and its connection, at the other end.
    async fn connected(interval_ms: u64) -> (Arc<Proxy>, TcpStream) {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = Settings::default();
        settings.proxy.upstream = vec![upstream.local_addr().unwrap().to_string()];
        (settings.proxy.node.id, settings.proxy.node.interval_ms) = ("a".into(), interval_ms);
        settings.proxy.timeout_ms = 500;
        let proxy = Proxy::start(settings, Chain::default()).unwrap();
        // probes come by the same way
        loop {
            let (mut stream, _) = timeout(PATIENCE, upstream.accept()).await.unwrap().unwrap();
            let mut chunk = [0; 200];
            let count = stream.read(&mut chunk).await.unwrap();
            if chunk[..count].windows(15).any(|part| part == b"tidegate-node-a") {
                stream.write_all(&[0x20, 2, 0, 0]).await.unwrap();
                return (proxy, stream);
            }
        }
    }

    /// A client that makes news all the time hides from nobody that nothing comes from the upstream.
    #[tokio::test]
    async fn a_silent_upstream_is_noticed_whatever_is_new() {
        let (proxy, mut stream) = connected(60).await;
        let nodes = proxy.nodes.as_ref().unwrap();
        let (begun, mut chunk) = (Instant::now(), [0; 1024]);
        loop {
            nodes.tell_soon();
            match timeout(Duration::from_millis(5), stream.read(&mut chunk)).await {
                Ok(Ok(0) | Err(_)) => break,
                _ => assert!(begun.elapsed() < PATIENCE, "it still speaks to nobody"),
            }
        }
    }

    #[test]
    fn who_says_much_says_it_less_often() {
        let after = |bytes, millis| pause_after(bytes, Duration::from_millis(millis)).as_millis();
        assert_eq!(after(1_000, 0), 20);
        assert_eq!(after(50_000, 0), 200, "others have it to read");
        assert_eq!(after(50_000, 30), 600, "it takes its time");
    }

    /// What is new is told at once, and not when the interval is over, which is longer here than a test waits.
    #[tokio::test]
    async fn news_are_told_at_once() {
        let (proxy, mut stream) = connected(20_000).await;
        let mut seen = Vec::new();
        for seq in 1..=3 {
            let wanted = format!(r#""seq":{seq},"#);
            while !String::from_utf8_lossy(&seen).contains(&wanted) {
                let read = timeout(PATIENCE, stream.read_buf(&mut seen)).await;
                assert!(read.is_ok_and(|read| read.unwrap() > 0), "it says nothing");
            }
            proxy.nodes.as_ref().unwrap().tell_soon();
        }
    }

    /// What is read on another thread is taken in as well.
    #[tokio::test]
    async fn a_long_message_is_read_as_a_short_one_is() {
        let proxy = node("a");
        let long =
            said("b", 1).replace("\"queues\"", &format!("\"more\":\"{}\",\"queues\"", "x".repeat(LONG)));
        let mut input = publish("$tide/v1/node/b", long.as_bytes());
        input.extend(publish("$tide/v1/node/b", said("b", 2).as_bytes()));
        handle(&proxy, &mut input, &mut 0).await.unwrap();
        assert_eq!((proxy.counts.node_heard.get(), proxy.other_nodes(), input.len()), (2, 1, 0));
        assert_eq!(proxy.counts.node_nonsense.get(), 0);
    }

    /// It may be retained: a connection that ended because of it would end again and again.
    #[tokio::test]
    async fn a_packet_that_is_too_long_is_skipped() {
        let proxy = node("a");
        let mut stream = publish("$tide/v1/node/x", &vec![b' '; 2 * LONGEST]);
        stream.extend(publish("$tide/v1/node/b", said("b", 1).as_bytes()));
        let (mut input, mut skip) = (Vec::new(), 0);
        for piece in stream.chunks(1_000_003) {
            input.extend_from_slice(piece);
            handle(&proxy, &mut input, &mut skip).await.unwrap();
            assert!(input.len() < 1_000, "nothing of it is kept");
        }
        assert_eq!((input.len(), skip), (0, 0));
        assert_eq!((proxy.counts.node_nonsense.get(), proxy.other_nodes()), (1, 1));
        input.push(0x10);
        assert!(handle(&proxy, &mut input, &mut skip).await.is_err(), "no server sends that");
    }

    #[test]
    fn what_it_sends_is_mqtt() {
        let settings =
            NodeSettings { id: "a".into(), user: "u".into(), password: "p".into(), ..Default::default() };
        let packet = connect(&settings, "$tide/v1/node/a").unwrap();
        let found = frame(&packet, 1000).unwrap().unwrap();
        let Packet::Connect(connect) = decode(None, found, &packet[found.header..]).unwrap() else {
            panic!()
        };
        assert_eq!((&*connect.client_id, connect.user.as_deref()), ("tidegate-node-a", Some("u")));
        let will = connect.will.unwrap();
        assert!(will.retain && will.payload.is_empty() && will.topic == "$tide/v1/node/a");
        let packet = subscribe("$tide/v1/node/+");
        let found = frame(&packet, 1000).unwrap().unwrap();
        let packet = decode(Some(Version::V311), found, &packet[found.header..]).unwrap();
        assert!(
            matches!(packet, Packet::Subscribe(subscribe) if subscribe.filters[0].path == "$tide/v1/node/+")
        );
        let packet = publish("t", b"{}");
        let found = frame(&packet, 1000).unwrap().unwrap();
        let packet = decode(Some(Version::V311), found, &packet[found.header..]).unwrap();
        assert!(matches!(packet, Packet::Publish(publish) if publish.retain && publish.payload == b"{}"));
    }
}

//! What the tests share: the gateway in this process, and targets that misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

pub mod advisor;
pub mod dismisser;
pub mod shouter;
pub mod witness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate::config::Settings;
use tidegate::gateway::Gateway;
use tidegate::listen::Listeners;
use tidegate_bench::record::{NoteKind, Run};
use tidegate_bench::run::{Target, run};
use tidegate_bench::scenario::{Loaded, Scenario};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts the gateway in this process on a free port.
pub async fn gateway() -> SocketAddr {
    let mut settings = Settings::default();
    settings.listen.mqtt = vec!["127.0.0.1:0".parse().unwrap()];
    let gateway = Gateway::builder(settings.clone()).build().unwrap();
    let listeners = Listeners::bind(&settings.listen, None, settings.session.max_packet_size).unwrap();
    let address = listeners.local_addresses()[0].1;
    tokio::spawn(listeners.run(move |stream| gateway.clone().serve(stream), std::future::pending::<()>()));
    address
}

/// Builds the gateway's program beside the tests, where it is looked for, if it is not there.
pub fn build_tidegate() {
    static BUILD: std::sync::Once = std::sync::Once::new();
    BUILD.call_once(|| {
        if !std::path::Path::new(env!("CARGO_BIN_EXE_tidegate-bench")).with_file_name("tidegate").is_file() {
            let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let built = std::process::Command::new(cargo)
                .args(["build", "-p", "tidegate"])
                .current_dir(folder)
                .status();
            assert!(built.unwrap().success());
        }
    });
}

/// A scenario from its text.
pub fn scenario(text: &str) -> Loaded {
    Loaded { scenario: Scenario::parse("test", text, None).unwrap(), text: text.to_owned() }
}

/// Runs a scenario against an address.
pub async fn run_against(address: SocketAddr, text: &str) -> Run {
    run(&scenario(text), &mut Target::there(address, "localhost", None), 1).await
}

/// The notes of a kind, as one text.
pub fn notes(run: &Run, kind: NoteKind) -> String {
    let mine = run.notes.iter().filter(|note| note.kind == kind);
    mine.map(|note| note.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// A target that takes whatever comes, without even reading it as packets.
pub async fn swallower() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 20];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(&[0x20, 2, 0, 0]).await;
                while matches!(stream.read(&mut buffer).await, Ok(size) if size > 0) {}
            });
        }
    });
    address
}

/// What a misbehaving target does after so many messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whim {
    /// Closes every connection and listens no more.
    Close,
    /// Reads nothing any more.
    StopReading,
    /// Refuses every subscription, from the start.
    Refuse,
    /// Closes a connection whenever somebody subscribes, from the start.
    Hang,
    /// Grants QoS 0 whatever is asked for, from the start.
    GrantLess,
    /// Answers a subscription without any code, from the start.
    GrantNothing,
    /// Confirms the end of a subscription when one begins, from the start.
    Unsubscribe,
    /// Takes every connection and closes it, from the start.
    HangUp,
    /// Takes every connection and subscription and closes when the first message comes, from the start.
    HangUpLater,
    /// Closes connections when messages come, and refuses new ones.
    Deny,
}

/// A target that acknowledges messages until it has a whim.
pub async fn moody(whim: Whim, after: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        let mut clients = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((stream, _)) = accepted else { return };
                    clients.spawn(serve(stream, whim, after, count.clone()));
                }
                Some(ended) = clients.join_next() => {
                    if ended.unwrap_or(false) {
                        // Dropping the set and the listener closes everything.
                        return;
                    }
                }
            }
        }
    });
    address
}

/// Serves one client; true when it is time to close all of them.
async fn serve(mut stream: TcpStream, whim: Whim, after: u64, count: Arc<AtomicU64>) -> bool {
    let mut input = Vec::new();
    loop {
        if count.load(Relaxed) >= after {
            match whim {
                Whim::Close => return true,
                Whim::StopReading => std::future::pending::<()>().await,
                _ => {}
            }
        }
        if !matches!(stream.read_buf(&mut input).await, Ok(size) if size > 0) {
            return false;
        }
        let mut output = Vec::new();
        while let Ok(Some(packet)) = tidegate_bench::codec::packet(&input) {
            match packet.first >> 4 {
                1 if whim == Whim::Deny && count.load(Relaxed) >= after => {
                    let _ = stream.write_all(&[0x20, 2, 0, 5]).await;
                    return false;
                }
                1 if whim == Whim::HangUp => {
                    let _ = stream.write_all(&[0x20, 2, 0, 0]).await;
                    return false;
                }
                1 => output.extend([0x20, 2, 0, 0]),
                3 if whim == Whim::HangUpLater => return false,
                3 if whim == Whim::Deny && count.load(Relaxed) >= after => return false,
                3 if packet.first & 6 == 0 => {
                    count.fetch_add(1, Relaxed);
                }
                3 => {
                    count.fetch_add(1, Relaxed);
                    let topic = usize::from(packet.body[0]) << 8 | usize::from(packet.body[1]);
                    output.extend([0x40, 2, packet.body[2 + topic], packet.body[3 + topic]]);
                }
                8 if whim == Whim::Hang => return false,
                8 => {
                    let [high, low] = [packet.body[0], packet.body[1]];
                    let asked = packet.body[packet.body.len() - 1];
                    match whim {
                        Whim::Refuse => output.extend([0x90, 3, high, low, 0x80]),
                        Whim::GrantLess => output.extend([0x90, 3, high, low, 0]),
                        Whim::GrantNothing => output.extend([0x90, 2, high, low]),
                        Whim::Unsubscribe => {
                            output.extend([0xB0, 2, 0, 2, 0x90, 3, high, low, asked, 0xB0, 2, 0, 2]);
                        }
                        _ => output.extend([0x90, 3, high, low, asked]),
                    }
                }
                _ => {}
            }
            let size = packet.size;
            input.drain(..size);
        }
        if stream.write_all(&output).await.is_err() {
            return false;
        }
    }
}

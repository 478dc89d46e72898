//! Asks the gateway. One GET over plain TCP, bounded in size and time: all that is needed of HTTP here.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::table::Queue;

/// How long the gateway may take for everything.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 32 * 1024 * 1024;
/// What is asked for.
const PATH: &str = "/api/v1/queues";

/// Where the admin endpoint of a gateway is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host and port, as they are written.
    pub authority: String,
}

/// Why the gateway gave no queues.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address cannot be used.
    #[error("--url {0}: must be plain http with a host and a port, such as http://127.0.0.1:9464")]
    Url(String),
    /// Nobody is there.
    #[error("no gateway answers on http://{0}: {1}; is it running, and is this its `admin.listen`?")]
    Unreachable(String, io::Error),
    /// Nothing of the gateway looks after queues.
    #[error("the gateway on http://{0} watches no queues: is \"overload\" among its `plugins`?")]
    NotWatched(String),
    /// The gateway said no.
    #[error("the gateway on http://{0} answers with status {1}")]
    Status(String, u16),
    /// It is not the answer of a gateway.
    #[error("what http://{0} answers is not understood ({1}): is it a Tidegate?")]
    Nonsense(String, &'static str),
}

impl Address {
    /// Reads an address as `--url` has it.
    pub fn parse(url: &str) -> Result<Self, FetchError> {
        let refused = || FetchError::Url(url.to_owned());
        let authority = url.strip_prefix("http://").ok_or_else(refused)?.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        let (host, port) = authority.rsplit_once(':').ok_or_else(refused)?;
        if host.is_empty() || port.parse::<u16>().is_err() || !authority.chars().all(plain) {
            return Err(refused());
        }
        Ok(Self { authority: authority.to_owned() })
    }
}

/// The queues as they are now.
pub fn queues(address: &Address) -> Result<Vec<Queue>, FetchError> {
    let authority = || address.authority.clone();
    let answer = get(address).map_err(|error| FetchError::Unreachable(authority(), error))?;
    let nonsense = |what| FetchError::Nonsense(authority(), what);
    let (head, body) = split(&answer).ok_or_else(|| nonsense("no HTTP"))?;
    match status(head).ok_or_else(|| nonsense("no HTTP status"))? {
        200 => {}
        404 => return Err(FetchError::NotWatched(authority())),
        other => return Err(FetchError::Status(authority(), other)),
    }
    let values: Vec<serde_json::Value> =
        serde_json::from_slice(body).map_err(|_| nonsense("no list in JSON"))?;
    Ok(values.iter().map(Queue::read).collect())
}

/// HTTP 1.0, so that the end of the answer is the end of the connection.
fn get(address: &Address) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = connect(&address.authority, deadline)?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    let request =
        format!("GET {PATH} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n\r\n", address.authority);
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // which of the two a time-out is depends on the system
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
        }
        if answer.len() > MAX_ANSWER {
            return Err(io::Error::other("its answer is too long"));
        }
    }
}

fn connect(authority: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("its name stands for no address");
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The time that is left; never nothing, which would mean for ever.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left) }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it takes too long")
}

fn split(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn status(head: &str) -> Option<u16> {
    let mut words = head.lines().next()?.split(' ');
    words.next().filter(|protocol| protocol.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

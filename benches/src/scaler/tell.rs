//! Telling the target what the auto-scaler does: `POST /api/v1/autoscaler` on its admin endpoint.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::overload::Phase;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::record::{Note, NoteKind};
use crate::scenario::Scenario;
use crate::world::Shared;

/// What was told is forgotten after a while, so it is told again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the target may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const LONGEST: u64 = 64 * 1024;

/// What an auto-scaler says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct News {
    /// The queue whose consumers it scales, `group:filter`; none without a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Instances that run.
    pub instances: u32,
    /// The most instances.
    max: u32,
    /// Whether there can't be more.
    saturated: bool,
}

impl News {
    /// So many instances of the first consumers run.
    pub fn new(scenario: &Scenario, instances: u32) -> Option<Self> {
        let consumers = scenario.consumers.first()?;
        let queue = consumers.group.as_ref().map(|group| format!("{group}:{}", consumers.filter_of(0)));
        Some(Self { queue, instances, max: consumers.instances, saturated: instances >= consumers.instances })
    }
}

/// What came of telling it.
#[derive(Debug, Clone, Default)]
pub struct Told {
    times: u64,
    failures: u64,
    problem: Option<String>,
}

impl Told {
    /// Says so if the target did not hear all of it.
    pub fn note(&self) -> Option<Note> {
        let problem = self.problem.as_ref()?;
        let (failures, times) = (self.failures, self.times);
        let text = format!("{failures} of {times} times the auto-scaler could not tell its state: {problem}");
        Some(Note { kind: NoteKind::Check, text })
    }
}

/// Tells every news, and the last one again from time to time, until nobody has any more.
pub async fn tell(world: Shared, admin: SocketAddr, mut news: watch::Receiver<Option<News>>) {
    loop {
        let latest = news.borrow_and_update().clone();
        if let Some(latest) = latest {
            let answer = match tokio::time::timeout(PATIENCE, post(admin, &latest)).await {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {PATIENCE:?}")),
            };
            let mut told = world.told.lock();
            told.times += 1;
            match answer {
                Ok(Some(phase)) => *world.phase.lock() = phase,
                Ok(None) => {}
                Err(problem) => {
                    told.failures += 1;
                    told.problem = Some(problem);
                }
            }
        }
        if let Ok(Err(_)) = tokio::time::timeout(AGAIN, news.changed()).await {
            return;
        }
    }
}

/// Sends the news; the answer may say what the target's overload control does.
async fn post(admin: SocketAddr, news: &News) -> io::Result<Option<Phase>> {
    let body = serde_json::to_string(news)?;
    let mut stream = TcpStream::connect(admin).await?;
    let request = format!(
        "POST /api/v1/autoscaler HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    read(&String::from_utf8_lossy(&answer)).map_err(io::Error::other)
}

fn read(answer: &str) -> Result<Option<Phase>, String> {
    #[derive(Deserialize)]
    struct Scale {
        phase: String,
    }
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or_default();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    if status != "200" {
        let start: String = if body.is_empty() { answer } else { body }.chars().take(200).collect();
        return Err(format!("the admin endpoint answered {status} {start}"));
    }
    // The body may come in chunks, of which the JSON is one line.
    let json = body.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    Ok(serde_json::from_str::<Scale>(json).ok().map(|scale| match scale.phase.as_str() {
        "protect" => Phase::Protect,
        "recover" => Phase::Recover,
        _ => Phase::Idle,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn answers_are_read() {
        let good = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"queue\":\"g:t\",\"phase\":\"protect\"}";
        assert_eq!(read(good), Ok(Some(Phase::Protect)));
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n{}"), Ok(None));
        let bad = read("HTTP/1.1 404 Not Found\r\n\r\n{\"error\":\"no plugin\"}").unwrap_err();
        assert!(bad.contains("404") && bad.contains("no plugin"), "{bad}");
        assert!(read("").is_err() && read("\u{fffd}\u{fffd}").is_err());
    }
}

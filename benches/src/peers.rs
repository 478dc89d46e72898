//! Brokers that are started here, on free loopback ports, with configurations that are printed with the results.

mod certificate;
mod configuration;
pub mod rumqttd;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::record::Broker;
use crate::run::Target;
use crate::scenario::Scenario;

/// How long a broker may take to accept connections.
const PATIENCE: Duration = Duration::from_secs(20);

/// A broker that can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// This project's gateway.
    Tidegate,
    /// The gateway in proxy mode, with Mosquitto behind it.
    BeforeMosquitto,
    /// Eclipse Mosquitto.
    Mosquitto,
    /// NATS with its MQTT listener.
    Nats,
    /// The server of the crate rumqttd, run by this program.
    Rumqttd,
}

/// Why a broker is not there.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// There is no such broker.
    #[error(
        "there is no broker {0:?}: it must be one of tidegate, tidegate+mosquitto, mosquitto, nats, rumqttd"
    )]
    Unknown(String),
    /// It is not installed.
    #[error("{name} is not installed: {remedy}")]
    NotInstalled {
        /// Its name.
        name: &'static str,
        /// The command that installs it.
        remedy: String,
    },
    /// It can't do what the scenario needs.
    #[error("{name} can't run this scenario: {reason}")]
    Unable {
        /// Its name.
        name: &'static str,
        /// What is missing.
        reason: String,
    },
    /// It ended, or did not listen.
    #[error("{name} did not start: {reason}")]
    NotStarted {
        /// Its name.
        name: &'static str,
        /// What it said.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{name}: {source}")]
    System {
        /// Its name.
        name: &'static str,
        /// What went wrong.
        source: std::io::Error,
    },
}

/// A broker's process; it ends when this value goes.
pub struct Peer {
    kind: Kind,
    program: PathBuf,
    arguments: Vec<String>,
    address: SocketAddr,
    child: Child,
    folder: TempDir,
    /// The broker behind a proxy.
    behind: Option<Box<Peer>>,
}

impl Kind {
    /// By its name.
    pub fn named(name: &str) -> Result<Self, PeerError> {
        let all = [Self::Tidegate, Self::BeforeMosquitto, Self::Mosquitto, Self::Nats, Self::Rumqttd];
        all.into_iter().find(|kind| kind.name() == name).ok_or_else(|| PeerError::Unknown(name.to_owned()))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::BeforeMosquitto => "tidegate+mosquitto",
            Self::Mosquitto => "mosquitto",
            Self::Nats => "nats",
            Self::Rumqttd => "rumqttd",
        }
    }

    /// Whether it is this project's gateway, alone or before another broker.
    pub fn is_gateway(self) -> bool {
        matches!(self, Self::Tidegate | Self::BeforeMosquitto)
    }

    /// The program that is run; an error says how to get it.
    pub fn program(self) -> Result<PathBuf, PeerError> {
        let missing = |remedy: &str| PeerError::NotInstalled { name: self.name(), remedy: remedy.to_owned() };
        match self {
            Self::Tidegate | Self::BeforeMosquitto => tidegate().ok_or_else(|| {
                missing(
                    "build it with `cargo build --release -p tidegate`, or name it with TIDEGATE=/path/to/tidegate",
                )
            }),
            Self::Mosquitto => in_path("mosquitto").ok_or_else(|| missing("run `apt-get install mosquitto`")),
            Self::Nats => in_path("nats-server").ok_or_else(|| missing("run `apt-get install nats-server`")),
            Self::Rumqttd => beside("tidegate-bench").ok_or_else(|| {
                missing(
                    "it is part of tidegate-bench: build that with `cargo build --release -p tidegate-bench`",
                )
            }),
        }
    }

    /// Whether it is installed and can do what a scenario needs.
    pub fn is_able(self, scenario: &Scenario) -> bool {
        self.program().is_ok() && self.would_be_able(scenario)
    }

    /// Whether it can do what a scenario needs, installed or not.
    pub fn would_be_able(self, scenario: &Scenario) -> bool {
        configuration::unable(self, scenario).is_none()
    }

    /// Starts it for a scenario and waits until it listens.
    pub async fn start(self, scenario: &Scenario) -> Result<Target, PeerError> {
        let program = self.program()?;
        if let Some(reason) = configuration::unable(self, scenario) {
            return Err(PeerError::Unable { name: self.name(), reason });
        }
        let system = |source| PeerError::System { name: self.name(), source };
        let folder = TempDir::with_prefix("tidegate-bench-").map_err(system)?;
        let port = free_port().map_err(system)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let behind = match self {
            Self::BeforeMosquitto => Some(Box::new(Peer::behind().await?)),
            _ => None,
        };
        let upstream = behind.as_ref().map(|peer| peer.address);
        let prepared =
            configuration::prepare(self, scenario, folder.path(), port, upstream).map_err(system)?;
        let child = spawn(&program, &prepared.arguments, folder.path()).map_err(system)?;
        let version = self.version(&program).await;
        let arguments = prepared.arguments;
        let mut peer = Peer { kind: self, program, arguments, address, child, folder, behind };
        peer.wait_until_ready().await?;
        let broker = Broker {
            name: self.name().to_owned(),
            variant: String::new(),
            version,
            configuration: prepared.text,
            address: address.to_string(),
        };
        let (pid, authorities, admin) = (Some(peer.pid()), prepared.authorities, prepared.admin);
        Ok(Target {
            address,
            host: "localhost".to_owned(),
            broker,
            pid,
            authorities,
            admin,
            peer: Some(peer),
        })
    }

    async fn version(self, program: &Path) -> String {
        let argument = match self {
            Self::Rumqttd => return rumqttd::VERSION.to_owned(),
            Self::Mosquitto => "-h",
            Self::Tidegate | Self::BeforeMosquitto | Self::Nats => "--version",
        };
        let said = Command::new(program).arg(argument).stdin(Stdio::null()).kill_on_drop(true).output();
        let Ok(Ok(said)) = tokio::time::timeout(Duration::from_secs(5), said).await else {
            return String::new();
        };
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let last = text.lines().next().and_then(|line| line.split_whitespace().last());
        last.unwrap_or_default().trim_start_matches('v').to_owned()
    }
}

impl Peer {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// The Mosquitto behind a proxy, as it is configured unless somebody changes it.
    async fn behind() -> Result<Self, PeerError> {
        let kind = Kind::Mosquitto;
        let program = kind.program()?;
        let system = |source| PeerError::System { name: kind.name(), source };
        let folder = TempDir::with_prefix("tidegate-bench-").map_err(system)?;
        let port = free_port().map_err(system)?;
        let file = folder.path().join("broker.conf");
        std::fs::write(&file, configuration::behind(port)).map_err(system)?;
        let arguments = vec!["-c".to_owned(), file.display().to_string()];
        let child = spawn(&program, &arguments, folder.path()).map_err(system)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut peer = Self { kind, program, arguments, address, child, folder, behind: None };
        peer.wait_until_ready().await?;
        Ok(peer)
    }

    /// Kills it and starts it again, with the same configuration on the same port.
    pub async fn restart(&mut self) -> Result<(), PeerError> {
        let system = |source| PeerError::System { name: self.kind.name(), source };
        self.child.kill().await.map_err(system)?;
        self.child = spawn(&self.program, &self.arguments, self.folder.path()).map_err(system)?;
        self.wait_until_ready().await
    }

    /// Ends it and waits until it has ended.
    pub async fn stop(mut self) {
        let _ = self.child.kill().await;
        if let Some(mut behind) = self.behind {
            let _ = behind.child.kill().await;
        }
    }

    async fn wait_until_ready(&mut self) -> Result<(), PeerError> {
        let name = self.kind.name();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if tokio::net::TcpStream::connect(self.address).await.is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(5).collect();
                let said = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
                let how =
                    ended.map_or("it does not listen".to_owned(), |status| format!("it ended with {status}"));
                return Err(PeerError::NotStarted { name, reason: format!("{how}; it said: {said}") });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spawn(program: &Path, arguments: &[String], folder: &Path) -> std::io::Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log"))?;
    let mut command = Command::new(program);
    // Settings in the environment are not those that are printed with the results.
    let settings = std::env::vars_os().map(|(name, _)| name);
    for name in settings.filter(|name| name.to_string_lossy().starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
}

/// A port that is free now; somebody else may take it before the broker does, which is then told.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers live where the path of ordinary users does not look.
    let beside = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(beside).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The gateway that a variable names, or the one that was built with this program, or the one that is installed.
fn tidegate() -> Option<PathBuf> {
    named("TIDEGATE").unwrap_or_else(|| beside("tidegate").or_else(|| in_path("tidegate")))
}

/// The file that a variable names, if it is set.
fn named(variable: &str) -> Option<Option<PathBuf>> {
    let name = std::env::var_os(variable).filter(|name| !name.is_empty())?;
    Some(Some(PathBuf::from(name)).filter(|file| file.is_file()))
}

/// A program in the folder of this one; tests run in a folder below it.
fn beside(name: &str) -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.to_owned();
    [folder.join(name), folder.join("..").join(name)].into_iter().find(|file| file.is_file())
}

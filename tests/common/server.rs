//! The server under test: the real `tidegate`, or Mosquitto to check the tests themselves.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::client::Client;
use super::packet::{Connect, Version};

/// Which server is under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Tidegate,
    Mosquitto,
    /// Tidegate in proxy mode, with Mosquitto behind it.
    Proxy,
    /// Tidegate in proxy mode, with what the settings say behind it.
    ProxyAlone,
}

/// The server that `TIDEGATE_TEST_SERVER` names; Tidegate when it is not set.
pub fn target() -> Target {
    match std::env::var("TIDEGATE_TEST_SERVER").as_deref() {
        Err(_) | Ok("" | "tidegate") => Target::Tidegate,
        Ok("mosquitto") => Target::Mosquitto,
        Ok("proxy") => Target::Proxy,
        Ok(other) => panic!("TIDEGATE_TEST_SERVER is `{other}`: use tidegate, mosquitto or proxy"),
    }
}

/// How a server is to be started.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Keys and values as `tidegate serve --set` takes them. Mosquitto gets its word for those it knows.
    pub settings: Vec<(&'static str, String)>,
    /// Certificate and key in PEM files: also listen with TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Deny `test/nosubscribe` and allow everything else.
    pub deny_nosubscribe: bool,
    /// More lines for Mosquitto's configuration.
    pub mosquitto: &'static str,
    /// Start this server and not the one that the environment names.
    pub target: Option<Target>,
}

impl Setup {
    fn target(&self) -> Target {
        self.target.unwrap_or_else(target)
    }
}

/// A running server; it ends when this value goes, and at the latest when the test process does.
#[derive(Debug)]
pub struct Server {
    pub mqtt: SocketAddr,
    pub ws: SocketAddr,
    pub mqtts: SocketAddr,
    pub wss: SocketAddr,
    pub admin: SocketAddr,
    pub pid: u32,
    pub log: PathBuf,
    /// The broker behind a proxy.
    pub upstream: Option<Box<Server>>,
    target: Target,
    supervisor: Child,
}

/// Runs the server as a child and ends it when standard input closes, which happens however we end.
const SUPERVISE: &str = r#"
log=$1; shift
"$@" >"$log" 2>&1 </dev/null & pid=$!
echo $pid
cat >/dev/null
kill $pid 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    kill -0 $pid 2>/dev/null || exit 0
    sleep 0.1
done
kill -9 $pid
"#;

impl Server {
    /// Starts a server and waits until it accepts connections.
    pub fn start(name: &str, setup: &Setup) -> Self {
        // A port that was free may be taken when the server gets there: try again on others.
        for _ in 0..5 {
            let server = Self::spawn(name, setup);
            if server.wait_until_ready() {
                return server;
            }
        }
        let log = log_directory().join(format!("{name}.log"));
        panic!("the server did not start:\n{}", tail(&log, 40));
    }

    /// A connected client with an identifier of its own.
    pub fn client(&self, version: Version) -> Client {
        self.connect(&Connect::new(version, &super::unique("c")))
    }

    /// A client that this CONNECT gets in.
    pub fn connect(&self, connect: &Connect) -> Client {
        Client::connect(self.mqtt, connect)
    }

    /// A client with this CONNECT, accepted or not.
    pub fn attempt(&self, connect: &Connect) -> Client {
        Client::attempt(self.mqtt, connect)
    }

    /// A TCP connection on which nothing was sent.
    pub fn open(&self, version: Version) -> Client {
        Client::open(self.mqtt, version)
    }

    /// Resident memory in kilobytes.
    pub fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .unwrap_or_else(|error| panic!("the server is gone ({error}):\n{}", tail(&self.log, 40)));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS of the server");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number of kB")
    }

    /// Sends a signal, by name, to the server.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid.to_string()]).status();
        assert!(status.expect("kill").success(), "signal {name}");
    }

    /// The answer to a GET on the admin endpoint.
    pub fn get(&self, path: &str) -> String {
        get(self.admin, path)
    }

    fn spawn(name: &str, setup: &Setup) -> Self {
        let directory = log_directory();
        let log = directory.join(format!("{name}.log"));
        // What an earlier run wrote must not be taken for this one's.
        let _ = std::fs::remove_file(&log);
        show_log_on_panic(&log);
        let [mqtt, ws, mqtts, wss, admin] = std::array::from_fn(|_| free_address());
        let upstream = (setup.target() == Target::Proxy).then(|| {
            let behind = Setup { target: Some(Target::Mosquitto), tls: None, ..setup.clone() };
            Box::new(Self::start(&format!("{name}-upstream"), &behind))
        });
        let mut server_command = match setup.target() {
            Target::Tidegate | Target::ProxyAlone => {
                tidegate(setup, &directory.join(name), [mqtt, ws, mqtts, wss, admin])
            }
            Target::Proxy => {
                let address = upstream.as_ref().map(|upstream| upstream.mqtt.to_string()).unwrap_or_default();
                let mut setup = Setup { deny_nosubscribe: false, ..setup.clone() };
                setup.settings.extend([("mode", "proxy".into()), ("proxy.upstream", address)]);
                tidegate(&setup, &directory.join(name), [mqtt, ws, mqtts, wss, admin])
            }
            Target::Mosquitto => mosquitto(setup, &directory.join(name), [mqtt, ws, mqtts, wss]),
        };
        let mut supervisor = Command::new("sh");
        supervisor.arg("-c").arg(SUPERVISE).arg("supervise").arg(&log);
        supervisor.args(server_command.drain(..)).stdin(Stdio::piped()).stdout(Stdio::piped());
        // To Tidegate, `TIDEGATE_...` is configuration.
        supervisor.env_remove("TIDEGATE_TEST_SERVER").env_remove("TIDEGATE_TEST_BINARY");
        let mut supervisor = supervisor.spawn().expect("sh");
        let mut line = String::new();
        BufReader::new(supervisor.stdout.take().expect("piped")).read_line(&mut line).expect("a process id");
        let pid = line.trim().parse().unwrap_or_else(|_| panic!("`{line}` is not a process id"));
        Self { mqtt, ws, mqtts, wss, admin, pid, log, upstream, target: setup.target(), supervisor }
    }

    fn wait_until_ready(&self) -> bool {
        // Not only a connection: it might be somebody else who listens on this port.
        let mark = match self.target {
            Target::Tidegate => "broker mode",
            Target::Proxy | Target::ProxyAlone => "proxy mode",
            Target::Mosquitto => " running",
        };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && self.runs() {
            if std::fs::read_to_string(&self.log).is_ok_and(|text| text.contains(mark)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Whether the process is there and has not ended.
    pub fn runs(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// The answer to a GET on an admin endpoint.
pub fn get(admin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).expect("the admin endpoint");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// The last lines of a file.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| format!("{}: {error}", path.display()));
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A loopback port that is free now, below the range from which the kernel gives ports to clients.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes that run at the same time start far from each other.
    let start = (std::process::id().wrapping_mul(2_654_435_761) >> 16) as u16;
    for _ in 0..12_000 {
        let port = 20_000 + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        }
    }
    panic!("no free port");
}

/// Where logs and configuration files of the servers go.
fn log_directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("servers").join(env!("CARGO_CRATE_NAME"));
    std::fs::create_dir_all(&directory).expect("a directory for logs");
    directory
}

fn tidegate(setup: &Setup, files: &Path, addresses: [SocketAddr; 5]) -> Vec<String> {
    let [mqtt, ws, mqtts, wss, admin] = addresses.map(|address| address.to_string());
    let mut settings = vec![("listen.mqtt", mqtt), ("listen.ws", ws), ("admin.listen", admin)];
    if let Some((certificate, key)) = &setup.tls {
        settings.extend([("listen.mqtts", mqtts), ("listen.wss", wss)]);
        settings.push(("tls.certificate", certificate.display().to_string()));
        settings.push(("tls.key", key.display().to_string()));
    }
    if setup.deny_nosubscribe {
        let rules = files.with_extension("rules");
        std::fs::write(&rules, TIDEGATE_RULES).expect("a rules file");
        settings.push(("access.rules", rules.display().to_string()));
    }
    settings.extend(setup.settings.iter().cloned());
    let mut command = vec![binary(), "serve".into()];
    for (key, value) in settings {
        command.extend(["--set".into(), format!("{key}={value}")]);
    }
    command
}

/// The binary that cargo built for this test, or the one that `TIDEGATE_TEST_BINARY` names.
pub fn binary() -> String {
    std::env::var("TIDEGATE_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_tidegate").into())
}

const TIDEGATE_RULES: &str =
    "deny everyone subscribe test/nosubscribe\neveryone any #\neveryone subscribe $SYS/#\n";

fn mosquitto(setup: &Setup, files: &Path, addresses: [SocketAddr; 4]) -> Vec<String> {
    let [mqtt, ws, mqtts, wss] = addresses.map(|address| format!("{} {}", address.port(), address.ip()));
    let mut text = format!(
        "user root\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\nmax_keepalive 60\n\
         max_packet_size 2097152\nmax_queued_messages 0\nlistener {mqtt}\nlistener {ws}\nprotocol websockets\n"
    );
    if let Some((certificate, key)) = &setup.tls {
        let (certificate, key) = (certificate.display(), key.display());
        let _ = write!(text, "listener {wss}\nprotocol websockets\ncertfile {certificate}\nkeyfile {key}\n");
        let _ = write!(text, "listener {mqtts}\ncertfile {certificate}\nkeyfile {key}\n");
    }
    if setup.deny_nosubscribe {
        let rules = files.with_extension("acl");
        std::fs::write(&rules, "topic deny test/nosubscribe\ntopic readwrite #\ntopic read $SYS/#\n")
            .expect("an acl file");
        let _ = writeln!(text, "acl_file {}", rules.display());
    }
    for (key, value) in &setup.settings {
        if let Some(word) = mosquitto_word(key) {
            let _ = writeln!(text, "{word} {value}");
        }
    }
    text.push_str(setup.mosquitto);
    let file = files.with_extension("conf");
    std::fs::write(&file, text).expect("a configuration file");
    vec!["/usr/sbin/mosquitto".into(), "-c".into(), file.display().to_string()]
}

fn mosquitto_word(key: &str) -> Option<&'static str> {
    match key {
        "queue.offline_messages" => Some("max_queued_messages"),
        "session.max_packet_size" => Some("max_packet_size"),
        _ => None,
    }
}

/// After a panic, shows the end of every server's log of this test process.
fn show_log_on_panic(log: &Path) {
    static LOGS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    static HOOK: Once = Once::new();
    LOGS.lock().expect("the list of logs").push(log.to_owned());
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            let mut logs = LOGS.lock().map(|logs| logs.clone()).unwrap_or_default();
            logs.dedup();
            for log in logs {
                eprintln!("end of {}:\n{}", log.display(), tail(&log, 15));
            }
        }));
    });
}

//! The real gateway as a process that can be killed: this test program, started again with one test to run.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tidegate::config::{Sources, load};
use tidegate_plugin::{Client, Hook, Plugin, Refusal};

const SETTINGS: &str = "PLAYED_GATEWAY_SETTINGS";
const PREFIX: &str = "PLAYED_GATEWAY_PREFIX";
pub(crate) const USER: &str = "meter";
pub(crate) const PASSWORD: &str = "secret";

/// A gateway in a process of its own; killed when this value goes.
pub(crate) struct Gateway {
    child: Child,
    /// Transport and address.
    addresses: Vec<(String, SocketAddr)>,
}

impl Gateway {
    /// One whose control topics are under the played prefix, so that tests can announce rates.
    pub(crate) fn start() -> Self {
        Self::with(&["listen.mqtt=127.0.0.1:0"])
    }

    /// Starts on this port.
    pub(crate) fn start_on(address: SocketAddr) -> Self {
        Self::with(&[&format!("listen.mqtt={address}")])
    }

    /// Starts with settings as `--set` takes them, under the played prefix.
    pub(crate) fn with(settings: &[&str]) -> Self {
        Self::serve(&[&["plugins=[\"check\"]"], settings].concat(), crate::PLAYED)
    }

    /// Starts with the plugins of a real house, and settings as `--set` takes them.
    pub(crate) fn real(settings: &[&str]) -> Self {
        let plugins = ["plugins=[\"check\",\"overload\",\"gate\"]", "listen.mqtt=127.0.0.1:0"];
        Self::serve(&[&plugins, settings].concat(), "$tide/v1")
    }

    fn serve(settings: &[&str], prefix: &str) -> Self {
        let always = ["admin.listen=127.0.0.1:0", "log.level=error"];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "gateway::process", "--nocapture"])
            .env(SETTINGS, [&always, settings].concat().join("\n"))
            .env(PREFIX, prefix)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The banner names every listener, the admin endpoint last.
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut addresses = Vec::new();
        for line in lines {
            let mut words = line.split_whitespace();
            let (Some(name), Some(address)) = (words.next(), words.next()) else { continue };
            let address = address.trim_start_matches("http://").trim_end_matches("/metrics");
            if let Ok(address) = address.parse() {
                addresses.push((name.to_owned(), address));
            }
            if name == "admin" {
                break;
            }
        }
        assert!(addresses.len() > 1, "the gateway did not start with {settings:?}");
        Self { child, addresses }
    }

    pub(crate) fn address(&self, transport: &str) -> SocketAddr {
        let found = self.addresses.iter().find(|(name, _)| name == transport);
        found.unwrap_or_else(|| panic!("no {transport} in {:?}", self.addresses)).1
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://{}", self.address("mqtt"))
    }

    /// Ends it without a word to anybody.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

/// Not a test: the gateway process.
#[test]
#[ignore = "the other tests start it"]
fn process() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    // Ends with the test program, however that ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        #[allow(clippy::disallowed_methods)]
        std::process::exit(0);
    });
    let set = settings.lines().map(str::to_owned).collect();
    let sources = Sources { file: None, usual_files: Vec::new(), environment: Vec::new(), set };
    let mut loaded = load(&sources).unwrap();
    // No operator may choose a prefix that clients can publish under.
    loaded.settings.overload.prefix = std::env::var(PREFIX).unwrap();
    tidegate::serve_with(&loaded, vec![Box::new(OneUser)]).unwrap();
}

/// Whoever shows a user name must show the right one.
struct OneUser;

impl Plugin for OneUser {
    fn name(&self) -> &'static str {
        "one-user"
    }

    fn connect(&self, client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        let good =
            client.user.is_none_or(|user| user == USER && client.password == Some(PASSWORD.as_bytes()));
        if good { Ok(None) } else { Err(Refusal::bad_credentials()) }
    }
}

/// Certificates for this machine, in PEM files, with the authority's text.
pub(crate) struct Certificates {
    pub(crate) authority: String,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    _directory: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = params.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = (write("server.pem", certificate), write("server.key", key.serialize_pem()));
        Self { authority, certificate, key, _directory: directory }
    }
}

//! The real gateway as a process that can be killed: this test program, started again with one test to run.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tidegate::config::{Sources, load};
use tidegate::gateway::Gateway as Real;
use tidegate::listen::{Listeners, Tls};
use tidegate_check::{CheckConfig, CheckPlugin};
use tidegate_plugin::{Client, Hook, Plugin, Refusal};

const SETTINGS: &str = "PLAYED_GATEWAY_SETTINGS";
pub(crate) const USER: &str = "meter";
pub(crate) const PASSWORD: &str = "secret";

/// A gateway in a process of its own; killed when this value goes.
pub(crate) struct Gateway {
    child: Child,
    /// Transport and address.
    addresses: Vec<(String, SocketAddr)>,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        Self::with(&["listen.mqtt=127.0.0.1:0"])
    }

    /// Starts on this port.
    pub(crate) fn start_on(address: SocketAddr) -> Self {
        Self::with(&[&format!("listen.mqtt={address}")])
    }

    /// Starts with settings as `--set` takes them.
    pub(crate) fn with(settings: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "gateway::process", "--nocapture"])
            .env(SETTINGS, settings.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut addresses = Vec::new();
        for line in lines {
            let Some(line) = line.strip_prefix("listening: ").map(str::to_owned) else { continue };
            if line == "done" {
                break;
            }
            let (transport, address) = line.split_once(' ').unwrap();
            addresses.push((transport.to_owned(), address.parse().unwrap()));
        }
        assert!(!addresses.is_empty(), "the gateway did not start with {settings:?}");
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(serve(settings.lines().map(str::to_owned).collect()));
}

async fn serve(set: Vec<String>) {
    let sources = Sources { file: None, usual_files: Vec::new(), environment: Vec::new(), set };
    let settings = load(&sources).unwrap().settings;
    let mut config = CheckConfig::default();
    config.prefix = crate::PLAYED.into();
    let check = CheckPlugin::new(config).unwrap();
    let gateway =
        Real::builder(settings.clone()).plugin(Box::new(OneUser)).plugin(Box::new(check)).build().unwrap();
    let tls = Tls::load(&settings.tls).unwrap();
    let listeners = Listeners::bind(&settings.listen, tls, settings.session.max_packet_size).unwrap();
    for (transport, address) in listeners.local_addresses() {
        println!("\nlistening: {transport} {address}");
    }
    println!("listening: done");
    listeners.run(move |stream| gateway.clone().serve(stream), std::future::pending()).await;
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

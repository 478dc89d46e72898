//! A certificate authority of our own, made anew for each run.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// PEM files.
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) server: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) client: PathBuf,
    pub(crate) client_key: PathBuf,
}

impl Certificates {
    /// Makes an authority, a certificate for this machine and one for a client.
    pub(crate) fn make(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("certificates").join(name);
        std::fs::create_dir_all(&directory).expect("a directory for certificates");
        let authority_key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Test authority");
        let authority = params.self_signed(&authority_key).expect("a certificate");
        let issuer = Issuer::new(params, authority_key);
        let write = |file: &str, text: String| {
            let path = directory.join(file);
            std::fs::write(&path, text).expect("a PEM file");
            path
        };
        let (server, server_key) = signed(&issuer, &["localhost", "127.0.0.1", "::1"], "localhost");
        let (client, client_key) = signed(&issuer, &[], "test-client");
        Self {
            authority: write("ca.pem", authority.pem()),
            server: write("server.pem", server),
            server_key: write("server.key", server_key),
            client: write("client.pem", client),
            client_key: write("client.key", client_key),
        }
    }
}

/// Certificate and key in PEM.
fn signed(issuer: &Issuer<'_, KeyPair>, names: &[&str], common_name: &str) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

//! A certificate for brokers that are started here, new for each run.

use std::io;
use std::path::Path;

/// Writes `certificate.pem` and `key.pem`; returns who is to be trusted.
pub(super) fn write(folder: &Path) -> io::Result<Vec<u8>> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let certificate = made.cert.pem();
    std::fs::write(folder.join("certificate.pem"), &certificate)?;
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem())?;
    Ok(certificate.into_bytes())
}

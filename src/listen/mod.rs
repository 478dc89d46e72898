//! Accepting clients: TCP, TLS, WebSocket and secure WebSocket.
//!
//! [`Listeners`] binds what [`ListenSettings`](crate::config::ListenSettings) asks for and hands every
//! accepted client, once its TLS and WebSocket handshakes are done, to a handler as a [`Stream`] of bytes.

mod bind;
mod connections;
mod identity;
mod limits;
mod rate;
mod run;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use bind::open;
pub use bind::{Listeners, configured_addresses};
pub use connections::{Connections, Counts};
pub use limits::raise_file_limit;
pub use stream::{Stream, Transport};
pub use tls::Tls;

/// Why clients cannot be accepted. All of these are for the operator to put right.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} (`listen.{transport}`): {source}; {}", advice(.source, *.address))]
    Bind {
        /// The listener.
        transport: Transport,
        /// Its address.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// `listen.mqtts` or `listen.wss` is set, but no certificate.
    #[error("`listen.{0}` needs a certificate: set `tls.certificate` and `tls.key` to PEM files")]
    NoCertificate(Transport),
    /// A file with certificates or a key cannot be used.
    #[error("cannot use {} (`{key}`): {reason}", .path.display())]
    TlsFile {
        /// The configuration key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate, key and authorities are readable but do not work together.
    #[error("the TLS settings do not fit together: {0}")]
    Tls(String),
}

/// What the operator can do about an address that cannot be listened on.
fn advice(error: &io::Error, address: SocketAddr) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program (another broker, or Tidegate itself?) already listens there: stop it, or choose \
             another port; `ss -ltnp 'sport = :{}'` shows which",
            address.port()
        ),
        io::ErrorKind::PermissionDenied => {
            "ports under 1024 need a privilege (CAP_NET_BIND_SERVICE): grant it or choose a higher port"
                .into()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "this machine has no address {}: choose one it has, or 0.0.0.0 or [::] for all",
                address.ip()
            )
        }
        _ => "choose another address".into(),
    }
}

//! Where a broker is, and how to speak to it.

use std::fmt;

use crate::error::Error;

const WANTED: &str = "mqtt://host:port, mqtts://, ws:// or wss://";
/// Of a list of brokers only so many are looked at.
const MOST_REFERENCES: usize = 16;

/// What carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Tcp,
    Tls,
    WebSocket,
    SecureWebSocket,
}

impl Carrier {
    fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "mqtt" | "tcp" => Some(Self::Tcp),
            "mqtts" | "ssl" | "tls" => Some(Self::Tls),
            "ws" => Some(Self::WebSocket),
            "wss" => Some(Self::SecureWebSocket),
            _ => None,
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "mqtt",
            Self::Tls => "mqtts",
            Self::WebSocket => "ws",
            Self::SecureWebSocket => "wss",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Tcp => 1883,
            Self::Tls => 8883,
            Self::WebSocket => 80,
            Self::SecureWebSocket => 443,
        }
    }

    pub(crate) fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::SecureWebSocket)
    }
}

/// A broker's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) carrier: Carrier,
    /// A name or an address; one of IP version 6 in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Of a WebSocket, with its slash.
    pub(crate) path: String,
}

impl Address {
    /// Reads `scheme://host[:port][/path]`.
    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        Self::parts(text).ok_or_else(|| Error::Address { address: without_secrets(text), wanted: WANTED })
    }

    /// The addresses that a broker refers to, with the carrier of this one: a list of `host[:port]`.
    ///
    /// A reference may not change how bytes are carried: nobody can talk a client out of TLS.
    pub(crate) fn references(&self, list: &str) -> Vec<Self> {
        list.split_whitespace().take(MOST_REFERENCES).filter_map(|text| self.reference(text)).collect()
    }

    /// The host, bare.
    pub(crate) fn bare_host(&self) -> &str {
        bare(&self.host)
    }

    /// As a URL.
    pub(crate) fn url(&self) -> String {
        let Self { carrier, host, port, path } = self;
        format!("{}://{host}:{port}{path}", carrier.scheme())
    }

    fn parts(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let carrier = Carrier::of(scheme)?;
        let (place, path) = match rest.split_once('/') {
            Some((place, path)) => (place, format!("/{path}")),
            None => (rest, "/mqtt".to_owned()),
        };
        let web = matches!(carrier, Carrier::WebSocket | Carrier::SecureWebSocket);
        let path = if web { path } else { String::new() };
        let good = path.bytes().all(|byte| byte.is_ascii_graphic());
        let (host, port) = host_and_port(place)?;
        good.then(|| Self { carrier, host, port: port.unwrap_or(carrier.port()), path })
    }

    fn reference(&self, text: &str) -> Option<Self> {
        let place = match text.split_once("://") {
            Some((scheme, rest)) if Carrier::of(scheme) == Some(self.carrier) => rest.split('/').next()?,
            Some(_) => return None,
            None => text,
        };
        let (host, port) = host_and_port(place)?;
        Some(Self { host, port: port.unwrap_or(self.port), ..self.clone() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.url())
    }
}

/// The text for a message: whoever writes a password into an address finds it in no log.
fn without_secrets(text: &str) -> String {
    let Some((secret, rest)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = secret.find("://").map_or("", |end| &secret[..end + 3]);
    format!("{scheme}***@{rest}")
}

fn host_and_port(place: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.len() < 256 && host.bytes().all(is_host_byte),
    };
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|port| *port != 0)?),
        None => None,
    };
    good.then(|| (host.to_owned(), port))
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// A host without the brackets of an address of IP version 6.
pub(crate) fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn good_addresses_are_read() {
        for (text, expected) in [
            ("mqtt://broker", "mqtt://broker:1883"),
            ("mqtts://10.0.0.1:9000/", "mqtts://10.0.0.1:9000"),
            ("ws://broker", "ws://broker:80/mqtt"),
            ("wss://broker:8443/a/b", "wss://broker:8443/a/b"),
            ("mqtt://[::1]:1884", "mqtt://[::1]:1884"),
            ("tcp://[::1]", "mqtt://[::1]:1883"),
        ] {
            assert_eq!(Address::read(text).unwrap().url(), expected);
        }
    }

    #[test]
    fn bad_ones_are_refused() {
        for text in [
            "",
            "broker",
            "http://broker",
            "mqtt://",
            "mqtt://:1883",
            "mqtt://a:0",
            "mqtt://a:70000",
            "mqtt://a b",
            "mqtt://user:pass@host",
            "mqtt://::1",
            "mqtt://[x]",
            "ws://a/b c",
            "mqtt://a\r\nb",
        ] {
            assert!(Address::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        for text in ["mqtt://user:pass@host", "user:pass@host", "mqtt://user:p@ss@host:1"] {
            let error = Address::read(text).unwrap_err().to_string();
            assert!(!error.contains("ss@") && error.contains("***@host"), "{error}");
        }
    }

    #[test]
    fn a_certificate_knows_no_brackets() {
        assert_eq!(Address::read("mqtts://[::1]").unwrap().bare_host(), "::1");
        assert_eq!(Address::read("mqtts://broker").unwrap().bare_host(), "broker");
    }

    #[test]
    fn a_reference_keeps_the_carrier() {
        let home = Address::read("mqtts://home:8883").unwrap();
        let urls = |list: &str| home.references(list).iter().map(Address::url).collect::<Vec<_>>();
        assert_eq!(urls("other"), ["mqtts://other:8883"]);
        assert_eq!(urls("a:1 [::1]:2  mqtts://b"), ["mqtts://a:1", "mqtts://[::1]:2", "mqtts://b:8883"]);
        assert!(urls("mqtt://downgrade a:b ../x @").is_empty());
        assert_eq!(urls(&"x ".repeat(1000)).len(), MOST_REFERENCES);
    }
}

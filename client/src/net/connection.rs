//! How to reach the broker, for publishers and consumers alike.

use std::fmt;
use std::time::Duration;

use super::address::{Address, bare};
use super::reconnect::Reconnect;
use super::tls::{Tls, TlsConfigs};
use crate::error::Error;
use crate::protocol::Topics;

/// The version of MQTT to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Version {
    /// MQTT 5: rates come with acknowledgements too, and updates carry their number.
    #[default]
    V5,
    /// MQTT 3.1.1, for brokers and networks that know nothing newer.
    V311,
}

/// How safely messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Qos {
    /// At most once: nobody acknowledges anything.
    AtMostOnce,
    /// At least once: acknowledged, and sent again until it is.
    #[default]
    AtLeastOnce,
    /// Exactly once.
    ExactlyOnce,
}

/// Where the broker is, who we are, and what to do when the connection breaks.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::{Connection, Reconnect, Tls};
///
/// let connection = Connection::new("mqtts://broker.example.org", "meter-17")?
///     .credentials("meter-17", "secret")
///     .tls(Tls::system())
///     .keep_alive(Duration::from_secs(30))
///     .reconnect(Reconnect::default().longest(Duration::from_secs(120)));
/// # Ok::<(), tidegate_client::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Connection {
    pub(crate) address: Address,
    pub(crate) client: String,
    pub(crate) credentials: Option<(String, String)>,
    pub(crate) version: Version,
    pub(crate) keep_alive: Duration,
    pub(crate) session: Duration,
    pub(crate) tls: Tls,
    pub(crate) reconnect: Reconnect,
    pub(crate) follow: bool,
    pub(crate) trusted: Vec<String>,
    pub(crate) max_packet: u32,
    pub(crate) prefix: String,
}

impl Connection {
    /// A connection to `mqtt://host:port`, `mqtts://`, `ws://` or `wss://`, for the client of this identifier.
    pub fn new(address: &str, client: &str) -> Result<Self, Error> {
        let connection = Self {
            address: Address::read(address)?,
            client: client.into(),
            credentials: None,
            version: Version::default(),
            keep_alive: Duration::from_secs(30),
            session: Duration::from_secs(3600),
            tls: Tls::default(),
            reconnect: Reconnect::default(),
            follow: true,
            trusted: Vec::new(),
            max_packet: 1024 * 1024,
            prefix: "$tide/v1".into(),
        };
        connection.topics(None).map(|_| connection)
    }

    /// Logs in with a user name and a password.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// Speaks this version of MQTT. Default: 5.
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Sends something at least this often, so that a broken connection is noticed. Default: 30 s; 5 s is the least.
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        self.keep_alive = keep_alive.clamp(Duration::from_secs(5), Duration::from_secs(65_535));
        self
    }

    /// Asks the broker to keep the session this long after a break. Default: an hour. With MQTT 3.1.1 only zero is told from
    /// the rest: then there is none.
    pub fn session(mut self, session: Duration) -> Self {
        self.session = session;
        self
    }

    /// Trusts and shows these certificates, with `mqtts://` and `wss://`. Default: the system's authorities.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Waits like this before it connects again.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Whether to go where the broker refers to (reasons 0x9C and 0x9D, and `move`). Default: yes.
    ///
    /// How bytes are carried never changes. A broker that refers to another one has seen our credentials, and they are shown
    /// to the other one as well. An order to `move` is a message, and where a broker has no rules for the control topics
    /// anybody may have sent it: its host gets user, password and client certificate only if
    /// [`Connection::trust_moves_to`] names it, or if it is the one that we were told to connect to. Only to such a host does it
    /// lead for good; any other is left for home once it can't be reached.
    pub fn follow_redirects(mut self, follow: bool) -> Self {
        self.follow = follow;
        self
    }

    /// Shows credentials and client certificate to these hosts, too, when an order to `move` leads there. Default: none.
    pub fn trust_moves_to(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.trusted.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Takes no packet larger than this many bytes. Default: 1 MiB.
    pub fn max_packet(mut self, bytes: u32) -> Self {
        self.max_packet = bytes.max(1024);
        self
    }

    /// The prefix of the control topics. Default: `$tide/v1`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    pub(crate) fn topics(&self, class: Option<&str>) -> Result<Topics, Error> {
        let wanted = "not empty, without +, #, / (in a name) and NUL";
        Topics::new(&self.prefix, &self.client, class).ok_or_else(|| Error::Name {
            what: "client identifier, class or prefix",
            value: format!("{} {} {}", self.client, class.unwrap_or_default(), self.prefix),
            wanted,
        })
    }

    /// The same for a host that may not see who we are.
    pub(crate) fn without_secrets(&self) -> Self {
        Self { credentials: None, ..self.clone() }
    }

    /// Whether a host may see who we are, although only a message leads there.
    pub(crate) fn trusts(&self, host: &Address) -> bool {
        let named = self.trusted.iter().map(String::as_str).chain([self.address.bare_host()]);
        named.map(bare).any(|name| name.eq_ignore_ascii_case(host.bare_host()))
    }

    /// Checks what can be checked before connecting.
    pub(crate) fn validate(&self) -> Result<Option<TlsConfigs>, Error> {
        let Reconnect { first, growth, longest, .. } = self.reconnect;
        let wrong = |key, value, wanted| Err(Error::Setting { key, value, wanted });
        if !(growth > 1.0 && growth <= 4.0) {
            return wrong("reconnect.growth", growth.to_string(), "above 1 and at most 4");
        }
        if first.is_zero() || longest < first {
            return wrong("reconnect.first", format!("{first:?}"), "above 0 and at most the longest");
        }
        if self.address.carrier.is_secure() { self.tls.configs().map(Some) } else { Ok(None) }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.credentials.as_ref().map(|(user, _)| user);
        out.debug_struct("Connection")
            .field("address", &self.address.url())
            .field("client", &self.client)
            .field("user", &user)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

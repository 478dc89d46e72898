//! What a Tidegate plugin sees and what it may answer.
//!
//! A [`Plugin`] is made once from the configuration. For every client that connects it makes a small
//! [`Hook`] that lives as long as the connection and is asked about everything the client does, in the
//! order in which plugins are configured. The first answer other than [`Verdict::Continue`] wins.
//!
//! A hook belongs to one connection and is never asked by two threads at once, so it needs no locks for what
//! is its own. It runs on the path of every message: it must not block, and should not allocate. What
//! takes longer belongs into [`Plugin::connect`], with [`Wants::blocking_connect`].
//!
//! # A plugin of your own
//!
//! This one gives every client a budget of payload bytes for each window of time.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidegate_plugin::{Client, Hook, Moment, Plugin, Publish, Publisher, Refusal, Verdict};
//!
//! /// How many payload bytes each client may publish in each window.
//! struct ByteBudget {
//!     bytes: usize,
//!     window: Duration,
//! }
//!
//! impl Plugin for ByteBudget {
//!     fn name(&self) -> &'static str {
//!         "byte-budget"
//!     }
//!
//!     fn connect(&self, client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
//!         if client.user == Some("camera") {
//!             return Ok(None); // Without a hook, this client is never asked about again.
//!         }
//!         let window = self.window.as_millis() as u64;
//!         Ok(Some(Box::new(Budget { left: self.bytes, ends: 0, bytes: self.bytes, window })))
//!     }
//! }
//!
//! /// What is left to one client.
//! struct Budget {
//!     left: usize,
//!     ends: u64,
//!     bytes: usize,
//!     window: u64,
//! }
//!
//! impl Hook for Budget {
//!     fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
//!         let (size, now) = (publish.payload.len(), publish.now.as_nanos() / 1_000_000);
//!         if now >= self.ends {
//!             (self.left, self.ends) = (self.bytes, now + self.window);
//!         }
//!         if size <= self.left {
//!             self.left -= size;
//!             return Verdict::Continue;
//!         }
//!         let wait = Duration::from_millis(self.ends - now);
//!         let refusal = Refusal::quota_exceeded("byte budget used up", wait);
//!         match publish.qos {
//!             _ if size > self.bytes => Verdict::Close(refusal), // It would never fit.
//!             0 => Verdict::Delay(wait), // Nobody would see a refusal: what comes next waits instead.
//!             _ => Verdict::Refuse(refusal), // The acknowledgement says so.
//!         }
//!     }
//! }
//!
//! let plugin = ByteBudget { bytes: 1000, window: Duration::from_secs(3600) };
//! let peer = SocketAddr::from(([127, 0, 0, 1], 50_000));
//! let publisher = Arc::new(Publisher::new("meter-1".into(), None, 60, 5));
//! let client = Client { id: "meter-1", user: None, password: None, peer, certificate: None, publisher: &publisher };
//! let mut hook = plugin.connect(&client).unwrap().unwrap();
//! let (now, waited) = (Moment::from_nanos(1), Duration::ZERO);
//! let mut publish =
//!     |payload: &[u8], qos| hook.on_publish(&Publish { topic: "t", payload, qos, retain: false, now, waited });
//! assert_eq!(publish(&[0; 900], 1), Verdict::Continue);
//! assert!(matches!(publish(&[0; 900], 1), Verdict::Refuse(refusal) if refusal.code == 0x97));
//! assert!(matches!(publish(&[0; 900], 0), Verdict::Delay(_)));
//! assert!(matches!(publish(&[0; 1001], 0), Verdict::Close(_)));
//! assert_eq!(publish(&[0; 100], 0), Verdict::Continue);
//! ```
//!
//! A binary of your own hands it to the gateway, which asks plugins in the order in which they are given:
//!
//! ```text
//! Gateway::builder(settings)
//!     .plugin(Box::new(ByteBudget { bytes: 1_000_000, window: Duration::from_secs(60) }))
//! ```

mod control;
mod host;
mod overrun;
mod request;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use control::{ControlState, QueueControl};
pub use host::{Crowd, Delays, Host, Publisher, QueueReport, Tick};
pub use overrun::{Overrun, Waiting};
pub use request::{Request, Response};
pub use tidegate_control::overload::Phase;
pub use tidegate_control::time::Moment;

/// A plugin: the factory of its per-connection hooks.
pub trait Plugin: Send + Sync + 'static {
    /// The name used in the configuration, in logs and in metrics.
    fn name(&self) -> &'static str;

    /// Decides about a client that wants to connect, and makes its hook.
    ///
    /// Runs where blocking is allowed when [`Wants::blocking_connect`] says so. Default: everybody may
    /// connect and nothing is hooked.
    fn connect(&self, _client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        Ok(None)
    }

    /// What it wants of the gateway beside its hooks; always the same. Default: nothing, which costs nothing.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// The gateway is about to serve; what it does for plugins can be asked for from now on. Default: nothing.
    fn start(&self, _host: &Weak<dyn Host>) {}

    /// One turn of the control loop, at an even pace and never two at once, with [`Wants::ticks`]. Default: nothing.
    fn on_tick(&self, _tick: &Tick<'_>) {}

    /// With [`Wants::accepted`]: a message is accepted: every plugin let it pass, and consumers will get it. A will counts when it is published.
    /// `add` gives it a user property, which MQTT 5 consumers find before those of the publisher. Runs on the path of
    /// every message, by many threads at once. Default: nothing.
    fn on_accept(&self, _publish: &Publish<'_>, _add: &mut dyn FnMut(&str, &str)) {}

    /// What operators may ask of it. Default: nothing.
    fn operated(&self) -> Option<&dyn Operated> {
        None
    }
}

/// What a plugin wants of the gateway beside its hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// [`Plugin::connect`] computes long enough (over 100 microseconds) to need a thread of its own.
    pub blocking_connect: bool,
    /// [`Plugin::on_tick`] is to be called. Queues are measured only when a plugin says so.
    pub ticks: bool,
    /// [`Plugin::on_accept`] is to be called.
    pub accepted: bool,
}

/// The side of a plugin that operators see.
pub trait Operated {
    /// Reads its files again (SIGHUP). On an error the plugin keeps what it had. Default: nothing to do.
    fn reload(&self) -> Result<(), String> {
        Ok(())
    }

    /// Answers a question over HTTP; none when it is not this plugin's. Must not block. Default: none.
    fn on_request(&self, _request: &Request<'_>) -> Option<Response> {
        None
    }

    /// Brings its metrics up to date, before they are read. Default: nothing.
    fn refresh_metrics(&self) {}
}

/// What a plugin keeps for one connection. Every method has a default that lets everything pass.
pub trait Hook: Send {
    /// The client publishes a message. Default: [`Verdict::Continue`].
    fn on_publish(&mut self, _publish: &Publish<'_>) -> Verdict {
        Verdict::Continue
    }

    /// The client connects with this will: `Refuse` and `Close` refuse the client, `Drop` throws the will away, `Delay` has no
    /// effect. Default: as [`Hook::on_publish`].
    fn on_will(&mut self, will: &Publish<'_>) -> Verdict {
        self.on_publish(will)
    }

    /// What the client is for a topic while others wait for their turn to publish there. Asked instead of `on_publish`,
    /// which is asked when it is its turn; must change nothing. Default: [`Standing::Ordinary`].
    fn standing(&mut self, _topic: &str) -> Standing {
        Standing::Ordinary
    }

    /// The client subscribes to one filter. `Delay` and `Drop` count as `Refuse`. `Close` ends the connection without
    /// an answer to the filters before it.
    /// Default: [`Verdict::Continue`].
    fn on_subscribe(&mut self, _subscribe: &Subscribe<'_>) -> Verdict {
        Verdict::Continue
    }

    /// A subscription that every plugin allowed is in force. Default: nothing.
    fn on_subscribed(&mut self, _subscribe: &Subscribe<'_>) {}

    /// The client asks for what it missed, and every plugin let that pass. Whoever says `true` takes the check and sees
    /// to its answer; the plugins after it are not asked. Default: `false`.
    fn on_check(&mut self, _check: &CheckRequest<'_>) -> bool {
        false
    }

    /// The client ended one subscription. Default: nothing.
    fn on_unsubscribe(&mut self, _filter: &str) {}

    /// The client is gone, whatever the reason. Default: nothing.
    fn on_disconnect(&mut self) {}
}

/// What a client is for a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Standing {
    /// It waits for its turn like others.
    #[default]
    Ordinary,
    /// It does not wait.
    Exempt,
    /// It may not publish there: it need not wait to be told so.
    Refused,
}

/// A client that wants to connect.
#[derive(Debug, Clone)]
pub struct Client<'a> {
    /// The client identifier, after one was assigned if it came empty.
    pub id: &'a str,
    /// The user name, if any.
    pub user: Option<&'a str>,
    /// The password, if any.
    pub password: Option<&'a [u8]>,
    /// Where it connects from.
    pub peer: SocketAddr,
    /// The common name of its verified TLS certificate, if it showed one.
    pub certificate: Option<&'a str>,
    /// What it is as a publisher, with its keep-alive and its protocol level; shared by all plugins.
    pub publisher: &'a Arc<Publisher>,
}

/// A message that a client publishes.
#[derive(Debug, Clone, Copy)]
pub struct Publish<'a> {
    /// The topic, aliases resolved.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// 0, 1 or 2.
    pub qos: u8,
    /// Whether it is to be retained.
    pub retain: bool,
    /// Now, on the gateway's monotonic clock.
    pub now: Moment,
    /// How long it has waited already because a plugin or a queue held its publisher.
    pub waited: Duration,
}

/// An active check: a message of a client under the control topic of its own that is there for it.
#[derive(Debug, Clone, Copy)]
pub struct CheckRequest<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// Where an MQTT 5 client wants the answer, if it says so. What it names is not checked: others may listen there,
    /// and the client itself may not be allowed to publish there.
    pub response_topic: Option<&'a str>,
    /// What the answer is to carry for an MQTT 5 client, if it says so.
    pub correlation_data: Option<&'a [u8]>,
}

/// One filter that a client subscribes to.
#[derive(Debug, Clone, Copy)]
pub struct Subscribe<'a> {
    /// The topic filter, without `$share/group/`.
    pub filter: &'a str,
    /// The shared group, if any.
    pub group: Option<&'a str>,
    /// The QoS asked for.
    pub qos: u8,
}

/// What is to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// Ask again after this long; what follows from this client waits too, its pings are answered.
    Delay(Duration),
    /// Acknowledge it, but throw it away; counted.
    Drop,
    /// Answer with this reason and go on with the connection.
    Refuse(Refusal),
    /// Close the connection with this reason.
    Close(Refusal),
}

/// Why something is not done. Not an error: the client may be told when to try again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The MQTT 5 reason code; translated for MQTT 3.1.1 clients.
    pub code: u8,
    /// A short text for people, sent as reason string to MQTT 5 clients.
    pub reason: Cow<'static, str>,
    /// When trying again may help.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// 0x86: the server does not accept the user name or password.
    pub fn bad_credentials() -> Self {
        Self { code: 0x86, reason: "bad user name or password".into(), retry_after: None }
    }

    /// 0x80: no, without saying why.
    pub fn unspecified(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: 0x80, reason: reason.into(), retry_after: None }
    }

    /// 0x87: the client is not authorised to do this.
    pub fn not_authorized(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: 0x87, reason: reason.into(), retry_after: None }
    }

    /// 0x97: more than allowed; `retry_after` says when it will be.
    pub fn quota_exceeded(reason: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        Self { code: 0x97, reason: reason.into(), retry_after: Some(retry_after) }
    }
}

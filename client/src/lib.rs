//! Paced publishers and active consumers for MQTT: the companion of the Tidegate gateway.
//!
//! When the consumers of an MQTT system can't keep up, brokers drop messages or fall behind. Tidegate works out the rate
//! that its publishers may use and tells them. This crate is the side that listens: a [`Publisher`] keeps to the rate and
//! *aggregates* samples while it is held back, instead of discarding them; a [`Subscriber`] fetches updates that went
//! missing, as rarely as it can. Both work with any broker: where nobody announces a rate, nobody is held back.
//!
//! # Start
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate_client::{Connection, Policy, Publisher};
//!
//! # fn read_sensor() -> f64 { 21.5 }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tidegate_client::Error> {
//! let connection = Connection::new("mqtt://localhost:1883", "thermometer-1")?;
//! let publisher = Publisher::builder(connection).policy(Policy::Mean).start()?;
//! loop {
//!     publisher.offer("room/1/temp", read_sensor()); // never waits
//!     tokio::time::sleep(Duration::from_millis(100)).await;
//! }
//! # }
//! ```
//!
//! And the other side:
//!
//! ```no_run
//! use tidegate_client::{Connection, Subscriber};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tidegate_client::Error> {
//! let connection = Connection::new("mqtt://localhost:1883", "dashboard-1")?;
//! let mut updates = Subscriber::builder(connection).filter("room/+/temp").start()?;
//! while let Some(update) = updates.next().await {
//!     println!("{}: {:?}, {} lost before", update.topic, update.payload, update.lost_before);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What happens when
//!
//! | when | then |
//! |---|---|
//! | nobody announces a rate | a publisher sends at its own rate ([`PublisherBuilder::rate`]; default: every sample at once) |
//! | a rate is announced, for all, for the class or for this client | it is kept from the next message on; the most special announcement counts, and an acknowledgement's when it is newer |
//! | a whole fleet is told the same rate | each publisher waits for a random part of the interval first, and its intervals vary by a tenth, so that they don't send in step |
//! | samples come faster than the rate | they are merged by the [`Policy`]: the latest, the mean with its count, a batch, or an [`Aggregate`] of your own |
//! | an alarm must get through | [`Publisher::offer_urgent`]: before all samples, in order, one at a time, until it is acknowledged |
//! | the broker is killed, and is back without its memory | what was not acknowledged is sent again, and so are the alarms of the last seconds, since they may not have been handed on ([`PublisherBuilder::urgent_memory`]); a subscriber asks for everything that the new one has |
//! | the gateway refuses a message (0x97) | it goes again after the time that the gateway named and a random bit more; nothing is lost |
//! | the gateway refuses it for another reason | it is counted as rejected, and does not go again |
//! | an announced rate is not confirmed within its time (`ttl_ms`) | it is multiplied by 1.1 each second until the publisher's own rate is reached: no jump |
//! | acknowledgements tell rates, and one comes without | nothing changed: the rate is confirmed |
//! | an announcement is older than one known (`seq`), or nonsense | it is ignored and counted |
//! | a sender sends only when something changes | [`PublisherBuilder::min_interval`] and [`PublisherBuilder::deadband`]; the band widens with the interval |
//! | the connection breaks | it is made again, after a random time of a window that grows; the session goes on, or what was not acknowledged is sent again |
//! | the network is gone for long | [`Publisher::offer`] goes on without waiting; buffers have bounds, and what does not fit is counted |
//! | the broker says "use another server" (0x9C, 0x9D) or `move` | the client goes there, by the same transport; home again when nobody is there. `move` is a message, and perhaps a stranger's: it leads there without credentials and never for good, unless [`Connection::trust_moves_to`] names the host |
//! | the network takes nothing any more, not even a ping | it is noticed within the keep-alive and five seconds, and the connection made again |
//! | the broker sends again what it did not hear of, in a session that goes on | it is handed on once, and acknowledged again |
//! | the broker has many messages for us, after a break, from before the program was started, or because the program is slow | all of them are handed on, in order, however long the program takes; what checks bring meanwhile waits for them |
//! | a notification is lost | the next number shows it, or the next check does; what was missing is fetched and handed on before what came after it |
//! | messages of two publishers under one topic overtake each other | they are put in order; a gap is asked about after 100 ms |
//! | a filter is that of a shared group | its updates are handed on as they come, and never asked for: other members get the rest |
//! | there are more topics than [`SubscriberBuilder::most_topics`] | those beyond are handed on as they come, and are not asked for |
//! | it can't be fetched any more | the next update says how many are lost |
//! | the gateway answers checks slowly, or asks for fewer | the subscriber backs off at random, and keeps to the rate that it is told |
//! | the program does not take its updates | they are not acknowledged, and the broker stops sending: the gateway sees the queue grow, and tells the publishers |
//!
//! # Bounds
//!
//! Nothing grows without end: topics, bytes and samples that wait, alarms, updates, topics that are tracked, and what is under
//! way all have bounds that can be set, and a count of what they cost ([`PublisherStats`], [`SubscriberStats`]).
//!
//! # What versions promise
//!
//! Of other crates three are part of this one's interface: [`bytes`](https://docs.rs/bytes/1) 1 (payloads are its `Bytes`),
//! `futures-core` 0.3 (a [`Subscriber`] is its `Stream`), and [`control`], for strategies, backoff and the types that they need:
//! `active`, `backoff`, `random` and `time`, and its `Invalid`, which becomes an [`Error`]. Another major version of one of them is another
//! major version of this crate. That MQTT is spoken with rumqttc, and TLS with rustls, can't be seen from outside and may change.
//!
//! # MQTT 5 and 3.1.1
//!
//! MQTT 5 is the default. With [`Version::V311`] rates come by their topics only, nothing is ever refused, and updates
//! don't carry their number: what an answer brings is compared with the payloads that came, so that an update that was
//! missing is fetched only when no later one came before the check.
//!
//! Fetching needs the plugin `check` on the gateway, which is not on by default: `plugins = ["access", "overload", "gate",
//! "check"]`. Without it a subscriber still delivers what comes by itself, asks ever more rarely, and [`SubscriberStats`]
//! counts checks that nobody answered.

mod aggregate;
mod clock;
mod consume;
mod error;
mod net;
mod protocol;
mod publish;
mod sample;

pub use aggregate::{Added, Aggregate, Batch, Latest, Mean, Merged, Policy};
pub use consume::{Subscriber, SubscriberBuilder, SubscriberStats, Update, Via};
pub use error::Error;
pub use net::{Connection, Qos, Reconnect, Tls, Version};
pub use publish::{Publisher, PublisherBuilder, PublisherStats, UrgentFull};
pub use sample::Sample;
/// The algorithms behind this crate, among them the strategies for checks and their settings.
pub use tidegate_control as control;

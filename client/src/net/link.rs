//! Keeps a connection: makes it, makes it again, goes where it is told to.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::random::Seeded;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::ClientConfig;

use super::address::Address;
use super::connection::Connection;
use super::reconnect::Attempts;
use super::route::{By, Route};
use super::tls::TlsConfigs;
use super::wire::{Broken, Wire};
use super::{Event, probe};
use crate::clock::{Clock, duration, randomness};
use crate::protocol::{Move, Topics};

/// Events that may wait: the reader of a socket waits when the program does not keep up.
const EVENTS: usize = 64;

/// How a connection is doing.
#[derive(Debug, Default)]
pub(crate) struct Status {
    pub(crate) connected: bool,
    /// Why the last one ended, or could not be made.
    pub(crate) error: Option<String>,
}

/// A connection that is kept by a task of its own; it ends when this value goes.
pub(crate) struct Link {
    events: mpsc::Receiver<Event>,
    status: Arc<Mutex<Status>>,
    task: JoinHandle<()>,
}

impl Link {
    /// Starts to connect.
    pub(crate) fn start(connection: Connection, topics: &Topics, tls: Option<TlsConfigs>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let status = Arc::new(Mutex::new(Status::default()));
        let seen = status.clone();
        let moved = topics.moved.clone();
        let task = tokio::spawn(async move {
            // A panic in the network code ends one keeper, not the program's connection.
            loop {
                let keeper =
                    Keeper::new(connection.clone(), moved.clone(), tls.clone(), sender.clone(), seen.clone());
                let ended = tokio::spawn(keeper.run()).await;
                seen.lock().connected = false;
                if ended.is_ok() || sender.send(Event::Down).await.is_err() {
                    return;
                }
                tracing::error!(
                    client = connection.client,
                    "the connection's task panicked and starts again"
                );
                tokio::time::sleep(connection.reconnect.first).await;
            }
        });
        Self { events, status, task }
    }

    /// How it is doing, now and later.
    pub(crate) fn status(&self) -> Arc<Mutex<Status>> {
        self.status.clone()
    }

    /// The next event; none only when the runtime is going.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task knows.
struct Keeper {
    connection: Connection,
    moved: String,
    tls: Option<TlsConfigs>,
    events: mpsc::Sender<Event>,
    status: Arc<Mutex<Status>>,
    route: Route,
    attempts: Attempts,
    clock: Clock,
    random: Seeded,
}

impl Keeper {
    fn new(
        connection: Connection,
        moved: String,
        tls: Option<TlsConfigs>,
        events: mpsc::Sender<Event>,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        let route = Route::new(connection.address.clone());
        let attempts = Attempts::new(connection.reconnect);
        let (clock, random) = (Clock::start(), randomness());
        Self { connection, moved, tls, events, status, route, attempts, clock, random }
    }

    /// Connects again and again, until nobody listens any more.
    async fn run(mut self) {
        let mut saved = None;
        while !self.events.is_closed() {
            let (target, (connection, tls)) = (self.route.target().clone(), self.shown());
            let mut wire = Wire::open(&connection, &target, tls.as_ref(), saved.take());
            let broken = self.serve(&mut wire).await;
            self.status.lock().connected = false;
            let (rest, kept) = wire.close();
            saved = kept;
            for event in rest {
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
            if self.events.send(Event::Down).await.is_err() {
                return;
            }
            let Some(broken) = broken else { return };
            self.recover(broken).await;
            if *self.route.target() != target {
                // The session stays where it is: elsewhere nothing of it can go on.
                saved = None;
            }
        }
    }

    /// What the broker that is next may see of us.
    fn shown(&self) -> (Connection, Option<Arc<ClientConfig>>) {
        let tls = self.tls.as_ref();
        if self.route.is_trusted() {
            return (self.connection.clone(), tls.map(|tls| tls.own.clone()));
        }
        (self.connection.without_secrets(), tls.map(|tls| tls.bare.clone()))
    }

    /// Hands on events until the connection breaks; none when nobody listens.
    async fn serve(&mut self, wire: &mut Wire) -> Option<Broken> {
        loop {
            let event = tokio::select! {
                event = wire.next() => event,
                () = self.events.closed() => return None,
            };
            match event {
                Err(broken) => return Some(broken),
                Ok(None) => {}
                Ok(Some(event)) => {
                    self.note(&event);
                    if let Some(order) = self.order(&event) {
                        return Some(order);
                    }
                    self.events.send(event).await.ok()?;
                }
            }
        }
    }

    fn note(&mut self, event: &Event) {
        if matches!(event, Event::Up(_)) {
            tracing::debug!(client = self.connection.client, to = %self.route.target(), "connected");
            self.attempts.succeeded(self.clock.now());
            self.route.arrived();
            self.status.lock().connected = true;
        }
    }

    /// An order to move, if this is one that can be followed; any other is as good as none.
    fn order(&self, event: &Event) -> Option<Broken> {
        let Event::Message(message) = event else { return None };
        if message.topic != self.moved || !self.connection.follow {
            return None;
        }
        let Move { server, permanent } = Move::read(&message.payload)?;
        if self.route.target().references(&server).is_empty() {
            tracing::warn!(client = self.connection.client, "an order to move that can't be followed");
            return None;
        }
        Some(Broken::Ordered { server, permanent })
    }

    fn has_secrets(&self) -> bool {
        self.connection.credentials.is_some() || self.tls.as_ref().is_some_and(TlsConfigs::has_identity)
    }

    /// Decides where to go next, and waits before it does.
    async fn recover(&mut self, broken: Broken) {
        tracing::debug!(client = self.connection.client, from = %self.route.target(), ?broken, "disconnected");
        if self.attempts.has_lasted(self.clock.now()) {
            self.route.lasted();
        }
        self.status.lock().error = Some(broken.to_string());
        let follow = self.connection.follow;
        let reference = match broken {
            Broken::Redirected { server: Some(server), permanent } => Some((server, permanent, By::Broker)),
            Broken::Redirected { server: None, permanent } if follow => {
                let (connection, tls) = self.shown();
                let server = probe::reference(&connection, self.route.target(), tls.as_ref()).await;
                server.map(|server| (server, permanent, By::Broker))
            }
            Broken::Ordered { server, permanent } => Some((server, permanent, By::Message)),
            Broken::Redirected { .. } | Broken::Failed(_) => None,
        };
        let (connection, random) = (&self.connection, &mut self.random);
        let trusts = |address: &Address| connection.trusts(address);
        let followed = reference
            .filter(|_| follow)
            .is_some_and(|(server, permanent, by)| self.route.refer(&server, permanent, by, trusts, random));
        if !followed {
            self.route.failed();
        }
        if followed && !self.route.is_trusted() && self.has_secrets() {
            let (client, to) = (&self.connection.client, self.route.target());
            tracing::warn!(client, %to, "moving without credentials: see Connection::trust_moves_to");
        }
        let wait = self.attempts.failed(self.clock.now(), &mut self.random);
        tokio::select! {
            () = tokio::time::sleep(duration(wait)) => {}
            () = self.events.closed() => {}
        }
    }
}

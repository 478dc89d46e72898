//! Keeps a connection: makes it, makes it again, goes where it is told to.

use std::sync::Arc;

use tidegate_control::random::Seeded;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::ClientConfig;

use super::connection::Connection;
use super::reconnect::Attempts;
use super::route::Route;
use super::wire::{Broken, Saved, Wire};
use super::{Event, probe};
use crate::clock::{Clock, duration, randomness};
use crate::protocol::{Move, Topics};

/// Events that may wait: the reader of a socket waits when the program does not keep up.
const EVENTS: usize = 64;

/// A connection that is kept by a task of its own; it ends when this value goes.
pub(crate) struct Link {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Link {
    /// Starts to connect.
    pub(crate) fn start(connection: Connection, topics: &Topics, tls: Option<Arc<ClientConfig>>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let moved = topics.moved.clone();
        let task = tokio::spawn(async move {
            // A panic in the network code ends one keeper, not the program's connection.
            loop {
                let keeper = Keeper::new(connection.clone(), moved.clone(), tls.clone(), sender.clone());
                if tokio::spawn(keeper.run()).await.is_ok() || sender.send(Event::Down).await.is_err() {
                    return;
                }
                tracing::error!(
                    client = connection.client,
                    "the connection's task panicked and starts again"
                );
                tokio::time::sleep(connection.reconnect.first).await;
            }
        });
        Self { events, task }
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
    tls: Option<Arc<ClientConfig>>,
    events: mpsc::Sender<Event>,
    route: Route,
    attempts: Attempts,
    clock: Clock,
    random: Seeded,
}

impl Keeper {
    fn new(
        connection: Connection,
        moved: String,
        tls: Option<Arc<ClientConfig>>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let route = Route::new(connection.address.clone());
        let attempts = Attempts::new(connection.reconnect);
        Self { connection, moved, tls, events, route, attempts, clock: Clock::start(), random: randomness() }
    }

    /// Connects again and again, until nobody listens any more.
    async fn run(mut self) {
        let mut saved = None;
        while !self.events.is_closed() {
            let mut wire = Wire::open(&self.connection, self.route.target(), self.tls.as_ref(), saved.take());
            let broken = self.serve(&mut wire).await;
            let (rest, kept) = wire.close();
            saved = Some(kept);
            for event in rest {
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
            if self.events.send(Event::Down).await.is_err() {
                return;
            }
            let Some(broken) = broken else { return };
            self.recover(broken, &mut saved).await;
        }
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
        Some(Broken::Redirected { server: Some(server), permanent })
    }

    /// Decides where to go next, and waits before it does.
    async fn recover(&mut self, broken: Broken, saved: &mut Option<Saved>) {
        tracing::debug!(client = self.connection.client, from = %self.route.target(), ?broken, "disconnected");
        if self.attempts.has_lasted(self.clock.now()) {
            self.route.lasted();
        }
        match broken {
            Broken::Redirected { server, permanent } if self.connection.follow => {
                let server = match server {
                    Some(server) => Some(server),
                    None => probe::reference(&self.connection, self.route.target(), self.tls.as_ref()).await,
                };
                match server {
                    // The session stays where it is: elsewhere nothing of it can go on.
                    Some(server) if self.route.refer(&server, permanent, &mut self.random) => *saved = None,
                    _ => self.route.failed(),
                }
            }
            _ => self.route.failed(),
        }
        let wait = self.attempts.failed(self.clock.now(), &mut self.random);
        tokio::select! {
            () = tokio::time::sleep(duration(wait)) => {}
            () = self.events.closed() => {}
        }
    }
}

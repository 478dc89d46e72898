//! A small HTTP server whose clients can neither stay nor be many.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::AdminError;
use crate::config::AdminSettings;

/// Waiting after accept failed.
const PAUSE: Duration = Duration::from_millis(200);

/// The admin endpoint, bound and not yet serving.
#[derive(Debug)]
pub struct Admin {
    listeners: Vec<(SocketAddr, TcpListener)>,
    router: Router,
    limits: Limits,
}

/// What one client, and all together, may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For the head of the request.
    pub(super) head: Duration,
    /// For the whole connection, which serves one request.
    pub(super) connection: Duration,
    /// Connections at the same time; others wait in the kernel.
    pub(super) connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head: Duration::from_secs(5), connection: Duration::from_secs(30), connections: 64 }
    }
}

impl Admin {
    /// Binds every configured address, or none. Must be called within a Tokio runtime.
    pub fn bind(settings: &AdminSettings, router: Router) -> Result<Self, AdminError> {
        let mut listeners = Vec::new();
        for &address in &settings.listen {
            let opened = crate::listen::open(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
            listeners.push(opened.map_err(|source| AdminError::Bind { address, source })?);
        }
        Ok(Self { listeners, router, limits: Limits::default() })
    }

    /// Where it can be reached, with the port that was chosen if 0 was asked for.
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|(address, _)| *address).collect()
    }

    /// Serves until `shutdown` is done.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut loops = JoinSet::new();
        let places = Arc::new(Semaphore::new(self.limits.connections));
        for (_, listener) in self.listeners {
            loops.spawn(accept_all(listener, self.router.clone(), self.limits, places.clone()));
        }
        shutdown.await;
        loops.shutdown().await;
    }

    #[cfg(test)]
    pub(super) fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

async fn accept_all(listener: TcpListener, router: Router, limits: Limits, places: Arc<Semaphore>) {
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((socket, _)) => {
                let serving = serve(socket, router.clone(), limits);
                tokio::spawn(async move {
                    // Nobody is told when time is up: the client is slow, or gone.
                    let _ = timeout(limits.connection, serving).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept an admin connection, trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, router: Router, limits: Limits) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        // One request for each connection: an idle one would hold a place.
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "admin connection failed");
    }
}

//! Signals from the operating system.

use std::io;

use tokio::signal::unix::{self, SignalKind};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM or SIGINT: stop.
    Shutdown,
    /// SIGHUP: read users, rules and certificates again.
    Reload,
}

/// The signals that are handled, from the moment this is made.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    /// Takes the signals over from their default action. Must be called within a Tokio runtime.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Shutdown,
            _ = self.interrupt.recv() => Signal::Shutdown,
            _ = self.hang_up.recv() => Signal::Reload,
        }
    }
}

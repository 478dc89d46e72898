//! The line that says how far a run is.

use std::io::{IsTerminal, Write};

use crate::record::Interval;

/// A line that is written over, on a terminal.
pub(super) struct Progress {
    name: String,
    terminal: bool,
    shown: f64,
}

impl Progress {
    pub(super) fn new(scenario: &str, broker: &str) -> Self {
        Self {
            name: format!("{scenario}, {broker}"),
            terminal: std::io::stderr().is_terminal(),
            shown: f64::MIN,
        }
    }

    pub(super) fn show(&mut self, interval: &Interval) {
        if !self.terminal || (interval.t - self.shown).abs() < 0.9 {
            return;
        }
        self.shown = interval.t;
        let rate = |count: u64| count as f64 / interval.length.max(1e-9);
        let line = format!(
            "\r\x1b[K{}: {:5.1} s  sent {:.0}/s  delivered {:.0}/s  waiting {}  p99 {}  devices {}  consumers {}",
            self.name,
            interval.t,
            rate(interval.sent),
            rate(interval.delivered),
            interval.waiting,
            interval.p99.map_or("-".to_owned(), |p99| format!("{p99:.1} ms")),
            interval.devices,
            interval.consumers
        );
        // A run that nobody can watch is still worth finishing.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    pub(super) fn finish(&self) {
        if self.terminal {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

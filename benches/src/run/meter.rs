//! What the broker's process uses, also when the process is replaced by another one.

use crate::process::Usage;

/// Follows the broker from process to process.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pid: Option<u32>,
    /// Processor time of the processes before this one.
    before: f64,
    /// Processor time of this one when it was last seen.
    seen: f64,
}

/// What the broker has used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Reading {
    /// Processor time of all its processes together, in seconds; none if they are not known.
    pub(super) cpu: Option<f64>,
    /// Memory in bytes; none if there is no process now.
    pub(super) rss: Option<u64>,
}

impl Meter {
    /// Begins with this process, if it is known.
    pub(super) fn new(pid: Option<u32>) -> Self {
        Self { pid, ..Self::default() }
    }

    /// Reads what is used now; `usage` tells it of a process.
    pub(super) fn read(&mut self, usage: impl FnOnce(u32) -> Option<Usage>) -> Reading {
        let Some(pid) = self.pid else { return Reading::default() };
        let now = usage(pid);
        self.seen = now.map_or(self.seen, |now| now.cpu.max(self.seen));
        Reading { cpu: Some(self.before + self.seen), rss: now.map(|now| now.rss) }
    }

    /// Another process takes over, whose time starts at nothing.
    pub(super) fn follow(&mut self, pid: Option<u32>) {
        self.before += self.seen;
        self.seen = 0.0;
        self.pid = pid;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_in_the_next_process() {
        let of = |cpu: f64, rss: u64| move |_: u32| Some(Usage { cpu, rss });
        let mut meter = Meter::new(Some(7));
        assert_eq!(meter.read(of(5.0, 100)), Reading { cpu: Some(5.0), rss: Some(100) });
        meter.read(of(6.0, 100));
        assert_eq!(meter.read(|_| None), Reading { cpu: Some(6.0), rss: None }, "it is gone");
        meter.follow(Some(8));
        let mut asked = 0;
        let reading = meter.read(|pid| {
            asked = pid;
            Some(Usage { cpu: 0.5, rss: 40 })
        });
        assert_eq!((asked, reading), (8, Reading { cpu: Some(6.5), rss: Some(40) }));
        assert_eq!(Meter::new(None).read(of(1.0, 1)), Reading::default());
    }
}

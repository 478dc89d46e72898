//! Whether a run still goes forward, and who is to blame if not.

use std::sync::atomic::Ordering::Relaxed;

use super::{Experiment, is_interrupted};
use crate::clock::{Nanos, SECOND};
use crate::consumer;
use crate::stats::get;
use crate::world::World;

/// The last time that anything went forward, and what was counted then.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Forward {
    pub(super) at: Nanos,
    pub(super) steps: u64,
    pub(super) disconnects: u64,
}

impl Experiment {
    /// Fails if nothing at all went forward for too long though something was due, or somebody wants it to end.
    pub(super) fn look_for_progress(&mut self) -> Result<(), String> {
        if is_interrupted() {
            return Err("interrupted".to_owned());
        }
        if let Some(error) = self.world.fatal.lock().clone() {
            return Err(error);
        }
        let counts = &self.world.counts;
        let connected = u64::from(counts.consumers.load(Relaxed)) + u64::from(counts.devices.load(Relaxed));
        let messages = get(&counts.taken) + get(&counts.delivered) + get(&counts.duplicates);
        // One that is closed and comes back is no step forward.
        let steps = match self.connecting {
            true => connected.max(self.forward.steps),
            false => messages + get(&counts.lasting),
        };
        let now = self.world.clock.now();
        if steps != self.forward.steps || !self.is_something_due(now) {
            self.forward = Forward { at: now, steps, disconnects: get(&counts.disconnects) };
        }
        let patience = self.world.scenario.patience;
        if ((now - self.forward.at) as f64) < patience * SECOND as f64 {
            return Ok(());
        }
        Err(self.complaint(patience))
    }

    /// Whether the target owes anything: a connection, an acknowledgement, a delivery.
    fn is_something_due(&self, now: Nanos) -> bool {
        if self.connecting {
            return true;
        }
        let counts = &self.world.counts;
        let (devices, consumers) = (counts.devices.load(Relaxed), counts.consumers.load(Relaxed));
        if devices < self.fleet.wanted_devices(now) || consumers < self.fleet.wanted_consumers() {
            return true;
        }
        !is_stalled(&self.world, now) && (get(&counts.in_flight) > 0 || is_delivery_owed(&self.world))
    }

    fn complaint(&self, patience: f64) -> String {
        let counts = &self.world.counts;
        let (devices, consumers) = (counts.devices.load(Relaxed), counts.consumers.load(Relaxed));
        let trouble = self.world.trouble.lock().clone();
        let words = trouble.map(|words| format!("; the last trouble: {words}")).unwrap_or_default();
        let closed = get(&counts.disconnects) - self.forward.disconnects;
        if closed > 0 || get(&counts.disconnects) > 0 && (devices == 0 || consumers == 0) {
            format!(
                "the target closed its connections ({closed} of them in the end), and nothing went forward for \
                 {patience} s{words}"
            )
        } else {
            format!(
                "the target takes and delivers nothing: no message, no connection for {patience} s \
                 ({devices} devices and {consumers} consumers are connected){words}"
            )
        }
    }
}

/// Whether the scenario itself keeps consumers from taking anything.
fn is_stalled(world: &World, now: Nanos) -> bool {
    let share = world.share(now);
    world.scenario.consumers.iter().any(|consumers| consumer::speed(&consumers.speed, share) <= 0.0)
}

/// Whether somebody waits for a message; what was sent while consumers were away may never come.
fn is_delivery_owed(world: &World) -> bool {
    world.waiting() > 0 && world.recipients.iter().all(|one| one.always_there.load(Relaxed))
}

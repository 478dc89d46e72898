//! Whether a run still goes forward, and who is to blame if not.

use std::sync::atomic::Ordering::Relaxed;

use super::{Experiment, is_interrupted};
use crate::clock::{Nanos, SECOND};
use crate::consumer;
use crate::stats::get;
use crate::world::World;

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
        let sum = get(&counts.accepted) + get(&counts.delivered) + get(&counts.duplicates);
        // While all connect, one that is closed and comes back is no step forward.
        let sum = if self.connecting { connected.max(self.forward.1) } else { sum + get(&counts.connects) };
        let now = self.world.clock.now();
        if sum != self.forward.1 || !self.is_something_due(now) {
            self.forward = (now, sum);
        }
        let patience = self.world.scenario.patience;
        if ((now - self.forward.0) as f64) < patience * SECOND as f64 {
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
        if get(&counts.disconnects) > 0 && (devices == 0 || consumers == 0) {
            format!("the target closed its connections, and nothing went forward for {patience} s{words}")
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

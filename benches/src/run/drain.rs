//! After the measured part: waiting for what is on its way.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Experiment;
use crate::clock::{Nanos, SECOND};
use crate::record::{Note, NoteKind, Run};
use crate::stats::get;
use crate::world::Stage;

/// Nothing more is expected when nothing came for so long.
const QUIET: Nanos = 2 * SECOND;

impl Experiment {
    /// Waits until all that was accepted is delivered, or nothing comes any more.
    pub(super) async fn drain(&mut self, result: &mut Run) {
        let begun = self.world.clock.now();
        // A run that was cut short has nothing to wait for but what is on its way.
        let longest = if result.error.is_some() { 1.0 } else { self.world.scenario.drain };
        let end = begun + (longest * SECOND as f64) as Nanos;
        self.fleet.devices_do(Stage::Finish, begun);
        self.world.draining.store(true, Relaxed);
        self.fleet.wake_consumers();
        let (mut last, mut counted) = (begun, 0);
        let complete = loop {
            self.world.clock.sleep(Duration::from_millis(10)).await;
            let now = self.world.clock.now();
            let counts = &self.world.counts;
            let sum = get(&counts.delivered) + get(&counts.duplicates) + get(&counts.accepted);
            if sum != counted {
                (last, counted) = (now, sum);
            }
            let settled = self.world.waiting() == 0 && self.fleet.is_settled();
            // One more look after all is there: a duplicate may follow.
            let quiet = now - last;
            if quiet > QUIET || now >= end || settled && quiet > SECOND / 5 {
                break settled;
            }
            if now >= self.next_sample {
                self.sample(false);
            }
        };
        self.sample(false);
        result.drain_seconds = (last - begun) as f64 / SECOND as f64;
        if !complete {
            let waited = self.world.clock.now() - begun;
            result.notes.push(self.gave_up(waited, self.world.clock.now() - last));
        }
    }

    /// Says what was missing when waiting ended after this time, the last part of it in silence.
    fn gave_up(&self, waited: Nanos, quiet: Nanos) -> Note {
        let [waited, quiet] = [waited, quiet].map(|time| time as f64 / SECOND as f64);
        let silence =
            if quiet > 0.2 { format!(", nothing came for the last {quiet:.1} s") } else { String::new() };
        let text = format!(
            "waiting ended after {waited:.1} s{silence}: {} deliveries were still owed and {} messages not \
             acknowledged; what would have come later counts as lost",
            self.world.waiting(),
            get(&self.world.counts.in_flight),
        );
        Note { kind: NoteKind::Check, text }
    }
}

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
    /// Waits until all that was accepted is delivered, or nothing comes any more, or it takes too long.
    ///
    /// In the last case, who has got something new since the time that is returned was still getting messages: what it has
    /// not got was cut off by the end of waiting and is not known to be lost.
    pub(super) async fn drain(&mut self, result: &mut Run) -> Option<Nanos> {
        let begun = self.world.clock.now();
        // A run that was cut short has nothing to wait for but what is on its way.
        let longest = if result.error.is_some() { 1.0 } else { self.world.scenario.drain };
        let end = begun + (longest * SECOND as f64) as Nanos;
        self.fleet.devices_do(Stage::Finish, begun);
        self.world.draining.store(true, Relaxed);
        self.fleet.wake_consumers();
        let (mut last, mut counted) = (begun, 0);
        let (complete, cut_off) = loop {
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
                break (settled, quiet <= QUIET);
            }
            if now >= self.next_sample {
                self.sample(false);
            }
        };
        self.sample(false);
        result.drain_seconds = (last - begun) as f64 / SECOND as f64;
        if complete {
            return None;
        }
        let now = self.world.clock.now();
        let since = cut_off.then(|| now - QUIET.min((now - begun) / 2));
        result.notes.push(self.gave_up(now - begun, now - last, since));
        since
    }

    /// Says what was missing when waiting ended after this time, the last part of it in silence.
    fn gave_up(&self, waited: Nanos, quiet: Nanos, since: Option<Nanos>) -> Note {
        let came = |since| self.world.recipients.iter().any(|one| one.stream.lock().last_new >= since);
        let end = match since.is_some_and(came) {
            true => {
                "messages were still coming, so what would have come later counts as undelivered, not as lost"
            }
            false => "what would have come later counts as lost",
        };
        let [waited, quiet] = [waited, quiet].map(|time| time as f64 / SECOND as f64);
        let silence =
            if quiet > 0.2 { format!(", nothing came for the last {quiet:.1} s") } else { String::new() };
        let text = format!(
            "waiting ended after {waited:.1} s{silence}: {} deliveries were still owed and {} messages not \
             acknowledged; {end}",
            self.world.waiting(),
            get(&self.world.counts.in_flight),
        );
        Note { kind: NoteKind::Check, text }
    }
}

//! What had not arrived in the end: it counts with the time that it had waited, or a stall that lasts would be invisible.

use std::sync::atomic::Ordering::Relaxed;

use crate::clock::Nanos;
use crate::device::Done;
use crate::record::{Note, NoteKind};
use crate::stats::Distribution;
use crate::world::World;

use super::verdict::by_flow;

/// How much had not arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owing {
    /// Messages that were due and not sent.
    pub(super) unsent: u64,
    /// Deliveries of messages that were sent.
    pub(super) outstanding: u64,
}

impl Owing {
    /// Counts what had not arrived when waiting ended, and adds the ages of what was meant to be sent in the measured
    /// part to the latencies of its class.
    ///
    /// What is missing before the last message that came is not late but lost, and counted as that.
    pub(super) fn find(
        world: &World,
        devices: &[Done],
        ended: Nanos,
        latencies: &mut [Distribution],
        waits: &mut [Distribution],
    ) -> Self {
        let mut owing = Self::default();
        let measured = world.measured();
        for unsent in devices.iter().flat_map(|device| &device.unsent) {
            let flow = &world.flows[unsent.flow as usize];
            let wanted = |stream: &&u32| world.recipients[**stream as usize].wanted.load(Relaxed);
            let streams = flow.streams.iter().filter(wanted).count() as u64;
            unsent.record(&measured, streams, &mut latencies[usize::from(flow.class)]);
            owing.unsent += unsent.count;
        }
        for (number, sending) in devices.iter().flat_map(by_flow) {
            let flow = &world.flows[number as usize];
            for stream in &flow.streams {
                let recipient = &world.recipients[*stream as usize];
                // One that was away in between is not owed all of them.
                if !recipient.always_there.load(Relaxed) {
                    continue;
                }
                let next = recipient.stream.lock().next_of(number);
                for (range, acked) in world.acks[number as usize].lock().since(next) {
                    if measured.contains(&acked) {
                        let count = sending.accepted.count_within(&range);
                        let waited = ended.saturating_sub(acked);
                        waits[usize::from(flow.class)].saturating_record_n((waited / 1000).max(1), count);
                    }
                }
                for (range, intended) in sending.intents.since(next) {
                    let refused = sending.refused.count_within(&range);
                    let count = (range.end - range.start).saturating_sub(refused);
                    owing.outstanding += count;
                    if measured.contains(&intended) {
                        let waited = ended.saturating_sub(intended);
                        latencies[usize::from(flow.class)].saturating_record_n((waited / 1000).max(1), count);
                    }
                }
            }
        }
        owing
    }

    /// Says so, if there is anything.
    pub(super) fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut note = |text: String| notes.push(Note { kind: NoteKind::Late, text });
        let counted =
            "the latencies count each with the time until then, which is less than it would have taken";
        if self.unsent > 0 {
            note(format!(
                "{} messages were due and could not be sent before the end: {counted}",
                self.unsent
            ));
        }
        if self.outstanding > 0 {
            let count = self.outstanding;
            note(format!("{count} deliveries of sent messages had not come when waiting ended: {counted}"));
        }
        notes
    }
}

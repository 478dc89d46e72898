//! What one turn of a connection publishes goes into the spine as one batch.

use std::task::Context;

use super::{Connection, Offered, Scratch};
use crate::broker::clock::Millis;
use crate::broker::session::State;

impl Connection {
    pub(super) fn start_batch(&mut self, scratch: &mut Scratch) {
        if let Some(grant) = self.gate.take_grant() {
            self.turn.begin(grant);
        }
        scratch.batch.start(self.session.number);
        scratch.ordinal = None;
        scratch.acks.clear();
        scratch.received.clear();
    }

    /// Gives the batch to the spine; its acknowledgements are sent once it is accepted.
    pub(super) fn finish_batch(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        state: &mut State,
        now: Millis,
    ) {
        self.settle_finished(scratch, now);
        if scratch.batch.is_empty() {
            self.output.extend_from_slice(&scratch.acks);
            scratch.acks.clear();
            scratch.received.clear();
            return;
        }
        let count = scratch.batch.count() as u64;
        match self.broker.spine.offer(self.session.number, scratch.batch.finish(), cx.waker()) {
            Ok(()) => {
                self.broker.stats.published.add(count);
                self.output.extend_from_slice(&scratch.acks);
            }
            Err(batch) => {
                // should the connection end before they are accepted, the client sends them again
                scratch.received.retain(|id| state.received.remove(id));
                let (acks, received) = (scratch.acks.clone(), scratch.received.clone());
                self.offered = Some(Box::new(Offered { batch, acks, received, count }));
            }
        }
        self.start_batch(scratch);
    }

    pub(super) fn offer_again(&mut self, cx: &mut Context<'_>, state: &mut State) -> bool {
        let Some(mut offered) = self.offered.take() else { return true };
        match self.broker.spine.offer(self.session.number, std::mem::take(&mut offered.batch), cx.waker()) {
            Ok(()) => {
                self.broker.stats.published.add(offered.count);
                self.output.extend_from_slice(&offered.acks);
                state.received.extend(offered.received);
                true
            }
            Err(batch) => {
                offered.batch = batch;
                self.offered = Some(offered);
                false
            }
        }
    }
}

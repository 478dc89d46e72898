//! Who is to blame for messages that go out late: the broker that held a device up, or the generator.

use crate::clock::Nanos;

/// The time for which a device was held up since it was last on schedule. Lateness beyond it is the generator's own.
#[derive(Debug, Default)]
pub(super) struct Blame {
    held_from: Option<Nanos>,
    excused: Nanos,
}

impl Blame {
    /// A full socket, a full window or the lack of a connection holds the device up from this time on.
    pub(super) fn hold(&mut self, from: Nanos) {
        self.held_from = Some(self.held_from.map_or(from, |known| known.min(from)));
    }

    /// Nothing holds it up any more.
    pub(super) fn release(&mut self, now: Nanos) {
        if let Some(from) = self.held_from.take() {
            self.excused += now.saturating_sub(from);
        }
    }

    /// It is on schedule again: what comes late from now on has no excuse.
    pub(super) fn catch_up(&mut self) {
        self.excused = 0;
    }

    /// How late a message is by the generator's fault.
    pub(super) fn own_lateness(&self, intended: Nanos, now: Nanos) -> Nanos {
        let held = self.held_from.map_or(0, |from| now.saturating_sub(from));
        now.saturating_sub(intended).saturating_sub(self.excused).saturating_sub(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_by_the_broker_is_excused_until_the_schedule_is_caught_up() {
        let mut blame = Blame::default();
        blame.hold(100);
        assert_eq!(blame.own_lateness(120, 500), 0, "it is still held up");
        blame.release(600);
        assert_eq!(blame.own_lateness(110, 600), 0);
        assert_eq!(blame.own_lateness(350, 800), 0, "batches after the first one are excused too");
        assert_eq!(blame.own_lateness(110, 700), 90, "what is later than the delay is not");
        blame.catch_up();
        assert_eq!(blame.own_lateness(800, 900), 100);
    }

    #[test]
    fn short_holds_do_not_excuse_a_generator_that_falls_behind() {
        let mut blame = Blame::default();
        for turn in 0..10 {
            blame.hold(100 * turn);
            blame.release(100 * turn + 5);
        }
        assert_eq!(blame.own_lateness(0, 1000), 950);
    }
}

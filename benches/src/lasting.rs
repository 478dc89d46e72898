//! Which connections show that a target is there: it may take every one and close it at once.

use crate::clock::{Nanos, SECOND};
use crate::stats::{Counts, add};

/// A connection that is kept for this long is more than a polite refusal.
const LONG: Nanos = SECOND;

/// What a client has to show for its connections.
#[derive(Debug)]
pub struct Lasting {
    long: Nanos,
    /// When the connection began.
    begun: Nanos,
    /// Whether this connection has lasted.
    has_lasted: bool,
    /// Whether a connection that lasted was counted and nothing came of it yet.
    is_counted: bool,
}

impl Lasting {
    /// For a run that is cut short when nothing goes forward for so many seconds.
    pub fn new(patience: f64) -> Self {
        let long = LONG.min((patience * SECOND as f64 / 2.0) as Nanos);
        Self { long, begun: 0, has_lasted: false, is_counted: false }
    }

    /// A connection begins.
    pub fn begin(&mut self, now: Nanos) {
        (self.begun, self.has_lasted) = (now, false);
    }

    /// Looks at the clock; returns when to look again.
    pub fn look(&mut self, now: Nanos, counts: &Counts) -> Nanos {
        let due = self.begun.saturating_add(self.long);
        if self.has_lasted || now < due {
            return if self.has_lasted { Nanos::MAX } else { due };
        }
        self.has_lasted = true;
        // One that comes back again and again, and gets nothing done, is a step forward only once.
        add(&counts.lasting, u64::from(!std::mem::replace(&mut self.is_counted, true)));
        Nanos::MAX
    }

    /// Something came of the connection, or the scenario ended it: the next one counts.
    pub fn succeed(&mut self) {
        self.is_counted = false;
    }

    /// Whether this connection has lasted.
    pub fn has_lasted(&self) -> bool {
        self.has_lasted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::get;

    #[test]
    fn a_client_that_gets_nothing_done_is_a_step_forward_only_once() {
        let (counts, mut lasting) = (Counts::default(), Lasting::new(5.0));
        for turn in 0..5 {
            let now = 10 * turn * SECOND;
            lasting.begin(now);
            assert_eq!(lasting.look(now + SECOND / 2, &counts), now + SECOND);
            assert!(!lasting.has_lasted());
            assert_eq!(lasting.look(now + SECOND, &counts), Nanos::MAX);
            assert!(lasting.has_lasted());
        }
        assert_eq!(get(&counts.lasting), 1);
        lasting.succeed();
        lasting.begin(60 * SECOND);
        lasting.look(62 * SECOND, &counts);
        assert_eq!(get(&counts.lasting), 2);
    }

    #[test]
    fn who_has_little_patience_looks_sooner() {
        let (counts, mut lasting) = (Counts::default(), Lasting::new(0.5));
        lasting.begin(0);
        assert_eq!(lasting.look(0, &counts), SECOND / 4);
    }
}

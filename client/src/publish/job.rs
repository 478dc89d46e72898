//! Work with an aggregate of the user's, which is done while nobody holds the lock of the outbox.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::aggregate::{Added, Aggregate};
use crate::sample::Sample;

/// What an aggregate panicked with.
pub(crate) type Panic = Box<dyn Any + Send>;

/// An aggregate on loan, and what is to be done with it: samples are added, and then perhaps a message is taken.
pub(crate) struct Job {
    pub(super) topic: Arc<str>,
    pub(super) aggregate: Box<dyn Aggregate>,
    pub(super) samples: Vec<Sample>,
    /// Bytes by which it may grow.
    pub(super) room: usize,
    /// The number of the message to take; none to take none.
    pub(super) take: Option<u64>,
}

/// What an aggregate says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    pub(super) size: usize,
    pub(super) value: Option<f64>,
    pub(super) newest_wins: bool,
}

impl Facts {
    fn of(aggregate: &dyn Aggregate) -> Self {
        let (size, value) = (aggregate.size(), aggregate.value());
        Self { size, value, newest_wins: aggregate.newest_wins() }
    }
}

/// What came of a job. It must be brought back.
pub(crate) struct Finished {
    pub(super) topic: Arc<str>,
    /// What became of each sample.
    pub(super) added: Vec<Added>,
    /// The number and the payload of the message, if one was to be taken.
    pub(super) taken: Option<(u64, Option<Bytes>)>,
    /// The value before that.
    pub(super) value: Option<f64>,
    pub(super) facts: Facts,
    /// The aggregate; or else what it panicked with: it can't be trusted any more.
    pub(super) aggregate: Result<Box<dyn Aggregate>, Panic>,
}

impl Job {
    /// Does it.
    pub(crate) fn run(self) -> Finished {
        let Self { topic, mut aggregate, samples, mut room, take } = self;
        let (mut added, mut taken) = (Vec::with_capacity(samples.len()), None);
        let (mut value, mut facts) = (None, Facts::default());
        let work = || {
            for sample in samples {
                let grows = aggregate.grows_by(&sample);
                added.push(if grows > room { Added::Refused } else { aggregate.add(sample) });
                room = room.saturating_sub(grows);
            }
            value = aggregate.value();
            taken = take.map(|number| (number, aggregate.take().map(|merged| merged.payload)));
            facts = Facts::of(&*aggregate);
        };
        // Nothing of it is used after a panic but what is counted.
        let aggregate = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(()) => Ok(aggregate),
            Err(panic) => Err(panic),
        };
        Finished { topic, added, taken, value, facts, aggregate }
    }
}

impl Finished {
    /// Whether the last of the samples was taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.aggregate.is_ok() && !matches!(self.added.last(), Some(Added::Refused))
    }
}

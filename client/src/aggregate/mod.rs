//! What becomes of samples while the publisher is held back: they are aggregated, not discarded.

mod batch;
mod latest;
mod mean;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use batch::Batch;
pub use latest::Latest;
pub use mean::Mean;

use crate::sample::Sample;

/// Collects the samples of one topic until a message may go.
///
/// Write one of your own for what [`Policy`] does not offer, such as the greatest value or a histogram. Its memory must
/// be bounded however many samples come: a publisher may be held back for hours.
///
/// Its methods run where the sample is offered, or in the publisher's task, never two at once, and while nothing is
/// locked: they may use the publisher. While one of them runs, samples of its topic wait beside it. When one panics, the samples in the
/// aggregate are counted as dropped, and the topic begins anew; whoever offered the sample sees the panic.
///
/// ```
/// use tidegate_client::{Added, Aggregate, Merged, Policy, Sample};
///
/// /// Only the greatest of the samples counts.
/// #[derive(Default)]
/// struct Peak {
///     greatest: Option<f64>,
///     samples: u64,
/// }
///
/// impl Aggregate for Peak {
///     fn add(&mut self, sample: Sample) -> Added {
///         let Some(number) = sample.number() else { return Added::Refused };
///         self.greatest = Some(self.greatest.map_or(number, |greatest| greatest.max(number)));
///         self.samples += 1;
///         Added::Kept
///     }
///
///     fn take(&mut self) -> Option<Merged> {
///         let payload = self.greatest.take()?.to_string().into();
///         Some(Merged { payload, samples: std::mem::take(&mut self.samples) })
///     }
///
///     fn size(&self) -> usize {
///         16
///     }
///
///     fn grows_by(&self, _sample: &Sample) -> usize {
///         0
///     }
/// }
///
/// let policy = Policy::own(|| Box::<Peak>::default());
/// # let _ = policy;
/// ```
pub trait Aggregate: Send {
    /// Takes one more sample and says what that did.
    fn add(&mut self, sample: Sample) -> Added;

    /// The message for all samples taken since the last call; none when there are none.
    fn take(&mut self) -> Option<Merged>;

    /// The bytes it holds now.
    fn size(&self) -> usize;

    /// How many bytes more it would hold with this sample; when there is no room for them, it is refused. Default: the
    /// size of the sample. Where a sample only changes what is there, that is none.
    fn grows_by(&self, sample: &Sample) -> usize {
        sample.size()
    }

    /// The value to compare with a deadband, if its samples are numbers. Default: none, so that no deadband applies.
    fn value(&self) -> Option<f64> {
        None
    }

    /// Whether a message that was refused is worthless once there is a newer one. Default: no.
    fn newest_wins(&self) -> bool {
        false
    }
}

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Added {
    /// It will be part of the next message, with all that were there before.
    Kept,
    /// It takes the place of so many older samples, which is what the policy is for.
    Replaced(u64),
    /// It is kept, but so many older samples had to go because there was no room.
    Dropped(u64),
    /// It is none that this policy can take.
    Refused,
}

/// A message made of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The payload to publish.
    pub payload: Bytes,
    /// How many samples it stands for.
    pub samples: u64,
}

type Make = dyn Fn() -> Box<dyn Aggregate> + Send + Sync;

/// How samples are aggregated while they wait.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The newest sample replaces the older ones.
    #[default]
    Latest,
    /// The mean of numbers and their count, as `{"mean":21.5,"count":17}`.
    Mean,
    /// Up to so many samples or bytes in one message, one sample on each line; when full, the oldest go.
    Batch {
        /// The most samples in a message.
        samples: usize,
        /// The most bytes in a message.
        bytes: usize,
    },
    /// An [`Aggregate`] of your own; see [`Policy::own`].
    Own(Arc<Make>),
}

impl Policy {
    /// A policy of your own: `make` is called once for each topic.
    pub fn own(make: impl Fn() -> Box<dyn Aggregate> + Send + Sync + 'static) -> Self {
        Self::Own(Arc::new(make))
    }

    /// An aggregate that follows this policy.
    pub(crate) fn make(&self) -> Box<dyn Aggregate> {
        match self {
            Self::Latest => Box::<Latest>::default(),
            Self::Mean => Box::<Mean>::default(),
            Self::Batch { samples, bytes } => Box::new(Batch::new(*samples, *bytes)),
            Self::Own(make) => make(),
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => out.write_str("Latest"),
            Self::Mean => out.write_str("Mean"),
            Self::Batch { samples, bytes } => write!(out, "Batch({samples} samples, {bytes} bytes)"),
            Self::Own(_) => out.write_str("Own"),
        }
    }
}

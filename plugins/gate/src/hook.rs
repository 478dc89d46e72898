//! What the gate keeps for one connection.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::pacing::{Bucket, Pass};
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{Hook, Publish, Publisher, Refusal, Verdict, Waiting};

use crate::announced::Announced;
use crate::counts::{Counts, Holding};
use crate::{Excess, GateConfig, Qos0};

/// The shortest pause: at high rates messages pass in runs, for a pause before each would cost more than the message.
pub(crate) const RUN: Duration = Duration::from_millis(20);
/// The longest pause until we look again: the rate may have risen.
const LOOK: Duration = Duration::from_millis(250);
/// The longest time to wait that a client is told.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// What passed over the rate is owed for this long at most, or for one message.
const LONGEST_DEBT: Duration = Duration::from_secs(30);
/// A publisher that was not too fast for this long, and for a few of its intervals, has mended its ways.
const CALM: Span = Span::from_secs(1);
/// Those intervals.
const CALM_INTERVALS: f64 = 3.0;
/// What a publisher that does not follow may send at once, as the time in which its rate makes it: two pauses, and some
/// for timers that are late.
const TRIED_BURST: Duration = Duration::from_millis(50);
/// A rate that has grown this many times makes promises worthless.
const RISEN: f64 = 1.5;
/// By how much it may be faster, as a share: what waits of one that has mended its ways must get less.
const TRIED_SLACK: f64 = 0.05;
/// The gateway's own topics; what a client may send there is an answer to us.
const CONTROL: &str = "$tide/";

/// Asked about every message of one client.
pub(crate) struct GateHook {
    publisher: Arc<Publisher>,
    config: Arc<GateConfig>,
    counts: Arc<Counts>,
    /// Only while there is a limit: most clients never have one.
    limit: Option<Box<Limit>>,
}

/// A publisher that has a limit.
struct Limit {
    announced: Announced,
    /// None during the first grace.
    bucket: Option<Bucket>,
    /// The message at the head, if it waits.
    head: Option<Head>,
    /// When the publisher began to be too fast, and when it was so last.
    excess: Option<(Moment, Moment)>,
    /// Until when the messages that were refused last were told to wait.
    promised: Option<Moment>,
    /// While a message waits: that it does, for the queue whose rate it is.
    waiting: Option<Waiting>,
}

/// The message that waits at the head.
struct Head {
    since: Moment,
    /// Nobody asks again before this moment, unless the gateway let it pass whatever we said.
    until: Moment,
    _holding: Holding,
}

impl GateHook {
    pub(crate) fn new(publisher: &Arc<Publisher>, config: &Arc<GateConfig>, counts: &Arc<Counts>) -> Self {
        Self {
            publisher: Arc::clone(publisher),
            config: Arc::clone(config),
            counts: Arc::clone(counts),
            limit: None,
        }
    }
}

impl Hook for GateHook {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        let rate = self.publisher.rate();
        if rate == f64::INFINITY {
            if self.limit.is_some() {
                self.limit = None;
            }
            return Verdict::Continue;
        }
        if publish.topic.starts_with(CONTROL) || self.publisher.passes() {
            return Verdict::Continue;
        }
        let limit = self.limit.get_or_insert_with(|| Box::new(Limit::new(publish.now)));
        let verdict = limit.ask(publish, rate, &self.publisher, &self.config, &self.counts);
        limit.book(&verdict, &self.publisher);
        if !matches!(verdict, Verdict::Delay(_)) {
            limit.head = None;
        }
        verdict
    }

    fn on_disconnect(&mut self) {
        self.limit = None;
    }
}

impl Limit {
    fn new(now: Moment) -> Self {
        Self {
            announced: Announced::new(now),
            bucket: None,
            head: None,
            excess: None,
            promised: None,
            waiting: None,
        }
    }

    /// Books what becomes of a message for the queue whose rate it is.
    fn book(&mut self, verdict: &Verdict, publisher: &Publisher) {
        match verdict {
            Verdict::Delay(_) if self.waiting.is_some() => return,
            Verdict::Delay(_) => {
                self.waiting = publisher.overrun().map(Waiting::start);
                return;
            }
            Verdict::Refuse(_) => publisher.overrun().iter().for_each(|overrun| overrun.refused()),
            Verdict::Drop => publisher.overrun().iter().for_each(|overrun| overrun.dropped()),
            Verdict::Continue | Verdict::Close(_) => {}
        }
        self.waiting = None;
    }

    fn ask(
        &mut self,
        publish: &Publish<'_>,
        rate: f64,
        publisher: &Publisher,
        config: &GateConfig,
        counts: &Arc<Counts>,
    ) -> Verdict {
        let now = publish.now;
        let patience = patience(publish.qos, publisher.keep_alive, config);
        if self.follow(now, rate, config).is_none() {
            return Verdict::Continue;
        }
        if self.head.as_ref().is_some_and(|head| now < head.until) {
            // The gateway had to hear what was behind it.
            self.book_overdue(now, patience, publish.waited, counts);
            self.head = None;
        }
        let Some(bucket) = &mut self.bucket else { return Verdict::Continue };
        let wait = match bucket.take(now) {
            Pass::Go => {
                if !publish.waited.is_zero() {
                    counts.delayed(publish.waited);
                }
                return Verdict::Continue;
            }
            Pass::Wait(wait) => Duration::from_nanos(wait.as_nanos()),
        };
        let since = self.note_excess(now);
        match config.excess {
            Excess::Refuse if publish.qos > 0 && publisher.level >= 5 => {
                let grace = Span::from_nanos(config.grace.as_nanos() as u64);
                let answered_late = self.is_tried(now, grace);
                return self.refuse(publish, wait, answered_late, patience, counts);
            }
            Excess::Close if span(now, since) >= config.close_after => {
                counts.closed();
                return Verdict::Close(too_fast());
            }
            _ => {}
        }
        self.hold(publish, wait, patience, config, counts)
    }

    /// Brings the bucket to the rate that is in force; none while there is none yet.
    fn follow(&mut self, now: Moment, rate: f64, config: &GateConfig) -> Option<&mut Bucket> {
        let grace = Span::from_nanos(config.grace.as_nanos() as u64);
        let in_force = self.announced.on_rate(now, rate, grace);
        if in_force == f64::INFINITY {
            return None;
        }
        let (rate, burst) = if self.is_tried(now, grace) {
            let rate = in_force * (1.0 + config.slack.min(TRIED_SLACK));
            (rate, (rate * TRIED_BURST.as_secs_f64()).max(1.0))
        } else {
            let rate = in_force * (1.0 + config.slack);
            (rate, f64::from(config.burst) + rate * config.burst_time.as_secs_f64())
        };
        match &mut self.bucket {
            Some(bucket) if bucket.rate() == rate && bucket.burst() == burst => {}
            Some(bucket) => {
                // what was promised was reckoned with a rate that was clearly lower
                if rate > bucket.rate() * RISEN {
                    self.promised = None;
                }
                bucket.set_rate(now, rate);
                bucket.set_burst(now, burst);
            }
            // A rate that is not finite is in force during the first grace only, and a burst is at least 1.
            none => *none = Bucket::new(now, rate.min(f64::MAX), burst.min(f64::MAX)).ok(),
        }
        self.bucket.as_mut()
    }

    /// Whether the publisher has been too fast for longer than the grace: it does not follow, so little is given away.
    fn is_tried(&self, now: Moment, grace: Span) -> bool {
        self.excess_since(now).is_some_and(|since| now.since(since) > grace.max(CALM))
    }

    /// Notes that the publisher is too fast; since when it has been.
    fn note_excess(&mut self, now: Moment) -> Moment {
        let since = self.excess_since(now).unwrap_or(now);
        self.excess = Some((since, now));
        since
    }

    /// Since when the publisher has been too fast, with no calm time in between.
    fn excess_since(&self, now: Moment) -> Option<Moment> {
        let (since, last) = self.excess?;
        let interval = self.bucket.map_or(Span::ZERO, |bucket| Span::from_rate(bucket.rate()));
        let calm = CALM.max(interval.scale(CALM_INTERVALS));
        (now.since(last) <= calm).then_some(since)
    }

    /// Refuses a message and says when there will be room for it, behind those that were refused before. Who does not wait as
    /// told is answered late, so that refusals do not make it send more.
    fn refuse(
        &mut self,
        publish: &Publish<'_>,
        wait: Duration,
        answered_late: bool,
        patience: Duration,
        counts: &Arc<Counts>,
    ) -> Verdict {
        let now = publish.now;
        if answered_late {
            let start = || Head { since: now, until: now, _holding: Holding::start(counts) };
            let head = self.head.get_or_insert_with(start);
            let left = LOOK.min(patience).saturating_sub(span(now, head.since));
            if !left.is_zero() {
                let pause = whole_millis(wait.max(RUN).min(left));
                head.until = now + Span::from_nanos(pause.as_nanos() as u64);
                return Verdict::Delay(pause);
            }
        }
        counts.refused();
        let interval = self
            .bucket
            .map_or(Duration::ZERO, |bucket| Duration::from_nanos(Span::from_rate(bucket.rate()).as_nanos()));
        let behind = self.promised.map_or(Duration::ZERO, |promised| span(promised, now));
        let wait = if behind.is_zero() { wait } else { wait.max(behind.saturating_add(interval)) };
        let wait = whole_millis(wait.min(LONGEST_DEBT.max(interval)).min(LONGEST_WAIT));
        self.promised = Some(now + Span::from_nanos(wait.as_nanos() as u64));
        Verdict::Refuse(Refusal::quota_exceeded("more than the announced rate", wait))
    }

    /// Lets a message wait, unless it has waited for as long as it may.
    fn hold(
        &mut self,
        publish: &Publish<'_>,
        wait: Duration,
        patience: Duration,
        config: &GateConfig,
        counts: &Arc<Counts>,
    ) -> Verdict {
        let now = publish.now;
        let start = || Head { since: now, until: now, _holding: Holding::start(counts) };
        let head = self.head.get_or_insert_with(start);
        let at_head = span(now, head.since);
        let dropping = publish.qos == 0 && config.qos0 == Qos0::Drop;
        // What is dropped is dropped for its age; what passes, passes because nothing has for so long.
        let waited = if dropping { publish.waited.max(at_head) } else { at_head };
        let left = patience.saturating_sub(waited);
        if !left.is_zero() {
            let pause = whole_millis(wait.max(RUN).min(LOOK).min(left));
            head.until = now + Span::from_nanos(pause.as_nanos() as u64);
            return Verdict::Delay(pause);
        }
        if dropping {
            counts.dropped();
            return Verdict::Drop;
        }
        self.book_overdue(now, patience, publish.waited, counts);
        Verdict::Continue
    }

    /// Books a message that passes over the rate. Not without end: what is owed would be held against the publisher long
    /// after its rate has risen again.
    fn book_overdue(&mut self, now: Moment, patience: Duration, waited: Duration, counts: &Counts) {
        counts.overdue();
        counts.delayed(waited);
        let Some(bucket) = self.bucket.as_mut().filter(|bucket| bucket.rate() > 0.0) else { return };
        let wait = Duration::from_nanos(bucket.wait(now, 1).as_nanos());
        let interval = Duration::from_nanos(Span::from_rate(bucket.rate()).as_nanos());
        if wait <= patience.min(LONGEST_DEBT).max(interval) {
            bucket.charge(now, 1);
        }
    }
}

/// How long a message may wait at the head.
fn patience(qos: u8, keep_alive: u16, config: &GateConfig) -> Duration {
    let share = |part: u32| match keep_alive {
        0 => Duration::MAX,
        seconds => Duration::from_secs(seconds.into()) / part,
    };
    if qos == 0 { config.qos0_wait.min(share(4)) } else { share(2) }
}

fn span(now: Moment, since: Moment) -> Duration {
    Duration::from_nanos(now.since(since).as_nanos())
}

/// In whole milliseconds, rounded up: who waits this long may go.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(time.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u64::MAX))
}

/// 0x96: message rate too high.
fn too_fast() -> Refusal {
    Refusal { code: 0x96, reason: "more than the announced rate for too long".into(), retry_after: None }
}

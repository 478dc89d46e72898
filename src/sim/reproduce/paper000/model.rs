//! Many clients that check one server for the same updates: a queue, and nothing else.

use super::Sample;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_control::Invalid;
use tidegate_control::active::{CheckTimer, Divided, DividedConfig, Reply, Strategy};
use tidegate_control::backoff::{Announced, BackoffConfig};
use tidegate_control::random::{Random, Seeded};
use tidegate_control::time::{Moment, Span};

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) clients: usize,
    /// How each client chooses its interval.
    pub(super) strategy: DividedConfig,
    /// How each client backs off.
    pub(super) backoff: BackoffConfig,
    /// What the server announces.
    pub(super) announces: Announces,
    pub(super) duration: Span,
    /// What happens before is not counted in the settled figures.
    pub(super) settled: Moment,
}

/// What the server tells its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announces {
    Nothing,
    /// The delay that it can stand by.
    Delay,
    /// The rate that it wants from each client.
    Rate,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// The longest queue once settled.
    pub(super) peak: f64,
    /// The response time that 95% of all requests keep to, the start included.
    pub(super) p95: f64,
    /// The same, once settled.
    pub(super) p95_settled: f64,
    /// The share of updates that a client never saw, once settled.
    pub(super) loss: f64,
    /// Requests a second, once settled.
    pub(super) rate: f64,
    /// Variance over mean of the requests in each second, once settled: 1 for a Poisson flow.
    pub(super) dispersion: f64,
    /// The longest queue in each second.
    pub(super) queue: Vec<f64>,
}

/// The server's time for one request.
const SERVICE: Span = Span::from_millis(10);
/// The share of its capacity that the server gives out as rates: the rest keeps its queue short.
const UTILIZATION: f64 = 0.9;
/// The delay that the server can stand by: five requests.
const STABLE_DELAY: Span = Span::from_millis(50);

impl Setup {
    /// Runs it once.
    pub(super) fn run(&self, seed: u64) -> Result<Outcome, Invalid> {
        let mut world = World::new(self, seed)?;
        while let Some(Reverse((at, client))) = world.due.pop() {
            if at > Moment::START + self.duration {
                break;
            }
            world.request(self, at, client);
        }
        Ok(world.outcome(self))
    }
}

struct Client {
    timer: CheckTimer<Divided>,
    random: Seeded,
    /// Updates that it knows of.
    seen: u64,
    lost: u64,
    found: u64,
    asked: bool,
}

struct World {
    clients: Vec<Client>,
    due: BinaryHeap<Reverse<(Moment, usize)>>,
    source: Source,
    /// When the server has answered all that it was asked.
    free: Moment,
    /// Clients that the server knows of.
    known: usize,
    settled_peak: u64,
    /// Requests in each second since the start.
    seconds: Vec<f64>,
    /// The longest queue in each second since the start.
    queue: Vec<f64>,
    responses: Vec<f64>,
    /// Responses before this index came before things had settled.
    first_settled: usize,
}

impl World {
    /// All clients start at once and make their first check at once.
    fn new(setup: &Setup, seed: u64) -> Result<Self, Invalid> {
        let seconds = setup.duration.as_secs_f64() as usize + 1;
        let client = |index: usize| -> Result<Client, Invalid> {
            let timer = CheckTimer::new(setup.strategy.build()?, setup.backoff.build()?);
            let random = Seeded::stream(seed, index as u64 + 1);
            Ok(Client { timer, random, seen: 0, lost: 0, found: 0, asked: false })
        };
        let clients = (0..setup.clients).map(client).collect::<Result<Vec<_>, _>>()?;
        let first = |(index, client): (usize, &Client)| {
            Reverse((Moment::START + client.timer.strategy().interval(), index))
        };
        Ok(Self {
            due: clients.iter().enumerate().map(first).collect(),
            clients,
            source: Source::new(Seeded::stream(seed, 0)),
            free: Moment::START,
            known: 0,
            settled_peak: 0,
            seconds: vec![0.0; seconds],
            queue: vec![0.0; seconds],
            responses: Vec::new(),
            first_settled: 0,
        })
    }

    /// One request from its arrival to its answer.
    fn request(&mut self, setup: &Setup, at: Moment, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let started = self.free.max(at);
        self.free = started + SERVICE;
        self.known += usize::from(!client.asked);
        client.asked = true;
        let queue = self.free.since(at).as_nanos().div_ceil(SERVICE.as_nanos());
        let is_settled = at >= setup.settled;
        if is_settled {
            self.settled_peak = self.settled_peak.max(queue);
        } else {
            self.first_settled = self.responses.len() + 1;
        }
        self.responses.push(self.free.since(at).as_secs_f64());
        let second = at.as_secs_f64() as usize;
        if let (Some(count), Some(longest)) = (self.seconds.get_mut(second), self.queue.get_mut(second)) {
            *count += 1.0;
            *longest = longest.max(queue as f64);
        }

        let (updates, last_change) = self.source.until(started);
        let new = updates - client.seen;
        client.seen = updates;
        if is_settled {
            client.found += new;
            client.lost += new.saturating_sub(1);
        }
        let announced = announce(setup.announces, self.known);
        let reply = Reply {
            sent: at,
            answered: self.free,
            updates: u32::try_from(new).unwrap_or(u32::MAX),
            last_change,
            announced,
        };
        let next = client.timer.on_reply(&reply, &mut client.random);
        self.due.push(Reverse((next, index)));
    }

    fn outcome(self, setup: &Setup) -> Outcome {
        let settled = self.responses.get(self.first_settled..).unwrap_or(&[]).to_vec();
        let time = (Moment::START + setup.duration).since(setup.settled).as_secs_f64();
        let lost: u64 = self.clients.iter().map(|client| client.lost).sum();
        let found: u64 = self.clients.iter().map(|client| client.found).sum();
        // The last second is not a whole one.
        let seconds = setup.settled.as_secs_f64() as usize..self.seconds.len() - 1;
        let seconds = Sample::new(self.seconds.get(seconds).unwrap_or(&[]).iter().copied());
        Outcome {
            dispersion: seconds.deviation().powi(2) / seconds.mean(),
            peak: self.settled_peak as f64,
            rate: settled.len() as f64 / time,
            p95: Sample::new(self.responses).quantile(0.95),
            p95_settled: Sample::new(settled).quantile(0.95),
            loss: lost as f64 / found.max(1) as f64,
            queue: self.queue,
        }
    }
}

fn announce(announces: Announces, clients: usize) -> Announced {
    let capacity = UTILIZATION / SERVICE.as_secs_f64();
    match announces {
        Announces::Nothing => Announced::default(),
        Announces::Delay => Announced { delay: Some(STABLE_DELAY), rate: None },
        Announces::Rate => Announced { delay: None, rate: Some(capacity / clients.max(1) as f64) },
    }
}

/// The one source that all clients watch: gaps of 2 s to 4 s.
struct Source {
    random: Seeded,
    count: u64,
    last: Option<Moment>,
    next: Moment,
}

impl Source {
    fn new(mut random: Seeded) -> Self {
        let next = Moment::from_secs_f64(random.uniform_in(0.0, 4.0));
        Self { random, count: 0, last: None, next }
    }

    /// How many updates there were until then, and when the last one was. Time only moves forward here, because
    /// the server answers in order.
    fn until(&mut self, now: Moment) -> (u64, Option<Moment>) {
        while self.next <= now {
            self.count += 1;
            self.last = Some(self.next);
            self.next += Span::from_secs_f64(self.random.uniform_in(2.0, 4.0));
        }
        (self.count, self.last)
    }
}

//! The proxy: one connection to the upstream broker for each client.
//!
//! The upstream owns sessions, QoS and retained messages. The proxy sees every packet, asks the plugins, and changes only
//! what it must: packets are passed on as the bytes that came in. Control topics are answered here.

mod connack;
mod connect;
mod control;
mod counts;
mod dial;
mod frames;
mod handshake;
mod host;
mod inbox;
pub(crate) mod node;
mod pair;
mod queue;
mod session;
mod source;
mod upstreams;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

use tidegate_plugin::{Host, Tick};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use self::control::Control;
pub use self::counts::Counts;
use self::counts::Lines;
pub use self::dial::DialError;
use self::node::Nodes;
use self::queue::Bounds;
use self::session::Sessions;
use self::upstreams::{Upstreams, Watch};
use crate::broker::clock::{self, Clock, moment};
use crate::broker::connection::part;
use crate::broker::refusals::Refusals;
use crate::broker::{Levels, Stats};
use crate::chain::Chain;
use crate::config::Settings;
use crate::ledger::Ledger;
use crate::listen::Stream;

/// Everything that connections share.
pub struct Proxy {
    settings: Settings,
    clock: Clock,
    /// What was counted so far, as far as a broker counts it too.
    pub stats: Stats,
    /// What was counted of the upstream.
    pub counts: Counts,
    /// What was refused, and by whom.
    pub(crate) refusals: Refusals,
    lines: Lines,
    pub(crate) chain: Chain,
    upstreams: Upstreams,
    control: Control,
    sessions: Sessions,
    ledger: Ledger,
    /// The other nodes before the same broker, if there may be some.
    nodes: Option<Nodes>,
    /// A plugin wants to hear of queues.
    measured: bool,
    /// Bytes that all held publishers wait with.
    held_bytes: Arc<AtomicUsize>,
    draining: AtomicBool,
    drained: Notify,
}

impl Proxy {
    /// Starts the housekeeping. Must be called within a tokio runtime.
    pub fn start(settings: Settings, chain: Chain) -> Result<Arc<Self>, DialError> {
        let proxy = Arc::new(Self {
            clock: Clock::start(),
            stats: Stats::default(),
            counts: Counts::default(),
            refusals: Refusals::default(),
            lines: Lines::default(),
            measured: chain.ticks(),
            chain,
            upstreams: Upstreams::new(&settings.proxy)?,
            control: Control::new(&settings.overload.prefix),
            sessions: Sessions::new(
                bounds(&settings),
                settings.queue.never_hold.clone(),
                settings.session.max_offline_sessions,
            ),
            ledger: Ledger::default(),
            nodes: Nodes::new(&settings),
            held_bytes: Arc::default(),
            draining: AtomicBool::new(false),
            drained: Notify::new(),
            settings,
        });
        let weak = Arc::downgrade(&proxy);
        let host: Weak<dyn Host> = weak;
        proxy.chain.start(&host);
        proxy.start_housekeeping();
        Nodes::start(&proxy);
        source::start(&proxy);
        Ok(proxy)
    }

    /// Stops serving: every connection is told to leave.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drained.notify_waiters();
        self.sessions.nudge_all();
    }

    /// What there is of everything now.
    pub fn levels(&self) -> Levels {
        let (retained, retained_bytes) = self.control.levels();
        Levels { connected: self.connected(), retained, retained_bytes, ..self.sessions.levels() }
    }

    /// Clients that are connected.
    fn connected(&self) -> u64 {
        // read first, so that it is never ahead of the connects
        let disconnects = self.stats.disconnects.get();
        self.stats.connects.get().saturating_sub(disconnects)
    }

    /// Addresses of the upstream that can be used as far as is known.
    pub fn usable_upstreams(&self) -> usize {
        self.upstreams.usable()
    }

    /// Other nodes before the same broker that are there.
    pub fn other_nodes(&self) -> usize {
        self.nodes.as_ref().map_or(0, Nodes::others)
    }

    fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Returns when it stops.
    async fn drained(&self) {
        // made before the flag is looked at, so that no notice is missed
        let notice = self.drained.notified();
        if !self.draining() {
            notice.await;
        }
    }

    fn watch(&self) -> Watch<'_> {
        Watch { counts: &self.counts, lines: &self.lines, clock: &self.clock }
    }

    fn start_housekeeping(self: &Arc<Self>) {
        // each by itself, so that one that does not answer keeps nobody from learning of the others
        for address in 0..self.upstreams.len() {
            let proxy = Arc::downgrade(self);
            tokio::spawn(async move {
                while let Some(proxy) = proxy.upgrade() {
                    let interval = proxy.upstreams.interval();
                    proxy.upstreams.probe(address, &proxy.watch()).await;
                    drop(proxy);
                    tokio::time::sleep(interval).await;
                }
            });
        }
        let proxy = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut second = tokio::time::interval(Duration::from_secs(1));
            loop {
                second.tick().await;
                let Some(proxy) = proxy.upgrade() else { return };
                proxy.lines.report();
                proxy.sessions.sweep(proxy.clock.now());
                if let Some(nodes) = &proxy.nodes {
                    nodes.sweep(&proxy, proxy.clock.now());
                }
            }
        });
        if self.measured {
            let period = Duration::from_millis(self.settings.overload.period_ms);
            tokio::spawn(Self::run_control_loop(Arc::downgrade(self), period));
        }
    }

    /// Turns the control loop while the proxy lives.
    async fn run_control_loop(proxy: Weak<Self>, period: Duration) {
        let mut turn = tokio::time::interval(period);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let Some(proxy) = proxy.upgrade() else { return };
            // thousands of queues and publishers take their time
            if tokio::task::spawn_blocking(move || proxy.turn_control_loop()).await.is_err() {
                tracing::error!("a turn of the control loop failed");
            }
        }
    }

    fn turn_control_loop(&self) {
        let (now, wall_ms) = (moment(self.clock.now()), clock::wall());
        let queues = self.ledger.read(now);
        self.chain.tick(&Tick { now, wall_ms, queues: &queues, host: self });
        self.nodes.iter().for_each(Nodes::end_turn);
    }
}

/// What queues may hold before their publishers wait: less than what the upstream keeps.
fn bounds(settings: &Settings) -> Bounds {
    let (queue, limit) = (&settings.queue, settings.proxy.queue_limit);
    let messages = queue.max_messages as u64;
    Bounds {
        limit,
        window: settings.proxy.max_inflight.into(),
        messages: if limit == 0 { messages } else { messages.min(limit / 2) },
        delay: queue.max_delay_ms,
        progress: queue.progress_timeout().as_millis() as u64,
        nodes: !settings.proxy.node.id.is_empty(),
    }
}

/// Serves one client until its connection ends.
pub async fn serve(proxy: Arc<Proxy>, stream: Stream) {
    // boxed, so that an established connection does not carry the memory its handshake needed
    let Some(mut pair) = Box::pin(handshake::accept(proxy, stream)).await else { return };
    // a plugin may panic: that ends the connection as any other reason does
    let caught = |cx: &mut Context<'_>| {
        catch_unwind(AssertUnwindSafe(|| pair.poll(cx))).unwrap_or_else(|_| pair.panicked())
    };
    std::future::poll_fn(caught).await;
    let (client, upstream) = pair.end();
    let client = async {
        if let Some(stream) = client {
            part(stream).await
        }
    };
    let upstream = async {
        if let Some(stream) = upstream {
            part(stream).await
        }
    };
    Box::pin(async { tokio::join!(client, upstream) }).await;
}

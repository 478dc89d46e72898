//! One client's connection: reads, answers, delivers, writes. A state machine polled by one task.
//!
//! An idle connection holds no buffers: reading, encoding and batching use memory that belongs to the thread, and
//! only what could not be finished stays with the connection.

pub(crate) mod alias;
mod batch;
mod deliver;
pub(crate) mod handshake;
mod input;
mod output;
pub(crate) mod packets;
mod turn;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Sleep;

use self::alias::{InboundAliases, OutboundAliases};
use self::turn::Turn;
use super::Broker;
use super::clock::Millis;
use super::group::Group;
use super::held::HeldInput;
use super::message::BatchWriter;
use super::queue::Entry;
use super::session::{Session, State};
use super::spine::Fence;
use super::window::Window;
use crate::chain::Hooks;
use crate::hold::Gate;
use crate::listen::Stream;
use crate::wire::{Encoder, ReasonCode};

/// Serves one client until its connection ends.
pub async fn serve(broker: Arc<Broker>, stream: Stream) {
    // boxed, so that an established connection does not carry the memory its handshake needed
    let Some(mut connection) = Box::pin(handshake::accept(broker, stream)).await else { return };
    // a plugin may panic: that ends the connection as any other reason does
    let caught = |cx: &mut Context<'_>| {
        catch_unwind(AssertUnwindSafe(|| connection.poll(cx))).unwrap_or_else(|_| connection.panicked())
    };
    std::future::poll_fn(caught).await;
    if let Some(stream) = connection.end() {
        Box::pin(part(stream)).await;
    }
}

/// Parts from a client that was told something last: closing a socket with unread input would make the system
/// throw away what the client has not read yet.
pub(crate) async fn part(mut stream: Stream) {
    let mut rest = [0; 4096];
    let parting = async {
        stream.shutdown().await?;
        let mut left = PARTING;
        while left > 0 {
            match stream.read(&mut rest).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        std::io::Result::Ok(())
    };
    // whatever happens now, nobody is left to be told
    let _ = tokio::time::timeout(Duration::from_millis(LINGER), parting).await;
}

/// Bytes encoded ahead of what the socket takes.
const OUTPUT_TARGET: usize = 64 * 1024;
/// Answers waiting for the socket before nothing more is read.
const OUTPUT_LIMIT: usize = 256 * 1024;
/// Bytes read at a time.
const READ_SIZE: usize = 64 * 1024;
/// How long a closing connection may take to send its last bytes.
const LINGER: Millis = 2_000;
/// What is still read from a client that was told to leave, to be thrown away.
const PARTING: usize = 4 * OUTPUT_LIMIT;

struct Connection {
    broker: Arc<Broker>,
    stream: Stream,
    session: Arc<Session>,
    /// Tells it from the session's earlier and later connections.
    number: u64,
    gate: Arc<Gate>,
    /// The change of its rate that the client was told of last.
    told_rate: u32,
    hooks: Hooks,
    encoder: Encoder,
    window: Window,
    /// The client's keep-alive, times 1.5; 0 is none.
    silence: Millis,
    /// When bytes last came.
    seen: Millis,
    timer: Pin<Box<Sleep>>,
    timer_at: Millis,
    /// Bytes of an unfinished packet, or of packets behind too many held ones.
    input: Vec<u8>,
    /// Whether `input` may hold whole packets.
    input_ready: bool,
    pause: Pause,
    turn: Turn,
    /// Encoded and not yet taken by the socket, from `written` on.
    output: Vec<u8>,
    written: usize,
    unflushed: bool,
    held: Option<Box<HeldInput>>,
    /// Since when the packet that is being handled was held.
    held_since: Option<Millis>,
    /// Since when nothing is read because enough is held; 0 while something may be read.
    deaf_since: Millis,
    /// What was in the spine when the client connected, until consumer queues have seen it: its first message waits
    /// for that, since messages of one client, and of one program that connects again and again, stay in order.
    fence: Option<Fence>,
    /// A batch that the spine had no room for, with its acknowledgements.
    offered: Option<Box<Offered>>,
    inbound_aliases: InboundAliases,
    outbound_aliases: OutboundAliases,
    /// Identifiers to be sent again on a resumed session, in order.
    resend: VecDeque<u16>,
    /// Messages written and not yet counted for all.
    delivered: u64,
    ending: Ending,
    /// The will counts unless the client says goodbye.
    will: bool,
}

struct Offered {
    batch: Bytes,
    acks: Vec<u8>,
    /// Identifiers of its QoS 2 messages, which are received when it is accepted.
    received: Vec<u16>,
    count: u64,
}

/// Why input waits for a few milliseconds where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// It does not.
    No,
    /// A QoS 0 queue holds us briefly.
    Brief,
    /// Consumer queues have not yet seen what was published before the client connected.
    Fence,
    /// As much has passed as may before we look again: until consumer queues have seen so many batches.
    Look(u64),
}

/// How far the end of the connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Not in sight.
    No,
    /// The client sends nothing more; what it sent is still handled, until this moment at the latest.
    NoInput(Millis),
    /// Only what is encoded is still written, until this moment at the latest.
    Closing(Millis),
    /// Nothing more can be done.
    Over,
}

/// Memory of the thread, lent to whichever connection is polled.
struct Scratch {
    /// A connection has it now; true for the next one only after a panic.
    lent: bool,
    read: Box<[u8]>,
    batch: BatchWriter,
    /// Properties that plugins add to the message that is being accepted.
    added: Vec<u8>,
    /// Moment of acceptance of the batch.
    ordinal: Option<u64>,
    acks: Vec<u8>,
    /// Identifiers of the QoS 2 messages in the batch.
    received: Vec<u16>,
    entries: Vec<Entry>,
    output: Vec<u8>,
    /// Whether the client acknowledged something, how much is done for the session and for which group, and how soon
    /// after it was sent the quickest acknowledgement came.
    acknowledged: bool,
    own_finished: u64,
    soonest: Millis,
    finished: Vec<(Arc<Group>, u64)>,
    /// How often the connection searched for retained messages in this turn.
    searches: usize,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

impl Scratch {
    fn new() -> Self {
        Self {
            lent: false,
            read: vec![0; READ_SIZE].into(),
            batch: BatchWriter::default(),
            added: Vec::new(),
            ordinal: None,
            acks: Vec::new(),
            received: Vec::new(),
            entries: Vec::new(),
            output: Vec::new(),
            acknowledged: false,
            own_finished: 0,
            soonest: Millis::MAX,
            finished: Vec::new(),
            searches: 0,
        }
    }
}

impl Connection {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.lent {
                *scratch = Scratch::new();
            }
            scratch.lent = true;
            if self.output.is_empty() {
                self.output = std::mem::take(&mut scratch.output);
            }
            scratch.searches = 0;
            let session = Arc::clone(&self.session);
            let poll = self.poll_with(cx, scratch, &mut session.state.lock());
            self.return_output(scratch);
            scratch.lent = false;
            poll
        })
    }

    fn panicked(&mut self) -> Poll<()> {
        if self.broker.lines.panicked.allows(self.broker.clock.now()) {
            tracing::error!(client = &*self.session.client_id, "a panic ended the connection");
        }
        self.ending = Ending::Over;
        Poll::Ready(())
    }

    fn poll_with(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch, state: &mut State) -> Poll<()> {
        loop {
            let now = self.broker.clock.now();
            self.check_ownership(state, now);
            self.check_timer(cx, state, now);
            let mut progress = self.poll_input(cx, scratch, state, now);
            progress |= self.deliver(scratch, state, now);
            progress |= self.poll_output(cx);
            match self.ending {
                Ending::Over => return Poll::Ready(()),
                Ending::Closing(_) if self.output.is_empty() && !self.unflushed && self.offered.is_none() => {
                    return Poll::Ready(());
                }
                Ending::NoInput(_) if self.held.is_none() && self.offered.is_none() && !self.input_ready => {
                    return Poll::Ready(());
                }
                _ if progress => {}
                _ if self.owns(state)
                    && !self.session.queue.wait(cx.waker(), self.free_window(state))
                    && self.may_deliver(state) => {}
                _ => {
                    if self.searches_on(scratch, state) {
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// A connection leaves when its session belongs to another one, or when the gateway stops.
    fn check_ownership(&mut self, state: &mut State, now: Millis) {
        if !self.owns(state) {
            self.will = false;
            // the client sends it again on its new connection
            self.offered = None;
            self.close(ReasonCode::SESSION_TAKEN_OVER, None, now);
        } else if self.broker.draining() {
            self.close(ReasonCode::SERVER_SHUTTING_DOWN, None, now);
        }
    }

    /// Whether the session is still this connection's; the queue then wakes us and nobody else.
    fn owns(&self, state: &State) -> bool {
        state.connection == self.number
    }

    fn check_timer(&mut self, cx: &mut Context<'_>, state: &mut State, now: Millis) {
        while self.timer.as_mut().poll_unpin(cx).is_ready() {
            let fired = std::mem::take(&mut self.timer_at);
            match self.ending {
                Ending::Closing(until) if now >= until && self.offered.is_none() => {
                    self.ending = Ending::Over;
                    return;
                }
                Ending::Closing(until) => self.arm(if now < until { until } else { now + LINGER }),
                Ending::NoInput(until) if now >= until => {
                    self.give_up_waiting(state, now);
                    self.arm(now + IDLE_TIMER);
                }
                Ending::NoInput(until) => self.arm(until),
                _ if self.silence > 0 && now >= self.seen + self.silence && self.listening() => {
                    self.broker.stats.keep_alive_timeouts.add(1);
                    self.close(ReasonCode::KEEP_ALIVE_TIMEOUT, None, now);
                }
                _ if self.silence > 0 => {
                    if !self.listening() {
                        self.seen = now;
                    }
                    self.arm((self.seen + self.silence).max(now + 1));
                }
                _ => self.arm(now + IDLE_TIMER),
            }
            debug_assert!(fired > 0 || self.timer_at > 0);
        }
    }

    /// Sets the timer to a moment, if that is earlier than what it is set to.
    fn arm(&mut self, at: Millis) {
        if self.timer_at == 0 || at < self.timer_at {
            self.timer_at = at;
            self.timer.as_mut().reset(self.broker.clock.instant(at).into());
        }
    }

    /// Ends the connection for a reason of ours: tells the client, writes what is encoded, then closes.
    fn close(&mut self, reason: ReasonCode, text: Option<&str>, now: Millis) {
        if matches!(self.ending, Ending::Closing(_) | Ending::Over) {
            return;
        }
        self.encoder.disconnect(&mut self.output, reason, text, None);
        self.ending = Ending::Closing(now + LINGER);
        // what is to be acknowledged comes again
        let lost = self.held.take().map_or(0, |held| held.publishes() - held.acknowledged);
        self.broker.stats.dropped_left.add(lost as u64);
        self.offered = None;
        self.timer_at = 0;
        self.arm(now + LINGER);
        tracing::debug!(
            client = &*self.session.client_id,
            reason = format_args!("0x{:02x}", reason.0),
            text,
            "closing"
        );
    }

    /// Gives the session up; the stream if its client is to be parted from with care.
    fn end(mut self) -> Option<Stream> {
        let _ = catch_unwind(AssertUnwindSafe(|| self.hooks.on_disconnect()));
        self.broker.gates.close(self.session.number, &self.gate);
        self.broker.detach(&self.session, self.number, self.will);
        self.broker.stats.disconnects.add(1);
        tracing::debug!(client = &*self.session.client_id, "disconnected");
        matches!(self.ending, Ending::Closing(_)).then_some(self.stream)
    }
}

/// The timer of a connection without keep-alive only has to exist.
const IDLE_TIMER: Millis = 24 * 3600 * 1000;

/// `Future::poll` on a boxed timer, by name.
trait PollUnpin {
    fn poll_unpin(self, cx: &mut Context<'_>) -> Poll<()>;
}

impl PollUnpin for Pin<&mut Sleep> {
    fn poll_unpin(self, cx: &mut Context<'_>) -> Poll<()> {
        std::future::Future::poll(self, cx)
    }
}

#[cfg(test)]
mod tests;

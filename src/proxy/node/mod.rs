//! Several nodes before one broker: each says what it sees of every queue, so that all know the whole of it.
//!
//! A node says on `$tide/v1/node/{id}`, through the upstream, how many messages its publishers sent to each queue and how
//! many its consumers are done with. The others add that to what they see themselves, watch for publishers of their own
//! that feed the same queue, and so come to the rates that one node alone would. What a node said holds for its ttl.

mod link;
mod message;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tidegate_plugin::Crowd;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

pub(super) use self::message::Owner;
use self::message::{MOST_FILTERS, MOST_QUEUES, MOST_TOLD, Message, Told};
use super::Proxy;
use super::queue::{Heard, Hearing, Queue, Rank};
use super::session::{Guest, Listed};
use crate::broker::clock::{self, Millis};
use crate::config::Settings;

/// Nodes that are listened to.
const MOST_NODES: usize = 64;
/// A node is believed for no longer than this, in milliseconds.
const LONGEST_TTL: Millis = 60_000;
/// How long messages take is a mean over about so many of them.
const STEADY: f64 = 8.0;
/// How often publishers are let go as consumers of other nodes take messages.
const LET_GO: Duration = Duration::from_millis(10);

/// This node among the others.
pub(super) struct Nodes {
    id: String,
    /// When it started, in milliseconds since 1970: tells this start from others.
    run: u64,
    /// Its number among all nodes.
    number: u64,
    interval: Millis,
    ttl: Millis,
    /// The node's own topic, and the filter for those of all.
    topic: String,
    all: String,
    prefix: String,
    /// Taken before the locks of sessions and queues, and by nobody who has one of those.
    state: Mutex<State>,
    crowds: Mutex<Crowds>,
    /// Queues for which publishers wait here, by number. Taken before the locks of queues, too.
    holding: Mutex<HashMap<u64, Arc<Queue>>>,
    /// There is something that others should hear of at once.
    news: Notify,
}

/// Who feeds which queue here.
#[derive(Default)]
struct Crowds {
    /// As of the last turn of the control loop that ended.
    last: Arc<HashMap<u64, Vec<Crowd>>>,
    /// As far as the one that is under way has said.
    next: HashMap<u64, Vec<Crowd>>,
}

#[derive(Default)]
struct State {
    seq: u64,
    /// Milliseconds that a message of this node takes to come back to it.
    round: f64,
    others: HashMap<String, Other>,
    /// What was counted: queues go on being told of for a while.
    told: ToldOf,
}

/// What was counted of queues the last time, and when that last changed.
type ToldOf = HashMap<u64, (u64, Millis)>;

/// Another node.
struct Other {
    number: u64,
    run: u64,
    seq: u64,
    until: Millis,
    queues: HashMap<Owner, Known>,
}

/// A queue that another node told of.
struct Known {
    queue: Arc<Queue>,
    /// Some client of that node subscribes to it.
    guest: Option<Guest>,
    /// The last message that told of it: after another one no consumer is there any more.
    seq: u64,
    until: Millis,
}

impl Nodes {
    /// None when the node has no name.
    pub(super) fn new(settings: &Settings) -> Option<Self> {
        let node = &settings.proxy.node;
        if node.id.is_empty() {
            return None;
        }
        let prefix = format!("{}/node/", settings.overload.prefix.trim_end_matches('/'));
        Some(Self {
            id: node.id.clone(),
            run: clock::wall(),
            number: number_of(&node.id),
            interval: node.interval_ms,
            ttl: node.ttl_ms,
            topic: format!("{prefix}{}", node.id),
            all: format!("{prefix}+"),
            prefix,
            state: Mutex::default(),
            crowds: Mutex::default(),
            holding: Mutex::default(),
            news: Notify::new(),
        })
    }

    /// Starts to speak and to listen.
    pub(super) fn start(proxy: &Arc<Proxy>) {
        if proxy.nodes.is_some() {
            tokio::spawn(link::run(Arc::downgrade(proxy)));
            tokio::spawn(Self::let_go(Arc::downgrade(proxy)));
        }
    }

    /// Lets publishers go as consumers of other nodes take messages: nothing is seen of that here. If they waited for the next turn
    /// of the control loop, a queue that holds no more than consumers take in that time would run empty.
    async fn let_go(proxy: Weak<Proxy>) {
        let mut turn = tokio::time::interval(LET_GO);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let Some(proxy) = proxy.upgrade() else { return };
            let Some(nodes) = &proxy.nodes else { return };
            let now = proxy.clock.now();
            nodes.holding.lock().retain(|_, queue| queue.let_go_by_now(now));
        }
    }

    /// Publishers wait for a queue.
    pub(super) fn note_hold(&self, queue: &Arc<Queue>) {
        self.holding.lock().insert(queue.number, Arc::clone(queue));
    }

    /// Other nodes that are there.
    pub(super) fn others(&self) -> usize {
        self.state.lock().others.len()
    }

    /// A consumer came to a queue: until others know of it, they do not count what their publishers send to it.
    pub(super) fn tell_soon(&self) {
        self.news.notify_one();
    }

    /// A turn of the control loop is over: it has said of every queue who feeds it.
    pub(super) fn end_turn(&self) {
        let mut crowds = self.crowds.lock();
        crowds.last = Arc::new(std::mem::take(&mut crowds.next));
    }

    /// Says who feeds a queue here.
    pub(super) fn tell_crowds(&self, queue: u64, crowds: Vec<Crowd>) {
        self.crowds.lock().next.insert(queue, crowds);
    }

    /// Forgets nodes that have been silent for their ttl, and queues that they do not speak of any more.
    pub(super) fn sweep(&self, proxy: &Proxy, now: Millis) {
        let mut gone = Vec::new();
        self.state.lock().others.retain(|id, other| {
            let number = other.number;
            let silent = other.until <= now;
            let over = other.queues.extract_if(|_, known| silent || known.until <= now);
            gone.extend(over.map(|(_, known)| (number, known)));
            if silent {
                tracing::info!(node = id, "a node is silent: its share is given back");
                proxy.control.publish(&format!("{}{id}", self.prefix), b"", true);
            }
            !silent
        });
        for (node, known) in gone {
            known.queue.forget_node(now, node);
            known.guest.into_iter().for_each(|guest| proxy.sessions.see_off(guest, now));
        }
    }

    /// What this node says.
    fn tell(&self, proxy: &Proxy) -> Vec<u8> {
        // what it counts is no younger than that, however long it takes to look at all
        let (now, at_ms) = (proxy.clock.now(), clock::wall());
        let (seq, round_ms, told) = {
            let mut state = self.state.lock();
            state.seq += 1;
            (state.seq, state.round as u64, std::mem::take(&mut state.told))
        };
        // there may be many: nothing is locked meanwhile
        let (all, told) = self.look(proxy, &told, now);
        self.state.lock().told = told;
        let (queues, left_out) = self.describe(all);
        proxy.counts.node_left_out.add(left_out);
        let message = Message {
            v: 1,
            node: self.id.clone(),
            run: self.run,
            seq,
            at_ms,
            round_ms,
            interval_ms: self.interval,
            ttl_ms: self.ttl,
            clients: proxy.connected(),
            queues,
        };
        // strings and finite numbers can always be written
        serde_json::to_vec(&message).unwrap_or_default()
    }

    /// Since when this node knows a queue, and its number.
    fn rank(&self, queue: &Queue) -> Rank {
        (self.run + queue.born, self.number)
    }

    /// The queues that there is something to say of: first those that somebody consumes or feeds, and of these first those
    /// that move.
    fn look(&self, proxy: &Proxy, told: &ToldOf, now: Millis) -> (Vec<(Listed, Heard)>, ToldOf) {
        let crowds = Arc::clone(&self.crowds.lock().last);
        let (mut seen, mut all) = (HashMap::new(), Vec::new());
        for listed in proxy.sessions.list() {
            let queue = listed.queue();
            let mut own = queue.own(self.rank(queue));
            own.crowds = crowds.get(&queue.number).cloned().unwrap_or_default();
            let count = own.counts.arrived.wrapping_add(own.counts.done);
            let (before, moved) = told.get(&queue.number).copied().unwrap_or((count, now));
            let moved = if count != before { now } else { moved };
            if count > 0 {
                // whether it is told of or not: else it would count as one that just moved the next time
                seen.insert(queue.number, (count, moved));
            }
            let busy = !own.crowds.is_empty() || own.in_flight > 0;
            let (moves, lives) = (busy || now < moved + self.ttl && count > 0, busy || own.consumers > 0);
            if moves || lives {
                all.push(((!lives, !moves), listed, own));
            }
        }
        all.sort_by_key(|(order, ..)| *order);
        (all.into_iter().map(|(_, listed, own)| (listed, own)).collect(), seen)
    }

    /// As many of these queues as one message can tell of, and how many queues and filters it cannot.
    fn describe(&self, all: Vec<(Listed, Heard)>) -> (Vec<Told>, u64) {
        let (mut queues, mut bytes, mut left_out) = (Vec::new(), 0, 0);
        let mut all = all.into_iter();
        while queues.len() < MOST_QUEUES
            && bytes < MOST_TOLD
            && let Some((listed, own)) = all.next()
        {
            let (owner, mut filters) = listed.describe();
            filters.retain(|filter| !filter.starts_with('$'));
            let before = filters.len();
            if before == 0 {
                continue;
            }
            // what others would not take in is not said
            filters.retain(|filter| message::is_told_filter(filter));
            filters.truncate(MOST_FILTERS);
            left_out += before - filters.len();
            let queue = listed.queue();
            let told = Told::new(&owner, filters, listed.own_qos(), self.rank(queue).0, own);
            if !told.is_sound() {
                left_out += 1;
                continue;
            }
            bytes += told.bytes();
            queues.push(told);
        }
        // the last one may have been too much
        if bytes > MOST_TOLD {
            queues.pop();
            left_out += 1;
        }
        (queues, (left_out + all.len()) as u64)
    }

    /// A message came on the topic of a node, perhaps our own.
    fn hear(&self, proxy: &Proxy, topic: &str, payload: &[u8]) {
        let Some(id) = topic.strip_prefix(&self.prefix).filter(|id| is_node_id(id)) else {
            proxy.counts.node_nonsense.add(1);
            return;
        };
        if payload.is_empty() {
            // it left, or its connection broke: what it said holds until its ttl is over
            proxy.control.publish(topic, payload, true);
            return;
        }
        let read = message::read(payload).filter(|(message, _)| message.node == id);
        let Some((message, wrong)) = read else { return self.nonsense(proxy, id, "it cannot be read") };
        if wrong > 0 {
            self.nonsense(proxy, id, "a queue that it tells of cannot be");
        }
        if id == self.id && message.run > self.run {
            return self.nonsense(proxy, id, "another node has our name");
        }
        if id == self.id {
            self.came_back(&message, clock::wall());
        }
        if id == self.id || self.take_in(proxy, &message) {
            // only of nodes that are listened to, so that these are not too many
            proxy.control.publish(topic, payload, true);
        }
    }

    fn nonsense(&self, proxy: &Proxy, node: &str, why: &str) {
        proxy.counts.node_nonsense.add(1);
        if proxy.lines.nonsense.allows(proxy.clock.now()) {
            tracing::warn!(node, why, "what a node says is ignored");
        }
    }

    /// A message of this node came back to it: those of others take as long.
    fn came_back(&self, message: &Message, wall: u64) {
        if message.run == self.run {
            // a clock may leap meanwhile
            let took = wall.saturating_sub(message.at_ms).min(self.interval);
            let mut state = self.state.lock();
            state.round += (took as f64 - state.round) / STEADY;
        }
    }

    /// Takes in what a node says; whether it is listened to.
    fn take_in(&self, proxy: &Proxy, message: &Message) -> bool {
        let now = proxy.clock.now();
        let until = now + message.ttl_ms.min(LONGEST_TTL);
        let mut state = self.state.lock();
        let age = age(state.round, message);
        if !state.others.contains_key(&message.node) {
            if state.others.len() >= MOST_NODES {
                drop(state);
                proxy.counts.node_left_out.add(1);
                return false;
            }
            let number = number_of(&message.node);
            let other = Other { number, run: message.run, seq: 0, until, queues: HashMap::new() };
            state.others.insert(message.node.clone(), other);
            tracing::info!(node = message.node, "a node is there");
        }
        // it has just been put there if it was not
        let Some(other) = state.others.get_mut(&message.node) else { return false };
        proxy.counts.node_heard.add(1);
        if (message.run, message.seq) <= (other.run, other.seq) {
            // repeated or late, or of a start before this one
            return false;
        }
        if message.run > other.run {
            // it has started again, and counts from zero
            other.queues.values().for_each(|known| known.queue.forget_node(now, other.number));
        }
        let before = std::mem::replace(&mut other.seq, message.seq);
        (other.run, other.until) = (message.run, until);
        for told in &message.queues {
            let Some(owner) = told.owner() else { continue };
            let invited = other.queues.remove(&owner).and_then(|known| known.guest);
            let guest = match told.highest_qos() {
                Some(qos) => proxy.sessions.invite(invited.as_ref(), &owner, &told.filters, qos, now),
                None => {
                    invited.into_iter().for_each(|guest| proxy.sessions.see_off(guest, now));
                    None
                }
            };
            if told.consumers > 0 {
                guest.iter().for_each(|guest| proxy.sessions.give_up(guest, now));
            }
            // what nobody subscribes to is no queue, whoever feeds it
            let Some(queue) = proxy.sessions.queue_of(&owner) else { continue };
            let (rank, own) = ((told.since_ms, other.number), self.rank(&queue));
            let (said, interval) = (message.at_ms, message.interval_ms);
            let hearing = Hearing { rank, own, now, age, said, interval, until };
            if queue.hear(hearing, told.heard()) {
                proxy.ledger.enter(queue.number, Arc::clone(&queue) as _);
            }
            other.queues.insert(owner, Known { queue, guest, seq: message.seq, until });
        }
        let number = other.number;
        // what it told of the last time and not any more
        let ended = other.queues.values().filter(|known| known.seq == before);
        ended.for_each(|known| known.queue.forget_node(now, number));
        // a node tells of so many at a time: who tells of others each time does not make us remember all of them
        if other.queues.len() > 2 * MOST_QUEUES {
            let over = other
                .queues
                .extract_if(|_, known| known.seq != message.seq)
                .filter_map(|(_, known)| known.guest);
            over.for_each(|guest| proxy.sessions.turn_away(guest, now));
        }
        true
    }
}

/// How long a message was on its way, in milliseconds: half of the way of its node there and back, and half of this node's, whose
/// messages take so long for it. The clocks of two nodes say less, they may differ.
fn age(round: f64, message: &Message) -> Millis {
    (round as u64 + message.round_ms.min(message.interval_ms)) / 2
}

/// The number of a node, the same for all who ask, whatever they were built with.
fn number_of(id: &str) -> u64 {
    let digest = digest(&SHA256, id.as_bytes());
    digest.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Whether this can be the name of a node.
pub(crate) fn is_node_id(id: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=64).contains(&id.len()) && id.chars().all(word)
}

#[cfg(test)]
mod talk_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

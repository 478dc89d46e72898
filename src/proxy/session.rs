//! Who is connected, and what is known of the sessions that the upstream keeps.

mod guest;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use tidegate_plugin::Publisher;

pub(super) use self::guest::{Guest, Listed};
use super::inbox::Inbox;
use super::queue::{Bounds, Feed, Queue};
use crate::broker::Levels;
use crate::broker::clock::Millis;
use crate::broker::topic;
use crate::broker::tree::Tree;
use crate::config::Hold;
use crate::wire::Filter;

/// All connections and sessions.
#[derive(Default)]
pub(super) struct Sessions {
    numbers: AtomicU64,
    connected: RwLock<HashMap<u64, Connected>>,
    /// By client identifier.
    sessions: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    /// Shared groups by `$share/group/filter`, with their members.
    groups: Mutex<HashMap<Arc<str>, Group>>,
    tree: RwLock<Tree<Feed>>,
    /// Changes whenever the tree does.
    generation: AtomicU64,
    /// What every queue may hold.
    bounds: Bounds,
    /// Consumers that never hold publishers.
    never_hold: Vec<Hold>,
    /// Sessions that are remembered for clients that are away.
    max_offline: usize,
}

struct Connected {
    publisher: Arc<Publisher>,
    inbox: Arc<Inbox>,
}

/// A shared group.
struct Group {
    queue: Arc<Queue>,
    members: usize,
}

/// What is known of a session.
pub(super) struct Session {
    pub(super) client_id: Arc<str>,
    /// Its own queue, which all its subscriptions that are not shared feed.
    pub(super) queue: Arc<Queue>,
    pub(super) state: Mutex<State>,
}

/// Control topics that a client may subscribe to.
pub(super) const MOST_CONTROL: usize = 1_000;

/// What changes in a session.
#[derive(Default)]
pub(super) struct State {
    /// The connection that has it; 0 is none.
    connection: u64,
    /// By the path that was subscribed to, `$share/...` included.
    pub(super) feeds: HashMap<Arc<str>, Arc<Feed>>,
    /// Control topics.
    pub(super) control: BTreeSet<Box<str>>,
    /// QoS 2 messages that were passed on and are not released, by packet identifier, with what plugins added to them.
    pub(super) passed: BTreeMap<u16, Box<[u8]>>,
    /// The upstream knows subscriptions that we do not.
    pub(super) learn: bool,
    /// Topics among the feeds that stand for such subscriptions: messages on them came.
    learned: Vec<Arc<str>>,
    /// When it ends, while nobody has it.
    ends: Millis,
    /// Its client is here, or was here last as far as is known, so that this node tells others of it.
    ours: bool,
    /// Other nodes that have it.
    guests: usize,
}

impl Session {
    /// The client subscribes to a control topic, or no longer does. What comes late on a connection that has the session no
    /// more counts for nobody else.
    pub(super) fn note_control(&self, filter: &str, subscribes: bool, connection: u64) {
        let mut state = self.state.lock();
        if state.connection != connection {
            return;
        }
        if subscribes && state.control.len() < MOST_CONTROL {
            state.control.insert(filter.into());
        } else if !subscribes {
            state.control.remove(filter);
        }
    }
}

impl Sessions {
    pub(super) fn new(bounds: Bounds, never_hold: Vec<Hold>, max_offline: usize) -> Self {
        Self { bounds, never_hold, max_offline, generation: AtomicU64::new(1), ..Self::default() }
    }

    /// A number for a new connection.
    pub(super) fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A client is connected.
    pub(super) fn enter(&self, publisher: &Arc<Publisher>, inbox: &Arc<Inbox>) {
        let connected = Connected { publisher: Arc::clone(publisher), inbox: Arc::clone(inbox) };
        self.connected.write().insert(inbox.number, connected);
    }

    /// A client is gone.
    pub(super) fn leave(&self, inbox: &Arc<Inbox>) {
        self.connected.write().remove(&inbox.number);
    }

    /// The publisher with this number, while it is connected.
    pub(super) fn publisher(&self, number: u64) -> Option<Arc<Publisher>> {
        self.connected.read().get(&number).map(|connected| Arc::clone(&connected.publisher))
    }

    /// Wakes all connections.
    pub(super) fn nudge_all(&self) {
        let connected = self.connected.read();
        let all: Vec<_> = connected.values().map(|connected| Arc::clone(&connected.inbox)).collect();
        drop(connected);
        all.iter().for_each(|inbox| inbox.nudge());
    }

    /// The session of a client that the upstream has let in; `present` says that it kept one.
    pub(super) fn attach(
        &self,
        client_id: &Arc<str>,
        connection: u64,
        present: bool,
        now: Millis,
    ) -> Arc<Session> {
        // one lock from here to there: no session ends between being found and being somebody's
        let mut sessions = self.sessions.lock();
        let known = sessions.get(client_id).cloned();
        if present && let Some(session) = known {
            let mut state = session.state.lock();
            (state.connection, state.ours) = (connection, true);
            drop(state);
            return session;
        }
        let queue = Arc::new(Queue::new(self.next(), Arc::clone(client_id), None, self.bounds, now));
        let state = State { connection, ours: true, learn: present, ..State::default() };
        let session = Arc::new(Session { client_id: Arc::clone(client_id), queue, state: Mutex::new(state) });
        sessions.insert(Arc::clone(client_id), Arc::clone(&session));
        if let Some(known) = known {
            let old = std::mem::take(&mut *known.state.lock());
            drop(sessions);
            self.forget(&known, old);
        }
        session
    }

    /// A connection gives its session back; after so many seconds the upstream forgets it.
    pub(super) fn detach(&self, session: &Arc<Session>, connection: u64, expiry: u32, now: Millis) {
        let mut state = session.state.lock();
        if state.connection != connection {
            return;
        }
        state.connection = 0;
        state.ends = if expiry == u32::MAX { Millis::MAX } else { now + u64::from(expiry) * 1000 };
        drop(state);
        if expiry == 0 || self.are_too_many() {
            self.end(session, usize::MAX);
        }
    }

    /// Whether more sessions are remembered than there should be.
    fn are_too_many(&self) -> bool {
        self.sessions.lock().len() > self.max_offline + self.connected.read().len()
    }

    /// Forgets sessions that have ended.
    pub(super) fn sweep(&self, now: Millis) {
        let all: Vec<_> = self.sessions.lock().values().cloned().collect();
        for session in all {
            let mut state = session.state.lock();
            if state.connection != 0 || state.ends > now {
                continue;
            }
            // as far as this node knows it is over: others may know better
            state.ours = false;
            drop(state);
            self.end(&session, 0);
        }
    }

    /// Notes a subscription that the upstream has accepted; the queue that it feeds. None when the session is forgotten:
    /// nobody would ever end what is noted for it.
    pub(super) fn subscribe(
        &self,
        session: &Arc<Session>,
        filter: &Filter,
        user: Option<&str>,
        connection: u64,
        now: Millis,
    ) -> Option<Arc<Feed>> {
        let (group, plain) = topic::parse_subscription(&filter.path)?;
        let path: Arc<str> = filter.path.as_str().into();
        let mut state = self.current(session)?;
        let guest = connection == 0;
        if guest && state.connection != 0 && (!state.learn || state.feeds.contains_key(&path)) {
            // its client is here: we know better than others, unless we have to learn it
            return None;
        }
        let queue = match group {
            Some(name) => self.group(&state, &path, name, now),
            None => Arc::clone(&session.queue),
        };
        let feed = Arc::new(Feed {
            queue,
            qos: filter.qos,
            never: self.never_holds(group, &session.client_id, user, &filter.path),
            guest,
            not_from: filter.no_local.then_some(connection),
            as_published: filter.retain_as_published,
        });
        feed.begin(plain);
        let before = state.feeds.insert(path, Arc::clone(&feed));
        before.iter().for_each(|before| before.end());
        self.tree.write().insert(plain, Arc::clone(&feed));
        self.generation.fetch_add(1, Ordering::Release);
        Some(feed)
    }

    /// Notes that a message on this topic came, for which there must be a subscription that we do not know.
    pub(super) fn learned(&self, session: &Session, topic: &str) {
        session.state.lock().learned.push(topic.into());
    }

    /// Which topics were learned that this subscription accounts for; it takes their place.
    pub(super) fn explain(&self, session: &Session, path: &str) -> Vec<Arc<str>> {
        let Some((_, plain)) = topic::parse_subscription(path) else { return Vec::new() };
        let mut explained = Vec::new();
        session.state.lock().learned.retain(|learned| {
            let matches = topic::matches(plain, learned);
            if matches && **learned != *path {
                explained.push(Arc::clone(learned));
            }
            !matches
        });
        explained
    }

    /// Notes the end of a subscription.
    pub(super) fn unsubscribe(&self, session: &Arc<Session>, path: &str) -> Option<Arc<Feed>> {
        let feed = session.state.lock().feeds.remove(path)?;
        self.drop_feed(path, &feed);
        if feed.queue.group.is_none() {
            feed.queue.unsubscribed(path);
        }
        Some(feed)
    }

    /// The subscriptions that match a topic.
    pub(super) fn matching(&self, topic: &str) -> Vec<Arc<Feed>> {
        let mut found = Vec::new();
        self.tree.read().each_match(topic, |feed| found.push(Arc::clone(feed)));
        // one message for each queue, with the highest QoS
        found.sort_by_key(|feed| (feed.queue.number, std::cmp::Reverse(feed.qos)));
        found.dedup_by_key(|feed| feed.queue.number);
        found
    }

    /// A number that is another one after each change of subscriptions.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// How much there is.
    pub(super) fn levels(&self) -> Levels {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        let groups: Vec<_> = self.groups.lock().values().map(|group| Arc::clone(&group.queue)).collect();
        let own = sessions.iter().map(|session| session.queue.waiting()).sum::<u64>();
        let waiting = own + groups.iter().map(|queue| queue.waiting()).sum::<u64>();
        let subscriptions = self.tree.read().len();
        let (sessions, waiting) = (sessions.len(), waiting as usize);
        Levels { connected: 0, sessions, subscriptions, retained: 0, retained_bytes: 0, waiting }
    }

    /// A group has many members, so that only rules by filter alone count for it.
    fn never_holds(&self, group: Option<&str>, client: &str, user: Option<&str>, path: &str) -> bool {
        let fits = |pattern: &Option<String>, text: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| text.is_some_and(|text| topic::glob(pattern, text)))
        };
        let (client, user) = if group.is_some() { (None, None) } else { (Some(client), user) };
        self.never_hold.iter().any(|hold| {
            fits(&hold.client, client) && fits(&hold.user, user) && fits(&hold.filter, Some(path))
        })
    }

    /// What is known of a session, unless it is forgotten, which takes both locks.
    fn current<'a>(&self, session: &'a Arc<Session>) -> Option<MutexGuard<'a, State>> {
        let sessions = self.sessions.lock();
        let current = sessions.get(&session.client_id).is_some_and(|known| Arc::ptr_eq(known, session));
        current.then(|| session.state.lock())
    }

    fn group(&self, state: &State, path: &Arc<str>, name: &str, now: Millis) -> Arc<Queue> {
        if let Some(feed) = state.feeds.get(path) {
            return Arc::clone(&feed.queue);
        }
        let mut groups = self.groups.lock();
        let group = groups.entry(Arc::clone(path)).or_insert_with(|| self.new_group(name, now));
        group.members += 1;
        Arc::clone(&group.queue)
    }

    /// A group without members.
    fn new_group(&self, name: &str, now: Millis) -> Group {
        let name: Arc<str> = name.into();
        let queue = Queue::new(self.next(), Arc::clone(&name), Some(name), self.bounds, now);
        Group { queue: Arc::new(queue), members: 0 }
    }

    /// Forgets a session that nobody has here, unless more than so many other nodes have it.
    fn end(&self, session: &Arc<Session>, guests: usize) {
        let mut sessions = self.sessions.lock();
        let mut state = session.state.lock();
        if state.connection != 0 || state.guests > guests {
            return;
        }
        if sessions.get(&session.client_id).is_some_and(|known| Arc::ptr_eq(known, session)) {
            sessions.remove(&session.client_id);
        }
        let old = std::mem::take(&mut *state);
        drop((state, sessions));
        self.forget(session, old);
    }

    fn forget(&self, session: &Session, state: State) {
        for (path, feed) in state.feeds {
            self.drop_feed(&path, &feed);
        }
        session.queue.dismiss();
    }

    /// Takes a subscription out of the tree, unless others of its group still have it.
    fn drop_feed(&self, path: &str, feed: &Arc<Feed>) {
        let Some((group, plain)) = topic::parse_subscription(path) else { return };
        feed.end();
        if group.is_some() {
            let mut groups = self.groups.lock();
            if let Some(group) = groups.get_mut(path) {
                group.members = group.members.saturating_sub(1);
                if group.members > 0 {
                    return;
                }
                groups.remove(path);
            }
            feed.queue.dismiss();
        }
        self.tree.write().remove(plain, feed);
        self.generation.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;

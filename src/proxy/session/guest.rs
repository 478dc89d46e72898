//! Queues whose consumers are at other nodes: their subscriptions count here too, so that what feeds them is seen.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Feed, Millis, Queue, Session, Sessions, State, topic};
use crate::proxy::node::Owner;
use crate::wire::{Filter, QoS, RetainHandling};

/// How long a session is remembered after the node that told of it fell silent, in milliseconds.
const STAYS: Millis = 30_000;

/// A queue that another node told of.
#[derive(Clone)]
pub(in crate::proxy) struct Guest {
    place: Place,
    paths: Vec<String>,
    qos: QoS,
}

#[derive(Clone)]
enum Place {
    Group(Arc<Feed>),
    Session(Arc<Session>),
}

/// A queue that is known here.
pub(in crate::proxy) enum Listed {
    /// By its path.
    Group(Arc<str>, Arc<Queue>),
    Session(Arc<Session>),
}

impl Listed {
    pub(in crate::proxy) fn queue(&self) -> &Arc<Queue> {
        match self {
            Self::Group(_, queue) => queue,
            Self::Session(session) => &session.queue,
        }
    }

    /// The highest QoS of those who subscribe to it here; none where only clients of other nodes do.
    pub(in crate::proxy) fn own_qos(&self) -> Option<QoS> {
        match self {
            Self::Group(_, queue) => queue.own_qos(),
            Self::Session(session) => session.state.lock().ours.then(|| session.queue.qos()),
        }
    }

    /// Whose it is, and its filters.
    pub(in crate::proxy) fn describe(&self) -> (Owner, Vec<String>) {
        match self {
            Self::Group(path, _) => {
                let plain = topic::parse_subscription(path).map(|(_, plain)| plain.to_owned());
                (Owner::Group(path.to_string()), plain.into_iter().collect())
            }
            Self::Session(session) => {
                let state = session.state.lock();
                let own = state.feeds.keys().filter(|path| !path.starts_with("$share/"));
                (Owner::Client(session.client_id.to_string()), own.map(|path| path.to_string()).collect())
            }
        }
    }
}

impl Sessions {
    /// The queue of this owner, which another node has subscriptions for; `known` is what it was the last time.
    pub(in crate::proxy) fn invite(
        &self,
        known: Option<&Guest>,
        owner: &Owner,
        filters: &[String],
        qos: QoS,
        now: Millis,
    ) -> Option<Guest> {
        let known = known.filter(|known| self.is_current(known));
        if let Some(known) = known.filter(|known| known.qos == qos && known.paths == filters) {
            return Some(known.clone());
        }
        let place = match (owner, known.map(|known| &known.place)) {
            (Owner::Group(path), known) => Place::Group(self.invite_group(path, known, qos, now)?),
            (Owner::Client(_), Some(Place::Session(session))) => Place::Session(Arc::clone(session)),
            (Owner::Client(client), _) => Place::Session(self.invite_session(client, now)),
        };
        if let Place::Session(session) = &place {
            self.subscribe_for(session, filters, qos, now);
            let over =
                known.into_iter().flat_map(|known| &known.paths).filter(|path| !filters.contains(path));
            over.for_each(|path| self.unsubscribe_for(session, path));
        }
        Some(Guest { place, paths: filters.to_vec(), qos })
    }

    /// Whether it is still the queue of its owner: a client that comes with a clean session has another one from then on.
    fn is_current(&self, guest: &Guest) -> bool {
        match &guest.place {
            Place::Group(_) => true, // a guest is a member
            Place::Session(session) => {
                let sessions = self.sessions.lock();
                sessions.get(&session.client_id).is_some_and(|known| Arc::ptr_eq(known, session))
            }
        }
    }

    /// The queue of this owner, if somebody subscribes to it.
    pub(in crate::proxy) fn queue_of(&self, owner: &Owner) -> Option<Arc<Queue>> {
        match owner {
            Owner::Group(path) => self.groups.lock().get(&**path).map(|group| Arc::clone(&group.queue)),
            Owner::Client(client) => {
                self.sessions.lock().get(&**client).map(|session| Arc::clone(&session.queue))
            }
        }
    }

    /// Another node has the client of a session: if it was here last, what is known of it here ends soon unless others tell of it.
    pub(in crate::proxy) fn give_up(&self, guest: &Guest, now: Millis) {
        let Place::Session(session) = &guest.place else { return };
        let mut state = session.state.lock();
        if state.ours && state.connection == 0 {
            (state.ours, state.ends) = (false, state.ends.min(now + STAYS));
        }
    }

    /// The other node speaks of it no longer. Its client may be on its way here, and find what the upstream kept for it.
    pub(in crate::proxy) fn see_off(&self, guest: Guest, now: Millis) {
        self.forget_after(guest, now + STAYS);
    }

    /// The same, but nobody waits for its client: there are too many of these.
    pub(in crate::proxy) fn turn_away(&self, guest: Guest, now: Millis) {
        self.forget_after(guest, now);
    }

    fn forget_after(&self, guest: Guest, until: Millis) {
        match guest.place {
            Place::Group(feed) => {
                let path = feed.queue.group_path();
                self.drop_feed(&path, &feed);
            }
            Place::Session(session) => {
                let mut state = session.state.lock();
                state.guests = state.guests.saturating_sub(1);
                // once nobody has it, a sweep ends it
                state.ends = state.ends.max(until);
            }
        }
    }

    /// Every queue that is known.
    pub(in crate::proxy) fn list(&self) -> Vec<Listed> {
        let groups = self.groups.lock();
        let mut all: Vec<_> = groups
            .iter()
            .map(|(path, group)| Listed::Group(Arc::clone(path), Arc::clone(&group.queue)))
            .collect();
        drop(groups);
        all.extend(self.sessions.lock().values().map(|session| Listed::Session(Arc::clone(session))));
        all
    }

    fn invite_group(&self, path: &str, known: Option<&Place>, qos: QoS, now: Millis) -> Option<Arc<Feed>> {
        let (Some(name), plain) = topic::parse_subscription(path)? else { return None };
        let mut groups = self.groups.lock();
        let group = groups.entry(path.into()).or_insert_with(|| self.new_group(name, now));
        group.members += usize::from(known.is_none());
        let queue = Arc::clone(&group.queue);
        drop(groups);
        let never = self.never_holds(Some(name), "", None, path);
        let feed = Arc::new(Feed { queue, qos, never, guest: true, not_from: None, as_published: false });
        feed.begin(plain);
        if let Some(Place::Group(before)) = known {
            before.end();
        }
        self.tree.write().insert(plain, Arc::clone(&feed));
        self.generation.fetch_add(1, Ordering::Release);
        Some(feed)
    }

    fn invite_session(&self, client: &str, now: Millis) -> Arc<Session> {
        let mut sessions = self.sessions.lock();
        let make = || {
            let client_id: Arc<str> = client.into();
            let queue = Queue::new(self.next(), Arc::clone(&client_id), None, self.bounds, now);
            Arc::new(Session { client_id, queue: Arc::new(queue), state: State::default().into() })
        };
        let session = Arc::clone(sessions.entry(client.into()).or_insert_with(make));
        // while the registry is locked, so that no sweep ends it before somebody has it
        session.state.lock().guests += 1;
        session
    }

    /// Notes what other nodes know of a session.
    fn subscribe_for(&self, session: &Arc<Session>, filters: &[String], qos: QoS, now: Millis) {
        for path in filters {
            let known = session.state.lock().feeds.get(&**path).map(|feed| feed.qos);
            if known == Some(qos) {
                continue;
            }
            let filter = Filter {
                path: path.clone(),
                qos,
                no_local: false,
                retain_as_published: false,
                retain_handling: RetainHandling::Never,
            };
            self.subscribe(session, &filter, None, 0, now);
        }
    }

    /// Forgets what other nodes knew, unless its client is here.
    fn unsubscribe_for(&self, session: &Arc<Session>, path: &str) {
        if session.state.lock().connection == 0 {
            self.unsubscribe(session, path);
        }
    }
}

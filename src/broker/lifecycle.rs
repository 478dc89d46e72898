//! How sessions begin, pass from connection to connection, and end.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_plugin as plugin;
use tidegate_plugin::Publisher;

use super::Broker;
use super::clock::{Millis, moment};
use super::group::Group;
use super::inflight::Stage;
use super::message::Parts;
use super::queue::Entry;
use super::session::{KeptWill, Session, State};
use super::timers::Action;
use super::tree::Target;
use crate::hold::Gate;
use crate::wire::{QoS, user_property};

/// A session that a connection owns now.
pub(super) struct Attached {
    pub(super) session: Arc<Session>,
    /// The connection's number.
    pub(super) connection: u64,
    /// Whether there was a session.
    pub(super) present: bool,
    /// Closed when it publishes too much.
    pub(super) gate: Arc<Gate>,
}

/// What a new connection brings to its session.
pub(super) struct Owner {
    pub(super) clean_start: bool,
    pub(super) expiry: u32,
    pub(super) user: Option<Arc<str>>,
    pub(super) will: Option<Box<KeptWill>>,
    pub(super) publisher: Arc<Publisher>,
}

impl Broker {
    /// Gives a client its session: the one it had, or a new one. A connection that owned it is told to leave.
    pub(super) fn attach(&self, client_id: &str, mut owner: Owner) -> Attached {
        let connection = self.next_connection();
        loop {
            let known = self.registry.sessions.lock().get(client_id).cloned();
            let attached = match known {
                Some(session) => self.take_over(&session, owner, connection),
                None => self.begin(client_id, owner, connection),
            };
            match attached {
                Ok(attached) => return attached,
                // another connection of this client was quicker: look again
                Err(back) => owner = back,
            }
        }
    }

    /// Begins a session for a client that has none; gives the owner back if it has one.
    fn begin(&self, client_id: &str, owner: Owner, connection: u64) -> Result<Attached, Owner> {
        let mut sessions = self.registry.sessions.lock();
        if sessions.contains_key(client_id) {
            return Err(owner);
        }
        let publisher = Arc::clone(&owner.publisher);
        let session = self.new_session(client_id, owner, connection);
        sessions.insert(Arc::clone(&session.client_id), Arc::clone(&session));
        let gate = self.gates.open(session.number, publisher);
        Ok(Attached { session, connection, present: false, gate })
    }

    /// Takes a session over that may be another connection's; gives the owner back if the session has ended.
    ///
    /// Its connection may have the state for a while, so this waits without the registry, which everybody needs.
    fn take_over(&self, session: &Arc<Session>, owner: Owner, connection: u64) -> Result<Attached, Owner> {
        let mut state = session.state.lock();
        if state.ended {
            return Err(owner);
        }
        if state.connected {
            self.stats.takeovers.add(1);
            // it looks for its session when it has the lock: after us
            session.queue.nudge();
        }
        // a session that ends with its connection is not handed on [MQTT-3.1.2-6]
        if !owner.clean_start && state.expiry != 0 {
            let gate = self.gates.open(session.number, Arc::clone(&owner.publisher));
            self.resume(session, &mut state, owner, connection);
            return Ok(Attached { session: Arc::clone(session), connection, present: true, gate });
        }
        state.connection = connection;
        self.end(session, &mut state);
        let publisher = Arc::clone(&owner.publisher);
        let session = self.new_session(&session.client_id, owner, connection);
        // while the old one is locked: whoever waits for that finds it ended, and this one in its place
        self.registry.sessions.lock().insert(Arc::clone(&session.client_id), Arc::clone(&session));
        let gate = self.gates.open(session.number, publisher);
        Ok(Attached { session, connection, present: false, gate })
    }

    fn new_session(&self, client_id: &str, owner: Owner, connection: u64) -> Arc<Session> {
        let session = Arc::new(Session::new(self.next_session(), client_id.into()));
        session.state.lock().own(owner, connection);
        session.queue.connect(self.clock.now());
        session
    }

    fn resume(&self, session: &Arc<Session>, state: &mut State, owner: Owner, connection: u64) {
        self.forget_due(state);
        let will = state.will.take();
        if state.connected {
            // the old connection ends here; its will is published unless it asked for a delay
            if let Some(will) = will.filter(|kept| kept.will.delay == 0) {
                self.publish_will(session, &will);
            }
            self.give_back_shared(session, state);
        }
        state.own(owner, connection);
        session.queue.connect(self.clock.now());
    }

    /// A connection ends. `will` says whether its will counts.
    pub(super) fn detach(&self, session: &Arc<Session>, connection: u64, will: bool) {
        let mut state = session.state.lock();
        if state.connection != connection || state.ended {
            return;
        }
        state.connected = false;
        if !will {
            state.will = None;
        }
        let now = self.clock.now();
        // this connection still counts as connected
        let connected = self.stats.connects.get().saturating_sub(self.stats.disconnects.get() + 1);
        let away = (self.registry.sessions.lock().len() as u64).saturating_sub(connected);
        let too_many = away > self.settings.session.max_offline_sessions as u64;
        if too_many && state.expiry != 0 && self.lines.not_kept.allows(now) {
            tracing::warn!(
                client = &*session.client_id,
                "its session ends now: session.max_offline_sessions are kept already"
            );
        }
        if state.expiry == 0 || too_many {
            self.end(session, &mut state);
            self.registry.sessions.lock().remove(&session.client_id);
            return;
        }
        self.give_back_shared(session, &mut state);
        let (_, dropped) = session.queue.disconnect(&self.limits, |_| true);
        self.stats.dropped_gone.add(dropped);
        let mut due = Vec::new();
        let mut later = |seconds: u32, action| {
            let key = (now + u64::from(seconds) * 1000, connection, action);
            self.timers.add(key, Arc::clone(&session.client_id));
            due.push(key);
        };
        match &state.will {
            Some(kept) if kept.will.delay > 0 => {
                later(kept.will.delay.min(state.expiry), Action::PublishWill)
            }
            Some(_) => self.publish_will_of(session, &mut state),
            None => {}
        }
        if state.expiry != u32::MAX {
            later(state.expiry, Action::EndSession);
        }
        state.due = due;
    }

    /// The client is back, or gone for good: nothing is due any more.
    fn forget_due(&self, state: &mut State) {
        for key in std::mem::take(&mut state.due) {
            self.timers.remove(&key);
        }
    }

    /// Ends a session for good. The caller takes it out of the registry before it unlocks the state.
    fn end(&self, session: &Arc<Session>, state: &mut State) {
        state.ended = true;
        state.connected = false;
        self.forget_due(state);
        self.publish_will_of(session, state);
        self.give_back_shared(session, state);
        for (filter, subscription) in std::mem::take(&mut state.subscriptions) {
            self.forget(session, &filter, &subscription);
        }
        let unfinished = state.inflight.len() as u64;
        *state = State { connection: state.connection, ended: true, ..State::default() };
        self.stats.dropped_gone.add(session.queue.clear() + unfinished);
    }

    /// What a member of shared groups has not finished goes to other members. QoS 2 messages that were sent stay
    /// with it: nobody else may get them [MQTT-4.8.2-5]. So does what came through a group that it has left.
    fn give_back_shared(&self, session: &Arc<Session>, state: &mut State) {
        let mut back: HashMap<*const Group, (Arc<Group>, Vec<Entry>)> = HashMap::new();
        for subscription in state.subscriptions.values() {
            if let Target::Group(group) = &subscription.target {
                // before its queue is searched: nothing may be put there behind our back
                self.stats.dropped_gone.add(group.pause(session.number, &self.limits));
                back.insert(Arc::as_ptr(group), (Arc::clone(group), Vec::new()));
            }
        }
        if back.is_empty() {
            return;
        }
        let groups: HashSet<*const Group> = back.keys().copied().collect();
        let shared =
            |entry: &Entry| group_of(entry).is_some_and(|group| groups.contains(&Arc::as_ptr(group)));
        let mut entries = Vec::new();
        for id in state.inflight.in_order() {
            let once = |stage: &Stage| match stage {
                Stage::Published(entry) => entry.qos == QoS::AtLeastOnce && shared(entry),
                Stage::Released(_) => false,
            };
            if state.inflight.get_mut(id).is_some_and(|sent| once(&sent.stage))
                && let Some(Stage::Published(entry)) = state.inflight.remove(id).map(|sent| sent.stage)
            {
                entries.push(entry);
            }
        }
        let (queued, dropped) = session.queue.disconnect(&self.limits, |entry| !shared(entry));
        self.stats.dropped_gone.add(dropped);
        for entry in entries.into_iter().chain(queued) {
            if let Some((_, entries)) = group_of(&entry).and_then(|group| back.get_mut(&Arc::as_ptr(group))) {
                entries.push(entry);
            }
        }
        for (group, entries) in back.into_values() {
            group.take_back(session.number, entries, self.clock.now(), &self.limits);
        }
    }

    fn publish_will_of(&self, session: &Arc<Session>, state: &mut State) {
        if let Some(will) = state.will.take() {
            self.publish_will(session, &will);
        }
    }

    fn publish_will(&self, session: &Arc<Session>, KeptWill { will, urgent }: &KeptWill) {
        let now = self.clock.now();
        let accepted = plugin::Publish {
            topic: &will.topic,
            payload: &will.payload,
            qos: will.qos as u8,
            retain: will.retain,
            now: moment(now),
            waited: Duration::ZERO,
        };
        let mut properties = Vec::new();
        self.chain.on_accept(&accepted, &mut |key, value| user_property(&mut properties, key, value));
        properties.extend_from_slice(&will.properties);
        let parts = Parts {
            topic: &will.topic,
            properties: &properties,
            payload: &will.payload,
            qos: will.qos,
            retain: will.retain,
            urgent: *urgent,
            ordinal: 0,
            expires: expiry_moment(now, will.message_expiry),
        };
        self.stats.published.add(1);
        self.publish_own(session.number, parts);
    }

    /// Does what is due for a client, unless it has been back since.
    fn carry_out(&self, client_id: &str, connection: u64, action: Action) {
        let Some(session) = self.registry.sessions.lock().get(client_id).cloned() else { return };
        let mut state = session.state.lock();
        if state.connection != connection || state.connected || state.ended {
            return;
        }
        match action {
            Action::PublishWill => self.publish_will_of(&session, &mut state),
            Action::EndSession => {
                self.end(&session, &mut state);
                self.registry.sessions.lock().remove(client_id);
                self.stats.sessions_expired.add(1);
            }
        }
    }
}

impl State {
    /// A connection owns the session from now on.
    fn own(&mut self, owner: Owner, connection: u64) {
        self.connection = connection;
        self.connected = true;
        self.expiry = owner.expiry;
        self.user = owner.user;
        self.will = owner.will;
    }
}

/// When a message expires that may wait this many seconds; 0 is never.
pub(super) fn expiry_moment(now: Millis, seconds: Option<u32>) -> Millis {
    seconds.map_or(0, |seconds| now + u64::from(seconds) * 1000)
}

/// The group that an entry came through.
pub(super) fn group_of(entry: &Entry) -> Option<&Arc<Group>> {
    entry.extra.as_ref()?.group.as_ref()
}

/// Publishes delayed wills and ends sessions when their time has come.
pub(super) async fn run_timers(broker: Weak<Broker>) {
    // looked at again at least this often, so that the task ends with the broker
    const IDLE: Duration = Duration::from_secs(5);
    loop {
        let Some(broker) = broker.upgrade() else { return };
        let now = broker.clock.now();
        for ((_, connection, action), client_id) in broker.timers.take_due(now) {
            broker.carry_out(&client_id, connection, action);
        }
        let until_next =
            broker.timers.next().map_or(IDLE, |at| Duration::from_millis(at.saturating_sub(now)).min(IDLE));
        let timers = Arc::clone(&broker.timers);
        drop(broker);
        let _ = tokio::time::timeout(until_next, timers.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::chain::Chain;
    use crate::config::Settings;
    use crate::wire::Will;

    fn owner(clean_start: bool) -> Owner {
        let will = Will {
            topic: "will".into(),
            payload: "x".into(),
            qos: QoS::AtMostOnce,
            retain: false,
            delay: 100,
            message_expiry: None,
            properties: Default::default(),
        };
        let publisher = Arc::new(Publisher::new("c".into(), None, 60, 5));
        let will = Some(Box::new(KeptWill { will, urgent: false }));
        Owner { clean_start, expiry: 1_000_000, user: None, will, publisher }
    }

    /// However often a client comes and goes, only its last absence is remembered.
    #[tokio::test]
    async fn timers_do_not_pile_up() {
        let broker = Broker::start(Settings::default(), Chain::default()).unwrap();
        for _ in 0..100 {
            let attached = broker.attach("c", owner(false));
            assert_eq!(broker.timers.len(), 0);
            broker.detach(&attached.session, attached.connection, true);
            assert_eq!(broker.timers.len(), 2);
        }
        broker.attach("c", owner(true));
        assert_eq!(broker.timers.len(), 0);
    }

    /// Connections of one client that come and go at the same time: one session is left, or none, and nobody hangs.
    #[tokio::test]
    async fn connections_of_one_client_meet() {
        let broker = Broker::start(Settings::default(), Chain::default()).unwrap();
        let come_and_go = |thread: u64| {
            for round in 0..2_000 {
                let expiry = if (round + thread).is_multiple_of(3) { 0 } else { 1_000 };
                let attached = broker.attach("c", Owner { expiry, ..owner(round % 5 == 0) });
                assert!(!attached.present || round % 5 != 0, "a clean start finds a session");
                if round % 7 != 0 {
                    broker.detach(&attached.session, attached.connection, round % 2 == 0);
                }
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || come_and_go(thread))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let last = broker.attach("c", Owner { expiry: 0, ..owner(true) });
        assert_eq!(broker.levels().sessions, 1);
        assert_eq!(broker.timers.len(), 0);
        broker.detach(&last.session, last.connection, false);
        assert_eq!(broker.levels().sessions, 0);
    }
}

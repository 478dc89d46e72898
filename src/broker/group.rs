//! A shared group: one queue for each (group, filter), handed out to the member with most free window.
//!
//! Members are given no more than their window, so what waits, waits in the group's queue, where a slow or gone
//! member can't keep it from the others. What a gone member had not acknowledged goes back to the front.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

use super::clock::Millis;
use super::queue::{Entry, Extra, Finished, HoldPolicy, Limits, Pushed, Queue};
use super::session::Session;
use crate::wire::QoS;

/// A shared group on one filter.
#[derive(Debug)]
pub struct Group {
    /// `$share/name/filter`.
    pub path: Arc<str>,
    /// Unique among groups and sessions.
    pub number: u64,
    /// What waits for any member.
    pub queue: Queue,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    list: Vec<Member>,
    /// Where the search for the freest member starts, so that equals take turns.
    turn: usize,
}

#[derive(Debug)]
struct Member {
    session: Arc<Session>,
    qos: QoS,
    extra: Arc<Extra>,
    /// How many it may have at a time; 0 while it is away.
    window: u64,
    /// How many it was given and has not finished.
    unfinished: u64,
}

/// Looking for the freest member costs no more than this many looks.
const MAX_LOOKS: usize = 64;

impl Group {
    /// A group without members.
    pub fn new(path: Arc<str>, number: u64) -> Self {
        Self { path, number, queue: Queue::new(HoldPolicy::WhileProgress), members: Mutex::default() }
    }

    /// Adds a member or changes its QoS and subscription identifier.
    pub fn join(
        self: &Arc<Self>,
        session: &Arc<Session>,
        qos: QoS,
        identifier: Option<u32>,
        window: usize,
        now: Millis,
        limits: &Limits,
    ) {
        let identifiers: Box<[u32]> = identifier.into_iter().collect();
        let extra = Arc::new(Extra { identifiers, group: Some(Arc::clone(self)) });
        let mut members = self.members.lock();
        match members.find(session.number) {
            Some(member) => {
                member.qos = qos;
                member.extra = extra;
                member.window = window as u64;
            }
            None => members.list.push(Member {
                session: Arc::clone(session),
                qos,
                extra,
                window: window as u64,
                unfinished: 0,
            }),
        }
        drop(members);
        self.queue.connect(now);
        // something may wait because the others are away
        self.hand_out(now, limits);
    }

    /// Removes a member for good; `None` when the group has no member left, else how many messages were dropped
    /// because nobody is there now.
    pub fn leave(&self, session: u64, limits: &Limits) -> Option<u64> {
        let mut members = self.members.lock();
        members.list.retain(|member| member.session.number != session);
        (!members.list.is_empty()).then(|| self.away_if_alone(&members, limits))
    }

    /// A member's connection is gone but its session stays. How many messages were dropped because nobody is
    /// there now.
    pub fn pause(&self, session: u64, limits: &Limits) -> u64 {
        let mut members = self.members.lock();
        if let Some(member) = members.find(session) {
            member.window = 0;
        }
        self.away_if_alone(&members, limits)
    }

    /// A member is back with a new connection.
    pub fn resume(&self, session: u64, window: usize, now: Millis, limits: &Limits) {
        if let Some(member) = self.members.lock().find(session) {
            member.window = window as u64;
        }
        self.queue.connect(now);
        self.hand_out(now, limits);
    }

    /// Takes back what a gone member had not finished, oldest first, and hands it to others.
    pub fn take_back(&self, session: u64, entries: Vec<Entry>, now: Millis, limits: &Limits) {
        if let Some(member) = self.members.lock().find(session) {
            member.finished(entries.len() as u64);
        }
        let entries = entries.into_iter().map(|entry| Entry { extra: None, qos: entry.message.qos, ..entry });
        self.queue.push_front(entries.collect(), now);
        self.hand_out(now, limits);
    }

    /// A member finished messages and may have `window` at a time from now on.
    pub fn finished(&self, session: u64, done: Finished, window: usize, now: Millis, limits: &Limits) {
        if let Some(member) = self.members.lock().find(session) {
            member.finished(done.count);
            member.window = window as u64;
        }
        self.queue.finished(done, now);
        self.hand_out(now, limits);
    }

    /// Appends messages to the group's queue and hands out what can be.
    pub fn push(&self, entries: impl IntoIterator<Item = Entry>, now: Millis, limits: &Limits) -> Pushed {
        let mut pushed = self.queue.push(entries, now, limits);
        self.hand_out(now, limits);
        pushed.wake = None;
        pushed
    }

    /// Members that are connected, what all members have and have not finished, and the highest QoS that any asks for.
    pub fn at_work(&self) -> (u32, u64, QoS) {
        let members = &self.members.lock().list;
        let connected = members.iter().filter(|member| member.window > 0).count();
        let highest = members.iter().map(|member| member.qos).max().unwrap_or(QoS::AtMostOnce);
        (connected as u32, members.iter().map(|member| member.unfinished).sum(), highest)
    }

    fn hand_out(&self, now: Millis, limits: &Limits) {
        let mut wakers: Vec<Waker> = Vec::new();
        let mut members = self.members.lock();
        loop {
            let free: u64 = members.list.iter().map(Member::free).sum();
            let mut entries = Vec::new();
            self.queue.pop(&mut entries, free.min(256) as usize, usize::MAX, usize::MAX, now, limits);
            if entries.is_empty() {
                break;
            }
            wakers.extend(members.assign(entries, now, limits));
        }
        drop(members);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn away_if_alone(&self, members: &Members, limits: &Limits) -> u64 {
        if members.list.iter().any(|member| member.window > 0) {
            return 0;
        }
        self.queue.disconnect(limits, |_| true).1
    }
}

impl Members {
    fn find(&mut self, session: u64) -> Option<&mut Member> {
        self.list.iter_mut().find(|member| member.session.number == session)
    }

    /// Gives each entry to the freest member; the caller has made sure that there is room for all.
    fn assign(&mut self, entries: Vec<Entry>, now: Millis, limits: &Limits) -> Vec<Waker> {
        let mut shares: Vec<Vec<Entry>> = Vec::new();
        shares.resize_with(self.list.len(), Vec::new);
        for entry in entries {
            let index = self.freest();
            let member = &mut self.list[index];
            member.unfinished += 1;
            let qos = entry.message.qos.min(member.qos);
            shares[index].push(Entry { qos, extra: Some(Arc::clone(&member.extra)), ..entry });
        }
        let push = |(member, share): (&Member, Vec<Entry>)| {
            if share.is_empty() { None } else { member.session.queue.push(share, now, limits).wake }
        };
        self.list.iter().zip(shares).filter_map(push).collect()
    }

    fn freest(&mut self) -> usize {
        let count = self.list.len();
        self.turn = (self.turn + 1) % count;
        let candidates = (0..count).map(|step| (self.turn + step) % count);
        let mut best = self.turn;
        for (look, index) in candidates.enumerate() {
            if self.list[index].freer_than(&self.list[best]) {
                best = index;
            }
            // a free one must be found, but not always the freest of thousands
            if look >= MAX_LOOKS && self.list[best].free() > 0 {
                break;
            }
        }
        best
    }
}

impl Member {
    fn free(&self) -> u64 {
        self.window.saturating_sub(self.unfinished)
    }

    /// It may have left and joined again since it was given some of these: then they don't count.
    fn finished(&mut self, count: u64) {
        self.unfinished = self.unfinished.saturating_sub(count);
    }

    /// Compares the free shares of the windows: of two idle members neither is freer, whatever their windows; one
    /// that is away has no window and nothing free.
    fn freer_than(&self, other: &Self) -> bool {
        self.free() * other.window.max(1) > other.free() * self.window
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Message, Parts};
    use super::*;
    use crate::config::QueueSettings;

    fn entries(count: usize) -> Vec<Entry> {
        let parts = Parts {
            topic: "t",
            properties: b"",
            payload: b"x",
            qos: QoS::AtLeastOnce,
            retain: false,
            urgent: false,
            ordinal: 1,
            expires: 0,
        };
        let message = Arc::new(Message::new(9, &parts));
        let entry = Entry { message, extra: None, since: 1, qos: QoS::AtLeastOnce, retain: false };
        vec![entry; count]
    }

    fn done(count: usize) -> Finished {
        Finished { count: count as u64, soonest: 0 }
    }

    fn group(windows: &[usize]) -> (Arc<Group>, Vec<Arc<Session>>, Limits) {
        let group = Arc::new(Group::new("$share/g/t".into(), 99));
        let limits = Limits::from(&QueueSettings::default());
        let sessions: Vec<_> =
            (0..windows.len() as u64).map(|n| Arc::new(Session::new(n, n.to_string().into()))).collect();
        for (session, window) in sessions.iter().zip(windows) {
            session.queue.connect(1);
            group.join(session, QoS::AtLeastOnce, None, *window, 1, &limits);
        }
        (group, sessions, limits)
    }

    fn depths(sessions: &[Arc<Session>]) -> Vec<usize> {
        sessions.iter().map(|session| session.queue.depth()).collect()
    }

    #[test]
    fn idle_members_take_turns_whatever_their_windows() {
        let (group, sessions, limits) = group(&[20, 300, 21]);
        for _ in 0..30 {
            group.push(entries(1), 1, &limits);
            for session in &sessions {
                let mut taken = Vec::new();
                session.queue.pop(&mut taken, 9, usize::MAX, usize::MAX, 1, &limits);
                group.finished(
                    session.number,
                    done(taken.len()),
                    [20, 300, 21][session.number as usize],
                    1,
                    &limits,
                );
            }
        }
        let shares: Vec<u64> = sessions.iter().map(|session| session.queue.flow().departed).collect();
        assert_eq!(shares, [10, 10, 10]);
    }

    #[test]
    fn a_stuck_member_keeps_only_its_window() {
        let (group, sessions, limits) = group(&[5, 5]);
        group.push(entries(100), 1, &limits);
        assert_eq!((depths(&sessions), group.queue.depth()), (vec![5, 5], 90));
        // the second one works, the first one is stuck
        for _ in 0..18 {
            let mut taken = Vec::new();
            sessions[1].queue.pop(&mut taken, 9, usize::MAX, usize::MAX, 1, &limits);
            group.finished(1, done(taken.len()), 5, 1, &limits);
        }
        assert_eq!((depths(&sessions), group.queue.depth()), (vec![5, 5], 0));
    }

    #[test]
    fn what_a_gone_member_had_goes_to_another() {
        let (group, sessions, limits) = group(&[5, 50]);
        group.push(entries(4), 1, &limits);
        let (had, _) = sessions[0].queue.disconnect(&limits, |_| false);
        let count = had.len();
        group.pause(0, &limits);
        group.take_back(0, had, 1, &limits);
        assert!(count > 0);
        assert_eq!(depths(&sessions), [0, 4]);
    }

    #[test]
    fn a_member_that_is_away_gets_nothing() {
        let (group, sessions, limits) = group(&[5, 5, 5]);
        group.pause(0, &limits);
        group.pause(2, &limits);
        for _ in 0..4 {
            group.push(entries(1), 1, &limits);
        }
        assert_eq!(depths(&sessions), [0, 4, 0]);
    }
    #[test]
    fn who_joins_gets_what_waits() {
        let (group, _, limits) = group(&[5]);
        group.pause(0, &limits);
        group.push(entries(3), 1, &limits);
        let session = Arc::new(Session::new(7, "7".into()));
        session.queue.connect(1);
        group.join(&session, QoS::AtLeastOnce, None, 2, 1, &limits);
        assert_eq!((session.queue.depth(), group.queue.depth()), (2, 1));
    }

    #[test]
    fn its_qos_is_the_highest_that_a_member_asks_for() {
        let (group, sessions, limits) = group(&[5, 5]);
        assert_eq!(group.at_work(), (2, 0, QoS::AtLeastOnce));
        group.join(&sessions[0], QoS::ExactlyOnce, None, 5, 1, &limits);
        assert_eq!(group.at_work(), (2, 0, QoS::ExactlyOnce));
        group.leave(0, &limits);
        assert_eq!(group.at_work(), (1, 0, QoS::AtLeastOnce));
    }

    #[test]
    fn acknowledgements_from_before_it_joined_again_do_no_harm() {
        let (group, sessions, limits) = group(&[5, 5]);
        group.push(entries(10), 1, &limits);
        group.leave(0, &limits);
        group.join(&sessions[0], QoS::AtLeastOnce, None, 5, 1, &limits);
        group.finished(0, done(5), 5, 1, &limits);
        group.push(entries(20), 1, &limits);
        assert_eq!(depths(&sessions), [10, 5]);
    }
}

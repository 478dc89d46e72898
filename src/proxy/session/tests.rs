#![allow(clippy::unwrap_used)]

use super::*;
use crate::wire::{QoS, RetainHandling};

fn house() -> Sessions {
    Sessions::new(Bounds { window: 50, messages: 100, ..Bounds::default() }, Vec::new(), 10)
}

fn filter(path: &str) -> Filter {
    Filter {
        path: path.into(),
        qos: QoS::AtLeastOnce,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::Never,
    }
}

/// Subscriptions in the tree, groups, and members of all groups.
fn kept(sessions: &Sessions) -> (usize, usize, usize) {
    let groups = sessions.groups.lock();
    (sessions.tree.read().len(), groups.len(), groups.values().map(|group| group.members).sum())
}

/// The answer to a SUBSCRIBE may come when its client is back on another connection, with another session.
#[test]
fn what_a_forgotten_session_subscribes_to_is_not_kept() {
    let (sessions, client) = (house(), "c".into());
    let other = sessions.attach(&"other".into(), 1, false, 1);
    sessions.subscribe(&other, &filter("$share/g/b"), None, 1, 1).unwrap();
    let old = sessions.attach(&client, 2, false, 1);
    for path in ["a", "$share/g/b", "$share/h/b"] {
        sessions.subscribe(&old, &filter(path), None, 2, 1).unwrap();
    }
    assert_eq!(kept(&sessions), (3, 2, 3));
    let new = sessions.attach(&client, 3, false, 1);
    assert_eq!(kept(&sessions), (1, 1, 1));
    for path in ["a", "c", "$share/g/b", "$share/h/b"] {
        assert!(sessions.subscribe(&old, &filter(path), None, 2, 1).is_none(), "{path}");
    }
    sessions.detach(&old, 2, 0, 1);
    assert_eq!(kept(&sessions), (1, 1, 1), "those of the other client");
    sessions.subscribe(&new, &filter("a"), None, 3, 1).unwrap();
    sessions.detach(&new, 3, 0, 1);
    sessions.detach(&other, 1, 0, 1);
    assert_eq!(kept(&sessions), (0, 0, 0));
}

/// A client comes back at the moment at which its session ends.
#[test]
fn who_comes_back_finds_its_session_or_a_new_one() {
    let (sessions, client) = (house(), "c".into());
    let away = sessions.attach(&client, 1, false, 1);
    sessions.detach(&away, 1, 100, 1);
    std::thread::scope(|scope| {
        let mut state = away.state.lock();
        let back = scope.spawn(|| sessions.attach(&client, 2, true, 1));
        // until it has come as far as it can
        for _ in 0..100_000 {
            if sessions.sessions.is_locked() {
                break;
            }
            std::thread::yield_now();
        }
        // it ends, unless the one that comes back has the registry already
        if let Some(mut registry) = sessions.sessions.try_lock() {
            registry.remove(&client);
            let old = std::mem::take(&mut *state);
            drop((state, registry));
            sessions.forget(&away, old);
        } else {
            drop(state);
        }
        let session = back.join().unwrap();
        session.queue.arrive(1, 7, QoS::AtLeastOnce, 1);
        assert_eq!(session.queue.waiting(), 1, "a queue that is over counts nothing");
        assert_eq!(session.state.lock().learn, !Arc::ptr_eq(&session, &away));
    });
}

/// Control topics of a session are those of the connection that has it, and end with it.
#[test]
fn control_topics_are_known_to_who_takes_over() {
    let (sessions, client) = (house(), "c".into());
    let known = |session: &Session| session.state.lock().control.iter().cloned().collect::<Vec<_>>();
    let session = sessions.attach(&client, 1, false, 1);
    ["a", "b"].iter().for_each(|filter| session.note_control(filter, true, 1));
    session.note_control("a", false, 1);
    let same = sessions.attach(&client, 2, true, 1);
    assert_eq!(known(&same), ["b".into()]);
    session.note_control("b", false, 1);
    session.note_control("c", true, 1);
    sessions.detach(&session, 1, 0, 1);
    assert_eq!(known(&same), ["b".into()], "the first connection has it no longer");
    sessions.detach(&same, 2, 10, 1);
    sessions.sweep(20_000);
    assert!(known(&same).is_empty(), "it is over");
    assert!(known(&sessions.attach(&client, 3, true, 1)).is_empty());
}

//! What a node says, and what it makes of what others say.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::message::{self, MOST_BYTES, Message};
use super::*;
use crate::broker::clock::moment;
use crate::chain::Chain;
use crate::ledger::Measured;
use crate::wire::{Filter, QoS, RetainHandling};

/// A node without an upstream.
pub(super) fn node(id: &str) -> Arc<Proxy> {
    let mut settings = Settings::default();
    settings.proxy.node.id = id.into();
    Proxy::start(settings, Chain::default()).unwrap()
}

/// What another node says of itself.
pub(super) fn said(id: &str, seq: u64) -> String {
    format!(
        r#"{{"v":1,"node":"{id}","run":9,"seq":{seq},"at_ms":1,"interval_ms":200,"ttl_ms":2000,"clients":0,"queues":[]}}"#
    )
}

fn topic_of(id: &str) -> String {
    format!("$tide/v1/node/{id}")
}

/// A client that consumes.
fn consumer(proxy: &Proxy, client: &str, filters: impl Iterator<Item = String>) -> Arc<Queue> {
    let number = proxy.sessions.next();
    let session = proxy.sessions.attach(&client.into(), number, false, 1);
    for path in filters {
        proxy.sessions.subscribe(&session, &filter(&path, QoS::AtLeastOnce), None, number, 1).unwrap();
    }
    session.queue.join(1, 10);
    Arc::clone(&session.queue)
}

fn tells(proxy: &Proxy) -> Message {
    let payload = proxy.nodes.as_ref().unwrap().tell(proxy);
    assert!(payload.len() <= MOST_BYTES, "{} bytes", payload.len());
    let (message, wrong) = message::read(&payload).unwrap();
    assert_eq!(wrong, 0, "it says nothing that others would not take in");
    message
}

#[tokio::test]
async fn one_long_filter_silences_nobody() {
    let proxy = node("a");
    consumer(&proxy, "plain", ["s/#".to_owned()].into_iter());
    consumer(&proxy, "both", ["x".repeat(600), "t/#".to_owned()].into_iter());
    consumer(&proxy, "long", ["y".repeat(600)].into_iter());
    consumer(&proxy, &"n".repeat(600), ["u/#".to_owned()].into_iter());
    let mut told: Vec<_> = tells(&proxy).queues.into_iter().map(|told| (told.client, told.filters)).collect();
    told.sort();
    let expected = [("both", "t/#"), ("plain", "s/#")];
    assert_eq!(told, expected.map(|(client, filter)| (Some(client.to_owned()), vec![filter.to_owned()])));
    // two filters, the queue that has no other one, and the client with the long name
    assert_eq!(proxy.counts.node_left_out.get(), 4);
}

#[tokio::test]
async fn many_long_filters_make_no_message_that_is_too_long() {
    let proxy = node("a");
    for client in 0..300 {
        let filter = |number| format!("{client}/{number}/{}", "x".repeat(480));
        consumer(&proxy, &format!("c{client}"), (0..8).map(filter));
    }
    let told = tells(&proxy).queues.len() as u64;
    assert!((50..300).contains(&told), "{told}");
    assert_eq!(proxy.counts.node_left_out.get(), 300 - told);
}

/// Clients that are away for long are not told of any more, and while they are they crowd out nobody who is there.
#[tokio::test]
async fn who_is_there_is_told_of_before_who_is_away() {
    let proxy = node("a");
    let nodes = proxy.nodes.as_ref().unwrap();
    for number in 0..MOST_QUEUES + 100 {
        let client = format!("away{number}");
        let queue = consumer(&proxy, &client, [format!("s/{number}")].into_iter());
        queue.part(1, 10, 0, 0, false);
        queue.arrive(1, 7, QoS::AtLeastOnce, 1);
    }
    for number in 0..20 {
        consumer(&proxy, &format!("there{number}"), ["t".to_owned()].into_iter());
    }
    let told_of = |told: &ToldOf, now| {
        let (all, told) = nodes.look(&proxy, told, now);
        let queues = nodes.describe(all).0;
        let there = queues.iter().filter(|told| told.consumers > 0).count();
        ((queues.len(), there), told)
    };
    let (first, mut told) = told_of(&ToldOf::new(), 10_000);
    assert_eq!(first, (MOST_QUEUES, 20));
    for turn in 1..=3 {
        let counted;
        (counted, told) = told_of(&told, 10_000 + turn * nodes.ttl);
        assert_eq!(counted, (20, 20), "turn {turn}");
    }
}

/// Whoever can write to the nodes' topics cannot make a node keep more and more.
#[tokio::test]
async fn only_what_nodes_say_that_are_listened_to_is_kept() {
    let proxy = node("a");
    let nodes = proxy.nodes.as_ref().unwrap();
    let kept = || proxy.control.levels().0;
    for number in 0..3 * MOST_NODES {
        let id = format!("n{number}");
        nodes.hear(&proxy, &topic_of(&id), said(&id, 1).as_bytes());
    }
    assert_eq!((kept(), nodes.others()), (MOST_NODES, MOST_NODES));
    nodes.hear(&proxy, &topic_of("a"), said("a", 1).as_bytes());
    assert_eq!(kept(), MOST_NODES + 1, "what it says itself");
    nodes.sweep(&proxy, proxy.clock.now() + 2_001);
    assert_eq!((kept(), nodes.others()), (1, 0), "those who are silent are forgotten");
}

fn filter(path: &str, qos: QoS) -> Filter {
    Filter {
        path: path.into(),
        qos,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::Always,
    }
}

/// What one node says to another one.
fn talk(from: &Arc<Proxy>, to: &Arc<Proxy>) {
    let nodes = from.nodes.as_ref().unwrap();
    to.nodes.as_ref().unwrap().hear(to, &nodes.topic, &nodes.tell(from));
}

/// A publisher of the node sends something; how many queues that feeds.
fn fed(proxy: &Proxy) -> usize {
    let feeds = proxy.sessions.matching("s/1");
    for feed in &feeds {
        feed.queue.arrive(1, 7, QoS::AtLeastOnce, 1);
    }
    feeds.len()
}

/// Nodes talk to each other, while publishers of both send.
fn talk_and_feed(a: &Arc<Proxy>, b: &Arc<Proxy>) {
    for (from, to) in [(a, b), (b, a), (a, b), (b, a)] {
        talk(from, to);
        fed(a);
        fed(b);
    }
}

/// What a queue may do follows the subscriptions that are in force, not those that were.
#[tokio::test]
async fn what_is_subscribed_to_no_longer_does_not_count() {
    let mut settings = Settings::default();
    let debug = crate::config::Hold { filter: Some("debug/#".into()), ..Default::default() };
    settings.queue.never_hold.push(debug);
    let proxy = Proxy::start(settings, Chain::default()).unwrap();
    let session = proxy.sessions.attach(&"c".into(), 7, false, 1);
    let subscribe = |path, qos| proxy.sessions.subscribe(&session, &filter(path, qos), None, 7, 1).unwrap();
    let mut now = 1;
    let mut seen = || {
        now += 1;
        let report = session.queue.measure(moment(now)).unwrap();
        (report.qos, report.never_holds)
    };
    subscribe("s/#", QoS::AtLeastOnce);
    subscribe("debug/#", QoS::ExactlyOnce);
    assert_eq!(seen(), (2, true));
    subscribe("debug/#", QoS::AtMostOnce);
    assert_eq!(seen(), (1, true), "in place of the one before");
    proxy.sessions.unsubscribe(&session, "debug/#");
    assert_eq!(seen(), (1, false));
    subscribe("s/#", QoS::AtMostOnce);
    assert_eq!(seen(), (0, false));
}

/// Nodes tell each other what their own clients want: what none of these wants any more is over.
#[tokio::test]
async fn nodes_do_not_go_on_saying_what_is_over() {
    let (a, b) = (node("a"), node("b"));
    let member = |proxy: &Proxy, client: &str, qos| {
        let number = proxy.sessions.next();
        let session = proxy.sessions.attach(&client.into(), number, false, 1);
        let path = filter("$share/w/s/#", qos);
        let feed = proxy.sessions.subscribe(&session, &path, None, number, 1).unwrap();
        feed.queue.join(1, 10);
        session
    };
    let qos = |proxy: &Proxy| proxy.sessions.matching("s/1")[0].queue.measure(moment(2)).unwrap().qos;
    let leaves = member(&a, "leaves", QoS::AtLeastOnce);
    for (proxy, client) in [(&a, "one"), (&b, "two")] {
        member(proxy, client, QoS::AtMostOnce);
    }
    let rounds =
        |count| (0..count).for_each(|_| [(&a, &b), (&b, &a)].iter().for_each(|(from, to)| talk(from, to)));
    rounds(2);
    assert_eq!((qos(&a), qos(&b)), (1, 1));
    a.sessions.unsubscribe(&leaves, "$share/w/s/#");
    rounds(2);
    assert_eq!((qos(&a), qos(&b)), (0, 0));
}

/// Publishers at two nodes feed a group that has no member any more: that is nobody's queue, and publishers are not held for it.
#[tokio::test]
async fn nodes_do_not_remember_groups_that_have_no_member() {
    let (a, b) = (node("a"), node("b"));
    let session = a.sessions.attach(&"c".into(), 7, false, 1);
    let path = filter("$share/w/s/#", QoS::AtLeastOnce);
    a.sessions.subscribe(&session, &path, None, 7, 1).unwrap().queue.join(1, 10);
    talk_and_feed(&a, &b);
    assert_eq!((fed(&a), fed(&b)), (1, 1));
    assert!(tells(&b).queues[0].qos.is_none() && tells(&a).queues[0].qos == Some(1));
    a.sessions.unsubscribe(&session, "$share/w/s/#");
    assert_eq!((fed(&a), fed(&b)), (0, 1), "the other one has not heard of it");
    let consumers = || b.sessions.matching("s/1")[0].queue.measure(moment(2)).unwrap().consumers;
    assert_eq!(consumers(), 1);
    talk(&a, &b);
    assert_eq!(consumers(), 0, "nobody waits for those who are gone");
    b.nodes.as_ref().unwrap().sweep(&b, b.clock.now() + 60_000);
    talk_and_feed(&a, &b);
    assert_eq!((fed(&a), fed(&b)), (0, 0));
}

/// The same for a session: once the upstream has forgotten it, nodes do too, though publishers at both feed what it wanted.
#[tokio::test]
async fn nodes_do_not_remember_sessions_that_are_over() {
    let (a, b) = (node("a"), node("b"));
    let session = a.sessions.attach(&"c".into(), 7, false, 1);
    a.sessions.subscribe(&session, &filter("s/#", QoS::AtLeastOnce), None, 7, 1).unwrap().queue.join(1, 10);
    talk_and_feed(&a, &b);
    assert_eq!((fed(&a), fed(&b)), (1, 1));
    let now = a.clock.now();
    a.sessions.detach(&session, 7, 0, now);
    assert_eq!((fed(&a), fed(&b)), (0, 1));
    talk_and_feed(&a, &b);
    b.nodes.as_ref().unwrap().sweep(&b, now + 60_000);
    b.sessions.sweep(now + 200_000);
    talk_and_feed(&a, &b);
    assert_eq!((fed(&a), fed(&b)), (0, 0));
}

/// A node that tells of other queues each time does not make this one remember all of them.
#[tokio::test]
async fn no_node_makes_another_remember_without_end() {
    let proxy = node("a");
    for seq in 1..=20 {
        let queue = |number: usize| {
            format!(
                r#"{{"client":"c{seq}-{number}","filters":["s/#"],"qos":1,"arrived":1,"done":0,"since_ms":3,"base":0,"among":0,"in_flight":0,"waiting":1,"consumers":1}}"#
            )
        };
        let queues: Vec<_> = (0..MOST_QUEUES).map(queue).collect();
        let payload = said("b", seq).replace("[]", &format!("[{}]", queues.join(",")));
        proxy.nodes.as_ref().unwrap().hear(&proxy, &topic_of("b"), payload.as_bytes());
    }
    proxy.sessions.sweep(proxy.clock.now() + 1);
    assert!(proxy.nodes.as_ref().unwrap().state.lock().others["b"].queues.len() <= 2 * MOST_QUEUES);
    assert!(proxy.sessions.list().len() <= 2 * MOST_QUEUES);
}

/// A client that kept its session here has moved to another node, and ends its subscription there: this one does not go on telling of
/// it, however much its own publishers feed it.
#[tokio::test]
async fn a_client_that_has_moved_is_for_others_to_tell_of() {
    let proxy = node("a");
    let now = proxy.clock.now();
    let session = proxy.sessions.attach(&"c".into(), 7, false, now);
    proxy.sessions.subscribe(&session, &filter("s/#", QoS::AtLeastOnce), None, 7, now).unwrap();
    session.queue.join(now, 10);
    session.queue.arrive(now, 9, QoS::AtLeastOnce, 1);
    assert_eq!(tells(&proxy).queues[0].qos, Some(1));
    session.queue.part(now, 10, 0, 0, false);
    proxy.sessions.detach(&session, 7, u32::MAX, now);
    assert_eq!(tells(&proxy).queues[0].qos, Some(1), "it may come back");
    hear_of_client(&proxy, 1);
    assert_eq!(tells(&proxy).queues[0].qos, None, "it is at another node");
    let over = proxy.clock.now() + 100_000;
    proxy.nodes.as_ref().unwrap().sweep(&proxy, over);
    proxy.sessions.sweep(over + 100_000);
    assert!(proxy.sessions.matching("s/1").is_empty());
}

/// Another node says that a client is there.
fn hear_of_client(proxy: &Proxy, seq: u64) {
    let queue = format!(
        r#"{{"client":"c","filters":["s/#"],"qos":1,"arrived":{seq},"done":0,"since_ms":3,"base":0,"among":0,"in_flight":0,"waiting":{seq},"consumers":1}}"#
    );
    let payload = said("b", seq).replace("[]", &format!("[{queue}]"));
    proxy.nodes.as_ref().unwrap().hear(proxy, &topic_of("b"), payload.as_bytes());
}

/// The node of a client dies, and the client comes here: the upstream has kept its session, and its queue is the same.
#[tokio::test]
async fn a_client_of_a_node_that_died_finds_its_queue() {
    let proxy = node("a");
    let fed = || proxy.sessions.matching("s/1").into_iter().map(|feed| Arc::clone(&feed.queue));
    hear_of_client(&proxy, 1);
    let before = fed().next().unwrap();
    let died = proxy.clock.now() + 5_000;
    proxy.nodes.as_ref().unwrap().sweep(&proxy, died);
    proxy.sessions.sweep(died + 5_000);
    let session = proxy.sessions.attach(&"c".into(), 7, true, died + 5_000);
    assert!(Arc::ptr_eq(&before, &session.queue) && fed().count() == 1);
    proxy.sessions.detach(&session, 7, 0, died + 6_000);
    assert_eq!(fed().count(), 0);
    assert!(before.measure(moment(died + 6_100)).is_none(), "it is gone from the ledger too");
}

/// And where it never comes, the queue is forgotten.
#[tokio::test]
async fn a_client_of_a_node_that_died_is_not_waited_for_long() {
    let proxy = node("a");
    hear_of_client(&proxy, 1);
    let died = proxy.clock.now() + 5_000;
    proxy.nodes.as_ref().unwrap().sweep(&proxy, died);
    proxy.sessions.sweep(died + 60_000);
    assert!(proxy.sessions.matching("s/1").is_empty());
}

/// A session that the upstream kept gets messages before its client says what it subscribes to.
#[tokio::test]
async fn what_was_learned_gives_way_to_what_is_subscribed_to() {
    let proxy = node("a");
    let session = proxy.sessions.attach(&"c".into(), 7, true, 1);
    let subscribe = |path: &str| {
        proxy.sessions.subscribe(&session, &filter(path, QoS::AtLeastOnce), None, 7, 1).unwrap();
    };
    for topic in ["s/1", "s/2", "t"] {
        proxy.sessions.learned(&session, topic);
        subscribe(topic);
    }
    subscribe("s/#");
    let explained = proxy.sessions.explain(&session, "s/#");
    assert_eq!(explained, ["s/1".into(), "s/2".into()]);
    explained.iter().for_each(|topic| drop(proxy.sessions.unsubscribe(&session, topic)));
    assert!(proxy.sessions.explain(&session, "s/#").is_empty(), "once");
    assert!(proxy.sessions.explain(&session, "t").is_empty(), "what is subscribed to stays");
    let told = session.queue.measure(moment(2)).unwrap();
    assert_eq!(*told.filters, ["t".into(), "s/#".into()]);
}

/// A client that comes again with a clean session has another queue: what other nodes say of the client is of that one.
#[tokio::test]
async fn a_clean_session_is_not_mistaken_for_the_one_before() {
    let proxy = node("a");
    let nodes = proxy.nodes.as_ref().unwrap();
    let hear = |seq| hear_of_client(&proxy, seq);
    let fed = || proxy.sessions.matching("s/1").into_iter().map(|feed| Arc::clone(&feed.queue));
    hear(1);
    let before = fed().next().unwrap();
    let after = Arc::clone(&proxy.sessions.attach(&"c".into(), 7, false, 2).queue);
    assert_eq!(fed().count(), 0, "the upstream has forgotten what it was subscribed to");
    hear(2);
    assert!(!Arc::ptr_eq(&before, &after));
    assert_eq!(fed().count(), 0, "its client is here, and has not subscribed");
    assert_eq!(after.waiting(), 2);
    nodes.sweep(&proxy, proxy.clock.now() + 2_001);
    let number = 7;
    let session = proxy.sessions.attach(&"c".into(), number, true, 3);
    proxy.sessions.subscribe(&session, &filter("s/#", QoS::AtLeastOnce), None, number, 3).unwrap();
    hear(3);
    assert!(fed().all(|queue| Arc::ptr_eq(&queue, &after)) && fed().count() == 1);
}

/// How long a message took is known by those that come back. A clock that leaps meanwhile changes little, and what was said
/// before the last start nothing.
#[tokio::test]
async fn what_comes_back_tells_how_long_news_take() {
    let proxy = node("a");
    let nodes = proxy.nodes.as_ref().unwrap();
    let own = tells(&proxy);
    assert_eq!(own.round_ms, 0, "nothing came back yet");
    (0..100).for_each(|_| nodes.came_back(&own, own.at_ms + 31));
    let earlier = Message { run: own.run - 1, ..tells(&proxy) };
    nodes.came_back(&earlier, earlier.at_ms + 150);
    let told = tells(&proxy);
    assert!((30..=31).contains(&told.round_ms), "{}", told.round_ms);
    nodes.came_back(&own, own.at_ms + (1 << 40));
    nodes.came_back(&own, own.at_ms - (1 << 40));
    let told = tells(&proxy);
    assert!((20..=60).contains(&told.round_ms), "{}", told.round_ms);
    let of_other = |round_ms| age(30.0, &Message { round_ms, ..tells(&proxy) });
    assert_eq!([of_other(10), of_other(50), of_other(u64::MAX)], [20, 40, 115], "no longer than an interval");
}

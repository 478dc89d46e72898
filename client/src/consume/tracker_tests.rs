#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use proptest::prelude::*;

use super::*;
use crate::net::{Qos, Receipt};
use crate::protocol::Missed;

fn at(seconds: f64) -> Moment {
    Moment::from_secs_f64(seconds)
}

fn tracker() -> Tracker {
    Tracker::new(TrackerSettings {
        most_topics: 10,
        most_held: 20,
        most_held_bytes: 1_000_000,
        patience: Span::from_secs(10),
    })
}

/// A tracker that was told where things stand.
fn begun(heads: &[(&str, u64)]) -> Tracker {
    let mut tracker = tracker();
    assert_eq!(tracker.ask(), None);
    let heads = heads.iter().map(|(topic, seq)| ((*topic).to_owned(), *seq)).collect();
    tracker.answered(Answer { heads, ..Answer::default() }, Purpose::Start { last: true }, at(0.0));
    tracker
}

fn message(topic: &str, payload: &str, seq: Option<u64>) -> Incoming {
    let payload = payload.to_owned().into();
    Incoming { topic: topic.into(), payload, retain: false, again: false, seq, receipt: None }
}

fn numbered(seq: u64) -> Incoming {
    message("t", &seq.to_string(), Some(seq))
}

fn answer(head: u64, seqs: impl IntoIterator<Item = u64>) -> Answer {
    let updates =
        seqs.into_iter().map(|seq| Missed { topic: "t".into(), seq, payload: seq.to_string().into() });
    Answer { heads: vec![("t".into(), head)], updates: updates.collect(), ..Answer::default() }
}

/// One that the broker keeps until it is acknowledged.
fn safe(seq: u64) -> Incoming {
    Incoming { receipt: Some(Receipt { id: 1, qos: Qos::AtLeastOnce }), ..numbered(seq) }
}

/// How many updates wait, and their bytes.
fn waiting(tracker: &Tracker) -> (usize, usize) {
    assert_eq!(tracker.held.updates(), tracker.lines.values().map(|line| line.held.len()).sum::<usize>());
    (tracker.held.updates(), tracker.held.bytes())
}

/// Payloads with how they came and what was lost before.
fn shown(updates: &[Out]) -> Vec<String> {
    let one = |out: &Out| {
        let via = if out.ready.via == Via::Active { "!" } else { "" };
        let lost =
            if out.ready.lost_before > 0 { format!("-{}", out.ready.lost_before) } else { String::new() };
        format!("{}{via}{lost}", String::from_utf8_lossy(&out.ready.payload))
    };
    updates.iter().map(one).collect()
}

#[test]
fn what_comes_in_order_goes_on_at_once() {
    let mut tracker = tracker();
    for seq in 5..8 {
        assert_eq!(shown(&tracker.came(numbered(seq), None, at(0.0))), [seq.to_string()]);
    }
    assert_eq!(shown(&tracker.came(numbered(6), None, at(0.0))), [""; 0]);
    assert_eq!(tracker.duplicates, 1);
}

#[test]
fn a_gap_waits_for_the_answer() {
    let mut tracker = begun(&[("t", 4)]);
    assert_eq!(shown(&tracker.came(numbered(7), None, at(0.0))), [""; 0]);
    assert!(tracker.gap().is_some());
    assert_eq!(tracker.ask(), Some(vec![("t".into(), 4)]));
    let brought = tracker.answered(answer(8, [5, 6, 7, 8]), Purpose::Missing, at(1.0));
    assert_eq!(shown(&brought.updates), ["5!", "6!", "7", "8!"]);
    assert_eq!(brought.missing, 3);
    assert_eq!(shown(&tracker.came(numbered(8), None, at(1.0))), [""; 0], "it came by itself after all");
    assert_eq!(shown(&tracker.came(numbered(9), None, at(1.0))), ["9"]);
    assert!(tracker.gap().is_none());
}

#[test]
fn what_the_history_lost_is_counted() {
    let mut tracker = begun(&[("t", 4)]);
    let brought = tracker.answered(answer(20, [19, 20]), Purpose::Missing, at(1.0));
    assert_eq!(shown(&brought.updates), ["19!-14", "20!"]);
    assert_eq!(brought.missing, 16);
}

#[test]
fn a_cut_answer_is_continued() {
    let mut tracker = begun(&[("t", 0)]);
    let cut = Answer { truncated: true, ..answer(6, [1, 2, 3]) };
    let first = tracker.answered(cut.clone(), Purpose::Missing, at(1.0));
    assert_eq!(shown(&first.updates), ["1!", "2!", "3!"]);
    assert_eq!(tracker.ask(), Some(vec![("t".into(), 3)]));
    let rest = tracker.answered(answer(6, [4, 5, 6]), Purpose::Missing, at(1.0));
    assert_eq!(shown(&rest.updates), ["4!", "5!", "6!"]);
    assert_eq!((first.missing, rest.missing), (3, 3), "each is missing once");
    assert!(first.advanced && !tracker.answered(cut, Purpose::Missing, at(1.0)).advanced);
}

/// Topics that nobody knew of, in an answer that is cut: what it brings goes on at once.
#[test]
fn new_topics_in_a_cut_answer_do_not_wait() {
    for (cut, lost) in [(false, "3!-2"), (true, "3!")] {
        let mut tracker = tracker();
        tracker.answered(
            Answer { truncated: cut, ..Answer::default() },
            Purpose::Start { last: true },
            at(0.0),
        );
        let first = Answer { truncated: true, ..answer(4, [3]) };
        assert_eq!(shown(&tracker.answered(first, Purpose::Missing, at(1.0)).updates), [lost]);
        assert_eq!(waiting(&tracker), (0, 0));
    }
}

#[test]
fn nobody_waits_for_ever() {
    let mut tracker = begun(&[("t", 4)]);
    tracker.came(numbered(7), None, at(1.0));
    tracker.came(numbered(9), None, at(5.0));
    assert_eq!(tracker.expires(), Some(at(11.0)));
    assert_eq!(shown(&tracker.expire(at(10.9))), [""; 0]);
    assert_eq!(shown(&tracker.expire(at(11.0))), ["7-2"]);
    assert_eq!(shown(&tracker.expire(at(15.0))), ["9-1"]);
    assert_eq!(tracker.expires(), None);
}

#[test]
fn too_many_that_wait_are_let_go() {
    let mut tracker = begun(&[("t", 0)]);
    let mut out = Vec::new();
    for n in 0..21 {
        out.extend(tracker.came(numbered(10 + 2 * n), None, at(0.0)));
    }
    assert_eq!(out.len(), 21);
    assert_eq!(out[0].ready.lost_before, 9);
}

#[test]
fn too_many_bytes_that_wait_are_let_go() {
    let mut tracker = begun(&[("t", 0)]);
    tracker.settings.most_held_bytes = 1_000;
    let mut out = Vec::new();
    for n in 0..10 {
        let message = Incoming { payload: vec![b'x'; 300].into(), ..numbered(10 + 2 * n) };
        out.extend(tracker.came(message, None, at(0.0)));
        assert!(tracker.held.bytes() <= 1_000, "{:?}", tracker.held);
    }
    assert!(out.len() >= 6);
}

#[test]
fn a_topic_that_appears_later_is_new_from_its_first_update() {
    let mut tracker = begun(&[]);
    assert_eq!(shown(&tracker.came(numbered(2), None, at(0.0))), [""; 0], "the first is missing");
    assert_eq!(shown(&tracker.answered(answer(2, [1, 2]), Purpose::Missing, at(0.0)).updates), ["1!", "2"]);
}

/// The answer that says where things stand may overtake a message, and a retained one is older than it.
#[test]
fn what_was_under_way_when_we_began_is_no_duplicate() {
    let mut tracker = begun(&[("t", 7)]);
    assert_eq!(shown(&tracker.came(numbered(6), None, at(1.0))), ["6"]);
    assert_eq!(shown(&tracker.came(numbered(7), None, at(1.0))), ["7"]);
    assert!(tracker.came(numbered(6), None, at(1.0)).is_empty());
    assert_eq!(shown(&tracker.came(numbered(8), None, at(1.0))), ["8"]);
}

/// A program that was started again has a session with much in it, which answers overtake.
#[test]
fn what_waits_in_a_session_is_neither_a_duplicate_nor_lost() {
    let start = |tracker: &mut Tracker| {
        tracker.answered(answer(200, []), Purpose::Start { last: true }, at(1.0)).updates
    };
    for first in [None, Some(101)] {
        let mut tracker = tracker();
        let mut out = first.map_or_else(Vec::new, |seq| tracker.came(numbered(seq), None, at(0.0)));
        out.extend(start(&mut tracker));
        for seq in 101 + out.len() as u64..=150 {
            out.extend(tracker.came(numbered(seq), None, at(1.0)));
        }
        // The history does not reach back so far, and need not.
        assert_eq!(tracker.ask(), Some(vec![("t".into(), 200)]));
        let early = tracker.answered(answer(201, [201]), Purpose::Missing, at(2.0)).updates;
        assert_eq!((shown(&early), tracker.gap()), (vec![], None), "it waits for what is on its way");
        for seq in 151..=202 {
            out.extend(tracker.came(numbered(seq), None, at(2.0)));
        }
        let seen: Vec<u64> = out.iter().filter_map(|out| out.ready.seq).collect();
        assert_eq!(seen, (101..=202).collect::<Vec<_>>());
        assert!(out.iter().all(|out| out.ready.lost_before == 0));
        assert_eq!((waiting(&tracker), tracker.duplicates), ((0, 0), 1), "201 came both ways");
    }
}

/// What was under way and did not come is missing once something later came.
#[test]
fn what_was_under_way_and_is_lost_is_fetched_or_counted() {
    let touched = || {
        let mut tracker = tracker();
        tracker.came(numbered(101), None, at(0.0));
        tracker.answered(answer(103, []), Purpose::Start { last: true }, at(1.0));
        tracker
    };
    let mut tracker = touched();
    tracker.ask();
    assert!(tracker.came(numbered(104), None, at(1.0)).is_empty());
    // The answer is one to a check that did not ask for it.
    assert!(tracker.answered(answer(104, [104]), Purpose::Missing, at(1.0)).updates.is_empty());
    assert_eq!(tracker.gap(), Some(at(1.1)));
    assert_eq!(tracker.ask(), Some(vec![("t".into(), 101)]));
    let brought = tracker.answered(answer(104, [103, 104]), Purpose::Missing, at(2.0));
    assert_eq!(shown(&brought.updates), ["103!-1", "104"]);
    // It may also be an answer that brings the later one, and nothing comes by itself any more.
    let mut tracker = touched();
    assert!(tracker.answered(answer(104, [104]), Purpose::Missing, at(2.0)).updates.is_empty());
    assert_eq!(shown(&tracker.expire(at(12.0))), ["104!-2"]);
    let mut tracker = touched();
    tracker.answered(answer(104, [104]), Purpose::Missing, at(2.0));
    assert_eq!(shown(&tracker.connected(true, at(3.0))), ["104!-2"], "with its session it is gone");
}

/// Nothing later comes, and what was lost was the newest: it is asked for in the end, later where the broker keeps it.
#[test]
fn the_newest_is_not_waited_for_in_vain() {
    for (receipt, seconds) in [(None, 10.0), (Some(Receipt { id: 1, qos: Qos::AtLeastOnce }), 60.0)] {
        let mut tracker = tracker();
        tracker.came(Incoming { receipt, ..numbered(101) }, None, at(0.0));
        tracker.answered(answer(102, []), Purpose::Start { last: true }, at(1.0));
        tracker.asks(at(seconds + 0.9));
        assert_eq!(tracker.ask(), Some(vec![("t".into(), 102)]), "it may be on its way");
        tracker.asks(at(seconds + 1.0));
        assert_eq!(tracker.ask(), Some(vec![("t".into(), 101)]));
    }
}

/// The session was there before the program: what answers bring waits although nothing came by itself yet.
#[test]
fn a_session_that_was_found_is_waited_for() {
    for found in [false, true] {
        let mut tracker = tracker();
        tracker.finds(found);
        tracker.answered(answer(200, []), Purpose::Start { last: true }, at(0.0));
        let early = tracker.answered(answer(201, [201]), Purpose::Missing, at(1.0)).updates;
        assert_eq!(shown(&early).is_empty(), found);
        let first = tracker.came(numbered(101), None, at(2.0));
        assert_eq!(shown(&first).is_empty(), !found, "it is too late once 201 was handed on");
    }
    let mut tracker = tracker();
    tracker.finds(true);
    tracker.answered(answer(200, []), Purpose::Start { last: true }, at(0.0));
    tracker.answered(answer(201, [201]), Purpose::Missing, at(1.0));
    assert_eq!(shown(&tracker.expire(at(11.0))), ["201!"], "there was nothing in it");
}

/// After a break the session has more in it than the history of the gateway: nothing of it is lost, or comes twice.
#[test]
fn after_a_break_the_session_brings_what_the_gateway_has_forgotten() {
    let mut tracker = begun(&[("t", 100)]);
    tracker.came(safe(101), None, at(0.0));
    tracker.connected(false, at(60.0));
    assert_eq!(shown(&tracker.came(safe(102), None, at(60.0))), ["102"]);
    tracker.ask();
    let brought = tracker.answered(answer(200, 169..=200), Purpose::Missing, at(60.0));
    assert!(brought.updates.is_empty() && brought.missing == 0);
    for seq in 103..=202 {
        assert_eq!(shown(&tracker.came(safe(seq), None, at(61.0))), [seq.to_string()]);
    }
    // What the gateway has is fetched, as is what a broker does not keep.
    for (from, receipt) in [(103, Some(Receipt { id: 1, qos: Qos::AtLeastOnce })), (169, None)] {
        let mut tracker = begun(&[("t", 101)]);
        tracker.came(Incoming { receipt, ..numbered(102) }, None, at(0.0));
        tracker.connected(false, at(60.0));
        tracker.ask();
        let brought = tracker.answered(answer(200, from..=200), Purpose::Missing, at(60.0));
        assert_eq!(brought.updates.len() as u64, 201 - from);
    }
}

/// A slow program has more before it in the broker than the gateway keeps: answers do not jump over that. What the broker
/// turns out not to have, or can't have, is counted.
#[test]
fn answers_do_not_jump_over_what_the_broker_has() {
    let slow = || {
        let mut tracker = begun(&[("t", 100)]);
        tracker.came(safe(101), None, at(0.0));
        tracker
    };
    let told = |tracker: &mut Tracker, seconds: f64| {
        tracker.asks(at(seconds));
        tracker.ask();
        shown(&tracker.answered(answer(200, 199..=200), Purpose::Missing, at(seconds)).updates)
    };
    let mut tracker = slow();
    assert!(told(&mut tracker, 1.0).is_empty());
    for seq in 102..=201 {
        assert_eq!(shown(&tracker.came(safe(seq), None, at(2.0))), [seq.to_string()]);
    }
    let mut tracker = slow();
    assert!(told(&mut tracker, 1.0).is_empty() && told(&mut tracker, 60.0).is_empty());
    tracker.program_is_busy(at(900.0));
    assert!(told(&mut tracker, 900.0).is_empty(), "the broker waits for the program");
    assert_eq!(told(&mut tracker, 960.0), ["199!-97", "200!"], "nothing came for long");
    let mut tracker = slow();
    assert!(told(&mut tracker, 1.0).is_empty() && tracker.came(safe(201), None, at(2.0)).is_empty());
    assert_eq!(told(&mut tracker, 3.0), ["199!-97", "200!", "201"], "nothing before 201 comes any more");
    let mut tracker = slow();
    tracker.connected(true, at(1.0));
    assert_eq!(told(&mut tracker, 1.0), ["199!-97", "200!"], "a new session has nothing in it");
}

/// A slow program takes much longer for what is in the session than updates wait for others.
#[test]
fn what_the_session_brings_slowly_is_waited_for() {
    let mut tracker = begun(&[("t", 100)]);
    tracker.came(safe(101), None, at(0.0));
    tracker.connected(false, at(60.0));
    tracker.ask();
    tracker.answered(answer(200, 169..=200), Purpose::Missing, at(60.0));
    let mut out = Vec::new();
    for seq in 102..=230 {
        let away = if seq < 150 { 0.0 } else { 1000.0 };
        let now = at(60.0 + 5.0 * (seq - 102) as f64 + away);
        if seq == 150 {
            tracker.disconnected();
            tracker.connected(false, now);
        }
        out.extend(tracker.expire(now));
        tracker.asks(now);
        let from = tracker.ask().unwrap()[0].1 + 1;
        let head = (seq + 100).min(230);
        out.extend(tracker.answered(answer(head, from..=head), Purpose::Missing, now).updates);
        assert_eq!(waiting(&tracker), (0, 0), "the session brings that, too");
        let cut = Answer { truncated: true, ..answer(head, []) };
        assert!(!tracker.answered(cut, Purpose::Missing, now).advanced, "to ask again brings nothing");
        out.extend(tracker.came(safe(seq), None, now));
    }
    assert_eq!(shown(&out), (102..=230).map(|seq: u64| seq.to_string()).collect::<Vec<_>>());
    assert_eq!(shown(&tracker.came(safe(231), None, at(1e4))), ["231"], "all is through");
}

/// A session is one queue for all topics: while it brings what it kept of one, it may have more of another.
#[test]
fn a_session_brings_its_topics_one_after_the_other() {
    let of_a = |seq| Incoming { topic: "a".into(), ..safe(seq) };
    let mut tracker = tracker();
    tracker.finds(true);
    let start = Answer { heads: vec![("a".into(), 100), ("t".into(), 200)], ..Answer::default() };
    tracker.answered(start, Purpose::Start { last: true }, at(0.0));
    assert!(tracker.answered(answer(201, [201]), Purpose::Missing, at(1.0)).updates.is_empty());
    assert_eq!(tracker.expires(), Some(at(11.0)));
    for seq in 81..=100 {
        let now = at(2.0 + 5.0 * (seq - 81) as f64);
        assert_eq!(shown(&tracker.came(of_a(seq), None, now)), [seq.to_string()]);
        assert_eq!(shown(&tracker.expire(now)), [""; 0]);
        assert_eq!(tracker.expires(), Some(now + Span::from_secs(60)));
    }
    tracker.disconnected();
    assert_eq!((shown(&tracker.expire(at(500.0))), tracker.expires()), (vec![], None), "it can't come now");
    assert!(tracker.connected(false, at(500.0)).is_empty());
    assert_eq!(tracker.expires(), Some(at(510.0)));
    for seq in 191..=202 {
        assert_eq!(shown(&tracker.came(safe(seq), None, at(501.0))), [seq.to_string()]);
        tracker.asks(at(501.0));
        tracker.ask();
        assert!(tracker.answered(answer(202, [202]), Purpose::Missing, at(501.0)).updates.is_empty());
    }
    assert_eq!((waiting(&tracker), tracker.duplicates), ((0, 0), 0));
}

/// There was nothing of a topic in the session, and what came later was lost: it is fetched in the end, or counted.
#[test]
fn what_the_session_did_not_have_is_fetched() {
    let left = || {
        let mut tracker = tracker();
        tracker.finds(true);
        let start = Answer { heads: vec![("a".into(), 100), ("t".into(), 200)], ..Answer::default() };
        tracker.answered(start, Purpose::Start { last: true }, at(0.0));
        tracker.came(Incoming { topic: "a".into(), ..safe(99) }, None, at(1.0));
        assert!(tracker.answered(answer(203, [203]), Purpose::Missing, at(2.0)).updates.is_empty());
        tracker
    };
    let mut tracker = left();
    tracker.asks(at(61.0));
    tracker.ask();
    let brought = tracker.answered(answer(203, 202..=203), Purpose::Missing, at(61.0));
    assert_eq!(shown(&brought.updates), ["202!-1", "203!"]);
    assert_eq!(shown(&left().came(safe(203), None, at(3.0))), ["203-2"]);
    let mut tracker = left();
    let kept = Incoming { retain: true, ..safe(150) };
    assert_eq!(shown(&tracker.came(kept, None, at(3.0))), ["150"]);
    assert_eq!(tracker.ask().unwrap()[1], ("t".into(), 200), "it says nothing of what came later");
}

/// Without numbers there is nothing to wait for, and what an answer brought is not brought again.
#[test]
fn a_session_without_numbers_is_not_waited_for() {
    let mut tracker = tracker();
    tracker.finds(true);
    tracker.answered(answer(200, []), Purpose::Start { last: true }, at(0.0));
    assert_eq!(shown(&tracker.came(message("t", "199", None), None, at(0.0))), ["199"]);
    tracker.ask();
    assert_eq!(
        shown(&tracker.answered(answer(202, 201..=202), Purpose::Missing, at(1.0)).updates),
        ["201!", "202!"]
    );
    assert_eq!(tracker.ask(), Some(vec![("t".into(), 202)]));
}

/// What waits for the session is bounded like all that waits.
#[test]
fn what_waits_for_the_session_is_bounded() {
    let mut tracker = tracker();
    tracker.came(numbered(101), None, at(0.0));
    tracker.answered(answer(103, []), Purpose::Start { last: true }, at(1.0));
    assert!(tracker.answered(answer(200, 104..=200), Purpose::Missing, at(2.0)).updates.is_empty());
    assert_eq!(waiting(&tracker).0, 21);
    for seq in 102..=200 {
        tracker.came(numbered(seq), None, at(3.0));
    }
    assert_eq!((waiting(&tracker), tracker.ask()), ((0, 0), Some(vec![("t".into(), 200)])));
}

/// A retained message may be much older than the subscription: nothing between them is missing.
#[test]
fn a_retained_message_before_the_start_asks_for_nothing() {
    let mut tracker = tracker();
    let kept = Incoming { retain: true, ..numbered(50) };
    assert_eq!(shown(&tracker.came(kept, None, at(0.0))), ["50"]);
    tracker.answered(answer(200, []), Purpose::Start { last: true }, at(1.0));
    assert_eq!(shown(&tracker.came(numbered(199), None, at(1.0))), ["199"], "it was under way");
    assert_eq!(shown(&tracker.came(numbered(200), None, at(1.0))), ["200"]);
    assert_eq!(shown(&tracker.came(numbered(201), None, at(1.0))), ["201"]);
}

#[test]
fn what_waits_when_the_gateway_says_where_things_stand_goes_on() {
    let mut tracker = tracker();
    tracker.came(numbered(101), None, at(0.0));
    assert!(tracker.came(numbered(103), None, at(0.0)).is_empty());
    let brought = tracker.answered(answer(105, []), Purpose::Start { last: true }, at(1.0));
    assert_eq!(shown(&brought.updates), ["103-1"]);
    assert_eq!((waiting(&tracker), tracker.expires()), ((0, 0), None));
    assert_eq!(shown(&tracker.came(numbered(104), None, at(1.0))), ["104"]);
}

/// Where things stand may take several answers.
#[test]
fn a_start_that_was_cut_goes_on_where_it_was() {
    let mut tracker = tracker();
    let part = |topic: &str, next: Option<&str>| Answer {
        heads: vec![(topic.into(), 7)],
        truncated: next.is_some(),
        next: next.map(str::to_owned),
        ..Answer::default()
    };
    let brought = tracker.answered(part("a", Some("b")), Purpose::Start { last: true }, at(0.0));
    assert_eq!((brought.next.as_deref(), tracker.has_begun()), (Some("b"), false));
    let brought = tracker.answered(part("b", None), Purpose::Start { last: true }, at(0.0));
    assert!(brought.next.is_none() && tracker.complete);
}

/// Of topics before the cut an answer says all.
#[test]
fn a_cut_answer_is_whole_up_to_its_cut() {
    let mut tracker = begun(&[("a", 4), ("t", 4)]);
    assert!(tracker.came(message("a", "a7", Some(7)), None, at(0.0)).is_empty());
    let mut cut = Answer { truncated: true, next: Some("t".into()), ..answer(8, [5]) };
    cut.heads.push(("a".into(), 7));
    let brought = tracker.answered(cut, Purpose::Missing, at(1.0));
    assert_eq!(shown(&brought.updates), ["5!", "a7-2"]);
    assert_eq!(tracker.ask(), Some(vec![("a".into(), 7), ("t".into(), 5)]));
}

/// In proxy mode messages of 3.1.1 publishers have a number, but nowhere to carry it.
#[test]
fn what_came_without_its_number_is_not_fetched_again() {
    let mut tracker = begun(&[("t", 0)]);
    assert_eq!(shown(&tracker.came(numbered(1), None, at(0.0))), ["1"]);
    assert_eq!(shown(&tracker.came(message("t", "2", None), None, at(0.0))), ["2"]);
    assert!(tracker.came(numbered(3), None, at(0.0)).is_empty());
    let brought = tracker.answered(answer(4, [2, 3, 4]), Purpose::Missing, at(1.0));
    assert_eq!((shown(&brought.updates), brought.missing), (vec!["3".to_owned(), "4!".into()], 1));
    assert_eq!(shown(&tracker.answered(answer(5, [5]), Purpose::Missing, at(2.0)).updates), ["5!"]);
}

/// A 3.1.1 client: that no numbers come is not known before the first message.
#[test]
fn what_an_answer_brought_first_does_not_come_again_without_its_number() {
    let mut tracker = begun(&[("t", 4)]);
    assert_eq!(shown(&tracker.answered(answer(5, [5]), Purpose::Missing, at(1.0)).updates), ["5!"]);
    assert_eq!(shown(&tracker.came(message("t", "5", None), None, at(1.0))), [""; 0]);
    assert_eq!(shown(&tracker.came(message("t", "6", None), None, at(1.0))), ["6"]);
}

/// 3.1.1 has no way to subscribe again without what is retained.
#[test]
fn an_old_retained_message_does_not_follow_newer_ones() {
    for (lost, expected) in [(false, &[][..]), (true, &["old"])] {
        let mut tracker = tracker();
        let kept = Incoming { retain: true, ..message("t", "old", None) };
        assert_eq!(shown(&tracker.came(kept.clone(), None, at(0.0))), ["old"]);
        assert_eq!(shown(&tracker.came(message("t", "new", None), None, at(0.0))), ["new"]);
        tracker.connected(lost, at(1.0));
        assert_eq!(shown(&tracker.came(kept, None, at(1.0))), expected, "in a new session it may be news");
    }
}

#[test]
fn long_names_count_too() {
    let mut tracker = tracker();
    for n in 0..1000 {
        tracker.came(message(&format!("{n}/{}", "x".repeat(1_000)), "x", Some(7)), None, at(0.0));
    }
    assert!(tracker.is_full() && tracker.lines.len() < 4, "{}", tracker.lines.len());
}

#[test]
fn what_an_answer_brought_does_not_come_again_by_itself() {
    let mut tracker = begun(&[("t", 7)]);
    tracker.ask();
    assert_eq!(shown(&tracker.answered(answer(9, [8, 9]), Purpose::Missing, at(1.0)).updates), ["8!", "9!"]);
    assert!(tracker.came(numbered(9), None, at(1.1)).is_empty());
    assert!(tracker.came(numbered(8), None, at(1.1)).is_empty());
}

/// Messages of two publishers under one topic: nobody needs to be asked about what comes in a moment.
#[test]
fn what_is_overtaken_for_a_moment_is_not_missing() {
    let mut tracker = begun(&[("t", 7)]);
    assert!(tracker.came(numbered(9), None, at(1.0)).is_empty());
    assert_eq!(tracker.gap(), Some(at(1.1)));
    assert_eq!(shown(&tracker.came(numbered(8), None, at(1.05))), ["8", "9"]);
    assert_eq!(tracker.gap(), None);
}

#[test]
fn a_gateway_that_counts_anew_is_believed() {
    let mut tracker = begun(&[("t", 1000)]);
    tracker.ask();
    assert_eq!(shown(&tracker.answered(answer(2, [1, 2]), Purpose::Missing, at(0.0)).updates), ["1!", "2!"]);
    let mut tracker = begun(&[("t", 2)]);
    tracker.came(numbered(3), None, at(0.0));
    tracker.epoch = Some(7);
    tracker.connected(true, at(1.0));
    assert_eq!(shown(&tracker.came(numbered(1), None, at(1.0))), ["1"]);
    assert_eq!(shown(&tracker.came(numbered(1), None, at(1.0))), [""; 0], "but only once");
}

/// Asks as the gateway of this epoch answers, until it needs not be asked again.
fn asks(tracker: &mut Tracker, epoch: u64, head: u64, now: Moment) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let since = tracker.ask().unwrap().first().map_or(0, |(_, seq)| *seq);
        let from = if since > head { 1 } else { since + 1 };
        let answer = Answer { epoch: Some(epoch), ..answer(head, from..=head) };
        let brought = tracker.answered(answer, Purpose::Missing, now);
        seen.extend(shown(&brought.updates));
        if !brought.again {
            return seen;
        }
    }
}

/// A tracker that knows this much of a gateway of epoch 7.
fn of_epoch_7(last: u64) -> Tracker {
    let mut tracker = begun(&[("t", last - 1)]);
    tracker.came(numbered(last), None, at(0.0));
    assert!(asks(&mut tracker, 7, last, at(0.0)).is_empty());
    tracker
}

/// The check after a restart still names numbers of the old count: its answer leaves out what they seem to cover.
#[test]
fn after_a_restart_all_of_the_new_count_is_fetched() {
    for resumed in [false, true] {
        let mut tracker = of_epoch_7(3);
        tracker.connected(!resumed, at(1.0));
        assert_eq!(asks(&mut tracker, 8, 5, at(2.0)), ["1!", "2!", "3!", "4!", "5!"]);
    }
}

#[test]
fn what_came_in_the_new_count_does_not_come_again() {
    let mut tracker = of_epoch_7(1000);
    tracker.connected(true, at(1.0));
    for seq in 1..=3 {
        assert_eq!(shown(&tracker.came(numbered(seq), None, at(1.0))), [seq.to_string()]);
    }
    tracker.came(message("new", "n1", Some(1)), None, at(1.0));
    assert_eq!(asks(&mut tracker, 8, 4, at(2.0)), ["4!"], "nothing before it");
    assert_eq!(shown(&tracker.came(message("new", "n1", Some(1)), None, at(2.0))), [""; 0]);
    assert_eq!(shown(&tracker.came(numbered(5), None, at(2.0))), ["5"]);
}

/// The number that a check named was of the old count, and the line began anew before the answer.
#[test]
fn an_answer_to_a_number_of_the_old_count_repeats_nothing() {
    let mut tracker = begun(&[("t", 1000)]);
    tracker.came(numbered(1001), None, at(0.0));
    tracker.connected(true, at(1.0));
    tracker.ask();
    assert_eq!(shown(&tracker.came(numbered(1), None, at(1.0))), ["1"]);
    assert_eq!(shown(&tracker.answered(answer(2, [1, 2]), Purpose::Missing, at(2.0)).updates), ["2!"]);
}

/// What went on as the next one of the old count, although it was a later one of the new.
#[test]
fn what_the_old_count_hid_is_counted_as_lost() {
    let mut tracker = of_epoch_7(4);
    tracker.connected(false, at(1.0));
    assert_eq!(shown(&tracker.came(numbered(5), None, at(1.0))), ["5"]);
    assert_eq!(asks(&mut tracker, 8, 6, at(2.0)), ["6!-4"], "1 to 4 are too late");
}

/// With a new session that is to be expected: the answer decides what the number means.
#[test]
fn a_number_that_may_be_of_either_count_waits_for_the_answer() {
    for (epoch, expected) in [(8, &["1!", "2!", "3!", "4!", "5", "6!"][..]), (7, &["5", "6!"])] {
        let mut tracker = of_epoch_7(4);
        tracker.connected(true, at(1.0));
        assert!(tracker.came(numbered(5), None, at(1.0)).is_empty());
        assert_eq!(tracker.gap(), Some(at(1.1)), "which is asked for soon");
        assert_eq!(asks(&mut tracker, epoch, 6, at(2.0)), expected);
        assert_eq!(waiting(&tracker), (0, 0));
    }
    let mut tracker = of_epoch_7(4);
    tracker.connected(true, at(1.0));
    tracker.came(numbered(5), None, at(1.0));
    tracker.came(numbered(6), None, at(2.0));
    assert_eq!(shown(&tracker.expire(at(11.0))), ["5", "6"], "nobody waits for ever");
    assert_eq!(shown(&tracker.came(numbered(7), None, at(12.0))), ["7"]);
}

#[test]
fn what_waits_from_the_old_count_goes_on_before_the_new() {
    let mut tracker = of_epoch_7(4);
    assert!(tracker.came(numbered(7), None, at(0.5)).is_empty());
    assert_eq!(shown(&tracker.connected(true, at(1.0))), ["7-2"]);
    assert_eq!((waiting(&tracker), tracker.expires()), ((0, 0), None));
    assert_eq!(asks(&mut tracker, 8, 8, at(2.0)), ["1!", "2!", "3!", "4!", "5!", "6!", "7!", "8!"]);
    // With its session, it might still have come.
    let mut tracker = of_epoch_7(4);
    assert!(tracker.came(numbered(7), None, at(0.5)).is_empty());
    assert!(tracker.connected(false, at(1.0)).is_empty());
    assert!(tracker.came(numbered(9), None, at(1.5)).is_empty());
    let all: Vec<String> = (1..=8).map(|n| format!("{n}!")).chain(["9".into()]).collect();
    assert_eq!(asks(&mut tracker, 8, 9, at(2.0)), [vec!["7-2".into()], all].concat());
    assert_eq!(waiting(&tracker), (0, 0));
    // Without epochs, a head behind what was asked for says it.
    let mut tracker = begun(&[("t", 100)]);
    assert!(tracker.came(numbered(102), None, at(0.5)).is_empty());
    tracker.ask();
    assert_eq!(
        shown(&tracker.answered(answer(2, [1, 2]), Purpose::Missing, at(1.0)).updates),
        ["102-1", "1!", "2!"]
    );
    assert_eq!(waiting(&tracker), (0, 0));
}

/// The gateway forgot other topics, and numbers new ones from above theirs.
#[test]
fn numbers_that_were_never_given_are_not_lost() {
    let mut tracker = begun(&[("t", 4)]);
    assert!(tracker.came(message("new", "n", Some(501)), None, at(0.0)).is_empty(), "is something missing?");
    let mut late = Answer { heads: vec![("new".into(), 501)], ..Answer::default() };
    late.starts = vec![("new".into(), 500), ("t".into(), 500)];
    let brought = tracker.answered(late, Purpose::Missing, at(1.0));
    assert_eq!((shown(&brought.updates), brought.missing), (vec!["n".to_owned()], 0));
    let mut back = answer(502, [501, 502]);
    back.starts = vec![("t".into(), 500)];
    assert_eq!(shown(&tracker.answered(back, Purpose::Missing, at(2.0)).updates), ["501!", "502!"]);
}

/// With many filters it takes several answers until all is known.
#[test]
fn a_start_in_parts_is_complete_with_the_last() {
    let mut tracker = tracker();
    for (last, topic) in [(false, "a"), (true, "b")] {
        assert!(!tracker.has_begun());
        let part = Answer { heads: vec![(topic.into(), 7)], ..Answer::default() };
        tracker.answered(part, Purpose::Start { last }, at(0.0));
    }
    assert_eq!(tracker.ask(), Some(vec![("a".into(), 7), ("b".into(), 7)]));
}

/// The session ran out, the gateway did not: what it kept from before is no news.
#[test]
fn a_retained_message_from_before_is_not_taken_for_a_new_count() {
    let mut tracker = of_epoch_7(4);
    tracker.connected(true, at(1.0));
    let kept = Incoming { retain: true, ..numbered(3) };
    assert!(tracker.came(kept, None, at(1.0)).is_empty());
    assert_eq!(asks(&mut tracker, 7, 5, at(2.0)), ["5!"]);
}

#[test]
fn an_answer_that_was_overtaken_proves_nothing() {
    let mut tracker = begun(&[("t", 7)]);
    tracker.ask();
    assert_eq!(shown(&tracker.came(numbered(8), None, at(0.0))), ["8"]);
    assert_eq!(shown(&tracker.answered(answer(7, []), Purpose::Missing, at(0.0)).updates), [""; 0]);
    assert_eq!(shown(&tracker.came(numbered(8), None, at(0.0))), [""; 0]);
    assert_eq!(shown(&tracker.came(numbered(9), None, at(0.0))), ["9"]);
}

#[test]
fn without_numbers_the_answer_is_compared() {
    let mut tracker = begun(&[("t", 4)]);
    for payload in ["5", "7"] {
        assert_eq!(shown(&tracker.came(message("t", payload, None), None, at(0.0))), [payload]);
    }
    let brought = tracker.answered(answer(9, 5..=9), Purpose::Missing, at(1.0));
    assert_eq!(shown(&brought.updates), ["8!-1", "9!"], "6 is missing, but 7 is already there");
    assert_eq!(brought.missing, 3);
    assert_eq!(shown(&tracker.came(message("t", "9", None), None, at(1.0))), [""; 0], "it was on its way");
    assert_eq!(shown(&tracker.came(message("t", "10", None), None, at(1.0))), ["10"]);
    assert_eq!(tracker.ask(), Some(vec![("t".into(), 9)]));
}

#[test]
fn a_retained_message_that_is_known_is_not_news() {
    let mut tracker = tracker();
    let kept = Incoming { retain: true, ..message("t", "x", None) };
    assert_eq!(shown(&tracker.came(kept.clone(), None, at(0.0))), ["x"]);
    assert_eq!(shown(&tracker.came(kept, None, at(0.0))), [""; 0]);
}

#[test]
fn topics_beyond_the_bound_are_handed_on_as_they_come() {
    let mut tracker = tracker();
    for n in 0..1000 {
        assert_eq!(tracker.came(message(&format!("t/{n}"), "x", Some(7)), None, at(0.0)).len(), 1);
    }
    assert_eq!(tracker.lines.len(), 10);
    assert!(tracker.is_full());
    let other = Missed { topic: "other".into(), seq: 7, payload: "7".into() };
    let heads = vec![("other".into(), 9), ("t/1".into(), 8)];
    let cut = Answer { heads, updates: vec![other], truncated: true, ..Answer::default() };
    let brought = tracker.answered(cut, Purpose::Missing, at(1.0));
    assert!(!brought.advanced && brought.updates.is_empty(), "there is nothing to be had by asking again");
    assert!(tracker.came(message("t/1", "x", Some(9)), None, at(0.9)).is_empty());
    assert_eq!((tracker.gap(), tracker.expires()), (None, Some(at(10.9))), "not before its turn");
    assert!(tracker.came(message("t/1", "x", Some(11)), None, at(1.2)).is_empty());
    assert_eq!(tracker.gap(), Some(at(1.3)));
}

proptest! {
    /// Of a stream in which messages are lost and doubled, with answers now and then, the program sees every update at
    /// most once and in order, and what it does not see is counted.
    #[test]
    fn in_order_once_and_counted(steps in prop::collection::vec((0..10u8, 0..4u8), 1..300), history in 1..30u64) {
        let mut tracker = begun(&[("t", 0)]);
        let (mut head, mut seen, mut lost) = (0, Vec::new(), 0);
        let mut take = |out: Vec<Out>| for one in out {
            lost += one.ready.lost_before;
            seen.push(one.ready.seq.unwrap());
        };
        for (step, (what, which)) in steps.iter().enumerate() {
            let now = at(step as f64);
            match what {
                0..=5 => {
                    head += 1;
                    if *which > 0 { take(tracker.came(numbered(head), None, now)); }
                    if *which == 3 { take(tracker.came(numbered(head), None, now)); }
                }
                6 => take(tracker.expire(now)),
                7 if head > 3 => take(tracker.came(numbered(head - u64::from(*which)), None, now)),
                _ => {
                    let last = tracker.ask().unwrap().first().map_or(0, |(_, seq)| *seq);
                    let from = (last + 1).max(head.saturating_sub(history));
                    take(tracker.answered(answer(head, from..=head), Purpose::Missing, now).updates);
                }
            }
        }
        take(tracker.answered(answer(head, []), Purpose::Missing, at(1e6)).updates);
        take(tracker.expire(at(1e6)));
        prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", seen);
        let after = head - seen.last().copied().unwrap_or(0);
        prop_assert_eq!(seen.len() as u64 + lost + after, head);
        prop_assert_eq!(waiting(&tracker), (0, 0));
    }

    /// Of a session with much in it nothing is lost or doubled, whenever the gateway says where things stand, however little
    /// of it the gateway still has, and however long it takes.
    #[test]
    fn a_session_is_seen_as_a_whole(
        waiting in 1..60u64,
        found in any::<bool>(),
        start in 0..80usize,
        steps in prop::collection::vec(0..4u8, 80..200),
    ) {
        let mut tracker = tracker();
        tracker.finds(found);
        let (mut head, mut next, mut seen, mut lost) = (100 + waiting, 101, Vec::new(), 0);
        let mut take = |out: Vec<Out>| for one in out {
            lost += one.ready.lost_before;
            seen.push(one.ready.seq.unwrap());
        };
        for (step, what) in steps.iter().enumerate() {
            let now = at(step as f64 / 4.0);
            take(tracker.expire(now));
            if step == start {
                take(tracker.answered(answer(head, []), Purpose::Start { last: true }, now).updates);
            }
            match what {
                0 => head += 1,
                // Whoever does not expect them must have seen the first of those that wait.
                1 if step > start && (found || next > 101) => {
                    tracker.asks(now);
                    let last = tracker.ask().unwrap()[0].1;
                    let from = (last + 1).max(head - 2);
                    take(tracker.answered(answer(head, from..=head), Purpose::Missing, now).updates);
                }
                _ if next <= head => {
                    take(tracker.came(safe(next), None, now));
                    next += 1;
                }
                _ => {}
            }
        }
        // From here on the history decides; what waited in the session is through.
        let of_session: Vec<u64> = seen.iter().copied().filter(|seq| *seq <= 100 + waiting).collect();
        prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", seen);
        prop_assert_eq!(of_session, (101..next.min(101 + waiting)).collect::<Vec<_>>());
        if let (Some(first), Some(last)) = (seen.first(), seen.last()) {
            prop_assert_eq!(seen.len() as u64 + lost, last - first + 1);
        }
    }

    /// Of a gateway that starts again now and then, on a link that loses messages, no update is seen twice or out of order.
    #[test]
    fn restarts_repeat_nothing(steps in prop::collection::vec((0..12u8, 0..4u8), 1..300)) {
        let mut tracker = begun(&[("t", 0)]);
        let (mut epoch, mut head, mut seen) = (1u64, 0u64, Vec::<u64>::new());
        let told = |epoch: u64, seq: u64| Incoming {
            payload: (epoch * 1_000 + seq).to_string().into(),
            ..numbered(seq)
        };
        let mut take = |out: Vec<Out>| seen.extend(out.iter().map(|one| {
            String::from_utf8_lossy(&one.ready.payload).parse::<u64>().unwrap()
        }));
        for (step, (what, which)) in steps.iter().enumerate() {
            let now = at(step as f64);
            match what {
                0..=6 => {
                    head += 1;
                    if *which > 0 { take(tracker.came(told(epoch, head), None, now)); }
                }
                7 => take(tracker.expire(now)),
                8 => {
                    (epoch, head) = (epoch + 1, 0);
                    take(tracker.connected(true, now));
                }
                _ => {
                    let since = tracker.ask().unwrap().first().map_or(0, |(_, seq)| *seq);
                    let from = if since > head { 1 } else { since + 1 };
                    let updates = (from..=head).map(|seq| {
                        Missed { topic: "t".into(), seq, payload: told(epoch, seq).payload }
                    });
                    let updates = updates.collect();
                    let answer = Answer { epoch: Some(epoch), updates, ..answer(head, []) };
                    take(tracker.answered(answer, Purpose::Missing, now).updates);
                }
            }
        }
        prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", seen);
    }
}

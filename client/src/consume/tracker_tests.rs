#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use proptest::prelude::*;

use super::*;
use crate::protocol::Missed;

fn at(seconds: f64) -> Moment {
    Moment::from_secs_f64(seconds)
}

fn tracker() -> Tracker {
    Tracker::new(TrackerSettings { most_topics: 10, most_held: 20, patience: Span::from_secs(10) })
}

/// A tracker that was told where things stand.
fn begun(heads: &[(&str, u64)]) -> Tracker {
    let mut tracker = tracker();
    assert_eq!(tracker.ask(), None);
    let heads = heads.iter().map(|(topic, seq)| ((*topic).to_owned(), *seq)).collect();
    tracker.answered(Answer { heads, ..Answer::default() }, true, at(0.0));
    tracker
}

fn message(topic: &str, payload: &str, seq: Option<u64>) -> Incoming {
    Incoming { topic: topic.into(), payload: payload.to_owned().into(), retain: false, seq, receipt: None }
}

fn numbered(seq: u64) -> Incoming {
    message("t", &seq.to_string(), Some(seq))
}

fn answer(head: u64, seqs: impl IntoIterator<Item = u64>) -> Answer {
    let updates =
        seqs.into_iter().map(|seq| Missed { topic: "t".into(), seq, payload: seq.to_string().into() });
    Answer { heads: vec![("t".into(), head)], updates: updates.collect(), ..Answer::default() }
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
    let brought = tracker.answered(answer(8, [5, 6, 7, 8]), false, at(1.0));
    assert_eq!(shown(&brought.updates), ["5!", "6!", "7", "8!"]);
    assert_eq!(brought.missing, 3);
    assert_eq!(shown(&tracker.came(numbered(8), None, at(1.0))), [""; 0], "it came by itself after all");
    assert_eq!(shown(&tracker.came(numbered(9), None, at(1.0))), ["9"]);
    assert!(tracker.gap().is_none());
}

#[test]
fn what_the_history_lost_is_counted() {
    let mut tracker = begun(&[("t", 4)]);
    let brought = tracker.answered(answer(20, [19, 20]), false, at(1.0));
    assert_eq!(shown(&brought.updates), ["19!-14", "20!"]);
    assert_eq!(brought.missing, 16);
}

#[test]
fn a_cut_answer_is_continued() {
    let mut tracker = begun(&[("t", 0)]);
    let cut = Answer { truncated: true, ..answer(6, [1, 2, 3]) };
    assert_eq!(shown(&tracker.answered(cut, false, at(1.0)).updates), ["1!", "2!", "3!"]);
    assert_eq!(tracker.ask(), Some(vec![("t".into(), 3)]));
    assert_eq!(shown(&tracker.answered(answer(6, [4, 5, 6]), false, at(1.0)).updates), ["4!", "5!", "6!"]);
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
fn a_topic_that_appears_later_is_new_from_its_first_update() {
    let mut tracker = begun(&[]);
    assert_eq!(shown(&tracker.came(numbered(2), None, at(0.0))), [""; 0], "the first is missing");
    assert_eq!(shown(&tracker.answered(answer(2, [1, 2]), false, at(0.0)).updates), ["1!", "2"]);
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
    assert_eq!(shown(&tracker.answered(answer(2, [1, 2]), false, at(0.0)).updates), ["1!", "2!"]);
    let mut tracker = begun(&[("t", 1000)]);
    tracker.session_lost();
    assert_eq!(shown(&tracker.came(numbered(3), None, at(0.0))), ["3"]);
    assert_eq!(shown(&tracker.came(numbered(2), None, at(0.0))), [""; 0], "but only once");
    let mut tracker = begun(&[("t", 2)]);
    tracker.epoch = Some(7);
    let anew = Answer { epoch: Some(8), ..answer(3, [1, 2, 3]) };
    assert_eq!(shown(&tracker.answered(anew, false, at(0.0)).updates), ["1!", "2!", "3!"]);
}

#[test]
fn an_answer_that_was_overtaken_proves_nothing() {
    let mut tracker = begun(&[("t", 7)]);
    tracker.ask();
    assert_eq!(shown(&tracker.came(numbered(8), None, at(0.0))), ["8"]);
    assert_eq!(shown(&tracker.answered(answer(7, []), false, at(0.0)).updates), [""; 0]);
    assert_eq!(shown(&tracker.came(numbered(8), None, at(0.0))), [""; 0]);
    assert_eq!(shown(&tracker.came(numbered(9), None, at(0.0))), ["9"]);
}

#[test]
fn without_numbers_the_answer_is_compared() {
    let mut tracker = begun(&[("t", 4)]);
    for payload in ["5", "7"] {
        assert_eq!(shown(&tracker.came(message("t", payload, None), None, at(0.0))), [payload]);
    }
    let brought = tracker.answered(answer(9, 5..=9), false, at(1.0));
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
                    take(tracker.answered(answer(head, from..=head), false, now).updates);
                }
            }
        }
        take(tracker.answered(answer(head, []), false, at(1e6)).updates);
        take(tracker.expire(at(1e6)));
        prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", seen);
        let after = head - seen.last().copied().unwrap_or(0);
        prop_assert_eq!(seen.len() as u64 + lost + after, head);
        prop_assert_eq!(tracker.held, 0);
    }
}

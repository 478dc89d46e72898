//! A round of checks: as many parts as it takes to name all topics, each short enough for the gateway.

use tidegate_control::topic::matches;

use crate::protocol::Head;

/// Bytes of a check. The gateway takes 64 KiB unless it is told otherwise; half as much for filters at most.
const LONGEST: usize = 48 * 1024;
const SHORTEST: usize = 1024;
/// Filters in a check: the gateway compares each with all its topics.
const MOST_FILTERS: usize = 32;

/// One check of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Each filter with the last number known of its topics; none asks where things stand.
    pub(super) filters: Vec<(String, Option<Vec<Head>>)>,
    /// Topics before this one are not asked for.
    pub(super) from: Option<String>,
    /// Topics from this one on are not asked for.
    pub(super) to: Option<String>,
}

impl Part {
    /// The topics that it names.
    pub(super) fn named(&self) -> impl Iterator<Item = &Head> {
        self.filters.iter().filter_map(|(_, since)| since.as_ref()).flatten()
    }
}

/// Goes through filters and topics, part by part.
#[derive(Debug)]
pub(super) struct Round {
    filters: Vec<String>,
    longest: usize,
    most_filters: usize,
    /// Where the part under way begins: its first filter, and its first topic.
    place: (usize, Option<String>),
    /// Where the one after it begins; none when it is the last.
    next: Option<(usize, Option<String>)>,
}

impl Round {
    /// Rounds with these filters, none of which is that of a shared group.
    pub(super) fn new(filters: Vec<String>) -> Self {
        Self { filters, longest: LONGEST, most_filters: MOST_FILTERS, place: (0, None), next: None }
    }

    /// Starts from the beginning.
    pub(super) fn reset(&mut self) {
        (self.place, self.next) = ((0, None), None);
    }

    /// There is a new connection, perhaps to a gateway with other limits: so many bytes it takes for a check at most.
    pub(super) fn connected(&mut self, most: usize) {
        (self.longest, self.most_filters) = (LONGEST.min(most), MOST_FILTERS);
        self.reset();
    }

    /// The gateway refuses the part under way: perhaps it asks for too much.
    pub(super) fn refused(&mut self) {
        self.longest = (self.longest / 2).max(SHORTEST.min(self.longest));
        self.most_filters = (self.most_filters / 2).max(1);
        self.reset();
    }

    /// The part to ask now, the same until it is done. `known` is in the order of topics; none asks where things stand.
    pub(super) fn part(&mut self, known: Option<&[Head]>) -> Part {
        let (first, from) = self.place.clone();
        let group = self.group(first);
        let (end, mut room) = (first + group.len(), self.longest.saturating_sub(written_all(group)));
        let mut filters: Vec<(String, Option<Vec<Head>>)> =
            group.iter().map(|filter| (filter.clone(), known.map(|_| Vec::new()))).collect();
        let (mut to, mut empty) = (None, true);
        let known = known.unwrap_or_default();
        let begin = from.as_ref().map_or(0, |from| known.partition_point(|(topic, _)| topic < from));
        for (topic, seq) in &known[begin..] {
            let Some((_, Some(since))) = filters.iter_mut().find(|(filter, _)| matches(filter, topic)) else {
                continue;
            };
            let length = written(topic) + 24;
            if length > room && !empty {
                to = Some(topic.clone());
                break;
            }
            since.push((topic.clone(), *seq));
            (room, empty) = (room.saturating_sub(length), false);
        }
        self.next = match &to {
            Some(to) => Some((first, Some(to.clone()))),
            None => (end < self.filters.len()).then_some((end, None)),
        };
        Part { filters, from, to }
    }

    /// Whether the part under way is the last one of its round.
    pub(super) fn is_last(&self) -> bool {
        self.next.is_none()
    }

    /// The part under way was answered: goes to the next one, or to the start of the next round.
    pub(super) fn done(&mut self) {
        self.place = self.next.take().unwrap_or((0, None));
    }

    /// The answer had room for topics before this one only: goes on with it. False when that leads nowhere.
    pub(super) fn go_on(&mut self, from: String) -> bool {
        let ahead = self.place.1.as_ref().is_none_or(|before| *before < from);
        if ahead {
            self.place.1 = Some(from);
        }
        ahead
    }

    fn group(&self, first: usize) -> &[String] {
        let rest = self.filters.get(first..).unwrap_or_default();
        let mut length = 0;
        let short = |filter: &&String| {
            length += written(filter);
            length <= self.longest / 2
        };
        let count = rest.iter().take(self.most_filters).take_while(short).count();
        &rest[..count.max(1).min(rest.len())]
    }
}

fn written_all(filters: &[String]) -> usize {
    100 + filters.iter().map(|filter| written(filter)).sum::<usize>()
}

/// The bytes that a text takes in a check, with what stands around it.
fn written(text: &str) -> usize {
    let one = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(one).sum::<usize>() + 26
}

/// Whether a filter is that of a shared group.
pub(super) fn is_shared(filter: &str) -> bool {
    filter.starts_with("$share/")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::{CheckRequest, encode};

    fn round(filters: &[&str]) -> Round {
        Round::new(filters.iter().map(|filter| (*filter).to_owned()).collect())
    }

    fn topics(count: u64) -> Vec<Head> {
        let mut topics: Vec<Head> =
            (0..count).map(|n| (format!("building/room {n}/temperature"), n)).collect();
        topics.sort();
        topics
    }

    /// All parts of one round.
    fn parts(round: &mut Round, known: Option<&[Head]>) -> Vec<Part> {
        let mut all = Vec::new();
        loop {
            all.push(round.part(known));
            let last = round.is_last();
            round.done();
            if last {
                return all;
            }
        }
    }

    fn length(part: &Part) -> usize {
        let Part { filters, from, to } = part.clone();
        encode(&CheckRequest { id: u64::MAX, filters, from, to, only_named: true, max: 100_000 }).len()
    }

    #[test]
    fn what_fits_is_one_check() {
        let (mut round, known) = (round(&["building/#"]), topics(500));
        let part = round.part(Some(&known));
        assert_eq!((part.named().count(), part.from.clone(), part.to.clone()), (500, None, None));
        assert_eq!(round.part(Some(&known)), part, "the same until it is done");
        assert!(round.is_last());
        let start = round.part(None);
        assert_eq!(start.filters, [("building/#".to_owned(), None)]);
    }

    #[test]
    fn ten_thousand_topics_are_named_once_each_in_parts_that_follow() {
        let (mut round, known) = (round(&["building/+/temperature", "building/#"]), topics(10_000));
        for _ in 0..2 {
            let all = parts(&mut round, Some(&known));
            assert!(all.len() > 5);
            assert!(all.iter().all(|part| length(part) <= LONGEST), "each is short enough");
            let named: Vec<Head> = all.iter().flat_map(|part| part.named().cloned()).collect();
            assert_eq!(named, known);
            assert!(all.windows(2).all(|pair| pair[0].to.is_some() && pair[0].to == pair[1].from));
            assert_eq!(
                (&all[0].from, &all[all.len() - 1].to),
                (&None, &None),
                "and no topic is between them"
            );
        }
    }

    /// A topic that filters of two checks match is named in both, or the gateway would send all of it again.
    #[test]
    fn many_filters_are_asked_in_several_checks() {
        let names: Vec<String> = (0..70).map(|n| format!("building/+/{n}")).collect();
        let mut filters: Vec<&str> = names.iter().map(String::as_str).collect();
        filters.extend(["#", "building/+/0"]);
        let (mut round, known) = (round(&filters), vec![("building/x/0".to_owned(), 7)]);
        let all = parts(&mut round, Some(&known));
        assert_eq!(all.iter().map(|part| part.filters.len()).collect::<Vec<_>>(), [32, 32, 8]);
        assert_eq!(all.iter().map(|part| part.named().count()).collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn whoever_is_refused_asks_for_less() {
        let (mut round, known) = (round(&["#", "building/#"]), topics(1_000));
        let before = round.part(Some(&known)).named().count();
        for _ in 0..20 {
            round.refused();
        }
        let part = round.part(Some(&known));
        assert!(part.named().count() < before && part.named().count() > 0 && part.filters.len() == 1);
        round.connected(usize::MAX);
        assert_eq!(round.part(Some(&known)).filters.len(), 2);
    }

    #[test]
    fn nobody_asks_for_more_than_the_broker_takes() {
        let (mut round, known) = (round(&["building/#"]), topics(1_000));
        round.connected(4_000);
        let all = parts(&mut round, Some(&known));
        assert!(all.iter().all(|part| length(part) <= 4_000) && all.len() > 5);
        round.connected(500);
        round.refused();
        assert!(
            parts(&mut round, Some(&known)).iter().all(|part| length(part) <= 500),
            "not even if refused"
        );
    }

    #[test]
    fn an_answer_that_was_cut_is_continued_and_leads_on() {
        let mut round = round(&["#"]);
        assert_eq!(round.part(None).from, None);
        assert!(round.go_on("b".into()));
        assert_eq!(round.part(None).from.as_deref(), Some("b"));
        assert!(!round.go_on("b".into()) && round.is_last());
        round.done();
        assert_eq!(round.part(None).from, None);
    }

    #[test]
    fn even_what_is_too_long_is_asked_for() {
        let known: Vec<Head> = ["\u{1}", "b", "c"].map(|text| (text.repeat(40_000), 1)).to_vec();
        let mut round = round(&["#"]);
        let all = parts(&mut round, Some(&known));
        assert_eq!(all.iter().map(|part| part.named().count()).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(parts(&mut Round::new(vec![]), None)[0].filters.is_empty());
    }
}

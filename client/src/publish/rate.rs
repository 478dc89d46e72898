//! The rate that holds now, from all who announce one.

use tidegate_control::time::{Moment, Span};

use crate::protocol::{DEFAULT_TTL, RateNews};

/// Without a rate of its own, a publisher that leaves an old rate is free again above this one.
const FREE: f64 = 10_000.0;
/// How many of its own intervals a rate holds that came with an acknowledgement, at least.
const FEW_INTERVALS: f64 = 3.0;

/// Who announced a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// `rate`: for everybody.
    Everybody,
    /// `rate/class/{class}`.
    Class,
    /// `rate/client/{client}`.
    Client,
    /// An acknowledgement of this client's own message.
    Ack,
}

/// A rate and what it allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// Messages a second; none for no limit.
    pub(crate) rate: Option<f64>,
    /// Messages at once.
    pub(crate) burst: f64,
    /// Whether a gateway's word makes it lower than the publisher's own rate.
    pub(crate) held: bool,
    /// When the limit changes by itself.
    pub(crate) until: Option<Moment>,
}

/// All rates that were announced, and the publisher's own.
#[derive(Debug)]
pub(crate) struct RateBook {
    /// The publisher's own rate; none for no limit.
    own: Option<f64>,
    /// What an old rate is multiplied by for each second after its time.
    growth: f64,
    told: [Option<Told>; 4],
    arrivals: u64,
    /// Whether acknowledgements on this connection tell rates.
    acks_tell: bool,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    news: RateNews,
    expires: Moment,
    /// Counts up over all sources.
    arrival: u64,
    /// The gateway said that it holds no longer, so that another one may take its place at once.
    taken_back: bool,
}

impl RateBook {
    pub(crate) fn new(own: Option<f64>, growth: f64) -> Self {
        Self { own, growth, told: [None; 4], arrivals: 0, acks_tell: false }
    }

    /// Takes news; false when they are older than what is known.
    pub(crate) fn tell(&mut self, source: Source, news: RateNews, now: Moment) -> bool {
        let known = self.told[source as usize].filter(|told| now < told.expires);
        let stale = |told: &Told| matches!((told.news.seq, news.seq), (Some(old), Some(new)) if new < old);
        if known.as_ref().is_some_and(stale) {
            return false;
        }
        self.arrivals += 1;
        self.told[source as usize] =
            Some(Told { news, expires: now + news.ttl, arrival: self.arrivals, taken_back: false });
        true
    }

    /// Takes the rate of an acknowledgement. It holds as long as the last news said theirs do, and at least for a few of
    /// its own intervals: the next acknowledgement comes with the next message.
    pub(crate) fn tell_ack(&mut self, rate: Option<f64>, now: Moment) {
        // Of the topics: what was made of an acknowledgement before is no news.
        let topics = self.told[..Source::Ack as usize].iter().flatten();
        let last = topics.max_by_key(|told| told.arrival).map(|told| told.news);
        let (burst, ttl) = last.map_or((1.0, DEFAULT_TTL), |news| (news.burst, news.ttl));
        let few = rate.map_or(Span::ZERO, |rate| Span::from_rate(rate).scale(FEW_INTERVALS));
        self.tell(Source::Ack, RateNews { rate, burst, ttl: ttl.max(few), seq: None }, now);
        self.acks_tell = true;
    }

    /// An acknowledgement came without a rate. Where acknowledgements tell changes, it says that nothing changed, however
    /// long ago the last one was.
    pub(crate) fn confirm(&mut self, now: Moment) {
        if let Some(told) = self.told[Source::Ack as usize].as_mut()
            && self.acks_tell
        {
            told.expires = now + told.news.ttl;
        }
    }

    /// The gateway took a rate back.
    pub(crate) fn clear(&mut self, source: Source, now: Moment) {
        if let Some(told) = &mut self.told[source as usize] {
            told.expires = told.expires.min(now);
            told.news.seq = None;
            told.taken_back = true;
        }
    }

    /// After a reconnect, perhaps to a gateway that counts anew: no number is stale.
    pub(crate) fn forget_numbers(&mut self) {
        self.told.iter_mut().flatten().for_each(|told| told.news.seq = None);
        self.acks_tell = false;
    }

    /// What holds now.
    pub(crate) fn limit(&self, now: Moment) -> Limit {
        let limit = self.limit_of_chosen(now);
        let left = self.told.iter().flatten().filter(|told| now >= told.expires && !told.taken_back);
        // The word that counted before ran out and was lower: there is no jump to the one that counts now.
        let lowest = left
            .filter(|told| self.counted_before(told, now))
            .filter_map(|told| self.grown(told, now))
            .min_by(f64::total_cmp)
            .filter(|grown| limit.rate.unwrap_or(FREE) > *grown);
        match lowest {
            Some(rate) => {
                Limit { rate: Some(rate), held: true, until: Some(now + Span::from_secs(1)), ..limit }
            }
            None => limit,
        }
    }

    /// Whether a word that has run out counted as long as it held, in place of the one that counts now.
    fn counted_before(&self, old: &Told, now: Moment) -> bool {
        let then = old.expires - Span::from_nanos(1);
        self.chosen(then).is_some_and(|chosen| chosen.arrival == old.arrival)
            && self.chosen(now).is_some_and(|chosen| chosen.arrival != old.arrival)
    }

    /// What an announced rate has grown to since its time.
    fn grown(&self, told: &Told, now: Moment) -> Option<f64> {
        Some(told.news.rate? * self.growth.powf(now.since(told.expires).as_secs_f64()))
    }

    fn limit_of_chosen(&self, now: Moment) -> Limit {
        let own = Limit { rate: self.own, burst: 1.0, held: false, until: None };
        let Some(told) = self.chosen(now) else { return own };
        let until = Some(told.expires);
        let Some(announced) = told.news.rate else { return Limit { burst: told.news.burst, until, ..own } };
        let late = now.since(told.expires).as_secs_f64();
        let rate = announced * self.growth.powf(late);
        let free = self.own.unwrap_or(FREE);
        match (rate < free, now < told.expires) {
            // An announced rate of millions is still a rate, but one that an old rate has grown to is none.
            (true, fresh) => {
                let until = if fresh { told.expires } else { now + Span::from_secs(1) };
                Limit { rate: Some(rate), burst: told.news.burst, held: true, until: Some(until) }
            }
            (false, true) => {
                Limit { rate: Some(self.own.unwrap_or(rate)), burst: told.news.burst, until, ..own }
            }
            (false, false) => own,
        }
    }

    /// The word that counts: fresh before old; then the newer of the acknowledgement and the most special topic.
    fn chosen(&self, now: Moment) -> Option<Told> {
        let fresh = |source: Source| self.told[source as usize].filter(|told| now < told.expires);
        let topic = fresh(Source::Client).or(fresh(Source::Class)).or(fresh(Source::Everybody));
        let newest =
            |a: Option<Told>, b: Option<Told>| a.into_iter().chain(b).max_by_key(|told| told.arrival);
        newest(topic, fresh(Source::Ack))
            .or_else(|| self.told.iter().flatten().copied().max_by_key(|told| told.arrival))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Moment {
        Moment::from_secs_f64(seconds)
    }

    fn news(rate: f64, seq: u64) -> RateNews {
        RateNews { rate: Some(rate), burst: 1.0, ttl: Span::from_secs(10), seq: Some(seq) }
    }

    fn rate(book: &RateBook, seconds: f64) -> Option<f64> {
        book.limit(at(seconds)).rate
    }

    #[test]
    fn the_most_special_topic_counts_and_an_acknowledgement_when_newer() {
        let mut book = RateBook::new(Some(2.0), 1.1);
        assert_eq!(rate(&book, 0.0), Some(2.0));
        assert!(book.tell(Source::Client, news(0.1, 1), at(0.0)));
        assert!(book.tell(Source::Everybody, news(0.5, 1), at(1.0)));
        assert_eq!(rate(&book, 1.0), Some(0.1));
        book.tell_ack(Some(0.2), at(2.0));
        assert_eq!(rate(&book, 2.0), Some(0.2));
        assert!(book.tell(Source::Client, news(0.3, 2), at(3.0)));
        assert_eq!(rate(&book, 3.0), Some(0.3));
        book.clear(Source::Client, at(4.0));
        book.clear(Source::Ack, at(4.0));
        assert_eq!(rate(&book, 4.0), Some(0.5), "back to what holds for everybody");
    }

    #[test]
    fn no_rate_is_above_the_publishers_own() {
        let mut book = RateBook::new(Some(2.0), 1.1);
        book.tell(Source::Everybody, news(50.0, 1), at(0.0));
        assert_eq!(rate(&book, 0.0), Some(2.0));
        assert!(!book.limit(at(0.0)).held);
        book.tell(Source::Everybody, RateNews { rate: None, ..news(1.0, 2) }, at(0.0));
        assert_eq!(rate(&book, 0.0), Some(2.0));
        let mut free = RateBook::new(None, 1.1);
        free.tell(Source::Everybody, news(50.0, 1), at(0.0));
        assert_eq!(rate(&free, 0.0), Some(50.0));
        free.tell(Source::Everybody, RateNews { rate: None, ..news(1.0, 2) }, at(0.0));
        assert_eq!(rate(&free, 0.0), None);
    }

    #[test]
    fn a_lower_number_is_stale_until_the_rate_is_old_or_the_connection_new() {
        let mut book = RateBook::new(Some(2.0), 1.1);
        assert!(book.tell(Source::Everybody, news(0.5, 7), at(0.0)));
        assert!(!book.tell(Source::Everybody, news(0.1, 6), at(1.0)));
        assert_eq!(rate(&book, 1.0), Some(0.5));
        assert!(book.tell(Source::Everybody, news(0.4, 7), at(1.0)), "the same number again refreshes it");
        assert!(book.tell(Source::Everybody, news(0.3, 1), at(11.5)), "a gateway that started again");
        book.forget_numbers();
        assert!(book.tell(Source::Everybody, news(0.2, 0), at(12.0)));
    }

    #[test]
    fn an_old_rate_is_left_without_a_jump() {
        for own in [Some(2.0), None] {
            let mut book = RateBook::new(own, 1.1);
            book.tell(Source::Everybody, news(0.5, 1), at(0.0));
            let mut before = 0.5;
            for step in 0..2000 {
                let seconds = f64::from(step) * 0.1;
                let Some(now) = rate(&book, seconds) else { break };
                assert!(now >= before - 1e-12, "{seconds}: {before} to {now}");
                assert!(now <= before * 1.1f64.powf(0.1) + 1e-9, "{seconds}: {before} to {now} is a jump");
                before = now;
                assert!(seconds > 10.0 || now == 0.5);
            }
            assert_eq!(rate(&book, 200.0), own);
        }
    }

    #[test]
    fn acknowledgements_that_say_nothing_new_confirm_what_they_said() {
        let mut book = RateBook::new(Some(2.0), 1.1);
        book.confirm(at(0.0));
        book.tell_ack(Some(0.5), at(0.0));
        for second in 1..60 {
            book.confirm(at(f64::from(second)));
        }
        assert_eq!(rate(&book, 68.0), Some(0.5));
        assert!(rate(&book, 70.0) > Some(0.5));
        book.tell_ack(Some(0.1), at(100.0));
        assert_eq!(rate(&book, 129.0), Some(0.1), "the next acknowledgement is ten seconds away at best");
        // Another connection, perhaps to a broker that knows nothing of rates: silence is no confirmation.
        book.tell_ack(Some(0.5), at(200.0));
        book.forget_numbers();
        book.confirm(at(205.0));
        assert!(rate(&book, 212.0) > Some(0.5));
    }

    #[test]
    fn an_acknowledgement_after_a_long_silence_confirms_too() {
        let mut book = RateBook::new(Some(2.0), 1.1);
        book.tell_ack(Some(0.5), at(0.0));
        assert!(rate(&book, 60.0) > Some(0.5));
        book.confirm(at(60.0));
        assert_eq!(rate(&book, 61.0), Some(0.5));
    }

    #[test]
    fn a_special_rate_that_runs_out_is_left_without_a_jump() {
        for source in [Source::Client, Source::Ack] {
            let mut book = RateBook::new(None, 1.1);
            book.tell(Source::Everybody, RateNews { ttl: Span::from_secs(1000), ..news(50.0, 1) }, at(0.0));
            book.tell(source, news(0.1, 1), at(0.0));
            let mut before = 0.1;
            for step in 0..1500 {
                let seconds = f64::from(step) * 0.1;
                let now = rate(&book, seconds).unwrap_or(f64::INFINITY);
                assert!(now <= before * 1.1f64.powf(0.1) + 1e-9, "{source:?} {seconds}: {before} to {now}");
                before = now;
            }
            assert_eq!(rate(&book, 150.0), Some(50.0));
        }
    }

    #[test]
    fn taking_a_rate_back_is_no_jump_either() {
        let mut book = RateBook::new(Some(2.0), 1.1);
        book.tell(Source::Client, news(0.5, 1), at(0.0));
        book.clear(Source::Client, at(1.0));
        let after = rate(&book, 2.0);
        assert!(after.is_some_and(|rate| (rate - 0.55).abs() < 1e-9), "{after:?}");
    }
}

//! The control protocol, as values: topics under the prefix, and JSON that is trusted with nothing.
//!
//! Whatever a message says, reading it neither panics nor allocates beyond its own size; what makes no sense is `None`.

mod check;
mod topics;

#[cfg(test)]
pub(crate) use check::Missed;
pub(crate) use check::{Answer, CheckRequest, Head, encode, number};
pub(crate) use topics::Topics;

use serde_json::Value;
use tidegate_control::time::Span;

/// No rate is obeyed that is slower than one message in ten minutes: nobody can silence a publisher for good.
pub(crate) const SLOWEST: f64 = 1.0 / 600.0;
/// The longest wait that is obeyed, for the same reason.
const LONGEST_WAIT: u64 = 600_000;
/// How long a rate holds that says nothing about it.
pub(crate) const DEFAULT_TTL: Span = Span::from_secs(10);
const LONGEST_TTL: u64 = 3_600_000;
const LARGEST_BURST: f64 = 1_000.0;
/// Longer control messages are not read.
const LONGEST: usize = 16 * 1024;

/// A rate as a gateway announced it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateNews {
    /// Messages a second; none for no limit.
    pub(crate) rate: Option<f64>,
    pub(crate) burst: f64,
    pub(crate) ttl: Span,
    pub(crate) seq: Option<u64>,
}

impl RateNews {
    /// Reads the payload of a `rate` topic.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let value = object(payload)?;
        let rate = match value.get("rate")? {
            Value::Null => None,
            number => Some(usable_rate(number.as_f64()?)?),
        };
        let burst = optional(&value, "burst", Value::as_f64)?.unwrap_or(1.0);
        let ttl =
            optional(&value, "ttl_ms", Value::as_u64)?.map_or(DEFAULT_TTL, |ms| millis(ms, LONGEST_TTL));
        let seq = optional(&value, "seq", Value::as_u64)?;
        let good = burst >= 1.0 && !ttl.is_zero();
        good.then(|| Self { rate, burst: burst.min(LARGEST_BURST), ttl, seq })
    }
}

/// What an acknowledgement says besides "yes" or "no".
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Hints {
    /// A new rate; the inner none is no limit.
    pub(crate) rate: Option<Option<f64>>,
    /// How long to send nothing.
    pub(crate) wait: Option<Span>,
    /// Properties of ours that made no sense.
    pub(crate) nonsense: u32,
}

impl Hints {
    /// Reads the user properties of an acknowledgement.
    pub(crate) fn read(properties: &[(String, String)]) -> Self {
        let mut hints = Self::default();
        for (key, value) in properties {
            let understood = match key.as_str() {
                "tide-rate" => hints.read_rate(value),
                "tide-wait-ms" => hints.read_wait(value),
                _ => true,
            };
            hints.nonsense += u32::from(!understood);
        }
        hints
    }

    fn read_rate(&mut self, text: &str) -> bool {
        let rate = match text.trim() {
            "null" | "none" => Some(None),
            number => number.parse().ok().and_then(usable_rate).map(Some),
        };
        self.rate = rate.or(self.rate);
        rate.is_some()
    }

    fn read_wait(&mut self, text: &str) -> bool {
        let wait = text.trim().parse().ok().map(|ms| millis(ms, LONGEST_WAIT));
        self.wait = wait.or(self.wait);
        wait.is_some()
    }
}

/// What a gateway says about its load to consumers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LoadNews {
    /// How long it takes to answer.
    pub(crate) response: Span,
}

impl LoadNews {
    /// Reads the payload of the `load` topic.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let value = object(payload)?;
        let response = value.get("response_ms")?.as_f64().filter(|ms| *ms >= 0.0)?;
        Some(Self { response: Span::from_secs_f64((response / 1000.0).min(600.0)) })
    }
}

/// An order to go to another broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    /// Where to: a host with an optional port, or several with spaces between them.
    pub(crate) server: String,
    /// Whether the old broker is to be forgotten.
    pub(crate) permanent: bool,
}

impl Move {
    /// Reads the payload of a `move` topic.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let value = object(payload)?;
        let server = value.get("server")?.as_str()?.to_owned();
        let permanent = optional(&value, "permanent", Value::as_bool)?.unwrap_or(false);
        Some(Self { server, permanent })
    }
}

/// A JSON object of version 1, or of none.
fn object(payload: &[u8]) -> Option<Value> {
    if payload.len() > LONGEST {
        return None;
    }
    versioned(serde_json::from_slice(payload).ok()?)
}

fn versioned(value: Value) -> Option<Value> {
    let good = value.is_object() && value.get("v").is_none_or(|version| version.as_u64() == Some(1));
    good.then_some(value)
}

/// A field that may be missing or null, but must be right when it is there: the outer none says that it is wrong.
fn optional<'a, T>(value: &'a Value, key: &str, read: impl Fn(&'a Value) -> Option<T>) -> Option<Option<T>> {
    match value.get(key) {
        None | Some(Value::Null) => Some(None),
        Some(field) => read(field).map(Some),
    }
}

/// A rate that can be kept, or none for zero, less, and what is no number.
fn usable_rate(rate: f64) -> Option<f64> {
    (rate.is_finite() && rate > 0.0).then(|| rate.max(SLOWEST))
}

fn millis(ms: u64, longest: u64) -> Span {
    Span::from_millis(ms.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_protocol_is_read() {
        let text =
            br#"{"v":1,"seq":184,"at_ms":1731730000000,"phase":"protect","rate":0.43,"interval_ms":2326,
            "burst":1,"ttl_ms":10000,"queue":"workers:sensors/\u0023"}"#;
        let expected = RateNews { rate: Some(0.43), burst: 1.0, ttl: Span::from_secs(10), seq: Some(184) };
        assert_eq!(RateNews::read(text), Some(expected));
        assert_eq!(RateNews::read(br#"{"rate":null}"#).map(|news| news.rate), Some(None));
        let load = br#"{"v":1,"seq":9,"phase":"protect","response_ms":84,"queue_ms":61,"depth":412}"#;
        assert_eq!(LoadNews::read(load), Some(LoadNews { response: Span::from_millis(84) }));
        let order = Move { server: "b:1883".into(), permanent: false };
        assert_eq!(Move::read(br#"{"v":1,"server":"b:1883"}"#), Some(order));
    }

    #[test]
    fn nonsense_is_no_news() {
        for text in [
            "",
            "null",
            "[]",
            "7",
            "{}",
            "{",
            r#"{"rate":0}"#,
            r#"{"rate":-1}"#,
            r#"{"rate":"fast"}"#,
            r#"{"rate":1e999}"#,
            r#"{"v":2,"rate":1}"#,
            r#"{"rate":1,"burst":0}"#,
            r#"{"rate":1,"burst":"x"}"#,
            r#"{"rate":1,"ttl_ms":0}"#,
            r#"{"rate":1,"ttl_ms":-5}"#,
            r#"{"rate":1,"seq":-5}"#,
            r#"{"rate":1,"seq":"1"}"#,
        ] {
            assert_eq!(RateNews::read(text.as_bytes()), None, "{text}");
        }
        let long = format!(r#"{{"rate":1,"pad":"{}"}}"#, "x".repeat(LONGEST));
        assert_eq!(RateNews::read(long.as_bytes()), None);
    }

    #[test]
    fn nobody_can_silence_a_publisher_for_good() {
        let news = RateNews::read(br#"{"rate":1e-300,"ttl_ms":18446744073709551615,"burst":1e300}"#);
        assert_eq!(news.and_then(|news| news.rate), Some(SLOWEST));
        assert_eq!(news.map(|news| news.ttl), Some(Span::from_secs(3600)));
        let hints = Hints::read(&[("tide-wait-ms".into(), u64::MAX.to_string())]);
        assert_eq!(hints.wait, Some(Span::from_secs(600)));
    }

    #[test]
    fn properties_of_others_are_none_of_ours_and_bad_ones_are_counted() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let hints = Hints::read(&[pair("a", "b"), pair("tide-rate", "0.5"), pair("tide-wait-ms", "250")]);
        let expected = Hints { rate: Some(Some(0.5)), wait: Some(Span::from_millis(250)), nonsense: 0 };
        assert_eq!(hints, expected);
        let hints =
            Hints::read(&[pair("tide-rate", "NaN"), pair("tide-wait-ms", "-1"), pair("tide-rate", "null")]);
        assert_eq!(hints, Hints { rate: Some(None), wait: None, nonsense: 2 });
    }

    proptest! {
        #[test]
        fn any_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".*") {
            for payload in [&bytes[..], text.as_bytes()] {
                let _ = (RateNews::read(payload), LoadNews::read(payload), Move::read(payload));
            }
            let _ = Hints::read(&[("tide-rate".into(), text.clone()), ("tide-wait-ms".into(), text)]);
        }
    }
}

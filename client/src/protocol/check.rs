//! Active checks and their answers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidegate_control::time::Span;

use super::{SLOWEST, optional, usable_rate, versioned};

/// A question about what was missed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheckRequest {
    pub(crate) id: u64,
    /// Each filter with the last sequence number known of each topic; none asks where things stand and for no updates.
    pub(crate) filters: Vec<(String, Option<Vec<Head>>)>,
    /// Topics before this one are not asked for.
    pub(crate) from: Option<String>,
    /// Topics from this one on are not asked for.
    pub(crate) to: Option<String>,
    /// Topics that it does not name are not asked for.
    pub(crate) only_named: bool,
    pub(crate) max: usize,
}

/// The payload of a check.
pub(crate) fn encode(request: &CheckRequest) -> Bytes {
    let filters: Vec<Value> =
        request.filters.iter().map(|(filter, since)| one_filter(filter, since.as_deref())).collect();
    let mut check = json!({ "v": 1, "id": request.id, "filters": filters, "max": request.max });
    for (key, end) in [("from", &request.from), ("to", &request.to)] {
        if let Some(topic) = end {
            check[key] = topic.as_str().into();
        }
    }
    if request.only_named {
        check["only_named"] = true.into();
    }
    check.to_string().into()
}

fn one_filter(filter: &str, since: Option<&[(String, u64)]>) -> Value {
    let Some(since) = since else { return json!({ "filter": filter }) };
    let since: Map<String, Value> = since.iter().map(|(topic, seq)| (topic.clone(), (*seq).into())).collect();
    json!({ "filter": filter, "since": since })
}

/// The newest sequence number of a topic.
pub(crate) type Head = (String, u64);

/// An update that the answer brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) topic: String,
    pub(crate) seq: u64,
    pub(crate) payload: Bytes,
}

/// The answer to a check.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    /// Changes when the gateway starts to count anew.
    pub(crate) epoch: Option<u64>,
    pub(crate) heads: Vec<Head>,
    pub(crate) updates: Vec<Missed>,
    /// Of topics that are not numbered from 1, the number before their first.
    pub(crate) starts: Vec<Head>,
    /// There are more updates than the answer holds.
    pub(crate) truncated: bool,
    /// Where it was cut: of topics before this one it says all.
    pub(crate) next: Option<String>,
    /// How long the gateway took.
    pub(crate) server: Option<Span>,
    /// The checks a second that the gateway wants from this client at most.
    pub(crate) rate: Option<f64>,
    /// The gateway is over its limit: nothing was looked up, ask again after this time.
    pub(crate) retry: Option<Span>,
    /// The gateway will not answer this, and says why.
    pub(crate) refused: Option<String>,
}

impl Answer {
    /// Reads an answer; none when it makes no sense. The connection's packet limit bounds its size.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let value = versioned(serde_json::from_slice(payload).ok()?)?;
        let numbers = |key| match value.get(key) {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(heads) => heads.as_object()?.iter().map(head).collect::<Option<Vec<Head>>>(),
        };
        let updates = match value.get("updates") {
            None | Some(Value::Null) => Vec::new(),
            Some(updates) => updates.as_array()?.iter().map(missed).collect::<Option<_>>()?,
        };
        let span = |key| {
            Some(
                optional(&value, key, Value::as_f64)?.map(|ms| Span::from_secs_f64((ms / 1000.0).min(600.0))),
            )
        };
        Some(Self {
            id: value.get("id")?.as_u64()?,
            epoch: optional(&value, "epoch", Value::as_u64)?,
            heads: numbers("heads")?,
            updates,
            starts: numbers("starts")?,
            truncated: optional(&value, "truncated", Value::as_bool)?.unwrap_or(false),
            next: value.get("next").and_then(Value::as_str).map(str::to_owned),
            server: span("server_ms")?,
            rate: optional(&value, "rate", Value::as_f64)?
                .and_then(usable_rate)
                .map(|rate| rate.max(SLOWEST)),
            retry: span("retry_ms")?,
            refused: value.get("error").filter(|error| !error.is_null()).map(why),
        })
    }
}

/// The reason of a refusal, not longer than a log line should be.
fn why(error: &Value) -> String {
    error.as_str().unwrap_or("for no reason that is a text").chars().take(200).collect()
}

/// The number of an update, if it can be one: they stay below 2^53, so that every language can count them.
pub(crate) fn number(seq: u64) -> Option<u64> {
    (seq < 1 << 53).then_some(seq)
}

fn head((topic, seq): (&String, &Value)) -> Option<Head> {
    Some((topic.clone(), seq.as_u64().and_then(number)?))
}

fn missed(value: &Value) -> Option<Missed> {
    let payload = STANDARD.decode(value.get("payload_b64")?.as_str()?).ok()?;
    let topic = value.get("topic")?.as_str()?.to_owned();
    Some(Missed { topic, seq: value.get("seq")?.as_u64().and_then(number)?, payload: payload.into() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_of_the_protocol_is_written() {
        let since = Some(vec![("room/1/temp".to_owned(), 1041)]);
        let filters = vec![("room/+/temp".into(), since)];
        let request = CheckRequest { id: 17, filters, from: None, to: None, only_named: false, max: 100 };
        let written: Value = serde_json::from_slice(&encode(&request)).unwrap();
        let expected =
            r#"{"v":1,"id":17,"filters":[{"filter":"room/+/temp","since":{"room/1/temp":1041}}],"max":100}"#;
        assert_eq!(written, serde_json::from_str::<Value>(expected).unwrap());
        let part = encode(&CheckRequest { from: Some("a".into()), to: Some("b".into()), ..request.clone() });
        let part: Value = serde_json::from_slice(&part).unwrap();
        assert_eq!((&part["from"], &part["to"]), (&json!("a"), &json!("b")));
        let named = encode(&CheckRequest { only_named: true, ..request.clone() });
        assert_eq!(serde_json::from_slice::<Value>(&named).unwrap()["only_named"], true);
        let first = CheckRequest { filters: vec![("a/#".into(), None)], ..request };
        assert!(!String::from_utf8_lossy(&encode(&first)).contains("since"));
    }

    #[test]
    fn the_answer_of_the_protocol_is_read() {
        let text = br#"{"v":1,"id":17,"heads":{"room/1/temp":1044},"missed":3,
            "updates":[{"topic":"room/1/temp","seq":1042,"payload_b64":"MjE="}],"truncated":false,"server_ms":2}"#;
        let update = Missed { topic: "room/1/temp".into(), seq: 1042, payload: "21".into() };
        let expected = Answer {
            id: 17,
            heads: vec![("room/1/temp".into(), 1044)],
            updates: vec![update],
            server: Some(Span::from_millis(2)),
            ..Answer::default()
        };
        assert_eq!(Answer::read(text), Some(expected));
        let later = Answer::read(br#"{"v":1,"id":17,"retry_ms":1500,"rate":0.1}"#).unwrap();
        assert_eq!((later.retry, later.rate), (Some(Span::from_millis(1500)), Some(0.1)));
        let refused = Answer::read(br#"{"v":1,"id":17,"error":"too long"}"#).unwrap();
        assert_eq!(refused.refused.as_deref(), Some("too long"));
        let late = Answer::read(br#"{"v":1,"id":17,"heads":{"t":8},"starts":{"t":5}}"#).unwrap();
        assert_eq!(late.starts, [("t".to_owned(), 5)]);
        let cut = Answer::read(br#"{"v":1,"id":17,"heads":{"t":8},"truncated":true,"next":"u"}"#).unwrap();
        assert_eq!((cut.truncated, cut.next.as_deref()), (true, Some("u")));
    }

    #[test]
    fn nonsense_is_no_answer() {
        for text in [
            "",
            "{}",
            r#"{"v":3,"id":1}"#,
            r#"{"id":"x"}"#,
            r#"{"id":1,"heads":[]}"#,
            r#"{"id":1,"heads":{"t":-1}}"#,
            r#"{"id":1,"starts":7}"#,
            r#"{"id":1,"updates":[{}]}"#,
            r#"{"id":1,"updates":[{"topic":"t","seq":1,"payload_b64":"?"}]}"#,
        ] {
            assert_eq!(Answer::read(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_harmless(text in ".*") {
            let _ = Answer::read(text.as_bytes());
        }
    }
}

//! Checks and their answers, as PROTOCOL.md has them.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tidegate_control::topic;

use crate::history::Found;

/// Filters in one check.
const MAX_FILTERS: usize = 100;

/// What a check asks about one filter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The filter.
    pub filter: String,
    /// The last number that the client knows of each topic; none asks where things stand and for no messages.
    pub since: Option<BTreeMap<String, u64>>,
}

/// What a check wants to know, whoever asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// The filters.
    pub asked: Vec<Asked>,
    /// Updates that the answer may bring.
    pub max: usize,
    /// Topics before this one, in the order of their bytes, are not asked for.
    pub from: Option<String>,
    /// Topics from this one on are not asked for.
    pub to: Option<String>,
    /// Topics that it does not name are not asked for.
    pub only_named: bool,
}

/// A check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The client's number for it.
    pub id: u64,
    /// What it asks.
    pub question: Question,
}

/// Why a check can't be read, with its number if that can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// The number of the check; 0 when it is not there.
    pub id: u64,
    /// What is wrong.
    pub why: &'static str,
}

impl Check {
    /// Reads a check, or says what is wrong with it.
    pub fn read(payload: &[u8]) -> Result<Self, Unreadable> {
        let value: Value =
            serde_json::from_slice(payload).map_err(|_| Unreadable { id: 0, why: "not JSON" })?;
        let id = value.get("id").and_then(Value::as_u64);
        let question = Question::read(&value).map_err(|why| Unreadable { id: id.unwrap_or(0), why })?;
        let id = id.ok_or(Unreadable { id: 0, why: "`id` is not a whole number" })?;
        Ok(Self { id, question })
    }

    /// The number of a check that is too long to be read as a whole; 0 when it can't be found. Nothing is kept of the rest.
    pub fn id_of(payload: &[u8]) -> u64 {
        serde_json::from_slice::<OnlyId>(payload).map_or(0, |only| only.id)
    }
}

#[derive(serde::Deserialize)]
struct OnlyId {
    id: u64,
}

impl Question {
    /// The bytes that it takes to keep it, about.
    pub(crate) fn size(&self) -> usize {
        let name = |text: &String| text.len() + 2 * size_of::<String>();
        let one = |asked: &Asked| {
            let since = asked.since.iter().flatten().map(|(topic, _)| name(topic));
            name(&asked.filter) + since.sum::<usize>()
        };
        self.asked.iter().map(one).sum::<usize>() + self.from.iter().chain(&self.to).map(name).sum::<usize>()
    }

    /// Whether it asks for a topic that one of its filters matches.
    pub(crate) fn spans(&self, topic: &str) -> bool {
        self.from.as_ref().is_none_or(|from| from.as_str() <= topic)
            && self.to.as_ref().is_none_or(|to| topic < to.as_str())
    }

    fn read(value: &Value) -> Result<Self, &'static str> {
        if value.get("v").is_some_and(|version| version.as_u64() != Some(1)) {
            return Err("`v` is not 1");
        }
        let filters = value.get("filters").and_then(Value::as_array).ok_or("`filters` is not a list")?;
        if filters.len() > MAX_FILTERS {
            return Err("more than 100 filters");
        }
        let max = match value.get("max") {
            None | Some(Value::Null) => usize::MAX,
            Some(max) => max.as_u64().ok_or("`max` is not a whole number")?.try_into().unwrap_or(usize::MAX),
        };
        let end = |key| match value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(topic)) => Ok(Some(topic.clone())),
            Some(_) => Err("`from` or `to` is not a text"),
        };
        let only_named = match value.get("only_named") {
            None | Some(Value::Null) => false,
            Some(only) => only.as_bool().ok_or("`only_named` is neither true nor false")?,
        };
        let asked = filters.iter().map(Asked::read).collect::<Result<_, _>>()?;
        Ok(Self { asked, max, from: end("from")?, to: end("to")?, only_named })
    }
}

impl Asked {
    fn read(value: &Value) -> Result<Self, &'static str> {
        let filter = value.get("filter").and_then(Value::as_str).ok_or("`filter` is not a text")?;
        if !topic::is_filter(filter) {
            return Err("`filter` is not a topic filter");
        }
        let since = match value.get("since") {
            None | Some(Value::Null) => None,
            Some(Value::Object(since)) => {
                Some(since.iter().map(known).collect::<Option<_>>().ok_or("`since` is not made of numbers")?)
            }
            Some(_) => return Err("`since` is not an object"),
        };
        Ok(Self { filter: filter.into(), since })
    }
}

fn known((topic, seq): (&String, &Value)) -> Option<(String, u64)> {
    Some((topic.clone(), seq.as_u64()?))
}

/// What is the same in every answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// The number of the check.
    pub id: u64,
    /// Changes when the gateway starts to count anew.
    pub epoch: u64,
    /// Checks a second that the client should make at most, when there is need to say so.
    pub rate: Option<f64>,
}

impl Answer {
    /// What was found, and how long that took.
    pub fn found(&self, found: &Found, took: Duration) -> String {
        let heads: Map<String, Value> =
            found.heads.iter().map(|(topic, head)| (topic.to_string(), (*head).into())).collect();
        let updates: Vec<Value> = found
            .updates
            .iter()
            .map(|kept| json!({ "topic": &*kept.topic, "seq": kept.seq, "payload_b64": STANDARD.encode(&kept.payload) }))
            .collect();
        let starts: Map<String, Value> =
            found.starts.iter().map(|(topic, start)| (topic.to_string(), (*start).into())).collect();
        let millis = (took.as_secs_f64() * 1e6).round() / 1e3;
        let mut value = json!({
            "heads": heads, "missed": found.missed, "updates": updates, "truncated": found.next.is_some(), "server_ms": millis,
        });
        if !starts.is_empty() {
            value["starts"] = starts.into();
        }
        if let Some(next) = &found.next {
            value["next"] = (&**next).into();
        }
        self.with(value)
    }

    /// Not now: ask again after this time.
    pub fn later(&self, retry: Duration) -> String {
        self.with(json!({ "retry_ms": u64::try_from(retry.as_millis()).unwrap_or(u64::MAX).max(1) }))
    }

    /// Never, and why.
    pub fn refused(&self, why: &str) -> String {
        self.with(json!({ "error": why }))
    }

    fn with(&self, mut value: Value) -> String {
        value["v"] = 1.into();
        value["id"] = self.id.into();
        value["epoch"] = self.epoch.into();
        if let Some(rate) = self.rate {
            value["rate"] = rate.into();
        }
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::history::Kept;
    use proptest::prelude::*;

    #[test]
    fn the_check_of_the_protocol_is_read() {
        let text =
            br#"{"v":1,"id":17,"filters":[{"filter":"room/+/temp","since":{"room/1/temp":1041}}],"max":100}"#;
        let since = Some(BTreeMap::from([("room/1/temp".to_owned(), 1041)]));
        let asked = vec![Asked { filter: "room/+/temp".into(), since }];
        let question = Question { asked, max: 100, from: None, to: None, only_named: false };
        assert_eq!(Check::read(text), Ok(Check { id: 17, question }));
        let first = Check::read(br#"{"id":1,"filters":[{"filter":"a"}],"new":7}"#).unwrap().question;
        assert_eq!((first.max, first.asked[0].since.as_ref()), (usize::MAX, None));
        let part =
            Check::read(br##"{"id":1,"filters":[{"filter":"#"}],"from":"b","to":"d"}"##).unwrap().question;
        let topics = ["a", "b", "b/1", "c", "d", "e"];
        assert_eq!(topics.map(|topic| part.spans(topic)), [false, true, true, true, false, false]);
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in [
            "",
            "7",
            "{}",
            r#"{"id":1}"#,
            r#"{"v":2,"id":1,"filters":[]}"#,
            r#"{"id":-1,"filters":[]}"#,
            r#"{"id":1,"filters":[{}]}"#,
            r##"{"id":1,"filters":[{"filter":"a#"}]}"##,
            r#"{"id":1,"filters":[],"max":-1}"#,
            r#"{"id":1,"filters":[],"from":7}"#,
            r#"{"id":1,"filters":[],"only_named":1}"#,
            r#"{"id":1,"filters":[{"filter":"a","since":[]}]}"#,
            r#"{"id":1,"filters":[{"filter":"a","since":{"t":"x"}}]}"#,
        ] {
            assert!(Check::read(text.as_bytes()).is_err(), "{text}");
        }
        let id = |text: &str| Check::read(text.as_bytes()).map_err(|unreadable| unreadable.id);
        assert_eq!(id(r#"{"filters":7,"id":17}"#), Err(17), "the client learns which one it was");
        assert_eq!(id(r#"{"filters":7}"#), Err(0));
        let long = format!(r#"{{"filters":["{}"],"id":17,"v":1}}"#, "x".repeat(100_000));
        assert_eq!((Check::id_of(long.as_bytes()), Check::id_of(&long.as_bytes()[1..])), (17, 0));
    }

    #[test]
    fn the_answer_of_the_protocol_is_written() {
        let kept = Kept { topic: "room/1/temp".into(), seq: 1042, payload: (*b"21").into() };
        let found = Found {
            heads: [("room/1/temp".into(), 1044)].into(),
            missed: 3,
            updates: vec![kept],
            ..Found::default()
        };
        let answer = Answer { id: 17, epoch: 5, rate: None };
        let value: Value = serde_json::from_str(&answer.found(&found, Duration::from_millis(2))).unwrap();
        let expected = json!({ "v": 1, "id": 17, "epoch": 5, "heads": { "room/1/temp": 1044 }, "missed": 3, "server_ms": 2.0,
            "updates": [{ "topic": "room/1/temp", "seq": 1042, "payload_b64": "MjE=" }], "truncated": false });
        assert_eq!(value, expected);
        let cut = answer.found(&Found { next: Some("room/1/temp".into()), ..found }, Duration::ZERO);
        let cut: Value = serde_json::from_str(&cut).unwrap();
        assert_eq!((&cut["truncated"], &cut["next"]), (&json!(true), &json!("room/1/temp")));
        let later: Value =
            serde_json::from_str(&Answer { rate: Some(0.5), ..answer }.later(Duration::ZERO)).unwrap();
        assert_eq!((later["retry_ms"].as_u64(), later["rate"].as_f64()), (Some(1), Some(0.5)));
    }

    proptest! {
        #[test]
        fn any_text_is_harmless(text in ".*") {
            let _ = (Check::read(text.as_bytes()), Check::id_of(text.as_bytes()));
        }
    }
}

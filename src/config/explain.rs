//! Figment's errors and values, in words for people.

use figment::Figment;
use figment::error::{Error, Kind};
use figment::value::{Empty, Num, Value};

use super::error::Problem;
use super::keys;

/// Where the value of a key comes from; `None` for the built-in defaults.
fn origin(figment: &Figment, key: &str) -> Option<String> {
    let mut metadata = figment.find_metadata(key);
    let mut parent = key;
    // A key inside a list has no entry of its own.
    while metadata.is_none() {
        parent = parent.rsplit_once('.')?.0;
        metadata = figment.find_metadata(parent);
    }
    let metadata = metadata?;
    (metadata.name != super::load::DEFAULTS).then(|| metadata.name.to_string())
}

/// The value of a key as it was given.
fn given(figment: &Figment, key: &str) -> Option<String> {
    let all = figment.extract::<Value>().ok()?;
    key.split('.').try_fold(&all, part).map(text)
}

/// One step into a table, or with a number into a list.
fn part<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Dict(_, table) => table.get(name),
        Value::Array(_, values) => values.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Says what is wrong with the value of a key.
pub(super) fn problem(figment: &Figment, key: &str, reason: impl Into<String>) -> Problem {
    Problem {
        origin: origin(figment, key),
        key: key.to_owned(),
        value: given(figment, key),
        reason: reason.into(),
    }
}

/// A key that does not exist.
pub(super) fn unknown(figment: &Figment, key: &str) -> Problem {
    let origin = origin(figment, key);
    let from_environment = origin.as_ref().is_some_and(|origin| origin.contains(keys::PREFIX));
    let reason = match keys::nearest(key) {
        Some(near) if from_environment => {
            format!("unknown key; did you mean {}?", keys::to_variable(near))
        }
        Some(near) => format!("unknown key; did you mean {near}?"),
        None => "unknown key; config/tidegate.toml lists all of them".to_owned(),
    };
    Problem { origin, key: key.to_owned(), value: given(figment, key), reason }
}

/// What figment found wrong while it filled the settings.
pub(super) fn extraction(figment: &Figment, error: Error) -> Vec<Problem> {
    error.into_iter().map(|error| extraction_of_one(figment, &error)).collect()
}

fn extraction_of_one(figment: &Figment, error: &Error) -> Problem {
    let key = error.path.join(".");
    let reason = match &error.kind {
        Kind::Message(message) => message.clone(),
        Kind::InvalidType(_, expected)
        | Kind::InvalidValue(_, expected)
        | Kind::InvalidLength(_, expected) => {
            format!("must be {}", expectation(expected))
        }
        Kind::UnknownVariant(found, expected) => one_of(found, expected),
        Kind::UnknownField(found, expected) => match keys::nearest_of(found, expected) {
            Some(near) => format!("unknown key; did you mean {near}?"),
            None => format!("unknown key; it may be one of {}", expected.join(", ")),
        },
        other => other.to_string(),
    };
    problem(figment, &key, reason)
}

fn one_of(found: &str, expected: &[&str]) -> String {
    let names = expected.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ");
    match keys::nearest_of(&found.to_lowercase(), expected) {
        Some(near) if expected.len() > 1 => format!("must be {names}; did you mean \"{near}\"?"),
        _ => format!("must be {names}"),
    }
}

/// Rust's names of types, for people who don't know them.
fn expectation(expected: &str) -> String {
    let range = |greatest: u64| format!("a whole number from 0 to {greatest}");
    match expected {
        "u8" => range(u8::MAX.into()),
        "u16" => range(u16::MAX.into()),
        "u32" => range(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "path string" => "a path, in quotes".into(),
        "a string" => "text, in quotes".into(),
        "a sequence" => "a list, in [brackets]".into(),
        _ if expected.starts_with("struct ") => "a table with keys of its own".into(),
        _ => expected.into(),
    }
}

/// A value as TOML.
fn text(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Char(_, char) => format!("{:?}", char.to_string()),
        Value::Bool(_, value) => value.to_string(),
        Value::Num(_, number) => number_text(*number),
        Value::Empty(_, Empty::None | Empty::Unit) => "(not set)".into(),
        Value::Array(_, values) => {
            format!("[{}]", values.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        Value::Dict(_, table) => {
            let pairs = table.iter().map(|(name, value)| format!("{name} = {}", text(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn number_text(number: Num) -> String {
    if let Some(number) = number.to_u128() {
        number.to_string()
    } else if let Some(number) = number.to_i128() {
        number.to_string()
    } else {
        number.to_f64().map(|number| number.to_string()).unwrap_or_default()
    }
}

//! Topic patterns: what they cover, and how `%c` and `%u` are filled in.

use super::Effect;

/// Whether every topic that the filter matches is matched by the pattern too; a topic is a filter without
/// wildcards. Both follow MQTT: `#` includes its parent, and wildcards never reach topics that begin with `$`.
///
/// Runs for every message: text that is the same is skipped bytewise, without splitting into levels. A
/// wildcard in the pattern is a whole level, so both are at the begin of a level where one is found.
pub(super) fn covers(pattern: &str, filter: &str) -> bool {
    if filter.starts_with('$') && pattern.starts_with(['+', '#']) {
        return false;
    }
    // No topic is empty, so these two have no parent to include.
    let filter = match filter {
        "#" => "+/#",
        "/#" => "/+/#",
        other => other,
    };
    let (mut ours, mut theirs) = (pattern.as_bytes(), filter.as_bytes());
    loop {
        let same = ours.iter().zip(theirs).take_while(|(our, their)| our == their).count();
        (ours, theirs) = (&ours[same..], &theirs[same..]);
        match (ours, theirs) {
            ([], []) | (b"#", _) | (b"/#", []) => return true,
            ([b'+', rest @ ..], _) if theirs.first() != Some(&b'#') => {
                let level = theirs.iter().position(|byte| *byte == b'/').unwrap_or(theirs.len());
                (ours, theirs) = (rest, &theirs[level..]);
            }
            _ => return false,
        }
    }
}

/// A pattern as it stands in the rules file.
#[derive(Debug, Clone)]
pub(super) struct Template {
    text: Box<str>,
    /// Whether there is a `%` in it, so that each client has its own pattern.
    personal: bool,
}

impl Template {
    /// Checks a pattern; the error says what would be right.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the topic pattern is empty; `#` means all topics".into());
        }
        if text.len() > usize::from(u16::MAX) {
            return Err("the topic pattern is longer than the 65535 bytes that MQTT can carry".into());
        }
        if text.chars().any(char::is_control) {
            return Err(format!("the topic pattern {text:?} holds a control character; take it out"));
        }
        let levels = text.split('/').count();
        for (index, level) in text.split('/').enumerate() {
            check_level(level, index + 1 == levels)
                .map_err(|problem| format!("in the topic pattern {text:?} {problem}"))?;
        }
        Ok(Self { text: text.into(), personal: text.contains('%') })
    }

    /// The pattern if it is the same for all clients.
    pub(super) fn shared(&self) -> Option<&str> {
        (!self.personal).then_some(&*self.text)
    }

    /// The pattern of one client, or nothing if the line does not apply to it.
    ///
    /// A name that holds `/`, `+` or `#` is never put in: it would reach topics that the line does not mean.
    /// An allow line then does not apply, and a deny line denies all from that level on. Neither does an
    /// allow line apply if a name would make it reach `$` topics, nor any line with `%u` to the anonymous.
    pub(super) fn fill(&self, effect: Effect, client: &str, user: Option<&str>) -> Option<Box<str>> {
        let mut filled = String::with_capacity(self.text.len() + client.len() + user.map_or(0, str::len));
        for (index, level) in self.text.split('/').enumerate() {
            if index > 0 {
                filled.push('/');
            }
            let begin = filled.len();
            match fill_level(level, client, user, &mut filled) {
                Name::Safe => {}
                Name::Unsafe if effect == Effect::Deny => {
                    filled.truncate(begin);
                    filled.push('#');
                    break;
                }
                Name::Unsafe | Name::Missing => return None,
            }
        }
        let reaches_dollar = filled.starts_with('$') && !self.text.starts_with('$');
        (effect == Effect::Deny || !reaches_dollar).then(|| filled.into())
    }
}

enum Name {
    Safe,
    Unsafe,
    Missing,
}

/// Appends a level with its names filled in, unless one of them is unsafe.
fn fill_level(level: &str, client: &str, user: Option<&str>, filled: &mut String) -> Name {
    let mut rest = level;
    while let Some((before, after)) = rest.split_once('%') {
        filled.push_str(before);
        let name = match after.as_bytes().first() {
            Some(b'c') => Some(client),
            Some(b'u') => user,
            _ => Some("%"),
        };
        let Some(name) = name else { return Name::Missing };
        if name.contains(['/', '+', '#']) {
            return Name::Unsafe;
        }
        filled.push_str(name);
        rest = after.get(1..).unwrap_or_default();
    }
    filled.push_str(rest);
    Name::Safe
}

fn check_level(level: &str, last: bool) -> Result<(), String> {
    if level.contains('+') && level != "+" {
        return Err(format!("the level {level:?} mixes `+` with other text; `+` stands for a whole level"));
    }
    if level.contains('#') && (level != "#" || !last) {
        return Err(format!("the level {level:?} is wrong; `#` stands alone, at the end: `a/b/#`"));
    }
    let mut rest = level;
    while let Some((_, after)) = rest.split_once('%') {
        if !after.starts_with(['c', 'u', '%']) {
            return Err("a `%` is followed by neither `c` (client id), `u` (user) nor `%` (a plain %)".into());
        }
        rest = &after[1..];
    }
    Ok(())
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;

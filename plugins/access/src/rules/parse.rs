//! One line of a rules file.

use super::{Action, Effect, Name, Rule, Template, Who};

const EXAMPLE: &str = "a rule is `[allow|deny] WHO ACTION TOPICS`, such as `user alice publish sensors/#`";

/// The rule on a line, or nothing on a comment or blank line; the error says what would be right.
pub(super) fn line(line: &str) -> Result<Option<Rule>, String> {
    if line.trim_start().starts_with('#') {
        return Ok(None);
    }
    let words = split(line)?;
    let mut words = words.into_iter().peekable();
    let Some(first) = words.peek() else { return Ok(None) };
    let effect = match *first {
        "allow" => Some(Effect::Allow),
        "deny" => Some(Effect::Deny),
        _ => None,
    };
    if effect.is_some() {
        words.next();
    }
    let who = who(&mut words)?;
    let action = action(words.next())?;
    let pattern = words.next().ok_or_else(|| format!("the topics are missing; {EXAMPLE}"))?;
    let pattern = Template::parse(pattern)?;
    if let Some(extra) = words.next() {
        return Err(format!(
            "{extra:?} is too much: a rule has one topic pattern, comments have their own line, and text with \
             spaces goes in double quotes"
        ));
    }
    Ok(Some(Rule { effect: effect.unwrap_or(Effect::Allow), who, action, pattern }))
}

fn who<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Who, String> {
    match words.next() {
        Some("user") => Ok(Who::User(name("user", words.next())?)),
        Some("client") => Ok(Who::Client(name("client", words.next())?)),
        Some("anonymous") => Ok(Who::Anonymous),
        Some("everyone") => Ok(Who::Everyone),
        Some(other) => {
            Err(format!("{other:?} is nobody: write `user NAME`, `client ID`, `anonymous` or `everyone`"))
        }
        None => Err(format!("the line ends too early; {EXAMPLE}")),
    }
}

fn name(kind: &str, word: Option<&str>) -> Result<Name, String> {
    match word {
        Some("") | None => Err(format!("the name after `{kind}` is missing; {EXAMPLE}")),
        Some(glob) if glob.contains('*') => Ok(Name::Glob(glob.into())),
        Some(exact) => Ok(Name::Exact(exact.into())),
    }
}

fn action(word: Option<&str>) -> Result<Option<Action>, String> {
    match word {
        Some("publish") => Ok(Some(Action::Publish)),
        Some("subscribe") => Ok(Some(Action::Subscribe)),
        Some("any") => Ok(None),
        Some(other) => Err(format!("{other:?} is no action: write `publish`, `subscribe` or `any`")),
        None => Err(format!("the action is missing: `publish`, `subscribe` or `any`; {EXAMPLE}")),
    }
}

/// Splits at white space; what begins with a double quote goes to the next one.
fn split(line: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a double quote has no second one; close it")?,
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        if after.starts_with(|next: char| !next.is_whitespace()) {
            return Err(format!("{word:?} in double quotes is followed by more text; put a space after it"));
        }
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

//! The rules file: who may publish and subscribe where.
//!
//! One rule on a line; comments have lines of their own and begin with `#`:
//!
//! ```text
//! # who                action      which topics
//! user alice           publish     sensors/%c/#
//! client gateway-*     subscribe   commands/%u/+
//! user *               any         shared/#
//! anonymous            any         public/#
//! everyone             subscribe   $SYS/#
//! deny everyone        subscribe   test/nosubscribe
//! ```
//!
//! - A line allows, unless it begins with `deny` (`allow` may be written too). **The first line that matches
//!   decides; what no line matches is denied.**
//! - *Who*: `user NAME`, `client ID`, `anonymous` (without a user) or `everyone`. A `*` in a name or id stands
//!   for any text, so `user *` is every user. A user is one who proved it by a password or a TLS
//!   certificate; a client id proves nothing, every client chooses its own.
//! - *Action*: `publish`, `subscribe` or `any`.
//! - *Topics*: a topic with the wildcards `+` and `#`, which do not reach topics that begin with `$` when
//!   they stand first, as everywhere in MQTT. `%c` stands for the client id, `%u` for the user, `%%` for a
//!   `%`. A line with `%u` does not apply to the anonymous.
//! - Text with spaces goes in double quotes: `user "line 4" publish "hall 1/#"`.
//!
//! **Names in patterns.** A client id or user that holds `/`, `+` or `#` never widens a pattern: an allow line
//! with such a name does not apply to that client, and a deny line denies all from that level on. A name
//! that begins with `$` does not open `$` topics to `%c/...`.
//!
//! **Subscriptions with wildcards.** A line matches a subscription only if its pattern covers *all* topics of
//! the filter: `a/#` is covered by `a/#` and `#`, not by `a/+`. So an allow line never grants more than it
//! says. But **a deny line is no fence inside a broader allow line**: after `deny everyone subscribe a/secret` and
//! `everyone subscribe a/#`, a subscription to `a/secret` is refused while one to `a/#` is granted and gets the
//! messages of `a/secret` too, because what is delivered is not checked again. To keep a topic from
//! subscribers, allow its siblings one by one instead of their parent.

mod parse;
mod pattern;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pattern::Template;

/// What can be wrong with a rules file.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read.
    #[error("cannot read the rules file {}: {source}", path.display())]
    Read {
        /// The rules file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line is not a rule.
    #[error("rules file {}, line {line}: {problem}", path.display())]
    Line {
        /// The rules file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// What a client does with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Sends messages to it.
    Publish,
    /// Asks for its messages.
    Subscribe,
}

/// The rules of one rules file.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Lines for one user or one client id are found by name: a fleet may have a line for each device.
    by_user: HashMap<Box<str>, Vec<u32>>,
    by_client: HashMap<Box<str>, Vec<u32>>,
    others: Vec<u32>,
}

impl Rules {
    /// Reads and checks a rules file.
    pub fn read(path: &Path) -> Result<Self, RulesError> {
        let text =
            crate::text::read(path).map_err(|source| RulesError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses the text of a rules file; `path` is for messages only.
    pub fn parse(text: &str, path: &Path) -> Result<Self, RulesError> {
        let mut rules = Self::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = |problem| RulesError::Line { path: path.to_owned(), line: index + 1, problem };
            if let Some(rule) = parse::line(line).map_err(wrong)? {
                rules.push(rule);
            }
        }
        Ok(rules)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none, so that nobody may do anything.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn push(&mut self, rule: Rule) {
        // A rules file of 64 MiB at most has fewer lines than that.
        let index = self.rules.len() as u32;
        let list = match &rule.who {
            Who::User(Name::Exact(name)) => self.by_user.entry(name.clone()).or_default(),
            Who::Client(Name::Exact(id)) => self.by_client.entry(id.clone()).or_default(),
            _ => &mut self.others,
        };
        list.push(index);
        self.rules.push(rule);
    }

    /// The rules that may be about this client, in their order.
    fn candidates(&self, client: &str, user: Option<&str>) -> Vec<u32> {
        let by_user = user.and_then(|user| self.by_user.get(user)).into_iter().flatten();
        let by_client = self.by_client.get(client).into_iter().flatten();
        let mut found: Vec<u32> = by_user.chain(by_client).chain(&self.others).copied().collect();
        found.sort_unstable();
        found
    }
}

/// What one client may do: the lines about it, with its names filled in.
#[derive(Debug)]
pub struct Grants {
    rules: Arc<Rules>,
    lines: Box<[Line]>,
}

impl Grants {
    /// Picks the lines about a client; `user` is who it proved to be.
    pub fn new(rules: &Arc<Rules>, client: &str, user: Option<&str>) -> Self {
        let lines = rules.candidates(client, user).into_iter();
        let lines = lines.filter_map(|index| Line::new(index, rules, client, user)).collect();
        Self { rules: rules.clone(), lines }
    }

    /// Whether the client may do this with a topic or, when it subscribes, with all topics of a filter.
    pub fn may(&self, action: Action, filter: &str) -> bool {
        for line in &self.lines {
            let rule = &self.rules.rules[line.rule as usize];
            if rule.action.is_none_or(|only| only == action) && pattern::covers(line.pattern(rule), filter) {
                return rule.effect == Effect::Allow;
            }
        }
        false
    }
}

#[derive(Debug)]
struct Line {
    rule: u32,
    /// Only if the rule's own pattern has names in it: most lines are shared by all clients.
    filled: Option<Box<str>>,
}

impl Line {
    fn new(index: u32, rules: &Rules, client: &str, user: Option<&str>) -> Option<Self> {
        let rule = &rules.rules[index as usize];
        if !rule.who.includes(client, user) {
            return None;
        }
        let filled = match rule.pattern.shared() {
            Some(_) => None,
            None => Some(rule.pattern.fill(rule.effect, client, user)?),
        };
        Some(Self { rule: index, filled })
    }

    fn pattern<'a>(&'a self, rule: &'a Rule) -> &'a str {
        self.filled.as_deref().or(rule.pattern.shared()).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
}

#[derive(Debug)]
struct Rule {
    effect: Effect,
    who: Who,
    /// Nothing means any.
    action: Option<Action>,
    pattern: Template,
}

#[derive(Debug)]
enum Who {
    User(Name),
    Client(Name),
    Anonymous,
    Everyone,
}

impl Who {
    fn includes(&self, client: &str, user: Option<&str>) -> bool {
        match self {
            Self::User(name) => user.is_some_and(|user| name.matches(user)),
            Self::Client(name) => name.matches(client),
            Self::Anonymous => user.is_none(),
            Self::Everyone => true,
        }
    }
}

#[derive(Debug)]
enum Name {
    Exact(Box<str>),
    /// With a `*` for any text.
    Glob(Box<str>),
}

impl Name {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *name,
            Self::Glob(glob) => glob_matches(glob, name),
        }
    }
}

/// What stands before the first `*` and after the last must be there; what is between, in order.
fn glob_matches(glob: &str, name: &str) -> bool {
    let Some((first, others)) = glob.split_once('*') else { return glob == name };
    let (middle, last) = others.rsplit_once('*').unwrap_or(("", others));
    let Some(mut rest) = name.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for part in middle.split('*') {
        // The earliest place leaves most for the parts that follow.
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
#[path = "rules/tests.rs"]
mod tests;

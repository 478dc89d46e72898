//! The users file: one `user:$argon2id$...` entry on a line, `#` comments and blank lines.
//!
//! An argon2 run is slow and takes 19 MiB on purpose, so the right password is remembered as a keyed hash
//! after its first use: a device that reconnects costs microseconds. Each user remembers at most one
//! password, hence the memory is bounded by the file; it is forgotten when the file is read again.

mod edit;
mod password;
mod slots;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fmt, io};

use blake2::Blake2sMac256;
use blake2::digest::Mac;

pub use edit::{Change, delete_user, set_user};
pub use password::hash_password;
pub use slots::Slots;

/// What can be wrong with users, their file or their passwords.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file cannot be read.
    #[error("cannot read the users file {}: {source}", path.display())]
    Read {
        /// The users file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be written; it is as it was.
    #[error("cannot write the users file {}: {source}", path.display())]
    Write {
        /// The users file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line is not a users entry.
    #[error("users file {}, line {line}: {problem}", path.display())]
    Line {
        /// The users file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The name cannot stand in a users file.
    #[error("{0}")]
    Name(String),
    /// The text is not a usable argon2id hash.
    #[error("{0}")]
    Hash(String),
    /// The user to delete is not in the file.
    #[error("there is no user {user:?} in {}", path.display())]
    NoSuchUser {
        /// The users file.
        path: PathBuf,
        /// Who was asked for.
        user: String,
    },
    /// The system gave no random bytes, or argon2 no memory.
    #[error("cannot hash a password: {0}")]
    Hashing(String),
}

/// The users of one users file, with what is needed to verify their passwords.
pub struct Users {
    entries: HashMap<Box<str>, User>,
    /// Verified in place of unknown users, so that they cost the same time.
    decoy: String,
    /// Random for each reading of the file: what is remembered is worth nothing elsewhere.
    key: [u8; 32],
}

struct User {
    hash: Box<str>,
    /// The keyed hash of the password that was right.
    remembered: OnceLock<[u8; 32]>,
}

impl Users {
    /// Reads and checks a users file.
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        let text =
            crate::text::read(path).map_err(|source| UsersError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses the text of a users file; `path` is for messages only.
    pub fn parse(text: &str, path: &Path) -> Result<Self, UsersError> {
        let mut lines: HashMap<&str, usize> = HashMap::new();
        let mut entries = HashMap::new();
        let mut first = None;
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let wrong = |problem| UsersError::Line { path: path.to_owned(), line, problem };
            let Some((user, hash)) = parse_line(text).map_err(wrong)? else { continue };
            if let Some(earlier) = lines.insert(user, line) {
                return Err(wrong(format!("user {user:?} is already on line {earlier}; keep one of them")));
            }
            first.get_or_insert(hash);
            entries.insert(user.into(), User { hash: hash.into(), remembered: OnceLock::new() });
        }
        Ok(Self { entries, decoy: password::decoy(first)?, key: password::random()? })
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether this is the user's password. Blocks for an argon2 run, and for a free slot before it, unless
    /// the same password was right before. An unknown user takes as long as a wrong password.
    pub fn verify(&self, user: &str, password: &[u8], slots: &Slots) -> bool {
        let tag = self.tag(user, password);
        let known = self.entries.get(user);
        if known.is_some_and(|user| user.remembers(&tag)) {
            return true;
        }
        let _slot = slots.take();
        // Of many that wait with the same password, the first one answers for all.
        if known.is_some_and(|user| user.remembers(&tag)) {
            return true;
        }
        slots.count_run();
        let right = password::matches(known.map_or(&self.decoy, |user| &user.hash), password);
        match known {
            Some(user) if right => {
                // Another thread may have stored it first, which is as good.
                let _ = user.remembered.set(tag.finalize().into_bytes().into());
                true
            }
            _ => false,
        }
    }

    fn tag(&self, user: &str, password: &[u8]) -> Blake2sMac256 {
        Blake2sMac256::new(&self.key.into())
            // The length keeps ("ab", "c") and ("a", "bc") apart.
            .chain_update((user.len() as u64).to_le_bytes())
            .chain_update(user)
            .chain_update(password)
    }
}

impl User {
    /// Compares in constant time.
    fn remembers(&self, tag: &Blake2sMac256) -> bool {
        self.remembered.get().is_some_and(|known| tag.clone().verify_slice(known).is_ok())
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Hashes and the key have no place in a log.
        f.debug_struct("Users").field("len", &self.entries.len()).finish_non_exhaustive()
    }
}

/// The user and hash on a line, or nothing on a comment or blank line.
fn parse_line(line: &str) -> Result<Option<(&str, &str)>, String> {
    if line.trim().is_empty() || line.trim_start().starts_with('#') {
        return Ok(None);
    }
    let Some((user, hash)) = line.split_once(':') else {
        return Err(format!(
            "{line:?} has no `:`; an entry is `user:$argon2id$...`, made by `tidegate passwd`"
        ));
    };
    let hash = hash.trim();
    check_name(user)?;
    password::check(hash).map_err(|problem| format!("the hash of user {user:?} {problem}"))?;
    Ok(Some((user, hash)))
}

/// Whether a name can stand in a users file.
fn check_name(user: &str) -> Result<(), String> {
    let problem = if user.is_empty() {
        "is empty"
    } else if user.contains(':') {
        "holds a `:`"
    } else if user.chars().any(char::is_control) {
        "holds a control character"
    } else if user.trim() != user {
        "begins or ends with a space"
    } else if user.starts_with('#') {
        "begins with `#`, which makes a comment"
    } else if user.len() > usize::from(u16::MAX) {
        "is longer than the 65535 bytes that MQTT can carry"
    } else {
        return Ok(());
    };
    let shown: String = user.chars().take(80).collect();
    Err(format!("the user name {shown:?} {problem}; take another one"))
}

#[cfg(test)]
#[path = "users/tests.rs"]
mod tests;

#[cfg(test)]
pub(crate) use tests::cheap_hash;

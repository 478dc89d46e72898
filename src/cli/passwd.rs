//! `tidegate passwd`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use super::{prompt, wiring};

/// Longest password that MQTT can carry.
const LONGEST: usize = u16::MAX as usize;

/// Add a user to a users file, change a password, or delete a user
#[derive(Debug, Args)]
pub(super) struct Passwd {
    /// The users file; made if there is none
    file: PathBuf,
    /// The user
    user: String,
    /// Delete the user
    #[arg(long)]
    delete: bool,
}

/// Why the users file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PasswdError {
    /// No password came.
    #[error("cannot read the password: {0}")]
    Read(#[from] io::Error),
    /// The second one differs.
    #[error("the passwords differ; nothing was changed")]
    Differ,
    /// It is empty.
    #[error("an empty password is no password; nothing was changed")]
    Empty,
    /// It is too long for MQTT.
    #[error("the password is longer than the 65535 bytes that MQTT can carry; nothing was changed")]
    TooLong,
    /// The file or the name is refused.
    #[error("{0}")]
    Users(String),
}

impl Passwd {
    /// Changes the file and says so on standard error.
    pub(super) fn run(self) -> Result<(), PasswdError> {
        let done = if self.delete {
            wiring::delete_user(&self.file, &self.user)?;
            "deleted"
        } else {
            let password = check(prompt::password(&self.user)?)?;
            wiring::set_user(&self.file, &self.user, &password)?
        };
        let hint = "send SIGHUP to a running Tidegate to make it read the file again";
        // The file is changed, whether or not this can be said.
        let _ = writeln!(io::stderr(), "{}: {} {done}; {hint}", self.file.display(), self.user);
        Ok(())
    }
}

fn check(password: Option<Vec<u8>>) -> Result<Vec<u8>, PasswdError> {
    let password = password.ok_or(PasswdError::Differ)?;
    match password.len() {
        0 => Err(PasswdError::Empty),
        length if length > LONGEST => Err(PasswdError::TooLong),
        _ => Ok(password),
    }
}

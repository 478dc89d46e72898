//! What can be wrong with a configuration, told to people.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file given by `--config` does not exist.
    #[error("there is no configuration file {}; check the path given by `--config` or TIDEGATE_CONFIG", .0.display())]
    NoFile(PathBuf),
    /// A file exists but cannot be read.
    #[error("cannot read the configuration file {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is not TOML.
    #[error("{} is not proper TOML: {message}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what is wrong.
        message: String,
    },
    /// A `--set` without key or `=`.
    #[error("--set {0}: must be key=value, such as --set listen.mqtt=0.0.0.0:1883")]
    Set(String),
    /// Keys that don't exist, or values that can't be.
    #[error("{}", list(.0))]
    Invalid(Vec<Problem>),
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was set: a file, an environment variable, or `--set`.
    pub origin: Option<String>,
    /// The key, dotted.
    pub key: String,
    /// The value as it was given.
    pub value: Option<String>,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        match &self.value {
            Some(value) => write!(f, "{} = {value}: {}", self.key, self.reason),
            None => write!(f, "{}: {}", self.key, self.reason),
        }
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

//! What can be wrong with settings. Nothing else fails: a connection that breaks is made again.

/// Why a client could not be started. Every variant is a mistake in the settings; trying again does not help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is no `mqtt://`, `mqtts://`, `ws://` or `wss://` with a host.
    #[error("`{address}` is no broker address: {wanted}")]
    Address {
        /// What was given.
        address: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// The client identifier, a class, a filter or the prefix can't be used in a topic.
    #[error("{what} `{value}` can't be part of a topic: {wanted}")]
    Name {
        /// Which name.
        what: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// A number is out of its range.
    #[error("{key} is {value}: it must be {wanted}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// Certificates or keys are not usable.
    #[error("TLS: {0}")]
    Tls(String),
    /// There is no tokio runtime here to run on.
    #[error("a client must be started within a tokio runtime")]
    NoRuntime,
}

impl From<tidegate_control::Invalid> for Error {
    fn from(invalid: tidegate_control::Invalid) -> Self {
        Self::Setting { key: invalid.key, value: invalid.value.to_string(), wanted: invalid.need }
    }
}

//! The configuration: what can be set, its defaults, and how it is read.
//!
//! Built-in defaults < file < environment < `--set`. A key such as `listen.mqtt` is, in the environment,
//! `TIDEGATE_LISTEN__MQTT`: `TIDEGATE_` and the key in capitals with `__` for each dot (`_` does as well, for no
//! two keys differ only in that). Values from the environment and from `--set` are TOML values; what is no
//! TOML value is text, so quotes are needed only around text that looks like a number. Relative paths in a file
//! are relative to that file, others to the working directory. What is unknown or impossible is refused.

mod check;
mod error;
mod explain;
mod keys;
mod load;
mod overload;
mod plugins;
mod proxy;
mod settings;
mod source;
#[cfg(test)]
mod tests;

pub use error::{ConfigError, Problem};
pub use load::{Loaded, Sources, load};
pub use plugins::{AutoscaleSettings, CheckSettings, CouplingPolicy, ExcessPolicy, GateSettings, Qos0Policy};
pub(crate) use proxy::host_and_port;
pub use proxy::{NodeSettings, ProxySettings};
pub use settings::{
    AccessSettings, AdminSettings, Hold, ListenSettings, LogFormat, LogSettings, Mode, OverloadAlgorithm,
    OverloadSettings, PublisherClass, QueueChoice, QueueSettings, SessionSettings, Settings, TlsSettings,
};
pub use source::{SourceKind, SourceSettings};

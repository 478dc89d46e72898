//! The configuration: what can be set, its defaults, and how it is read.

mod settings;

pub use settings::{
    AccessSettings, AdminSettings, Hold, ListenSettings, LogFormat, LogSettings, Mode, QueueSettings,
    SessionSettings, Settings, TlsSettings,
};

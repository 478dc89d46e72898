//! Log lines to standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::CliError;
use crate::config::{LogFormat, LogSettings};

/// Starts logging for this process.
pub(super) fn start(settings: &LogSettings) -> Result<(), CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::Log(error.to_string());
    let filter = EnvFilter::try_new(&settings.level).map_err(|error| failed(&error))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match settings.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(|error| failed(&error))
}

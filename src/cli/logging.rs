//! Log lines to standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use super::CliError;
use crate::config::{LogFormat, LogSettings};

/// Starts logging for this process.
pub(super) fn start(settings: &LogSettings) -> Result<(), CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::Log(error.to_string());
    let filter = filter(&settings.level).map_err(|error| failed(&error))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match settings.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(|error| failed(&error))
}

/// The filter for `log.level`.
///
/// The library under the spine opens a span of level ERROR for every message, with the topic formatted into it, if
/// anybody listens at any level. It is silent unless the operator names it.
fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    const SPINE: &str = "rumqttd";
    if level.contains(SPINE) {
        EnvFilter::try_new(level)
    } else {
        EnvFilter::try_new(format!("{SPINE}=off,{level}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tracing::Level;

    use super::*;

    /// Whether an error of the spine and details of Tidegate are logged.
    fn logged(level: &str) -> (bool, bool) {
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter(level).unwrap()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let spine = tracing::enabled!(target: "rumqttd::router", Level::ERROR);
            (spine, tracing::enabled!(target: "tidegate::listen", Level::DEBUG))
        })
    }

    #[test]
    fn the_spine_is_silent_unless_it_is_named() {
        assert_eq!(logged("info"), (false, false));
        assert_eq!(logged("debug"), (false, true));
        assert_eq!(logged("warn,tidegate=debug"), (false, true));
        assert_eq!(logged("debug,rumqttd=error"), (true, true));
    }
}

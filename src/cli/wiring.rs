//! Where the commands meet the gateway and the access plugin.

use std::path::Path;

use super::CliError;
use super::passwd::PasswdError;
use super::serve::Gateway;
use crate::config::Settings;
use crate::listen::Stream;

const MISSING: &str = "this build has no broker";

/// Starts the gateway. Must be called within a Tokio runtime.
pub(super) fn gateway(_settings: &Settings) -> Result<impl Gateway + use<>, CliError> {
    Err::<Missing, _>(CliError::Broker(MISSING.into()))
}

/// Reads the files that plugins would read.
pub(super) fn check_files(_settings: &Settings) -> Result<(), CliError> {
    Ok(())
}

/// Gives a user this password; says whether the user was added or changed.
pub(super) fn set_user(_file: &Path, _user: &str, _password: &[u8]) -> Result<&'static str, PasswdError> {
    Err(PasswdError::Users(MISSING.into()))
}

/// Takes a user out of the file.
pub(super) fn delete_user(_file: &Path, _user: &str) -> Result<(), PasswdError> {
    Err(PasswdError::Users(MISSING.into()))
}

#[derive(Clone)]
struct Missing;

impl Gateway for Missing {
    async fn serve(self, _stream: Stream) {}
    fn drain(&self) {}
    fn reload(&self) -> Vec<String> {
        Vec::new()
    }
    fn refresh_metrics(&self) {}
}

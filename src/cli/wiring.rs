//! Where the commands meet the gateway and the access plugin.

use std::path::Path;

use tidegate_access::users::{self, Change};
use tidegate_access::{Access, AccessConfig};
use tidegate_plugin::{Plugin, Request, Response};

use super::CliError;
use super::passwd::PasswdError;
use super::serve::Gateway as Serving;
use crate::config::Settings;
use crate::gateway::Gateway;
use crate::listen::Stream;

/// Starts the gateway. Must be called within a Tokio runtime.
pub(super) fn gateway(settings: &Settings) -> Result<impl Serving + use<>, CliError> {
    let mut builder = Gateway::builder(settings.clone());
    for name in &settings.plugins {
        builder = builder.plugin(plugin(name, settings)?);
    }
    builder.build().map_err(|error| CliError::Broker(error.to_string()))
}

/// Reads the files that plugins would read.
pub(super) fn check_files(settings: &Settings) -> Result<(), CliError> {
    access(settings).map(|_| ())
}

/// Gives a user this password; says whether the user was added or changed.
pub(super) fn set_user(file: &Path, user: &str, password: &[u8]) -> Result<&'static str, PasswdError> {
    let failed = |error: users::UsersError| PasswdError::Users(error.to_string());
    let hash = users::hash_password(password).map_err(failed)?;
    match users::set_user(file, user, &hash).map_err(failed)? {
        Change::Added => Ok("added"),
        Change::Replaced => Ok("changed"),
    }
}

/// Takes a user out of the file.
pub(super) fn delete_user(file: &Path, user: &str) -> Result<(), PasswdError> {
    users::delete_user(file, user).map_err(|error| PasswdError::Users(error.to_string()))
}

/// Makes the plugin of this name; the configuration's check has seen that there is one.
fn plugin(name: &str, settings: &Settings) -> Result<Box<dyn Plugin>, CliError> {
    match name {
        "access" => Ok(Box::new(access(settings)?)),
        unknown => Err(CliError::Broker(format!("there is no plugin {unknown:?}"))),
    }
}

fn access(settings: &Settings) -> Result<Access, CliError> {
    let settings = &settings.access;
    let config = AccessConfig {
        anonymous: settings.anonymous,
        users: settings.users.clone(),
        rules: settings.rules.clone(),
    };
    Access::load(config).map_err(|error| CliError::File(error.to_string()))
}

impl Serving for Gateway {
    async fn serve(self, stream: Stream) {
        Self::serve(self, stream).await;
    }

    fn drain(&self) {
        Self::drain(self);
    }

    fn reload(&self) -> Vec<String> {
        Self::reload(self).into_iter().map(|(plugin, problem)| format!("{plugin}: {problem}")).collect()
    }

    fn refresh_metrics(&self) {
        Self::refresh_metrics(self);
    }

    fn request(&self, request: &Request<'_>) -> Option<Response> {
        Self::request(self, request)
    }
}

//! Where the commands meet the gateway and the plugins.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_access::users::{self, Change};
use tidegate_access::{Access, AccessConfig};
use tidegate_autoscale::{Autoscale, AutoscaleConfig, Coupling};
use tidegate_check::{CheckConfig, CheckPlugin};
use tidegate_gate::{Excess, Gate, GateConfig, Qos0};
use tidegate_overload::{Overload, OverloadConfig};
use tidegate_plugin::{Plugin, QueueControl, Request, Response};

use super::CliError;
use super::passwd::PasswdError;
use super::serve::Gateway as Serving;
use crate::config::{
    AutoscaleSettings, CheckSettings, CouplingPolicy, ExcessPolicy, GateSettings, Qos0Policy, Settings,
};
use crate::gateway::{Builder, Gateway};
use crate::listen::Stream;

/// Starts the gateway with the configured plugins, and these behind them. Must be called within a Tokio runtime.
pub(super) fn gateway(
    settings: &Settings,
    plugins: Vec<Box<dyn Plugin>>,
) -> Result<impl Serving + use<>, CliError> {
    let mut builder = Gateway::builder(settings.clone());
    // made first, since others work with it wherever they stand
    let overload =
        settings.plugins.iter().any(|name| name == "overload").then(|| overload(settings)).transpose()?;
    for name in &settings.plugins {
        builder = builder.plugin(plugin(name, settings, overload.as_ref())?);
    }
    let gateway = plugins.into_iter().fold(builder, Builder::plugin).build();
    gateway.map_err(|error| CliError::Broker(error.to_string()))
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
fn plugin(name: &str, settings: &Settings, overload: Option<&Overload>) -> Result<Box<dyn Plugin>, CliError> {
    let unknown = || CliError::Broker(format!("there is no plugin {name:?}"));
    match name {
        "access" => Ok(Box::new(access(settings)?)),
        "autoscale" => {
            let control = overload.map(|overload| Arc::new(overload.clone()) as Arc<dyn QueueControl>);
            Ok(Box::new(autoscale(settings, control)?))
        }
        "check" => Ok(Box::new(check(settings)?)),
        "gate" => Ok(Box::new(gate(settings)?)),
        "overload" => Ok(Box::new(overload.ok_or_else(unknown)?.clone())),
        _ => Err(unknown()),
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

fn check(settings: &Settings) -> Result<CheckPlugin, CliError> {
    let config = check_config(&settings.check, &settings.overload.prefix);
    CheckPlugin::new(config).map_err(|error| CliError::File(error.to_string()))
}

fn check_config(settings: &CheckSettings, prefix: &str) -> CheckConfig {
    let mut config = CheckConfig::default();
    config.prefix = prefix.into();
    config.track = settings.track.clone();
    (config.max_topics, config.max_updates) = (settings.max_topics, settings.max_updates);
    (config.max_bytes, config.max_payload) = (settings.max_bytes, settings.max_payload);
    (config.max_rate, config.max_wait) = (settings.max_rate, Duration::from_millis(settings.max_wait_ms));
    (config.max_waiting, config.max_waiting_bytes) = (settings.max_waiting, settings.max_waiting_bytes);
    config.max_looks = settings.max_looks;
    (config.max_answer, config.max_answer_bytes) = (settings.max_answer, settings.max_answer_bytes);
    config.max_check = settings.max_check;
    config
}

fn gate(settings: &Settings) -> Result<Gate, CliError> {
    gate_config(&settings.gate).build().map_err(|error| CliError::File(format!("gate: {error}")))
}

fn gate_config(settings: &GateSettings) -> GateConfig {
    GateConfig {
        excess: match settings.excess {
            ExcessPolicy::Delay => Excess::Delay,
            ExcessPolicy::Refuse => Excess::Refuse,
            ExcessPolicy::Close => Excess::Close,
        },
        slack: settings.slack,
        grace: Duration::from_millis(settings.grace_ms),
        burst: settings.burst,
        burst_time: Duration::from_millis(settings.burst_ms),
        qos0: match settings.qos0 {
            Qos0Policy::Wait => Qos0::Wait,
            Qos0Policy::Drop => Qos0::Drop,
        },
        qos0_wait: Duration::from_millis(settings.qos0_wait_ms),
        close_after: Duration::from_secs(settings.close_after),
    }
}

/// `control` is the overload control of the queues, if there is one.
fn autoscale(settings: &Settings, control: Option<Arc<dyn QueueControl>>) -> Result<Autoscale, CliError> {
    let config = autoscale_config(&settings.autoscale);
    config.build(control).map_err(|error| CliError::File(format!("autoscale: {error}")))
}

fn autoscale_config(settings: &AutoscaleSettings) -> AutoscaleConfig {
    AutoscaleConfig {
        coupling: match settings.coupling {
            CouplingPolicy::Off => Coupling::Apart,
            CouplingPolicy::OverloadBased => Coupling::OverloadBased,
            CouplingPolicy::StateAware => Coupling::StateAware,
            CouplingPolicy::DemandAware => Coupling::DemandAware,
        },
        state_ttl: Duration::from_secs(settings.state_ttl),
        utilisation: settings.utilisation,
    }
}

fn overload(settings: &Settings) -> Result<Overload, CliError> {
    // The configuration's check has seen that it is right.
    let wrong = |(key, error)| CliError::Broker(format!("{key}: {error}"));
    Overload::new(OverloadConfig::from(settings)).map_err(wrong)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of the settings and of the plugins are written down twice.
    #[test]
    fn the_defaults_are_those_of_the_plugins() {
        let settings = Settings::default();
        assert_eq!(gate_config(&settings.gate), GateConfig::default());
        assert_eq!(check_config(&settings.check, &settings.overload.prefix), CheckConfig::default());
        assert_eq!(autoscale_config(&settings.autoscale), AutoscaleConfig::default());
    }
}

//! The command line.

mod banner;
mod check;
mod logging;
mod passwd;
mod prompt;
mod serve;
mod signals;
#[cfg(test)]
mod tests;
mod top;
mod wiring;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use passwd::PasswdError;
pub use serve::serve_with;
pub use top::TopError;

use crate::admin::AdminError;
use crate::config::{ConfigError, Loaded, Sources, load};
use crate::listen::ListenError;
use crate::sim::command::{ReproduceArgs, SimArgs, SimError, run_reproduce, run_sim};

const EXAMPLES: &str = "\
Examples:
  tidegate                                        serve on 127.0.0.1:1883
  tidegate --config /etc/tidegate/tidegate.toml   serve as a file says
  tidegate serve --set listen.mqtt=0.0.0.0:1883   serve everybody
  tidegate check --config tidegate.toml           look for mistakes, start nothing
  tidegate passwd users.txt alice                 add a user or change the password
  echo secret | tidegate passwd users.txt alice   the same in a script
  tidegate top                                    watch the queues of a running gateway
  tidegate sim config/scenarios/case-study.toml   try a control loop in virtual time
  tidegate reproduce all                          the papers' tables again

Settings: built-in defaults < file < environment < --set. The key listen.mqtt is TIDEGATE_LISTEN__MQTT in the
environment. Without --config, ./tidegate.toml or else /etc/tidegate/tidegate.toml is read if it exists.
SIGTERM and SIGINT drain and stop; SIGHUP reads users, rules and certificates again.";

/// An MQTT broker that keeps a system fast when its consumers cannot keep up.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    configuration: Configuration,
}

/// What can be done.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve clients (the default)
    Serve(Configuration),
    /// Check the configuration and the files it names, start nothing
    Check(Configuration),
    /// Add a user to a users file, change a password, or delete a user
    Passwd(passwd::Passwd),
    /// Watch the queues of a running gateway
    Top(top::Top),
    /// Run a scenario in virtual time
    Sim(SimArgs),
    /// Compute the tables and figures of the papers again
    Reproduce(ReproduceArgs),
}

/// Where the configuration comes from.
#[derive(Debug, Clone, Default, Args)]
struct Configuration {
    /// The configuration file [environment: TIDEGATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key, such as --set session.max_keep_alive=30; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The configuration is refused.
    #[error("the configuration is refused:\n{}", indented(.0))]
    Config(#[from] ConfigError),
    /// A file that the configuration names, such as that of the users, is refused.
    #[error("the configuration is refused:\n  {0}")]
    File(String),
    /// Clients cannot be accepted.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no admin endpoint.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The broker did not start.
    #[error("the broker did not start: {0}")]
    Broker(String),
    /// Logging did not start.
    #[error("logging did not start: {0}")]
    Log(String),
    /// The users file was not changed.
    #[error(transparent)]
    Passwd(#[from] PasswdError),
    /// There is nothing to watch.
    #[error(transparent)]
    Top(#[from] TopError),
    /// A simulation failed, or came out otherwise than expected.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The operating system refused something.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
}

impl CliError {
    /// 2 if the operator has to mend the configuration, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::File(_)
            | Self::Listen(ListenError::TlsFile { .. } | ListenError::Tls(_)) => 2,
            _ => 1,
        }
    }
}

impl Cli {
    /// Does what was asked for; for `serve` this lasts until a signal ends it.
    pub fn run(self) -> Result<(), CliError> {
        match self.command.unwrap_or(Command::Serve(self.configuration)) {
            Command::Serve(configuration) => serve_with(&configuration.load()?, Vec::new()),
            Command::Check(configuration) => check::check(&configuration.load()?, &mut std::io::stdout()),
            Command::Passwd(passwd) => Ok(passwd.run()?),
            Command::Top(top) => Ok(top.run(&mut std::io::stdout())?),
            Command::Sim(args) => Ok(run_sim(&args, &mut std::io::stdout())?),
            Command::Reproduce(args) => Ok(run_reproduce(&args, &mut std::io::stdout())?),
        }
    }
}

impl Configuration {
    fn load(self) -> Result<Loaded, CliError> {
        let from_environment = || std::env::var_os("TIDEGATE_CONFIG").map(PathBuf::from);
        let file = self.config.or_else(from_environment).filter(|path| !path.as_os_str().is_empty());
        Ok(load(&Sources::of_process(file, self.set))?)
    }
}

fn indented(error: &ConfigError) -> String {
    let text = error.to_string();
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

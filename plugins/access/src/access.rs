//! The plugin: who may connect.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tidegate_plugin::{Client, Hook, Operated, Plugin, Refusal, Wants};

use crate::hook::AccessHook;
use crate::rules::{Rules, RulesError};
use crate::users::{Slots, Users, UsersError};

/// Where users and rules come from.
#[derive(Debug, Clone)]
pub struct AccessConfig {
    /// Whether clients may connect that do not prove who they are.
    pub anonymous: bool,
    /// The users file.
    pub users: Option<PathBuf>,
    /// The rules file; when given, what no rule allows is denied.
    pub rules: Option<PathBuf>,
}

/// Why users or rules cannot be loaded; the operator has to mend a file.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// It is the users file.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// It is the rules file.
    #[error(transparent)]
    Rules(#[from] RulesError),
}

/// The `access` plugin.
#[derive(Debug)]
pub struct Access {
    config: AccessConfig,
    users: RwLock<Option<Arc<Users>>>,
    rules: Option<Arc<CurrentRules>>,
    slots: Slots,
    /// One reload after the other, so that the later one wins.
    reloading: Mutex<()>,
}

impl Access {
    /// Reads the files.
    pub fn load(config: AccessConfig) -> Result<Self, AccessError> {
        let (users, rules) = read(&config)?;
        Ok(Self {
            config,
            users: RwLock::new(users.map(Arc::new)),
            rules: rules.map(|rules| Arc::new(CurrentRules::new(rules))),
            slots: Slots::for_this_machine(),
            reloading: Mutex::new(()),
        })
    }

    /// How many passwords were verified by argon2 so far; logins answered from memory are not counted.
    pub fn password_runs(&self) -> u64 {
        self.slots.runs()
    }

    /// Who the client proved to be: nothing if it is anonymous.
    fn identify<'a>(&self, client: &Client<'a>) -> Result<Option<&'a str>, Refusal> {
        // Cloned, not held: a reload must not wait for argon2, nor logins for a reload.
        let users = self.users.read().clone();
        if let (Some(users), Some(user)) = (users, client.user) {
            let verified = client.password.is_some_and(|password| users.verify(user, password, &self.slots));
            return if verified { Ok(Some(user)) } else { Err(Refusal::bad_credentials()) };
        }
        match client.certificate.filter(|name| !name.is_empty()) {
            Some(name) => Ok(Some(name)),
            None if self.config.anonymous => Ok(None),
            None if client.user.is_some() => Err(Refusal::bad_credentials()),
            None => Err(Refusal::not_authorized("a user name and password are needed")),
        }
    }
}

impl Plugin for Access {
    fn name(&self) -> &'static str {
        "access"
    }

    fn connect(&self, client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        let user = self.identify(client)?;
        let hook = self.rules.as_ref().map(|rules| AccessHook::new(rules.clone(), client.id, user));
        Ok(hook.map(|hook| Box::new(hook) as Box<dyn Hook>))
    }

    fn wants(&self) -> Wants {
        Wants { blocking_connect: self.config.users.is_some(), ..Wants::default() }
    }

    fn operated(&self) -> Option<&dyn Operated> {
        Some(self)
    }
}

impl Operated for Access {
    fn reload(&self) -> Result<(), String> {
        let _one_at_a_time = self.reloading.lock();
        let (users, rules) = read(&self.config).map_err(|error| error.to_string())?;
        *self.users.write() = users.map(Arc::new);
        if let (Some(current), Some(rules)) = (&self.rules, rules) {
            current.replace(rules);
        }
        Ok(())
    }
}

/// The rules that hold now, shared by all connections.
#[derive(Debug)]
pub(crate) struct CurrentRules {
    rules: RwLock<Arc<Rules>>,
    /// Grows with every change: connections compare it, which costs next to nothing.
    generation: AtomicU64,
}

impl CurrentRules {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)), generation: AtomicU64::new(0) }
    }

    pub(crate) fn replace(&self, rules: Rules) {
        let mut current = self.rules.write();
        *current = Arc::new(rules);
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The rules and their generation, which under the lock belong together.
    pub(crate) fn get(&self) -> (Arc<Rules>, u64) {
        let rules = self.rules.read();
        (rules.clone(), self.generation())
    }
}

fn read(config: &AccessConfig) -> Result<(Option<Users>, Option<Rules>), AccessError> {
    let users = config.users.as_deref().map(Users::read).transpose()?;
    let rules = config.rules.as_deref().map(Rules::read).transpose()?;
    Ok((users, rules))
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;

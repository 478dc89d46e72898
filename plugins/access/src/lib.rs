//! Authentication and topic rules: the `access` plugin of Tidegate.
//!
//! Three settings decide everything: whether clients may be anonymous, a file with [`users`], and a file with
//! [`rules`]. Both files are text that people edit; both are read again on SIGHUP, all or nothing.
//!
//! **Who is it?** With a users file, a client that gives a user name must give its password too. Without a
//! user name, or without a users file, the name in a verified TLS certificate is the user; so the authority
//! that signs certificates must not sign for the names of other users. Everybody else is anonymous, also one
//! that gives a name that nobody can check: it is let in if the anonymous are, and rules about users are not
//! about it.
//!
//! **What may it do?** Without a rules file, everything; with one, what its rules allow. Rules that are read
//! again hold at once for connected clients too; subscriptions they have stay, and so does a connected
//! user who is no longer in the users file, until the next connect.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use tidegate_access::rules::{Action, Grants, Rules};
//!
//! let text = "user alice  publish    sensors/%c/#\n\
//!             everyone    subscribe  $SYS/#";
//! let rules = Arc::new(Rules::parse(text, Path::new("rules"))?);
//! let alice = Grants::new(&rules, "thermometer", Some("alice"));
//! assert!(alice.may(Action::Publish, "sensors/thermometer/celsius"));
//! assert!(!alice.may(Action::Publish, "sensors/barometer/hectopascal"));
//! # Ok::<(), tidegate_access::rules::RulesError>(())
//! ```

mod access;
mod hook;
pub mod rules;
mod text;
pub mod users;

pub use access::{Access, AccessConfig, AccessError};

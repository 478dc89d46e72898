//! A migration under way: it ends when all clients have moved, or when its time is up.

use crate::invalid::{self, Invalid};
use crate::time::{Moment, Span};

/// Settings of [`Migration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationConfig {
    /// How long to wait for clients that don't come.
    pub timeout: Span,
}

impl Default for MigrationConfig {
    /// Ten seconds.
    fn default() -> Self {
        Self { timeout: Span::from_secs(10) }
    }
}

impl MigrationConfig {
    /// Starts a migration of so many clients, or refuses a time-out of zero.
    pub fn start(&self, now: Moment, clients: u32) -> Result<Migration, Invalid> {
        invalid::positive("timeout", self.timeout.as_secs_f64())?;
        Ok(Migration { ends: now + self.timeout, missing: clients })
    }
}

/// How far a migration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationState {
    /// Clients are still to come.
    Running,
    /// All have moved.
    Complete,
    /// The time is up.
    TimedOut {
        /// Clients that never came.
        missing: u32,
    },
}

/// Clients on their way from one broker to another.
#[derive(Debug, Clone)]
pub struct Migration {
    ends: Moment,
    missing: u32,
}

impl Migration {
    /// Counts clients that confirmed their move.
    pub fn on_moved(&mut self, clients: u32) {
        self.missing = self.missing.saturating_sub(clients);
    }

    /// How far the migration is now.
    pub fn state(&self, now: Moment) -> MigrationState {
        match self.missing {
            0 => MigrationState::Complete,
            missing if now >= self.ends => MigrationState::TimedOut { missing },
            _ => MigrationState::Running,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ends_when_all_came_or_when_the_time_is_up() {
        let at = Moment::from_secs_f64;
        let mut migration = MigrationConfig::default().start(at(5.0), 3).unwrap();
        assert_eq!(migration.state(at(14.9)), MigrationState::Running);
        migration.on_moved(2);
        assert_eq!(migration.state(at(15.0)), MigrationState::TimedOut { missing: 1 });
        migration.on_moved(7);
        assert_eq!(migration.state(at(99.0)), MigrationState::Complete);
        assert!(MigrationConfig { timeout: Span::ZERO }.start(at(0.0), 1).is_err());
    }
}

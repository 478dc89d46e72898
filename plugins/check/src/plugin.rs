//! The wiring: checks come in with the messages of a connection, answers go out from a thread.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{Client, Hook, Host, Plugin, Publish, Refusal, Subscribe, Verdict};

use crate::config::{CheckConfig, ConfigError};
use crate::desk::{Desk, Served, Submitted};
use crate::history::History;
use crate::message::{Answer, Check};

/// Filters that are remembered for each connection: what is beyond can't be asked for.
const MOST_FILTERS: usize = 1_000;
/// A number that JSON readers keep exactly.
const EXACT: u64 = (1 << 53) - 1;

/// The plugin.
pub struct CheckPlugin {
    desk: Arc<Office>,
}

/// What connections and the answering thread share.
struct Office {
    config: CheckConfig,
    history: History,
    desk: Mutex<Desk>,
    came: Condvar,
    closing: AtomicBool,
    epoch: u64,
    start: Instant,
    counts: Counts,
    host: Mutex<Option<Weak<dyn Host>>>,
}

/// What was answered, and how.
#[derive(Debug, Default)]
struct Counts {
    looked_up: AtomicU64,
    merged: AtomicU64,
    later: AtomicU64,
    refused: AtomicU64,
}

impl CheckPlugin {
    /// A plugin with these settings.
    pub fn new(config: CheckConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let start = Instant::now();
        let desk = Desk::new(&config, Moment::START).ok_or_else(|| ConfigError {
            key: "max_rate",
            value: config.max_rate.to_string(),
            need: "a finite number of at least 1",
        })?;
        // Random, and different at each start.
        let epoch = RandomState::new().hash_one(0) & EXACT;
        let desk = Arc::new(Office {
            history: History::new(&config),
            desk: Mutex::new(desk),
            came: Condvar::new(),
            closing: AtomicBool::new(false),
            epoch,
            start,
            counts: Counts::default(),
            host: Mutex::new(None),
            config,
        });
        Ok(Self { desk })
    }

    /// The history, for those who number messages.
    pub fn history(&self) -> &History {
        &self.desk.history
    }
}

impl Plugin for CheckPlugin {
    fn name(&self) -> &'static str {
        "check"
    }

    fn connect(&self, client: &Client<'_>) -> Result<Option<Box<dyn Hook>>, Refusal> {
        let checks = format!("{}/check/", self.desk.config.prefix);
        let own = format!("{checks}{}", client.id);
        let (client, office) = (client.id.to_owned(), self.desk.clone());
        Ok(Some(Box::new(Asking { client, checks, own, filters: HashSet::new(), office })))
    }

    fn start(&self, host: &Weak<dyn Host>) {
        *self.desk.host.lock() = Some(host.clone());
        let office = self.desk.clone();
        let thread = std::thread::Builder::new().name("check".into()).spawn(move || office.answer_all());
        if let Err(error) = thread {
            tracing::error!(%error, "no thread to answer checks: they will not be answered");
        }
    }
}

impl Drop for CheckPlugin {
    fn drop(&mut self) {
        self.desk.closing.store(true, Ordering::Relaxed);
        self.desk.came.notify_all();
    }
}

/// One connection.
struct Asking {
    client: String,
    /// The topics of all checks, and of this client's.
    checks: String,
    own: String,
    /// What it has subscribed to.
    filters: HashSet<String>,
    office: Arc<Office>,
}

impl Hook for Asking {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        if !publish.topic.starts_with(&self.checks) {
            // Last of all plugins, this one sees only what the others let pass.
            self.office.history.record(publish.topic, publish.payload);
            return Verdict::Continue;
        }
        if publish.topic != self.own {
            return Verdict::Refuse(Refusal::not_authorized("a check in the name of another client"));
        }
        self.ask(publish.payload);
        Verdict::Drop
    }

    fn on_subscribe(&mut self, subscribe: &Subscribe<'_>) -> Verdict {
        if self.filters.len() < MOST_FILTERS {
            self.filters.insert(subscribe.filter.to_owned());
        }
        Verdict::Continue
    }

    fn on_unsubscribe(&mut self, filter: &str) {
        self.filters.remove(filter);
    }
}

impl Asking {
    fn ask(&self, payload: &[u8]) {
        if payload.len() > self.office.config.max_check {
            return self.office.refuse(&self.client, 0, "the check is too long");
        }
        let check = match Check::read(payload) {
            Ok(check) => check,
            Err(why) => return self.office.refuse(&self.client, 0, why),
        };
        match check.asked.iter().find(|asked| !self.filters.contains(&asked.filter)) {
            Some(asked) => {
                let why = format!("not subscribed to `{}` on this connection", asked.filter);
                self.office.refuse(&self.client, check.id, &why);
            }
            None => self.office.submit(&self.client, check),
        }
    }
}

impl Office {
    fn submit(&self, client: &str, check: Check) {
        let (now, id) = (self.now(), check.id);
        let mut desk = self.desk.lock();
        let submitted = desk.submit(client, check, now);
        let rate = desk.share(now);
        drop(desk);
        match submitted {
            Submitted::Waiting => {
                self.came.notify_one();
            }
            Submitted::Merged => count(&self.counts.merged),
            Submitted::Later(retry) => {
                count(&self.counts.later);
                self.send(client, &self.answer(id, rate).later(duration(retry)));
            }
        }
    }

    fn refuse(&self, client: &str, id: u64, why: &str) {
        count(&self.counts.refused);
        self.send(client, &self.answer(id, None).refused(why));
    }

    /// Answers until the gateway goes.
    fn answer_all(&self) {
        while !self.closing.load(Ordering::Relaxed) {
            let mut desk = self.desk.lock();
            match desk.serve(self.now()) {
                Ok(served) => {
                    let rate = desk.share(self.now());
                    drop(desk);
                    self.look_up(&served, rate);
                }
                // Not for ever: whoever closes may do so between the look and the wait.
                Err(wait) => {
                    let wait = wait.map_or(Duration::from_millis(200), duration);
                    self.came.wait_for(&mut desk, wait.min(Duration::from_millis(200)));
                }
            }
        }
    }

    fn look_up(&self, served: &Served, rate: Option<f64>) {
        let found = self.history.look_up(&served.asked, served.max);
        count(&self.counts.looked_up);
        let now = self.now();
        for (client, id, came) in &served.clients {
            let took = duration(now.since(*came));
            self.send(client, &self.answer(*id, rate).found(&found, took));
        }
    }

    fn send(&self, client: &str, answer: &str) {
        let host = self.host.lock().as_ref().and_then(Weak::upgrade);
        if let Some(host) = host {
            host.publish(&format!("{}/update/{client}", self.config.prefix), answer.as_bytes(), false);
        }
    }

    fn answer(&self, id: u64, rate: Option<f64>) -> Answer {
        Answer { id, epoch: self.epoch, rate }
    }

    fn now(&self) -> Moment {
        Moment::START + Span::from_secs_f64(self.start.elapsed().as_secs_f64())
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

#[cfg(test)]
#[path = "plugin_tests.rs"]
mod tests;

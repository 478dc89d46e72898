//! The wiring: checks come in with the messages of a connection, answers go out from a thread.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tidegate_control::time::{Moment, Span};
use tidegate_plugin::{
    CheckRequest, Client, Hook, Host, Operated, Plugin, Publish, Refusal, Subscribe, Verdict, Wants,
};

use crate::config::{CheckConfig, ConfigError};
use crate::counts::{Counts, count};
use crate::desk::{Desk, Reply, Served, Submitted};
use crate::history::History;
use crate::message::{Answer, Check};
use crate::owed::{Owed, Owing};

/// Filters that are remembered for each connection: what is beyond can't be asked for.
const MOST_FILTERS: usize = 1_000;
/// Bytes that a client may say about the answer that it wants.
const MOST_REPLY: usize = 1_024;
/// How long to wait when the gateway has no room for an answer.
const NO_ROOM: Duration = Duration::from_millis(5);
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
    /// Short answers for which the gateway had no room.
    owed: Mutex<Owed>,
    host: Mutex<Option<Weak<dyn Host>>>,
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
            owed: Mutex::default(),
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
        let prefix = &self.desk.config.prefix;
        let (checks, own) = (format!("{prefix}/check/"), format!("{prefix}/check/{}", client.id));
        let update = format!("{prefix}/update/{}", client.id);
        let (client, office) = (client.id.to_owned(), self.desk.clone());
        Ok(Some(Box::new(Asking { client, checks, own, update, filters: HashSet::new(), office })))
    }

    fn start(&self, host: &Weak<dyn Host>) {
        Counts::describe();
        *self.desk.host.lock() = Some(host.clone());
        let office = self.desk.clone();
        let thread = std::thread::Builder::new().name("check".into()).spawn(move || office.answer_all());
        if let Err(error) = thread {
            tracing::error!(%error, "no thread to answer checks: they will not be answered");
        }
    }

    fn wants(&self) -> Wants {
        Wants { accepted: true, ..Wants::default() }
    }

    fn on_accept(&self, publish: &Publish<'_>, add: &mut dyn FnMut(&str, &str)) {
        if let Some(seq) = self.desk.history.record(publish.topic, publish.payload) {
            add("tide-seq", Digits::of(seq).text());
        }
    }

    fn operated(&self) -> Option<&dyn Operated> {
        Some(self)
    }
}

impl Operated for CheckPlugin {
    fn refresh_metrics(&self) {
        self.desk.counts.publish(self.desk.history.topics(), self.desk.history.bytes());
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
    /// The topics of all checks, of this client's, and of the answers to them.
    checks: String,
    own: String,
    update: String,
    /// What it has subscribed to.
    filters: HashSet<String>,
    office: Arc<Office>,
}

impl Hook for Asking {
    fn on_publish(&mut self, publish: &Publish<'_>) -> Verdict {
        if publish.topic.starts_with(&self.checks) && publish.topic != self.own {
            return Verdict::Refuse(Refusal::not_authorized("a check in the name of another client"));
        }
        Verdict::Continue
    }

    fn on_subscribed(&mut self, subscribe: &Subscribe<'_>) {
        // Of a group each member gets a part only: what it did not get is not missing.
        if subscribe.group.is_none() && self.filters.len() < MOST_FILTERS {
            self.filters.insert(subscribe.filter.to_owned());
        }
    }

    fn on_check(&mut self, check: &CheckRequest<'_>) -> bool {
        if let Err((id, reply, why)) = self.ask(check) {
            self.office.refuse(&self.client, &reply, id, &why);
        }
        true
    }

    fn on_unsubscribe(&mut self, filter: &str) {
        self.filters.remove(filter);
    }
}

/// The number of a check that is refused, where the client wants to read so, and why.
type Refused = (u64, Reply, String);

impl Asking {
    fn ask(&self, request: &CheckRequest<'_>) -> Result<(), Refused> {
        // Its topics would be below those of another client, which may read there and have its answers sent there.
        if !is_level(&self.client) {
            let why = "a client identifier with `/`, `+` or `#` has no update topic of its own";
            return Err((Check::id_of(request.payload), Reply::default(), why.into()));
        }
        let reply = self
            .reply(request)
            .map_err(|why| (Check::id_of(request.payload), Reply::default(), why.into()))?;
        if request.payload.len() > self.office.config.max_check {
            let why =
                format!("the check is longer than {} bytes: ask in parts", self.office.config.max_check);
            return Err((Check::id_of(request.payload), reply, why));
        }
        let check = match Check::read(request.payload) {
            Ok(check) => check,
            Err(unreadable) => return Err((unreadable.id, reply, unreadable.why.into())),
        };
        let asked = &check.question.asked;
        if let Some(asked) = asked.iter().find(|asked| !self.filters.contains(&asked.filter)) {
            let why = format!("not subscribed to `{}` on this connection", asked.filter);
            return Err((check.id, reply, why));
        }
        let looks = self.office.history.looks(&check.question);
        if looks > self.office.config.max_looks {
            let why = "too many wildcard filters for so many topics: ask in several checks";
            return Err((check.id, reply, why.into()));
        }
        self.office.submit(&self.client, &reply, check, looks);
        Ok(())
    }

    /// Where the answer goes. Under the client's own topic only: anywhere else others could read what they may not, or
    /// be written to by a client that may not.
    fn reply(&self, request: &CheckRequest<'_>) -> Result<Reply, &'static str> {
        let length =
            request.response_topic.map_or(0, str::len) + request.correlation_data.map_or(0, <[u8]>::len);
        if length > MOST_REPLY {
            return Err("response topic and correlation data are too long");
        }
        let own = |topic: &str| {
            topic.strip_prefix(&*self.update).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match request.response_topic {
            Some(topic) if !own(topic) => {
                Err("the response topic is not the client's own update topic, or below it")
            }
            topic => Ok(Reply {
                topic: topic.map(str::to_owned),
                correlation: request.correlation_data.map(Box::from),
            }),
        }
    }
}

impl Office {
    fn submit(&self, client: &str, reply: &Reply, check: Check, looks: u64) {
        let (now, id) = (self.now(), check.id);
        let mut desk = self.desk.lock();
        let submitted = desk.submit(client, reply, check, looks, now);
        let rate = desk.share(now);
        drop(desk);
        match submitted {
            Submitted::Waiting => {
                self.came.notify_one();
            }
            Submitted::Merged => count(&self.counts.merged),
            Submitted::Later(retry) | Submitted::NoRoom(retry) => {
                count(&self.counts.deferred);
                if matches!(submitted, Submitted::NoRoom(_)) {
                    count(&self.counts.crowded);
                }
                self.say(client, reply, self.answer(id, rate).later(duration(retry)));
            }
        }
    }

    fn refuse(&self, client: &str, reply: &Reply, id: u64, why: &str) {
        count(&self.counts.refused);
        self.say(client, reply, self.answer(id, None).refused(why));
    }

    /// Sends a short answer, or leaves it to the answering thread when the gateway has no room.
    fn say(&self, client: &str, reply: &Reply, answer: String) {
        if self.owed.lock().is_empty() && self.send(client, reply, &answer) {
            return;
        }
        let owing = Owing { client: client.to_owned(), reply: reply.clone(), answer };
        if !self.owed.lock().push(owing, self.config.max_waiting_bytes) {
            count(&self.counts.unanswered);
        }
        self.came.notify_one();
    }

    /// Sends the short answers that had to wait.
    fn pay(&self) {
        loop {
            // Not held while it waits.
            let owing = self.owed.lock().pop();
            let Some(Owing { client, reply, answer }) = owing else { return };
            self.send_when_possible(&client, &reply, &answer);
        }
    }

    /// Answers until the gateway goes.
    fn answer_all(&self) {
        while !self.closing.load(Ordering::Relaxed) {
            self.pay();
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
        let found = self.history.look_up(&served.question);
        let now = self.now();
        for asker in &served.askers {
            count(&self.counts.answered);
            let took = duration(now.since(asker.came));
            let answer = self.answer(asker.id, rate).found(&found, took);
            self.send_when_possible(&asker.client, &asker.reply, &answer);
        }
    }

    /// Sends an answer as soon as the gateway has room, on the answering thread only: nobody else may wait.
    fn send_when_possible(&self, client: &str, reply: &Reply, answer: &str) {
        while !self.send(client, reply, answer) && !self.closing.load(Ordering::Relaxed) {
            std::thread::sleep(NO_ROOM);
        }
    }

    /// Sends an answer; false when the gateway has no room.
    fn send(&self, client: &str, reply: &Reply, answer: &str) -> bool {
        let Some(host) = self.host.lock().as_ref().and_then(Weak::upgrade) else { return true };
        let usual = || format!("{}/update/{client}", self.config.prefix);
        let topic = reply.topic.clone().unwrap_or_else(usual);
        host.respond(&topic, answer.as_bytes(), reply.correlation.as_deref())
    }

    fn answer(&self, id: u64, rate: Option<f64>) -> Answer {
        Answer { id, epoch: self.epoch, rate }
    }

    fn now(&self) -> Moment {
        Moment::START + Span::from_secs_f64(self.start.elapsed().as_secs_f64())
    }
}

/// Whether a text can be one level of a topic name.
fn is_level(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '+', '#', '\0'])
}

/// A number as text, without an allocation: every message gets one.
struct Digits {
    text: [u8; 20],
    start: usize,
}

impl Digits {
    fn of(mut number: u64) -> Self {
        let mut digits = Self { text: [b'0'; 20], start: 20 };
        loop {
            // in range: the largest number has twenty digits
            digits.start -= 1;
            digits.text[digits.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return digits;
            }
        }
    }

    fn text(&self) -> &str {
        // digits are ASCII
        std::str::from_utf8(&self.text[self.start..]).unwrap_or_default()
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

#[cfg(test)]
#[path = "plugin_tests.rs"]
mod tests;

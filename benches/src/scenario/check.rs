//! What makes no sense in a scenario, though each value on its own could be read.

mod clients;

use tidegate_control::autoscale::{Coupling, ScalerConfig};
use tidegate_control::time::Span;

use super::{Action, BASE, Class, Consumers, CouplingName, EventSettings, Scenario, ScenarioError};
use crate::check::HEADER;
use crate::compare::measure_names;
use crate::peers::Kind;

type Problem = (String, String);

/// Points of one list, events, settings and variants of a file.
const MOST_ENTRIES: usize = 1000;
/// Bytes of a name.
const MOST_LETTERS: usize = 200;
/// Records of one run.
const MOST_INTERVALS: f64 = 100_000.0;
/// Pairs of a flow and somebody who may get it: each costs memory and time before a run.
const MOST_PAIRS: f64 = 2e7;
/// Bytes of all packets that devices prepare.
const MOST_BYTES: f64 = 1e9;

impl Scenario {
    /// Says what makes no sense, if anything does.
    pub fn check(&self, file: &str) -> Result<(), ScenarioError> {
        self.find_problem().map_err(|(key, problem)| ScenarioError::Value {
            file: file.to_owned(),
            key,
            problem,
        })
    }

    /// The auto-scaler's configuration, if there is one.
    pub fn scaler_config(&self) -> Option<ScalerConfig> {
        let settings = self.autoscale.as_ref()?;
        Some(ScalerConfig {
            upper: settings.upper,
            lower: settings.lower,
            min: settings.min,
            max: self.consumers.first()?.instances,
            interval: Span::from_secs_f64(settings.interval),
            utilisation: settings.utilisation,
            coupling: match settings.coupling {
                CouplingName::Apart => Coupling::Apart,
                CouplingName::OverloadBased => Coupling::OverloadBased,
                CouplingName::StateAware => Coupling::StateAware,
                CouplingName::DemandAware => Coupling::DemandAware,
            },
        })
    }

    fn find_problem(&self) -> Result<(), Problem> {
        self.check_lengths()?;
        within("duration", self.duration, 0.1, 86_400.0)?;
        within("warmup", self.warmup, 0.0, 3600.0)?;
        within("drain", self.drain, 0.0, 3600.0)?;
        within("interval", self.interval, 0.01, self.duration)?;
        let intervals = (self.warmup + self.duration + self.drain) / self.interval;
        within("interval: records of warmup, duration and drain", intervals, 0.0, MOST_INTERVALS)?;
        within("patience", self.patience, 0.1, 3600.0)?;
        within("connect.at_once", self.connect.at_once.into(), 1.0, 1e6)?;
        within("connect.rate", self.connect.rate, 0.0, 1e6)?;
        within("connect.timeout", self.connect.timeout, 0.1, 3600.0)?;
        within("connect.backoff", self.connect.backoff, 0.0, 3600.0)?;
        within("connect.backoff_max", self.connect.backoff_max, 0.0, 3600.0)?;
        self.pattern().map_err(|problem| ("workload".to_owned(), problem))?;
        within("class: the number of classes", self.classes.len() as f64, 1.0, 64.0)?;
        self.classes.iter().try_for_each(check_class)?;
        within("consumers: the number of kinds", self.consumers.len() as f64, 0.0, 64.0)?;
        self.consumers.iter().try_for_each(check_consumers)?;
        self.check_sizes()?;
        clients::check(self)?;
        self.check_rest()
    }

    /// Texts and lists, which a file may make as long as it likes.
    fn check_lengths(&self) -> Result<(), Problem> {
        name_fits("name", &self.name)?;
        within("about: its length", self.about.len() as f64, 0.0, 2000.0)?;
        for (index, text) in self.connect.login.iter().flatten().enumerate() {
            let key = ["connect.login: the user's length", "connect.login: the password's length"][index];
            within(key, text.len() as f64, 0.0, 1000.0)?;
        }
        let points = self.workload.as_ref().and_then(|workload| workload.points.as_ref()).map_or(0, Vec::len);
        let lists = [
            ("workload.points", points),
            ("event", self.events.len()),
            ("variant", self.variants.len()),
            ("study", self.study.len()),
            ("broker.tidegate", self.broker.tidegate.len()),
        ];
        let most = MOST_ENTRIES as f64;
        lists.iter().try_for_each(|(key, count)| within(&format!("{key}: entries"), *count as f64, 0.0, most))
    }

    /// What is fine one by one and too much together.
    fn check_sizes(&self) -> Result<(), Problem> {
        let devices: f64 = self.classes.iter().map(|class| f64::from(class.devices)).sum();
        within("class: all devices together", devices, 1.0, 200_000.0)?;
        let flows_of = |class: &Class| f64::from(class.devices) * f64::from(class.topics);
        let flows: f64 = self.classes.iter().map(flows_of).sum();
        within("class: all devices times topics", flows, 1.0, 2e6)?;
        let bytes = |class: &Class| flows_of(class) * (class.payload + class.topic.len()) as f64;
        let bytes: f64 = self.classes.iter().map(bytes).sum();
        within("class: all devices times topics times payload", bytes, 1.0, MOST_BYTES)?;
        let consumers: f64 = self.consumers.iter().map(|consumers| f64::from(consumers.instances)).sum();
        within("consumers: all instances together", consumers, 0.0, 200_000.0)?;
        let recipients: f64 = self.consumers.iter().map(recipients_of_a_flow).sum();
        within("consumers: recipients times devices times topics", recipients * flows, 0.0, MOST_PAIRS)
    }

    fn check_rest(&self) -> Result<(), Problem> {
        if let Some(relay) = &self.relay {
            within("relay: drop + repeat + swap", relay.drop + relay.repeat + relay.swap, 0.0, 1.0)?;
            for (key, share) in [("drop", relay.drop), ("repeat", relay.repeat), ("swap", relay.swap)] {
                within(&format!("relay.{key}"), share, 0.0, 1.0)?;
            }
            if self.transport != crate::transport::Kind::Tcp {
                return Err(problem("relay", "reads packets, so it needs transport = \"tcp\""));
            }
        }
        self.events.iter().try_for_each(|event| self.check_event(event))?;
        self.check_autoscale()?;
        self.check_names()?;
        let known = measure_names(self);
        self.against.values().flatten().try_for_each(|(key, band)| check_band(key, band, &known))?;
        self.expect.iter().try_for_each(|(key, band)| check_band(key, band, &known))
    }

    /// What a file names must be there.
    fn check_names(&self) -> Result<(), Problem> {
        for class in &self.classes {
            let Some(equal) = &class.fair_with else { continue };
            let found = self.classes.iter().find(|other| other.name == *equal);
            if found.is_none_or(|other| other.fair_with.as_ref().is_some_and(|name| *name != other.name)) {
                let text = format!("= {equal:?} must be the name of a class that names no other itself");
                return Err((format!("class {:?}: fair_with", class.name), text));
            }
        }
        if let Some(kind) = &self.broker.kind {
            Kind::named(kind).map_err(|error| ("broker.kind".to_owned(), error.to_string()))?;
        }
        // In a variant there are no variants to name.
        if self.variants.is_empty() {
            return Ok(());
        }
        let known = |name: &&String| self.variants.contains_key(*name) || *name == BASE;
        if let Some(name) = self.study.iter().find(|name| !known(name)) {
            let names: Vec<&str> = self.variants.keys().map(String::as_str).collect();
            return Err((
                "study".to_owned(),
                format!("names {name:?}: it must be {BASE} or one of {}", names.join(", ")),
            ));
        }
        if self.variants.contains_key(BASE) {
            return Err(problem("variant", "can't be called base: that is the file without a variant"));
        }
        let values = self.reference.iter().flat_map(|reference| &reference.values);
        let measures = measure_names(self);
        for (variant, values) in values {
            if !known(&variant) {
                return Err((format!("reference.values.{variant}"), "is no variant".to_owned()));
            }
            if let Some(name) = values.keys().find(|name| !measures.contains(name)) {
                return Err((format!("reference.values.{variant}.{name}"), "is no measure".to_owned()));
            }
        }
        Ok(())
    }

    fn check_autoscale(&self) -> Result<(), Problem> {
        let Some(settings) = &self.autoscale else { return Ok(()) };
        if self.consumers.is_empty() {
            return Err(problem("autoscale", "needs consumers"));
        }
        within("autoscale.interval", settings.interval, 0.0, 3600.0)?;
        within("autoscale.start_delay", settings.start_delay, 0.0, 3600.0)?;
        let built = self.scaler_config().map(|config| config.build());
        built.transpose().map_err(|error| ("autoscale".to_owned(), error.to_string())).map(|_| ())
    }

    /// An event that could not happen, or would happen to nobody.
    fn check_event(&self, event: &EventSettings) -> Result<(), Problem> {
        within("event.at", event.at, 0.0, 1.0)?;
        within("event.share", event.share, 0.0, 1.0)?;
        let names: Vec<&str> = match event.action {
            Action::DropDevices => self.classes.iter().map(|class| class.name.as_str()).collect(),
            Action::DropConsumers => self.consumers.iter().map(|one| one.name.as_str()).collect(),
            Action::StopRelay | Action::ResumeRelay if self.relay.is_none() => {
                return Err(problem("event.do", "needs a relay: the scenario has no [relay]"));
            }
            Action::RestartBroker | Action::StopRelay | Action::ResumeRelay => {
                if event.who.is_some() || event.share < 1.0 {
                    return Err(problem("event", "happens to all: who and share make no sense here"));
                }
                return Ok(());
            }
        };
        match &event.who {
            Some(who) if !names.contains(&who.as_str()) => {
                let known = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
                Err(("event.who".to_owned(), format!("= {who:?} is not known: it must be one of {known}")))
            }
            None if names.is_empty() => Err(problem("event.do", "happens to nobody: there are no consumers")),
            _ => Ok(()),
        }
    }
}

/// How many consumers of a kind may get the messages of one flow.
fn recipients_of_a_flow(consumers: &Consumers) -> f64 {
    let own = consumers.filter.contains("%i") && !consumers.filter.contains(['+', '#']);
    if own || consumers.group.is_some() { 1.0 } else { consumers.instances.into() }
}

fn check_class(class: &Class) -> Result<(), Problem> {
    name_fits("class.name", &class.name)?;
    let key = |name: &str| format!("class {:?}: {name}", class.name);
    if let Some(client) = &class.client {
        name_fits(&key("client"), client)?;
    }
    if let Some(rate) = class.rate {
        within(&key("rate"), rate, 1e-6, 1e7)?;
    }
    within(&key("window"), class.window.into(), 1.0, 65_535.0)?;
    if let Some(batch) = class.batch {
        within(&key("batch"), batch.into(), 1.0, 1e6)?;
    }
    within(&key("qos"), class.qos.into(), 0.0, 2.0)?;
    within(&key("payload"), class.payload as f64, HEADER as f64, 1_000_000.0)?;
    within(&key("topics"), class.topics.into(), 1.0, 1e6)?;
    within(&key("deaf"), class.deaf, 0.0, 1.0)?;
    within(&key("jitter"), class.jitter, 0.0, 1.0)?;
    within(&key("spread"), class.spread, 0.0, 1.0)?;
    if class.topic.is_empty() || class.topic.len() > 1000 || class.topic.contains(['#', '+', '\0']) {
        return Err((
            key("topic"),
            format!("= {:?} is refused: it must be a topic without wildcards", class.topic),
        ));
    }
    if class.topics > 1 && !class.topic.contains("%t") {
        return Err((key("topics"), format!("= {} is refused: topic has no %t", class.topics)));
    }
    if class.follows && class.rate.is_none() {
        return Err((
            key("follows"),
            "= true is refused: a device that follows needs a rate of its own".to_owned(),
        ));
    }
    Ok(())
}

fn check_consumers(consumers: &Consumers) -> Result<(), Problem> {
    name_fits("consumers.name", &consumers.name)?;
    let key = |name: &str| format!("consumers {:?}: {name}", consumers.name);
    if let Some(rate) = consumers.rate {
        within(&key("rate"), rate, 1e-6, 1e6)?;
    }
    within(&key("qos"), consumers.qos.into(), 0.0, 2.0)?;
    if let Some(group) = &consumers.group {
        name_fits(&key("group"), group)?;
        if group.contains(['/', '+', '#']) {
            return Err((key("group"), format!("= {group:?} is refused: it must be a name without / + #")));
        }
    }
    within(&key("receive_maximum"), consumers.receive_maximum.unwrap_or(1).into(), 1.0, 65_535.0)?;
    within(&key("receive_buffer"), consumers.receive_buffer.unwrap_or(4096).into(), 256.0, 1e9)?;
    if consumers.filter.is_empty()
        || consumers.filter.len() > 1000
        || consumers.filter.starts_with("$share/")
        || consumers.filter.contains('\0')
    {
        let told = "a filter; a shared group is named with `group`";
        return Err((key("filter"), format!("= {:?} is refused: it must be {told}", consumers.filter)));
    }
    for (name, points, highest) in
        [("speed", &consumers.speed, 1e3), ("schedule", &consumers.schedule, f64::from(consumers.instances))]
    {
        within(&key(&format!("{name}: points")), points.len() as f64, 0.0, MOST_ENTRIES as f64)?;
        for [time, value] in points {
            within(&key(&format!("{name}: a time")), *time, 0.0, 1.0)?;
            within(&key(&format!("{name}: a value")), *value, 0.0, highest)?;
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[1][0] < pair[0][0]) {
            return Err((key(name), format!("falls back in time at {}", pair[1][0])));
        }
    }
    if let Some([_, part]) = consumers.schedule.iter().find(|[_, count]| count.fract() != 0.0) {
        return Err((key("schedule"), format!("= {part} is refused: there are only whole instances")));
    }
    Ok(())
}

fn check_band(key: &str, band: &[f64; 2], measures: &[String]) -> Result<(), Problem> {
    if !measures.iter().any(|name| name == key) {
        let known = measures.join(", ");
        return Err((format!("expect.{key}"), format!("is not known: it must be one of {known}")));
    }
    if band[0] <= band[1] { Ok(()) } else { Err(problem(&format!("expect.{key}"), "must be [low, high]")) }
}

/// A name that is shown, and that a client identifier begins with.
fn name_fits(key: &str, name: &str) -> Result<(), Problem> {
    within(&format!("{key}: its length"), name.len() as f64, 1.0, MOST_LETTERS as f64)?;
    if name.contains(char::is_control) {
        return Err((key.to_owned(), format!("= {name:?} is refused: it must be words in one line")));
    }
    Ok(())
}

fn problem(key: &str, text: &str) -> Problem {
    (key.to_owned(), text.to_owned())
}

fn within(key: &str, number: f64, low: f64, high: f64) -> Result<(), Problem> {
    if (low..=high).contains(&number) {
        return Ok(());
    }
    Err((key.to_owned(), format!("= {number} is refused: it must be from {low} to {high}")))
}

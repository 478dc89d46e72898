//! What makes no sense in a scenario, though each value on its own could be read.

use tidegate_control::autoscale::{Coupling, ScalerConfig};
use tidegate_control::time::Span;

use super::{Class, Consumers, CouplingName, Scenario, ScenarioError};
use crate::check::HEADER;
use crate::compare::MEASURES;

type Problem = (String, String);

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
        within("duration", self.duration, 0.1, 86_400.0)?;
        within("warmup", self.warmup, 0.0, 3600.0)?;
        within("drain", self.drain, 0.0, 3600.0)?;
        within("interval", self.interval, 0.01, self.duration)?;
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
        self.check_rest()
    }

    fn check_sizes(&self) -> Result<(), Problem> {
        let devices: f64 = self.classes.iter().map(|class| f64::from(class.devices)).sum();
        within("class: all devices together", devices, 1.0, 200_000.0)?;
        let flows: f64 =
            self.classes.iter().map(|class| f64::from(class.devices) * f64::from(class.topics)).sum();
        within("class: all devices times topics", flows, 1.0, 2e6)?;
        let consumers: f64 = self.consumers.iter().map(|consumers| f64::from(consumers.instances)).sum();
        within("consumers: all instances together", consumers, 0.0, 200_000.0)?;
        Ok(())
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
        for event in &self.events {
            within("event.at", event.at, 0.0, 1.0)?;
            within("event.share", event.share, 0.0, 1.0)?;
        }
        if let Some(config) = self.scaler_config() {
            config.build().map_err(|error| ("autoscale".to_owned(), error.to_string()))?;
        }
        if self.autoscale.is_some() && self.consumers.is_empty() {
            return Err(problem("autoscale", "needs consumers"));
        }
        self.expect.iter().try_for_each(|(key, band)| check_band(key, band))
    }
}

fn check_class(class: &Class) -> Result<(), Problem> {
    let key = |name: &str| format!("class {:?}: {name}", class.name);
    if let Some(rate) = class.rate {
        within(&key("rate"), rate, 1e-6, 1e7)?;
    }
    within(&key("window"), class.window.into(), 1.0, 65_535.0)?;
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
    let key = |name: &str| format!("consumers {:?}: {name}", consumers.name);
    if let Some(rate) = consumers.rate {
        within(&key("rate"), rate, 1e-6, 1e6)?;
    }
    within(&key("qos"), consumers.qos.into(), 0.0, 2.0)?;
    if consumers.filter.is_empty() || consumers.filter.len() > 1000 || consumers.filter.starts_with("$share/")
    {
        let told = "a filter; a shared group is named with `group`";
        return Err((key("filter"), format!("= {:?} is refused: it must be {told}", consumers.filter)));
    }
    for (name, points, highest) in
        [("speed", &consumers.speed, 1e3), ("schedule", &consumers.schedule, f64::from(consumers.instances))]
    {
        for [time, value] in points {
            within(&key(&format!("{name}: a time")), *time, 0.0, 1.0)?;
            within(&key(&format!("{name}: a value")), *value, 0.0, highest)?;
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[1][0] < pair[0][0]) {
            return Err((key(name), format!("falls back in time at {}", pair[1][0])));
        }
    }
    Ok(())
}

fn check_band(key: &str, band: &[f64; 2]) -> Result<(), Problem> {
    if !MEASURES.iter().any(|measure| measure.name == key) {
        let known = MEASURES.map(|measure| measure.name).join(", ");
        return Err((format!("expect.{key}"), format!("is not known: it must be one of {known}")));
    }
    if band[0] <= band[1] { Ok(()) } else { Err(problem(&format!("expect.{key}"), "must be [low, high]")) }
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

//! The settings of the plugin, checked.

use tidegate_control::overload::drain::Hears;
use tidegate_control::overload::phase::Threshold;
use tidegate_control::overload::{Config, DrainConfig, PhaseConfig};
use tidegate_control::time::Span;

/// Classes are numbered by the bits of a word.
pub(crate) const MAX_CLASSES: usize = 60;
/// The class of those that no other class wants.
pub(crate) const DEFAULT: &str = "default";
/// A queue is held at no more than this share of the delay at which it would hold its publishers itself.
const SHARE_OF_HOLD: f64 = 0.6;

/// How the rate is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// A target delay and a bounded time to drain what is over it.
    #[default]
    Drain,
    /// The three-phase machine of the paper.
    Phase,
}

/// What the plugin is told.
#[derive(Debug, Clone, PartialEq)]
pub struct OverloadConfig {
    /// What control topics start with.
    pub prefix: String,
    /// How the rate is found.
    pub algorithm: Algorithm,
    /// The delay that a queue may have.
    pub target_delay: Span,
    /// Messages that may wait in a queue in any case, where it matters; else the delay alone counts.
    pub threshold: Option<u64>,
    /// The delay at which queues hold their publishers themselves; rates are to act before.
    pub hold_delay: Span,
    /// Messages a second that one publisher sends when nobody holds it, where it is known.
    pub default_rate: Option<f64>,
    /// Classes of publishers; the first that matches wins.
    pub classes: Vec<ClassConfig>,
    /// How long a publisher counts after its last message, at least.
    pub window: Span,
    /// How long an announcement holds.
    pub ttl: Span,
    /// Queues that are protected; all when there is no rule.
    pub protect: Vec<QueueRule>,
    /// Queues that are not.
    pub ignore: Vec<QueueRule>,
    /// A consumer that takes nothing for this long holds nobody back.
    pub progress_timeout: Span,
    /// Whether protection waits until a queue's auto-scaler has reached its limit, see [`tidegate_plugin::QueueControl::set_saturated`].
    pub needs_saturation: bool,
}

impl Default for OverloadConfig {
    fn default() -> Self {
        Self {
            prefix: "$tide/v1".into(),
            algorithm: Algorithm::Drain,
            target_delay: Span::from_millis(100),
            threshold: None,
            hold_delay: Span::MAX,
            default_rate: None,
            classes: Vec::new(),
            window: Span::from_secs(10),
            ttl: Span::from_secs(10),
            protect: Vec::new(),
            ignore: Vec::new(),
            progress_timeout: Span::from_secs(10),
            needs_saturation: false,
        }
    }
}

/// A class of publishers. Patterns that are given must all match; `*` stands for any text.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassConfig {
    /// Its name, a level of a topic.
    pub name: String,
    /// Client identifiers.
    pub client: Option<String>,
    /// User names.
    pub user: Option<String>,
    /// Topics, one of which it used among its first messages.
    pub topic: Option<String>,
    /// The share of one client, relative to those of others.
    pub weight: f64,
    /// The least rate of one client.
    pub floor: f64,
    /// The highest rate of one client while it is held back.
    pub ceiling: Option<f64>,
    /// The rate of one client that nobody holds back, where it is known.
    pub default_rate: Option<f64>,
    /// Whether it is never held back.
    pub exempt: bool,
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self {
            name: DEFAULT.into(),
            client: None,
            user: None,
            topic: None,
            weight: 1.0,
            floor: 0.0,
            ceiling: None,
            default_rate: None,
            exempt: false,
        }
    }
}

/// Which queues are meant; what is given must all match.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QueueRule {
    /// Filters, as text.
    pub filter: Option<String>,
    /// Shared groups.
    pub group: Option<String>,
    /// Queues that are delivered with at least this QoS.
    pub min_qos: u8,
    /// The delay that these queues may have.
    pub target_delay: Option<Span>,
    /// Messages that may wait in these queues in any case.
    pub threshold: Option<u64>,
    /// Messages a second of one publisher of these queues that nobody holds back, if its class does not say.
    pub default_rate: Option<f64>,
}

/// A setting that can't be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OverloadError {
    /// The prefix of control topics.
    #[error("must be a topic that starts with \"$tide/\" and has no wildcard: clients can't publish there")]
    Prefix,
    /// The name of a class.
    #[error("must be a name of 1 to 64 letters, digits, `-` and `_` that no other class has")]
    ClassName,
    /// A class without a pattern.
    #[error("needs a pattern: client, user or topic; only the class \"default\" is for all others")]
    ClassPattern,
    /// A number or a time.
    #[error("must be {0}")]
    Value(&'static str),
    /// Too many classes.
    #[error("must be at most {MAX_CLASSES} classes")]
    Classes,
}

/// The key that is wrong, and why.
pub type Wrong = (String, OverloadError);

impl OverloadConfig {
    /// Says what is wrong, with the key that it is about.
    pub fn check(&self) -> Result<(), Wrong> {
        let wrong = |key: &str, error: OverloadError| Err((format!("overload.{key}"), error));
        let plain = |c: char| c != '+' && c != '#' && c != '\0';
        let rest = self.prefix.strip_prefix("$tide/").filter(|rest| !rest.is_empty() && !rest.ends_with('/'));
        if self.prefix.len() > 256 || !rest.is_some_and(|rest| rest.chars().all(plain)) {
            return wrong("prefix", OverloadError::Prefix);
        }
        if self.target_delay.is_zero() || self.controller(None).build().is_err() {
            return wrong("target_delay_ms", OverloadError::Value("at least 1"));
        }
        if self.threshold.is_some_and(|depth| !is_threshold(depth)) {
            return wrong("threshold", OverloadError::Value(THRESHOLD));
        }
        if self.default_rate.is_some_and(|rate| !is_rate(rate)) {
            return wrong(
                "default_rate",
                OverloadError::Value("a number above 0, or 0 where it is not known"),
            );
        }
        if self.classes.len() > MAX_CLASSES {
            return wrong("classes", OverloadError::Classes);
        }
        for (index, class) in self.classes.iter().enumerate() {
            let twice = self.classes[..index].iter().any(|other| other.name == class.name);
            let checked = if twice { Err(("name", OverloadError::ClassName)) } else { class.check() };
            checked.or_else(|(key, error)| wrong(&format!("classes.{index}.{key}"), error))?;
        }
        for (list, rules) in [("protect", &self.protect), ("ignore", &self.ignore)] {
            for (index, rule) in rules.iter().enumerate() {
                rule.check().or_else(|(key, error)| wrong(&format!("{list}.{index}.{key}"), error))?;
            }
        }
        Ok(())
    }

    /// The controller of a queue with what its rule says, or with what counts for all.
    pub(crate) fn controller(&self, rule: Option<&QueueRule>) -> Config {
        let target_delay = self.target(rule.and_then(|rule| rule.target_delay));
        let threshold = rule.and_then(|rule| rule.threshold).or(self.threshold);
        let needs_saturation = self.needs_saturation;
        match self.algorithm {
            Algorithm::Drain => {
                // Most publishers hear with an acknowledgement, and are held to it at their next message.
                let hears = Hears::WithAck;
                let mut config =
                    DrainConfig { target_delay, hears, needs_saturation, ..DrainConfig::default() };
                if let Some(depth) = threshold {
                    config.target_depth = depth as f64;
                }
                Config::Drain(config)
            }
            Algorithm::Phase => {
                let threshold = threshold.map_or(Threshold::Delay(target_delay), Threshold::Depth);
                Config::Phase(PhaseConfig { threshold, needs_saturation, ..PhaseConfig::default() })
            }
        }
    }

    /// The highest target delay that counts: one over the delay at which the queue holds everybody by itself would never
    /// be reached.
    pub fn longest_target(&self) -> Span {
        self.hold_delay.scale(SHARE_OF_HOLD)
    }

    fn target(&self, target: Option<Span>) -> Span {
        target.unwrap_or(self.target_delay).min(self.longest_target())
    }
}

/// What a threshold has to be.
const THRESHOLD: &str = "from 1 to 1000000000, or left out";

fn is_threshold(depth: u64) -> bool {
    (1..=1_000_000_000).contains(&depth)
}

fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

impl ClassConfig {
    fn check(&self) -> Result<(), (&'static str, OverloadError)> {
        let value = |key, need| Err((key, OverloadError::Value(need)));
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(word) {
            return Err(("name", OverloadError::ClassName));
        }
        let no_pattern = self.client.is_none() && self.user.is_none() && self.topic.is_none();
        if no_pattern && self.name != DEFAULT {
            return Err(("name", OverloadError::ClassPattern));
        }
        if !(self.weight > 0.0 && self.weight <= 1e6) {
            return value("weight", "a number above 0 and at most 1000000");
        }
        if !(self.floor.is_finite() && self.floor >= 0.0) {
            return value("floor", "a number of at least 0");
        }
        if self.ceiling.is_some_and(|ceiling| !is_rate(ceiling) || ceiling < self.floor) {
            return value("ceiling", "a number above 0 and not under floor, or 0 for none");
        }
        if self.default_rate.is_some_and(|rate| !is_rate(rate)) {
            return value("default_rate", "a number above 0, or 0 where it is not known");
        }
        Ok(())
    }
}

impl QueueRule {
    fn check(&self) -> Result<(), (&'static str, OverloadError)> {
        if self.min_qos > 2 {
            return Err(("min_qos", OverloadError::Value("0, 1 or 2")));
        }
        if self.target_delay.is_some_and(|delay| delay.is_zero()) {
            return Err(("target_delay_ms", OverloadError::Value("at least 1")));
        }
        if self.threshold.is_some_and(|depth| !is_threshold(depth)) {
            return Err(("threshold", OverloadError::Value(THRESHOLD)));
        }
        if self.default_rate.is_some_and(|rate| !is_rate(rate)) {
            return Err(("default_rate", OverloadError::Value("a number above 0, or left out")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn class(name: &str) -> ClassConfig {
        ClassConfig { name: name.into(), client: Some("x*".into()), ..ClassConfig::default() }
    }

    fn refusal(config: &OverloadConfig) -> (String, String) {
        let (key, error) = config.check().unwrap_err();
        (key, error.to_string())
    }

    #[test]
    fn the_default_is_right_and_nonsense_is_told() {
        OverloadConfig::default().check().unwrap();
        for prefix in ["", "$tide", "$tide/", "tide/v1", "$tide/#", "$tide/v1/", "$SYS/x"] {
            let config = OverloadConfig { prefix: prefix.into(), ..OverloadConfig::default() };
            assert_eq!(refusal(&config).0, "overload.prefix", "{prefix}");
        }
        let config = OverloadConfig { target_delay: Span::ZERO, ..OverloadConfig::default() };
        assert_eq!(refusal(&config).0, "overload.target_delay_ms");
    }

    #[test]
    fn classes_are_checked() {
        type Spoil = (fn(&mut ClassConfig), &'static str);
        let spoilt: [Spoil; 8] = [
            (|c| c.weight = 0.0, "weight"),
            (|c| c.weight = f64::NAN, "weight"),
            (|c| c.floor = -1.0, "floor"),
            (|c| c.ceiling = Some(-1.0), "ceiling"),
            (|c| (c.floor, c.ceiling) = (2.0, Some(1.0)), "ceiling"),
            (|c| c.default_rate = Some(f64::INFINITY), "default_rate"),
            (|c| c.client = None, "name"),
            (|c| c.name = "a/b".into(), "name"),
        ];
        for (spoil, key) in spoilt {
            let mut wrong = class("alarm");
            spoil(&mut wrong);
            let classes = vec![class("good"), wrong];
            let config = OverloadConfig { classes, ..OverloadConfig::default() };
            assert_eq!(refusal(&config).0, format!("overload.classes.1.{key}"));
        }
        let classes = vec![class("a"), class("a")];
        let config = OverloadConfig { classes, ..OverloadConfig::default() };
        assert_eq!(refusal(&config).0, "overload.classes.1.name");
        let classes = (0..=MAX_CLASSES).map(|n| class(&format!("c{n}"))).collect();
        let config = OverloadConfig { classes, ..OverloadConfig::default() };
        assert_eq!(refusal(&config).1, "must be at most 60 classes");
    }

    #[test]
    fn rules_are_checked() {
        let rule = QueueRule { min_qos: 3, ..QueueRule::default() };
        let config = OverloadConfig { ignore: vec![rule], ..OverloadConfig::default() };
        assert_eq!(refusal(&config).0, "overload.ignore.0.min_qos");
        let rule = QueueRule { target_delay: Some(Span::ZERO), ..QueueRule::default() };
        let config = OverloadConfig { protect: vec![rule], ..OverloadConfig::default() };
        assert_eq!(refusal(&config).0, "overload.protect.0.target_delay_ms");
        let rule = QueueRule { threshold: Some(0), ..QueueRule::default() };
        let config = OverloadConfig { protect: vec![rule], ..OverloadConfig::default() };
        assert_eq!(refusal(&config).0, "overload.protect.0.threshold");
        let rule = QueueRule { default_rate: Some(f64::NAN), ..QueueRule::default() };
        let config = OverloadConfig { protect: vec![rule], ..OverloadConfig::default() };
        assert_eq!(refusal(&config).0, "overload.protect.0.default_rate");
        let config = OverloadConfig { threshold: Some(0), ..OverloadConfig::default() };
        assert_eq!(refusal(&config).0, "overload.threshold");
    }

    #[test]
    fn rates_act_before_queues_do() {
        let hold_delay = Span::from_millis(100);
        let config = OverloadConfig { hold_delay, ..OverloadConfig::default() };
        assert_eq!(config.target(None), Span::from_millis(60));
        assert_eq!(config.target(Some(Span::from_millis(20))), Span::from_millis(20));
    }
}

//! Which class a publisher is of.

use std::sync::Arc;

use tidegate_control::allocate::MAX_RATE;
use tidegate_plugin::Publisher;

use crate::config::{ClassConfig, DEFAULT, OverloadConfig};
use crate::glob;

/// The longest time between two messages that is ever announced: a publisher told to stop could not be told to start.
const LONGEST_INTERVAL: f64 = 60.0;
/// The least share of its own rate that a publisher is told.
const LEAST_SHARE: f64 = 0.01;

/// A class.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) name: Arc<str>,
    patterns: ClassConfig,
    pub(crate) weight: f64,
    /// The least rate of a client, as long as the floors of all fit.
    pub(crate) floor: f64,
    /// The least rate that a client is ever told; above 0.
    pub(crate) least: f64,
    /// The highest rate of a client while it is held back.
    pub(crate) ceiling: f64,
    /// The rate of a client that nobody holds back, where it is known.
    pub(crate) default_rate: Option<f64>,
    pub(crate) exempt: bool,
}

/// What topics a publisher has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Used {
    /// The classes, as bits, whose topics they were.
    pub(crate) classes: u64,
    /// Whether it sent anything that is not exempt.
    pub(crate) ordinary: bool,
}

/// The largest share of a publisher in line.
const MOST_SHARE: f64 = 1000.0;
/// Shares are whole numbers: how finely they are told apart for that, and how near they must come.
const FINEST: u32 = 20;
const NEAR: f64 = 0.05;

/// All classes; the last one is for those that no other wants.
#[derive(Debug)]
pub(crate) struct Classes {
    all: Vec<Class>,
    /// The weight that stands for a share of 1, where publishers stand in line.
    unit: f64,
}

impl Classes {
    pub(crate) fn new(config: &OverloadConfig) -> Self {
        let is_default = |class: &&ClassConfig| class.name == DEFAULT;
        let named = config.classes.iter().filter(|class| !is_default(class));
        let default = config.classes.iter().find(is_default).cloned().unwrap_or_default();
        let all: Vec<_> =
            named.chain([&default]).map(|class| Class::new(class, config.default_rate)).collect();
        // who is exempt does not stand in line
        let weights = all.iter().filter(|class| !class.exempt).map(|class| class.weight);
        let unit = unit_of(&weights.collect::<Vec<_>>());
        Self { all, unit }
    }

    pub(crate) fn get(&self, index: usize) -> &Class {
        // A publisher's class is always one that `of` gave.
        &self.all[index.min(self.all.len() - 1)]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The class of those that no other class wants.
    pub(crate) fn default(&self) -> usize {
        self.all.len() - 1
    }

    /// The class of this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|class| *class.name == *name)
    }

    /// Whether classes depend on topics.
    pub(crate) fn by_topic(&self) -> bool {
        self.all.iter().any(|class| class.patterns.topic.is_some())
    }

    /// The classes, as bits, whose topics this is one of.
    pub(crate) fn with_topic(&self, topic: &str) -> u64 {
        let wants = |class: &Class| class.patterns.topic.as_deref().is_some_and(|t| glob::matches(t, topic));
        self.all.iter().enumerate().fold(0, |bits, (index, class)| bits | u64::from(wants(class)) << index)
    }

    /// Whether a message of this publisher on a topic of these classes is never held back.
    pub(crate) fn exempts(&self, publisher: &Publisher, topic: u64) -> bool {
        self.get(self.of(publisher, Used { classes: topic, ordinary: false })).exempt
    }

    /// Tells the gateway what such a publisher is where publishers stand in line.
    pub(crate) fn settle(&self, publisher: &Publisher, used: Used) {
        let class = self.get(self.of(publisher, used));
        publisher.set_exempt(class.exempt);
        publisher.set_share((class.weight / self.unit).round().clamp(1.0, MOST_SHARE) as u32);
    }

    /// The class of a publisher that has used these topics. Messages on an exempt topic are exempt, not who sends others
    /// besides.
    pub(crate) fn of(&self, publisher: &Publisher, used: Used) -> usize {
        let wants = |(index, class): (usize, &Class)| {
            let ClassConfig { client, user, topic, .. } = &class.patterns;
            let by_topic = used.classes & 1 << index != 0 && !(class.exempt && used.ordinary);
            glob::fits(client.as_deref(), Some(&publisher.client))
                && glob::fits(user.as_deref(), publisher.user.as_deref())
                && (topic.is_none() || by_topic)
        };
        let last = self.default();
        self.all[..last].iter().enumerate().position(wants).unwrap_or(last)
    }
}

/// The largest weight of which all these weights are multiples, or nearly: 1.5 to 1 is 3 to 2.
fn unit_of(weights: &[f64]) -> f64 {
    let least = weights.iter().copied().fold(f64::MAX, f64::min);
    let most = weights.iter().copied().fold(0.0, f64::max);
    let smallest = most / MOST_SHARE;
    let whole = |unit: &f64| {
        let far = |share: f64| share >= 1.0 && (share.round() - share).abs() > NEAR * share;
        !weights.iter().any(|weight| far(weight / unit))
    };
    let units = || (1..=FINEST).map(|parts| least / f64::from(parts)).filter(|unit| *unit >= smallest);
    units().find(whole).or(units().next_back()).unwrap_or(smallest)
}

impl Class {
    fn new(config: &ClassConfig, default_rate: Option<f64>) -> Self {
        let default_rate = config.default_rate.or(default_rate);
        let own = default_rate.unwrap_or(MAX_RATE);
        let ceiling = config.ceiling.unwrap_or(MAX_RATE).min(own);
        let least = (LEAST_SHARE * default_rate.unwrap_or(0.0)).max(1.0 / LONGEST_INTERVAL);
        Self {
            name: config.name.as_str().into(),
            weight: config.weight,
            floor: config.floor.max(least).min(ceiling),
            least: least.min(ceiling),
            ceiling,
            default_rate,
            exempt: config.exempt,
            patterns: config.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> Classes {
        let class = |name: &str| ClassConfig { name: name.into(), ..ClassConfig::default() };
        let classes = vec![
            ClassConfig { topic: Some("alarm/*".into()), ..class("alarm") },
            ClassConfig { weight: 9.0, ..class("default") },
            ClassConfig { client: Some("cam-*".into()), ..class("camera") },
            ClassConfig { user: Some("lab".into()), client: Some("*7".into()), ..class("lab") },
        ];
        Classes::new(&OverloadConfig { classes, default_rate: Some(2.0), ..OverloadConfig::default() })
    }

    fn name(client: &str, user: Option<&str>, topics: &[&str]) -> Arc<str> {
        let classes = classes();
        let bits = topics.iter().fold(0, |bits, topic| bits | classes.with_topic(topic));
        let publisher = Publisher::new(client.into(), user.map(Into::into), 0, 5);
        let used = Used { classes: bits, ordinary: true };
        Arc::clone(&classes.get(classes.of(&publisher, used)).name)
    }

    #[test]
    fn the_first_match_wins_and_all_that_is_given_must_match() {
        assert_eq!(&*name("cam-1", None, &[]), "camera");
        assert_eq!(&*name("cam-1", None, &["x", "alarm/fire"]), "alarm");
        assert_eq!(&*name("dev-7", Some("lab"), &["x"]), "lab");
        assert_eq!(&*name("dev-7", None, &[]), "default");
        assert_eq!(&*name("dev-8", Some("lab"), &[]), "default");
    }

    #[test]
    fn shares_in_line_are_as_weights_are() {
        let shares = |weights: &[f64]| -> Vec<u32> {
            let class = |(index, weight): (usize, &f64)| ClassConfig {
                name: format!("c{index}"),
                client: Some(format!("c{index}")),
                weight: *weight,
                exempt: *weight == 0.001,
                ..ClassConfig::default()
            };
            let classes = weights.iter().enumerate().map(class).collect();
            let classes = Classes::new(&OverloadConfig { classes, ..OverloadConfig::default() });
            let share = |name: String| {
                let publisher = Publisher::new(name.into(), None, 0, 5);
                classes.settle(&publisher, Used::default());
                publisher.share()
            };
            (0..=weights.len()).map(|index| share(format!("c{index}"))).collect()
        };
        // the last one is of the default class, which weighs 1
        assert_eq!(shares(&[0.25, 4.0]), [1, 16, 4]);
        assert_eq!(shares(&[4.0]), [4, 1]);
        assert_eq!(shares(&[1.5]), [3, 2]);
        assert_eq!(shares(&[1.25, 0.75]), [5, 3, 4]);
        assert_eq!(shares(&[600.5])[1], 1, "that is near enough");
        assert_eq!(shares(&[0.001, 2.0])[1..], [2, 1], "who is exempt does not count");
        assert_eq!(shares(&[1e6, 1e5]), [1000, 100, 1], "there is a bound");
    }

    #[test]
    fn numbers_are_filled_in() {
        let classes = classes();
        let default = classes.get(classes.default());
        assert_eq!((default.weight, default.default_rate, default.ceiling), (9.0, Some(2.0), 2.0));
        assert_eq!(default.floor, 0.02);
        assert_eq!(classes.len(), 4);
        assert!(classes.by_topic());
    }
}

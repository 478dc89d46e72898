//! Which queues are protected, and how.

use std::sync::Arc;

use tidegate_plugin::QueueReport;

use crate::class::Classes;
use crate::config::{OverloadConfig, QueueRule};
use crate::glob;
use crate::number::Numbered;

/// How queues are protected: by one rule, or as all are when there is none.
#[derive(Debug)]
pub(crate) struct Protection {
    pub(crate) rule: Option<QueueRule>,
    /// Classes of publishers, with the default rate of the rule if it has one.
    pub(crate) classes: Arc<Classes>,
}

/// Queues with so few filters are looked at again each time.
const FEW: usize = 8;

/// All ways in which queues are protected.
#[derive(Debug)]
pub(crate) struct Rules {
    protect: Vec<Arc<Protection>>,
    ignore: Vec<QueueRule>,
    /// What was found for queues with many filters, by number.
    known: Numbered<u64, Known>,
}

/// What was found for a queue with these filters.
#[derive(Debug)]
struct Known {
    filters: Arc<[Arc<str>]>,
    qos: u8,
    found: Option<Arc<Protection>>,
    /// It was asked for in this turn.
    asked: bool,
}

impl Known {
    fn is_of(&self, report: &QueueReport) -> bool {
        Arc::ptr_eq(&self.filters, &report.filters) && self.qos == report.qos
    }
}

impl Rules {
    pub(crate) fn new(config: &OverloadConfig, classes: &Arc<Classes>) -> Self {
        let protection = |rule: &QueueRule| {
            let classes = match rule.default_rate {
                Some(_) => {
                    let default_rate = rule.default_rate;
                    Arc::new(Classes::new(&OverloadConfig { default_rate, ..config.clone() }))
                }
                None => Arc::clone(classes),
            };
            Arc::new(Protection { rule: Some(rule.clone()), classes })
        };
        let mut protect: Vec<_> = config.protect.iter().map(protection).collect();
        if protect.is_empty() {
            protect.push(Arc::new(Protection { rule: None, classes: Arc::clone(classes) }));
        }
        Self { protect, ignore: config.ignore.clone(), known: Numbered::default() }
    }

    /// How a queue is protected; none when it is not. A queue that several filters feed is protected if one of them is:
    /// what counts are its filters that are not ignored, and the first rule that one of them fits.
    pub(crate) fn of(&mut self, report: &QueueReport) -> Option<Arc<Protection>> {
        if report.never_holds {
            return None;
        }
        if report.filters.len() <= FEW {
            return self.find(report).cloned();
        }
        if let Some(known) = self.known.get_mut(&report.id).filter(|known| known.is_of(report)) {
            known.asked = true;
            return known.found.clone();
        }
        let (filters, found) = (Arc::clone(&report.filters), self.find(report).cloned());
        self.known.insert(report.id, Known { filters, qos: report.qos, found: found.clone(), asked: true });
        found
    }

    /// A turn is over: forgets queues that nobody asked for.
    pub(crate) fn end_turn(&mut self) {
        self.known.retain(|_, known| std::mem::take(&mut known.asked));
    }

    fn find(&self, report: &QueueReport) -> Option<&Arc<Protection>> {
        let ignored = |filter: &str| self.ignore.iter().any(|rule| rule.fits(report, filter));
        let mut counts = report.filters.iter().filter(|filter| !filter.starts_with('$') && !ignored(filter));
        let fits = |protection: &Protection, filter: &str| {
            protection.rule.as_ref().is_none_or(|rule| rule.fits(report, filter))
        };
        if let [only] = &*self.protect {
            return counts.any(|filter| fits(only, filter)).then_some(only);
        }
        let counts: Vec<_> = counts.collect();
        self.protect.iter().find(|protection| counts.iter().any(|filter| fits(protection, filter)))
    }
}

impl QueueRule {
    fn fits(&self, report: &QueueReport, filter: &str) -> bool {
        glob::fits(self.filter.as_deref(), Some(filter))
            && glob::fits(self.group.as_deref(), report.group.as_deref())
            && report.qos >= self.min_qos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::report;

    fn rule(filter: &str) -> QueueRule {
        QueueRule { filter: Some(filter.into()), ..QueueRule::default() }
    }

    /// The filter of the rule that protects a client with such filters, `*` when it is protected without one.
    fn protects(protect: &[&str], ignore: &[&str], filters: &[&str]) -> Option<String> {
        let rules = |list: &[&str]| list.iter().map(|filter| rule(filter)).collect();
        let config =
            OverloadConfig { protect: rules(protect), ignore: rules(ignore), ..OverloadConfig::default() };
        let classes = Arc::new(Classes::new(&config));
        let filters = filters.iter().map(|filter| (*filter).into()).collect();
        let queue = QueueReport { filters, ..report(1, Vec::new()) };
        let mut rules = Rules::new(&config, &classes);
        let found = rules.of(&queue).map(|protection| protection.rule.clone());
        found.map(|rule| rule.and_then(|rule| rule.filter).unwrap_or("*".into()))
    }

    /// Many filters are looked at once, and again when they or the highest QoS are others.
    #[test]
    fn what_was_found_is_known_until_it_changes() {
        let config = OverloadConfig {
            protect: vec![QueueRule { min_qos: 1, ..rule("billing/*") }],
            ..OverloadConfig::default()
        };
        let mut rules = Rules::new(&config, &Arc::new(Classes::new(&config)));
        let filters = |name: &str| (0..=FEW).map(|number| format!("{name}/{number}").into()).collect();
        let mut queue = QueueReport { filters: filters("billing"), qos: 1, ..report(1, Vec::new()) };
        assert!(rules.of(&queue).is_some());
        let rule = std::mem::take(&mut rules.protect);
        assert!(rules.of(&queue).is_some(), "it is not looked at again");
        rules.protect = rule;
        queue.qos = 0;
        assert!(rules.of(&queue).is_none());
        queue.qos = 1;
        assert!(rules.of(&queue).is_some());
        queue.filters = filters("debug");
        assert!(rules.of(&queue).is_none());
        rules.end_turn();
        assert_eq!(rules.known.len(), 1);
        rules.end_turn();
        assert_eq!(rules.known.len(), 0, "nobody asks for it any more");
    }

    #[test]
    fn all_filters_of_a_client_count() {
        for filters in [["billing/#", "debug/#"], ["debug/#", "billing/#"]] {
            assert_eq!(protects(&["billing/*"], &[], &filters).as_deref(), Some("billing/*"));
            assert_eq!(protects(&["debug/*", "billing/*"], &[], &filters).as_deref(), Some("debug/*"));
            assert_eq!(protects(&[], &["debug/*"], &filters).as_deref(), Some("*"));
            assert_eq!(protects(&[], &["debug/*", "billing/*"], &filters), None);
            // what is ignored is no reason to protect
            assert_eq!(protects(&["debug/*"], &["debug/*"], &filters), None);
            let both = protects(&["debug/*", "billing/*"], &["debug/*"], &filters);
            assert_eq!(both.as_deref(), Some("billing/*"));
        }
        assert_eq!(protects(&[], &[], &["$SYS/#"]), None);
        assert_eq!(protects(&[], &[], &["$SYS/#", "a"]).as_deref(), Some("*"));
    }
}

//! Which queues are protected, and how.

use std::sync::Arc;

use tidegate_plugin::QueueReport;

use crate::class::Classes;
use crate::config::{OverloadConfig, QueueRule};
use crate::glob;

/// How queues are protected: by one rule, or as all are when there is none.
#[derive(Debug)]
pub(crate) struct Protection {
    pub(crate) rule: Option<QueueRule>,
    /// Classes of publishers, with the default rate of the rule if it has one.
    pub(crate) classes: Arc<Classes>,
}

/// All ways in which queues are protected.
#[derive(Debug)]
pub(crate) struct Rules {
    protect: Vec<Arc<Protection>>,
    ignore: Vec<QueueRule>,
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
        Self { protect, ignore: config.ignore.clone() }
    }

    /// How a queue is protected; none when it is not. A queue that several filters feed is protected if one of them is:
    /// what counts are its filters that are not ignored, and the first rule that one of them fits.
    pub(crate) fn of(&self, report: &QueueReport) -> Option<&Arc<Protection>> {
        if report.never_holds {
            return None;
        }
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
        let rules = Rules::new(&config, &classes);
        let found = rules.of(&queue).map(|protection| protection.rule.clone());
        found.map(|rule| rule.and_then(|rule| rule.filter).unwrap_or("*".into()))
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

//! Which queues are protected.

use tidegate_control::time::Span;
use tidegate_plugin::QueueReport;

use crate::config::{OverloadConfig, QueueRule};
use crate::glob;

/// What the rules say of a queue: nothing when it is not protected, else its own target, if it has one.
pub(crate) fn protection(config: &OverloadConfig, report: &QueueReport) -> Option<Option<Span>> {
    if report.filter.starts_with('$')
        || config.ignore.iter().any(|rule| rule.wants(report))
        || report.never_holds
    {
        return None;
    }
    if config.protect.is_empty() {
        return Some(None);
    }
    config.protect.iter().find(|rule| rule.wants(report)).map(|rule| rule.target_delay)
}

impl QueueRule {
    fn wants(&self, report: &QueueReport) -> bool {
        glob::fits(self.filter.as_deref(), Some(&report.filter))
            && glob::fits(self.group.as_deref(), report.group.as_deref())
            && report.qos >= self.min_qos
    }
}

//! Which queues are protected.

use tidegate_control::time::Span;
use tidegate_plugin::{Host, QueueReport};

use crate::config::{Consumer, OverloadConfig, QueueRule};
use crate::glob;

/// What the rules say of a queue: nothing when it is not protected, else its own target, if it has one.
pub(crate) fn protection(
    config: &OverloadConfig,
    report: &QueueReport,
    host: &dyn Host,
) -> Option<Option<Span>> {
    if report.filter.starts_with('$')
        || config.ignore.iter().any(|rule| rule.wants(report))
        || config.never_hold.iter().any(|consumer| consumer.is(report, host))
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

impl Consumer {
    /// A group's members are many: only its filter counts.
    fn is(&self, report: &QueueReport, host: &dyn Host) -> bool {
        if let Some(group) = &report.group {
            let path = format!("$share/{group}/{}", report.filter);
            return self.user.is_none()
                && self.client.is_none()
                && glob::fits(self.filter.as_deref(), Some(&path));
        }
        if !glob::fits(self.filter.as_deref(), Some(&report.filter)) {
            return false;
        }
        if self.user.is_none() && self.client.is_none() {
            return true;
        }
        // A session's queue has the number that it has as a publisher.
        let client = host.publisher(report.id);
        client.is_some_and(|client| {
            glob::fits(self.client.as_deref(), Some(&client.client))
                && glob::fits(self.user.as_deref(), client.user.as_deref())
        })
    }
}

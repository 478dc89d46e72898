//! The topics of the control protocol for one client.

use tidegate_control::topic;

/// The control topics of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topics {
    pub(crate) rate: String,
    pub(crate) class: Option<String>,
    pub(crate) client: String,
    pub(crate) load: String,
    pub(crate) check: String,
    pub(crate) update: String,
    pub(crate) moved: String,
}

impl Topics {
    /// Topics under a prefix; none when prefix, client or class can't be part of a topic name.
    pub(crate) fn new(prefix: &str, client: &str, class: Option<&str>) -> Option<Self> {
        let level = |text: &str| topic::is_name(text) && !text.contains('/');
        let good = topic::is_name(prefix) && level(client) && class.is_none_or(level);
        good.then(|| Self {
            rate: format!("{prefix}/rate"),
            class: class.map(|class| format!("{prefix}/rate/class/{class}")),
            client: format!("{prefix}/rate/client/{client}"),
            load: format!("{prefix}/load"),
            check: format!("{prefix}/check/{client}"),
            update: format!("{prefix}/update/{client}"),
            moved: format!("{prefix}/move/{client}"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_that_would_change_the_meaning_are_refused() {
        let topics = Topics::new("$tide/v1", "meter-1", Some("alarm")).unwrap();
        assert_eq!(topics.class.as_deref(), Some("$tide/v1/rate/class/alarm"));
        assert_eq!(topics.client, "$tide/v1/rate/client/meter-1");
        for (prefix, client, class) in
            [("", "c", None), ("p", "", None), ("p", "a/b", None), ("p", "+", None), ("p", "c", Some("#"))]
        {
            assert_eq!(Topics::new(prefix, client, class), None, "{prefix} {client} {class:?}");
        }
    }
}

//! Topic filters.

/// Whether MQTT allows this filter.
pub fn is_valid(filter: &str) -> bool {
    let levels = filter.split('/').count();
    let good = |(place, level): (usize, &str)| match level {
        "+" => true,
        "#" => place + 1 == levels,
        name => !name.contains(['+', '#', '\0']),
    };
    !filter.is_empty() && filter.len() <= 65_535 && filter.split('/').enumerate().all(good)
}

/// Whether it names one topic only.
pub(crate) fn is_name(filter: &str) -> bool {
    !filter.contains(['+', '#'])
}

/// Whether a filter matches a topic. A wildcard does not match a first level that starts with `$`.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_specification_has_it() {
        for (filter, topic) in
            [("a/b", "a/b"), ("a/+", "a/"), ("#", "a/b/c"), ("a/#", "a"), ("+/+", "/b"), ("$x/#", "$x/y")]
        {
            assert!(matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in
            [("a/b", "a"), ("a", "a/b"), ("+", "a/b"), ("#", "$SYS/x"), ("+/x", "$SYS/x"), ("a/+", "a")]
        {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
        for bad in ["", "a#", "a/#/b", "+a", "a\0"] {
            assert!(!is_valid(bad), "{bad}");
        }
        assert!(is_valid("a/+/#") && is_name("a/b") && !is_name("a/+"));
    }
}

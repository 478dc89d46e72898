//! Topic names and filters: what is valid, what matches.

/// Whether a filter matches a topic. `$` topics are not matched by a wildcard in the first level.
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    let mut filters = filter.split('/');
    let mut levels = topic.split('/');
    loop {
        match (filters.next(), levels.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

/// Whether a filter is well formed: `#` only as the last level, `+` only as a whole level, not empty.
pub fn valid_filter(filter: &str) -> bool {
    if filter.is_empty() || filter.len() > usize::from(u16::MAX) {
        return false;
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let sound = match level {
            "#" => levels.peek().is_none(),
            "+" => true,
            other => !other.contains(['#', '+']),
        };
        if !sound {
            return false;
        }
    }
    true
}

/// Splits `$share/group/filter`. `Ok(None)` when it is not shared, `Err` when it is shared but malformed.
pub fn split_share(path: &str) -> Result<Option<(&str, &str)>, ()> {
    let Some(rest) = path.strip_prefix("$share/") else {
        return if path == "$share" { Err(()) } else { Ok(None) };
    };
    match rest.split_once('/') {
        Some((group, filter)) if !group.is_empty() && !group.contains(['+', '#']) && !filter.is_empty() => {
            Ok(Some((group, filter)))
        }
        _ => Err(()),
    }
}

/// Levels of a filter. Each may cost a node of the topic tree, which is a hundred times as large as a `/`.
const MAX_LEVELS: usize = 200;

/// The group and the filter of what a client subscribes to; `None` when it is malformed or has too many levels.
pub fn parse_subscription(path: &str) -> Option<(Option<&str>, &str)> {
    let (group, filter) = match split_share(path).ok()? {
        Some((group, filter)) => (Some(group), filter),
        None => (None, path),
    };
    let levels = filter.bytes().filter(|byte| *byte == b'/').count() + 1;
    (levels <= MAX_LEVELS && valid_filter(filter)).then_some((group, filter))
}

/// The part of a filter before its first wildcard, cut at a level's border: every match starts with it.
pub fn literal_prefix(filter: &str) -> &str {
    match filter.find(['+', '#']) {
        None => filter,
        Some(at) => filter[..at].trim_end_matches('/'),
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    // `split` yields at least one part
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_the_specification_says() {
        for (filter, topic, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("#", "a/b", true),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("a/+/c", "a/b/c", true),
            ("a/+/c", "a/b/d", false),
            ("a/b", "a/b/c", false),
            ("a/b/c", "a/b", false),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn filters_are_checked() {
        for good in ["#", "+", "a/#", "+/a/#", "/", "a//b", "$SYS/#"] {
            assert!(valid_filter(good), "{good}");
        }
        for bad in ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+"] {
            assert!(!valid_filter(bad), "{bad}");
        }
    }

    #[test]
    fn shares_are_split() {
        assert_eq!(split_share("$share/g/a/b"), Ok(Some(("g", "a/b"))));
        assert_eq!(split_share("a/b"), Ok(None));
        for bad in ["$share", "$share/", "$share/g", "$share//a", "$share/g+/a", "$share/g/"] {
            assert_eq!(split_share(bad), Err(()), "{bad}");
        }
    }

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("dev*", "dev1", true),
            ("*7", "dev17", true),
            ("a*b*c", "aXbYc", true),
            ("a*b", "ab", true),
            ("ab*b", "ab", false),
            ("dev", "dev1", false),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}

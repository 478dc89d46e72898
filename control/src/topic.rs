//! Topic filters of MQTT: which are valid, and what they match.

/// The longest name or filter, in bytes.
const LONGEST: usize = u16::MAX as usize;

/// Whether a filter matches a topic. A wildcard does not match a first level that starts with `$`.
pub fn matches(filter: &str, topic: &str) -> bool {
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

/// Whether a filter is well formed: `#` only as the last level, `+` only as a whole level, neither empty nor too long.
pub fn is_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let sound = match level {
            "#" => levels.peek().is_none(),
            "+" => true,
            name => !name.contains(['+', '#', '\0']),
        };
        if !sound {
            return false;
        }
    }
    !filter.is_empty() && filter.len() <= LONGEST
}

/// Whether a message may be published under this name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST && !name.contains(['+', '#', '\0'])
}

/// Splits `$share/group/filter`. `Ok(None)` when it is not shared, `Err` when it is shared but malformed.
#[allow(clippy::result_unit_err, reason = "there is one way to be malformed, and nothing to say about it")]
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
    fn filters_and_names_are_checked() {
        for good in ["#", "+", "a/#", "+/a/#", "/", "a//b", "$SYS/#"] {
            assert!(is_filter(good), "{good}");
        }
        for bad in ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+", "a\0"] {
            assert!(!is_filter(bad), "{bad}");
        }
        for (name, good) in
            [("a/b", true), ("/", true), ("", false), ("a/+", false), ("#", false), ("a\0", false)]
        {
            assert_eq!(is_name(name), good, "{name}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(!is_filter(&long) && !is_name(&long) && is_filter(&long[1..]) && is_name(&long[1..]));
    }

    #[test]
    fn shares_are_split() {
        assert_eq!(split_share("$share/g/a/b"), Ok(Some(("g", "a/b"))));
        assert_eq!(split_share("a/b"), Ok(None));
        for bad in ["$share", "$share/", "$share/g", "$share//a", "$share/g+/a", "$share/g/"] {
            assert_eq!(split_share(bad), Err(()), "{bad}");
        }
    }
}

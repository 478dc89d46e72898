//! Which keys there are, and which one was meant.

use std::sync::LazyLock;

use figment::value::{Dict, Value};

use super::Settings;

/// The prefix of environment variables.
pub(super) const PREFIX: &str = "TIDEGATE_";

/// Names less alike than this are not suggested.
const ALIKE: f64 = 0.7;

/// The tree of keys, taken from the defaults, so that it cannot differ from the settings.
static TREE: LazyLock<Value> =
    LazyLock::new(|| Value::serialize(Settings::default()).unwrap_or_else(|_| Value::from(Dict::new())));

static ALL: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut found = Vec::new();
    collect(&TREE, "", &mut found);
    found
});

/// Every key that holds a value, dotted.
pub(super) fn all() -> &'static [String] {
    &ALL
}

/// Whether there is such a key or table.
pub(super) fn is_known(key: &str) -> bool {
    TREE.find_ref(key).is_some()
}

/// Whether the key is a table of keys.
pub(super) fn is_table(key: &str) -> bool {
    TREE.find_ref(key).is_some_and(|value| value.as_dict().is_some())
}

/// The known key that an unknown one was probably meant to be.
pub(super) fn nearest(unknown: &str) -> Option<&'static str> {
    let last = last_part(unknown);
    let likeness = |key: &str| {
        let whole = strsim::normalized_damerau_levenshtein(unknown, key);
        // The right name in the wrong table is a common mistake.
        let part = if last_part(key) == last { 0.9 } else { 0.0 };
        whole.max(part)
    };
    let best = all().iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= ALIKE).then_some(best)
}

/// The name among `names` that was probably meant.
pub(super) fn nearest_of<'a>(unknown: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(unknown, name);
    let best = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= ALIKE).then_some(best)
}

/// The key that an environment variable sets; `None` if the variable is not ours.
pub(super) fn from_variable(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    if is_foreign(rest) {
        return None;
    }
    let rest = rest.to_lowercase();
    let dotted = rest.replace("__", ".");
    let single = || all().iter().find(|key| key.replace('.', "_") == rest).cloned();
    Some(if is_known(&dotted) { dotted } else { single().unwrap_or(dotted) })
}

/// The environment variable that sets a key.
pub(super) fn to_variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

/// `TIDEGATE_CONFIG` is an option of the command line, `TIDEGATE_TEST_...` and `TIDEGATE_BENCH_...` are for our own
/// tests and benches, and the others are what Kubernetes sets in every container next to a service that is called
/// `tidegate`.
fn is_foreign(rest: &str) -> bool {
    let prefixes = ["TEST_", "BENCH_", "PORT_", "SERVICE_"];
    rest == "CONFIG" || rest == "PORT" || prefixes.iter().any(|prefix| rest.starts_with(prefix))
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn collect(value: &Value, path: &str, found: &mut Vec<String>) {
    let Some(table) = value.as_dict() else {
        found.push(path.to_owned());
        return;
    };
    for (name, value) in table {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(value, &path, found);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_keys_are_those_of_the_settings() {
        for key in ["mode", "listen.mqtt", "tls.certificate", "access.users", "queue.never_hold", "log.level"]
        {
            assert!(all().iter().any(|known| known == key), "{key}");
        }
    }

    #[test]
    fn both_ways_to_write_a_variable_mean_the_same() {
        for key in all() {
            let double = to_variable(key);
            assert_eq!(from_variable(&double).as_ref(), Some(key));
            let single = format!("{PREFIX}{}", key.replace('.', "_").to_uppercase());
            assert_eq!(from_variable(&single).as_ref(), Some(key));
        }
        let flat: HashSet<_> = all().iter().map(|key| key.replace('.', "_")).collect();
        assert_eq!(flat.len(), all().len(), "two keys differ only in `.` and `_`");
    }

    #[test]
    fn foreign_variables_are_left_alone() {
        for name in ["PATH", "TIDEGATE_CONFIG", "TIDEGATE_SERVICE_HOST", "TIDEGATE_PORT_1883_TCP_ADDR"] {
            assert_eq!(from_variable(name), None, "{name}");
        }
        let sections: HashSet<_> = all().iter().filter_map(|key| key.split('.').next()).collect();
        assert!(sections.iter().all(|section| !is_foreign(&format!("{}_", section.to_uppercase()))));
        assert_eq!(from_variable("TIDEGATE_LISTN__MQTT").as_deref(), Some("listn.mqtt"));
    }

    #[test]
    fn typing_errors_are_understood() {
        assert_eq!(nearest("listen.max_conections"), Some("listen.max_connections"));
        assert_eq!(nearest("listn.mqtt"), Some("listen.mqtt"));
        assert_eq!(nearest("max_packet_size"), Some("session.max_packet_size"));
        assert_eq!(nearest("colour"), None);
    }
}

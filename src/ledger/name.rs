//! What a queue is called: in announcements, answers and labels of metrics.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Longer names are cut: clients choose them, and everybody reads them.
const LONGEST: usize = 200;

/// The queue of a shared group.
pub fn of_group(group: &str, filter: &str) -> Arc<str> {
    short(format!("{group}:{filter}"))
}

/// The queue of one client. A group's name has no slash, so that no client can take the name of a group's queue; and a
/// colon in an identifier is written so that none can take the name of another client's.
pub fn of_client(client: &str, filter: &str) -> Arc<str> {
    short(if client.contains([':', '%']) {
        format!("client/{}:{filter}", client.replace('%', "%25").replace(':', "%3A"))
    } else {
        format!("client/{client}:{filter}")
    })
}

/// Cuts what is too long; what was cut off still tells names apart.
fn short(name: String) -> Arc<str> {
    if name.len() <= LONGEST {
        return name.into();
    }
    let mut hash = DefaultHasher::new();
    name.hash(&mut hash);
    let end = (0..=LONGEST).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...{:016x}", &name[..end], hash.finish()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_takes_the_name_of_another_queue() {
        assert_eq!(&*of_group("workers", "sensors/#"), "workers:sensors/#");
        assert_eq!(&*of_client("workers", "sensors/#"), "client/workers:sensors/#");
        assert_ne!(of_client("a", "b:c"), of_client("a:b", "c"));
        assert_ne!(of_client("a%3Ab", "c"), of_client("a:b", "c"));
    }

    #[test]
    fn long_names_are_cut_and_told_apart() {
        let long = |end: &str| of_client("c", &format!("{}{end}", "ä/".repeat(30_000)));
        assert!(long("x").len() < LONGEST + 20);
        assert_ne!(long("x"), long("y"));
        assert!(long("x").starts_with("client/c:ä/ä/"));
    }
}

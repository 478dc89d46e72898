//! Limits of the operating system.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one and tells what it is now; `None` is no limit.
///
/// Every connection is an open file, and the usual soft limit is 1,024.
pub fn raise_file_limit() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let now = raise_file_limit().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!((limit.current, limit.maximum), (now, now));
    }
}

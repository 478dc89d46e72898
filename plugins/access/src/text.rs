//! Reading the operator's text files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// No users or rules file is anywhere near this; `/dev/zero` given by mistake is.
const MAX_BYTES: u64 = 64 << 20;

/// The whole file as text, if it is UTF-8 and not absurdly large.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 64 MiB"));
    }
    // Some editors begin a file with a mark that would become part of the first word.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

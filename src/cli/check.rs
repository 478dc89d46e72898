//! `tidegate check`.

use std::io::Write;

use super::{CliError, banner, wiring};
use crate::config::Loaded;
use crate::listen::{Tls, configured_addresses};

/// Reads everything that `serve` would read and says what would listen.
pub(super) fn check(loaded: &Loaded, out: &mut impl Write) -> Result<(), CliError> {
    let settings = &loaded.settings;
    Tls::load(&settings.tls)?;
    wiring::check_files(settings)?;
    let listening = configured_addresses(&settings.listen);
    let mut text =
        format!("configuration ok\n{}", banner::banner(loaded, &listening, &settings.admin.listen));
    for warning in banner::warnings(settings) {
        text.push_str(&format!("WARNING: {warning}\n"));
    }
    out.write_all(text.as_bytes()).map_err(|error| CliError::System("cannot write the answer", error))
}

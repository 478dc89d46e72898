//! Files that results go to: opened before a run, so that a run is never made for nothing.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tempfile::NamedTempFile;

/// Where one kind of results goes.
#[derive(Debug)]
pub(super) enum Output {
    /// Nowhere.
    None,
    /// The standard output.
    Standard,
    /// A file that takes the place of the old one when it is complete.
    Replace(NamedTempFile, PathBuf),
    /// A file that can only be written where it is: a device, or one in a folder that takes no new files.
    Direct(File, PathBuf),
}

/// Opens all outputs; `-` is the standard output, which only one of them can have.
pub(super) fn open<const N: usize>(paths: [(&str, Option<&Path>); N]) -> anyhow::Result<[Output; N]> {
    for (index, (option, path)) in paths.iter().enumerate() {
        let same = paths[..index].iter().find(|(_, other)| path.is_some() && other == path);
        if let (Some((other, _)), Some(path)) = (same, path) {
            bail!("{other} and {option} both name {}: one would write over the other", path.display());
        }
    }
    let opened = paths.map(|(option, path)| {
        let Some(path) = path else { return Ok(Output::None) };
        open_one(path).with_context(|| format!("{option} {}: it can't be written", path.display()))
    });
    let opened: Vec<Output> = opened.into_iter().collect::<anyhow::Result<_>>()?;
    opened.try_into().map_err(|_| anyhow::anyhow!("not all outputs were opened"))
}

impl Output {
    /// Whether results go to the standard output.
    pub(super) fn is_standard(&self) -> bool {
        matches!(self, Self::Standard)
    }

    /// Writes all of it, if it is wanted at all.
    pub(super) fn write(self, text: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Standard => print(&text()?),
            Self::Replace(mut file, path) => {
                let written = file.write_all(text()?.as_bytes()).and_then(|()| file.flush());
                written.with_context(|| path.display().to_string())?;
                file.persist(&path).with_context(|| path.display().to_string())?;
                Ok(())
            }
            Self::Direct(mut file, path) => {
                // A device can't be made shorter and need not be.
                let _ = file.set_len(0);
                file.write_all(text()?.as_bytes()).with_context(|| path.display().to_string())
            }
        }
    }
}

/// Writes to the standard output; that nobody reads it any more is no mistake.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("the standard output"),
        _ => Ok(()),
    }
}

fn open_one(path: &Path) -> io::Result<Output> {
    if path == Path::new("-") {
        return Ok(Output::Standard);
    }
    // A link stays, and the file behind it is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let direct = |path: PathBuf| Ok(Output::Direct(File::options().write(true).open(&path)?, path));
    match path.metadata() {
        Ok(known) if !known.is_file() => direct(path),
        known => match beside(&path) {
            Ok(file) => Ok(Output::Replace(file, path)),
            Err(_) if known.is_ok() => direct(path),
            Err(error) => Err(error),
        },
    }
}

/// A file in the same folder, so that it can be moved to its place; others may read it as far as they may read new files.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tidegate-bench-").suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn files(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        std::fs::write(&path, "old").unwrap();
        let [output] = open([("--json", Some(&path))]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        output.write(|| Ok("new".to_owned())).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        let [unused] = open([("--json", Some(&path))]).unwrap();
        drop(unused);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(files(folder.path()), ["out.json"], "nothing is left behind");
    }

    #[test]
    fn what_can_not_be_written_is_told_before() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("no/such/folder.html");
        for path in [nowhere.as_path(), folder.path()] {
            let error = format!("{:#}", open([("--html", Some(path))]).unwrap_err());
            assert!(error.contains("--html") && error.contains(path.to_str().unwrap()), "{error}");
        }
        let same = Some(Path::new("x"));
        assert!(open([("--json", same), ("--html", same)]).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let [output, device] =
            open([("--json", Some(&link)), ("--html", Some(Path::new("/dev/null")))]).unwrap();
        output.write(|| Ok("new".to_owned())).unwrap();
        device.write(|| Ok("gone".to_owned())).unwrap();
        assert!(link.is_symlink() && std::fs::read_to_string(&file).unwrap() == "new");
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}

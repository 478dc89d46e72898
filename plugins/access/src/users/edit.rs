//! Changing a users file: comments and order stay, and readers see the old file or the new one, never a part.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Users, UsersError, check_name, parse_line, password};

/// What [`set_user`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The user is new in the file.
    Added,
    /// The user was there and has the new password.
    Replaced,
}

/// Gives a user this hash (of [`super::hash_password`]); makes the file if there is none.
///
/// A new file can be read by its owner only. An existing one keeps its owner, and its group's right to read
/// if nobody else has it. A file that is not a valid users file is left alone. When two do this at once, the
/// later one wins.
pub fn set_user(path: &Path, user: &str, hash: &str) -> Result<Change, UsersError> {
    check_name(user).map_err(UsersError::Name)?;
    password::check(hash).map_err(|problem| UsersError::Hash(format!("the hash {problem}")))?;
    let old = match crate::text::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        other => other.map_err(|source| UsersError::Read { path: path.to_owned(), source })?,
    };
    let entry = format!("{user}:{hash}\n");
    let (mut new, found) = replace(&old, path, user, &entry)?;
    if !found {
        if !new.is_empty() && !new.ends_with('\n') {
            new.push('\n');
        }
        new.push_str(&entry);
    }
    write(path, &new)?;
    Ok(if found { Change::Replaced } else { Change::Added })
}

/// Takes a user out of the file.
pub fn delete_user(path: &Path, user: &str) -> Result<(), UsersError> {
    let old = crate::text::read(path).map_err(|source| UsersError::Read { path: path.to_owned(), source })?;
    let (new, found) = replace(&old, path, user, "")?;
    if !found {
        return Err(UsersError::NoSuchUser { path: path.to_owned(), user: user.to_owned() });
    }
    write(path, &new)
}

/// The text with the user's line replaced, and whether there was one.
fn replace(text: &str, path: &Path, user: &str, entry: &str) -> Result<(String, bool), UsersError> {
    // Only a valid file is rewritten: what is not a users file was given by mistake.
    Users::parse(text, path)?;
    let mut new = String::with_capacity(text.len() + entry.len() + 1);
    let mut found = false;
    for line in text.split_inclusive('\n') {
        if matches!(parse_line(line), Ok(Some((name, _))) if name == user) {
            new.push_str(entry);
            found = true;
        } else {
            new.push_str(line);
        }
    }
    Ok((new, found))
}

fn write(path: &Path, text: &str) -> Result<(), UsersError> {
    let failed = |source| UsersError::Write { path: path.to_owned(), source };
    // A link stays a link: what it points to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let random: [u8; 8] = password::random()?;
    let temporary = beside(&target, u64::from_ne_bytes(random)).map_err(failed)?;
    let written = write_new(&temporary, &target, text).and_then(|()| fs::rename(&temporary, &target));
    if written.is_err() {
        // Best effort: the error that counts is the first one.
        let _ = fs::remove_file(&temporary);
    }
    written.and_then(|()| sync_directory(&target)).map_err(failed)
}

/// A name in the same directory, because only within a file system renaming is atomic.
fn beside(target: &Path, random: u64) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{random:016x}.tmp"));
    Ok(target.with_file_name(temporary))
}

fn write_new(temporary: &Path, target: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(temporary)?;
    #[cfg(unix)]
    keep_owner(&file, target)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The broker, which may run as another user than the one who edits, must still be able to read the file.
#[cfg(unix)]
fn keep_owner(file: &File, target: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let old = match fs::metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    let deliberate = old.mode() & 0o007 == 0;
    let mode = if deliberate { 0o600 | (old.mode() & 0o040) } else { 0o600 };
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Makes the new name survive a power cut.
fn sync_directory(target: &Path) -> io::Result<()> {
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    if cfg!(unix) { File::open(directory.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}

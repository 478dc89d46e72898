//! Argon2id: making hashes and checking passwords against them.

use argon2::password_hash::rand_core::{OsRng, RngCore};
use argon2::password_hash::{Output, PasswordHash, PasswordHasher, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};

use super::UsersError;

/// 19 MiB, two passes, one lane: what OWASP recommends at least, and all that a broker should spend.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Hashes that cost more than this are refused: a login must not take the broker's memory.
const MAX_MEMORY_KIB: u32 = 256 * 1024;
const MAX_PASSES: u32 = 64;

/// glibc gives blocks above 32 MiB back to the system when they are freed, while smaller ones may stay with
/// each thread that ever ran argon2 (after 16 runs on 16 threads: 315 MB stay with 19 MiB blocks, 4 MB with
/// these). Pages that are reserved and never touched cost nothing.
const RESERVED_BLOCKS: usize = 33 * 1024;

/// Hashes a password with argon2id and a random salt, as a PHC string for a users file.
pub fn hash_password(password: &[u8]) -> Result<String, UsersError> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, default_params()?);
    let salt = SaltString::encode_b64(&random::<16>()?).map_err(hashing)?;
    Ok(argon2.hash_password(password, &salt).map_err(hashing)?.to_string())
}

/// Whether a hash from a users file is one that [`matches`] can work with; if not, what is wrong with it.
pub(super) fn check(hash: &str) -> Result<(), String> {
    const REMEDY: &str = "make the entry anew with `tidegate passwd`";
    if hash.starts_with("$7$") || hash.starts_with("$6$") {
        return Err(format!("was made by mosquitto_passwd, which hashes otherwise; {REMEDY}"));
    }
    let parsed = PasswordHash::new(hash)
        .map_err(|error| format!("is not `$argon2id$v=19$m=..,t=..,p=..$salt$hash` ({error}); {REMEDY}"))?;
    let argon2 = context(&parsed).ok_or_else(|| format!("is not an argon2id hash; {REMEDY}"))?;
    if parsed.salt.is_none() || parsed.hash.is_none() {
        return Err(format!("is cut off; {REMEDY}"));
    }
    if salt(&parsed, &mut [0; 64]).is_none_or(|salt| salt.len() < argon2::MIN_SALT_LEN) {
        return Err(format!("has a salt of less than {} bytes; {REMEDY}", argon2::MIN_SALT_LEN));
    }
    let params = argon2.params();
    if params.m_cost() > MAX_MEMORY_KIB || params.t_cost() > MAX_PASSES {
        return Err(format!("costs too much: at most m={MAX_MEMORY_KIB} and t={MAX_PASSES} are taken"));
    }
    Ok(())
}

/// Whether the password has this hash. Slow by design.
pub(super) fn matches(hash: &str, password: &[u8]) -> bool {
    recompute(hash, password).is_some_and(|(expected, computed)| expected == computed)
}

/// A hash of nothing that costs as much to check as `like`, or as a new one.
pub(super) fn decoy(like: Option<&str>) -> Result<String, UsersError> {
    let like = like.map(PasswordHash::new).transpose().map_err(hashing)?;
    let params = like.as_ref().map(Params::try_from).transpose().map_err(hashing)?;
    let params = params.map_or_else(default_params, Ok)?;
    let length = params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN);
    let salt = SaltString::encode_b64(&random::<16>()?).map_err(hashing)?;
    let decoy = PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: (&params).try_into().map_err(hashing)?,
        salt: Some(salt.as_salt()),
        hash: Some(Output::new(&random::<64>()?[..length]).map_err(hashing)?),
    };
    Ok(decoy.to_string())
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], UsersError> {
    let mut bytes = [0; N];
    OsRng.try_fill_bytes(&mut bytes).map_err(hashing)?;
    Ok(bytes)
}

fn default_params() -> Result<Params, UsersError> {
    Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(hashing)
}

/// Argon2id as the hash wants it; nothing if it is another algorithm or impossible.
fn context(hash: &PasswordHash<'_>) -> Option<Argon2<'static>> {
    if hash.algorithm != Algorithm::Argon2id.ident() {
        return None;
    }
    let version = hash.version.map_or(Ok(Version::V0x13), Version::try_from).ok()?;
    Some(Argon2::new(Algorithm::Argon2id, version, Params::try_from(hash).ok()?))
}

fn salt<'a>(hash: &PasswordHash<'_>, buffer: &'a mut [u8; 64]) -> Option<&'a [u8]> {
    hash.salt?.decode_b64(buffer).ok()
}

/// The output in the hash and the one that the password gives.
fn recompute(hash: &str, password: &[u8]) -> Option<(Output, Output)> {
    let hash = PasswordHash::new(hash).ok()?;
    let argon2 = context(&hash)?;
    let mut salt_bytes = [0; 64];
    let salt = salt(&hash, &mut salt_bytes)?;
    let blocks = argon2.params().block_count();
    let mut memory = Vec::with_capacity(blocks.max(RESERVED_BLOCKS));
    memory.resize(blocks, Block::new());
    let expected = hash.hash?;
    let computed = Output::init_with(expected.len(), |out| {
        Ok(argon2.hash_password_into_with_memory(password, salt, out, &mut memory)?)
    });
    // Comparing outputs takes constant time.
    Some((expected, computed.ok()?))
}

fn hashing(error: impl std::fmt::Display) -> UsersError {
    UsersError::Hashing(error.to_string())
}

/// Whether argon2 runs to its end with this hash.
#[cfg(test)]
pub(super) fn computes(hash: &str, password: &[u8]) -> bool {
    recompute(hash, password).is_some()
}

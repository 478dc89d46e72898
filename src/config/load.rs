//! Reading the configuration: defaults < file < environment < `--set`.

use std::io;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::error::ConfigError;
use super::{Settings, check, explain, keys};

/// The name of the layer with the built-in defaults.
pub(super) const DEFAULTS: &str = "defaults";

/// Files that are read without `--config`, the first one that exists.
const USUAL_FILES: [&str; 2] = ["tidegate.toml", "/etc/tidegate/tidegate.toml"];

/// A configuration that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The settings, paths made relative to the working directory.
    pub settings: Settings,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

/// Where a configuration is read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that must exist; without it the first of `usual_files` that does exist, if any.
    pub file: Option<PathBuf>,
    /// Files that need not exist.
    pub usual_files: Vec<PathBuf>,
    /// Environment variables; those without the prefix are ignored.
    pub environment: Vec<(String, String)>,
    /// `key=value` texts, the last one wins.
    pub set: Vec<String>,
}

impl Sources {
    /// The process's environment, the given file or else the usual ones, and the given `key=value` texts.
    pub fn of_process(file: Option<PathBuf>, set: Vec<String>) -> Self {
        // Variables that are not UTF-8 are not ours.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let environment = std::env::vars_os().filter_map(text).collect();
        Self { file, usual_files: USUAL_FILES.map(PathBuf::from).to_vec(), environment, set }
    }
}

/// Reads, merges and checks a configuration.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let mut figment = Figment::from(Defaults);
    let file = find_file(sources);
    if let Some(path) = &file {
        figment = figment.merge(Layer::file(path)?);
    }
    for (name, value) in &sources.environment {
        if let Some(key) = keys::from_variable(name) {
            let origin = Metadata::named(format!("environment variable {name}"));
            figment = figment.merge(Layer::one(origin, &key, value));
        }
    }
    for text in &sources.set {
        figment = figment.merge(Layer::set(text)?);
    }
    settings(&figment).map(|settings| Loaded { settings, file })
}

fn find_file(sources: &Sources) -> Option<PathBuf> {
    let usual = || sources.usual_files.iter().find(|path| path.exists());
    sources.file.as_ref().or_else(usual).cloned()
}

fn settings(figment: &Figment) -> Result<Settings, ConfigError> {
    let mut problems = Vec::new();
    if let Ok(all) = figment.extract::<Value>() {
        find_unknown(figment, &all, "", &mut problems);
    }
    // With an unknown key the settings cannot be filled, and the same problem would be told twice.
    if problems.is_empty() {
        match figment.extract::<Settings>() {
            Ok(mut settings) => {
                resolve_paths(figment, &mut settings);
                problems = check::check(figment, &settings);
                if problems.is_empty() {
                    return Ok(settings);
                }
            }
            Err(error) => problems = explain::extraction(figment, error),
        }
    }
    Err(ConfigError::Invalid(problems))
}

fn find_unknown(figment: &Figment, value: &Value, path: &str, problems: &mut Vec<super::Problem>) {
    for (name, value) in value.as_dict().into_iter().flatten() {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if !keys::is_known(&key) {
            unknown_leaves(figment, value, &key, problems);
        } else if keys::is_table(&key) {
            find_unknown(figment, value, &key, problems);
        }
    }
}

/// Names the keys in an unknown table rather than the table, for these are what the operator wants to set.
fn unknown_leaves(figment: &Figment, value: &Value, key: &str, problems: &mut Vec<super::Problem>) {
    match value.as_dict() {
        Some(table) if !table.is_empty() => {
            for (name, value) in table {
                unknown_leaves(figment, value, &format!("{key}.{name}"), problems);
            }
        }
        _ => problems.push(explain::unknown(figment, key)),
    }
}

/// Makes paths that a file gives relative to that file; an empty path is none.
fn resolve_paths(figment: &Figment, settings: &mut Settings) {
    for (key, path) in paths(settings) {
        if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            *path = None;
        }
        let source = figment.find_metadata(key).and_then(|metadata| metadata.source.as_ref());
        let directory = source.and_then(|source| source.file_path()).and_then(Path::parent);
        if let (Some(path), Some(directory)) = (path, directory) {
            *path = directory.join(&*path);
        }
    }
}

/// The keys that hold paths.
pub(super) fn paths(settings: &mut Settings) -> [(&'static str, &mut Option<PathBuf>); 8] {
    let (tls, access, proxy) = (&mut settings.tls, &mut settings.access, &mut settings.proxy);
    [
        ("tls.certificate", &mut tls.certificate),
        ("tls.key", &mut tls.key),
        ("tls.client_ca", &mut tls.client_ca),
        ("access.users", &mut access.users),
        ("access.rules", &mut access.rules),
        ("proxy.ca", &mut proxy.ca),
        ("proxy.certificate", &mut proxy.certificate),
        ("proxy.key", &mut proxy.key),
    ]
}

/// The built-in defaults.
struct Defaults;

impl Provider for Defaults {
    fn metadata(&self) -> Metadata {
        Metadata::named(DEFAULTS)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Serialized::defaults(Settings::default()).data()
    }
}

/// What one source sets.
struct Layer {
    origin: Metadata,
    values: Dict,
}

impl Layer {
    fn file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ConfigError::NoFile(path.to_owned()),
            _ => ConfigError::Unreadable { path: path.to_owned(), source },
        })?;
        let syntax = |message| ConfigError::Syntax { path: path.to_owned(), message };
        let values = Toml::from_str(&text).map_err(|error| syntax(error.to_string()))?;
        Ok(Self { origin: Metadata::from(path.display().to_string(), path), values })
    }

    fn set(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::Set(text.to_owned());
        let (key, value) = text.split_once('=').ok_or_else(bad)?;
        let key = key.trim();
        if key.split('.').any(str::is_empty) {
            return Err(bad());
        }
        Ok(Self::one(Metadata::named(format!("--set {text}")), key, value))
    }

    fn one(origin: Metadata, key: &str, value: &str) -> Self {
        let nested = figment::util::nest(key, parse(value));
        Self { origin, values: nested.into_dict().unwrap_or_default() }
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.origin.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// Reads a TOML value, or else takes the text as it is.
fn parse(text: &str) -> Value {
    let document: Result<Dict, _> = Toml::from_str(&format!("value = {text}"));
    match document {
        // More than one key means that the text went on after the value.
        Ok(mut found) if found.len() == 1 => found.remove("value").unwrap_or_else(|| Value::from(text)),
        _ => Value::from(text),
    }
}

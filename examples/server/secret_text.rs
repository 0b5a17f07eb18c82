//! Values of the file that others must not read, and values with units.

use std::{env, fs, path::Path, path::PathBuf, time::Duration};

use serde::Deserialize;
use tollgate::Secret;

/// A secret: the text itself, `{ file = "path" }` or `{ env = "NAME" }`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a secret is a text, { file = \"path\" } or { env = \"NAME\" }")]
pub(crate) enum SecretText {
    Text(String),
    File(InFile),
    Env(InEnv),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InFile {
    file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InEnv {
    env: String,
}

impl SecretText {
    /// Returns the text. Paths are relative to `directory`. The line break at the end of a file does not count.
    pub(crate) fn read(&self, directory: &Path) -> Result<String, String> {
        let text = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::File(InFile { file }) => {
                let path = directory.join(file);
                let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                (text.trim_end_matches(['\r', '\n']).to_owned(), path.display().to_string())
            }
            Self::Env(InEnv { env }) => {
                let text = env::var(env).map_err(|error| format!("the variable {env}: {error}"))?;
                (text, format!("the variable {env}"))
            }
        };
        if text.0.is_empty() { Err(format!("{} is empty", text.1)) } else { Ok(text.0) }
    }

    /// Returns the text as a secret of 32 bytes.
    pub(crate) fn random(&self, directory: &Path) -> Result<Secret, String> {
        let text = self.read(directory)?;
        Secret::parse(text).ok_or_else(|| "must be 32 bytes in base64url: 43 characters".to_owned())
    }
}

/// A time such as `"90s"`, `"10m"`, `"24h"` or `"30d"`.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let error = || format!("{text:?} is not a time: write it like \"90s\", \"10m\", \"24h\" or \"30d\"");
        let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
        let seconds = match text.strip_prefix(digits) {
            Some("s") => 1,
            Some("m") => 60,
            Some("h") => 3_600,
            Some("d") => 86_400,
            _ => return Err(error()),
        };
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
        number.map(|seconds| Self(Duration::from_secs(seconds))).ok_or_else(error)
    }
}

/// Reads the certificates of a private authority.
pub(crate) fn read_pem(directory: &Path, path: &Path) -> Result<Vec<u8>, String> {
    let path = directory.join(path);
    fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}

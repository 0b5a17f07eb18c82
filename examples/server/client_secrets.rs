//! The secrets of clients: in the file of `--config`, and new ones (`--client-secret`).

use std::path::Path;

use tollgate::{Secret, client::ClientSecretDigest};

use crate::secret_text::SecretText;

/// Reads a secret, or the digest that `--client-secret` has printed.
pub(crate) fn read(text: &SecretText, directory: &Path) -> Result<ClientSecretDigest, String> {
    let text = text.read(directory).map_err(|error| format!("secrets: {error}"))?;
    let wrong = "secrets: must be what --client-secret prints: a secret of 43 characters, or its digest";
    match Secret::parse(&text) {
        Some(secret) => Ok(ClientSecretDigest::from(&secret)),
        None => text.parse().map_err(|_| wrong.to_owned()),
    }
}

/// Makes a secret. Returns what is printed: the secret for the client, and its digest for the file.
#[allow(dead_code, reason = "the test that reads clients makes no secrets")]
pub(crate) fn new_secret() -> String {
    let (secret, stored) = ClientSecretDigest::generate();
    format!(
        "The secret, which is shown only once. Give it to the client:\n  {}\n\
         Its digest, for the client in the file of --config:\n  secrets = [\"{stored}\"]\n",
        secret.expose()
    )
}

//! The secrets of clients: in the file of `--config`, and new ones (`--client-secret`).

use std::{error::Error, path::Path};

use tollgate::{Client, Secret, client::ClientSecretDigest};

use crate::secret_text::SecretText;

/// Adds the secrets of a client, if it has any.
pub(crate) fn add(client: Client, secrets: Option<&[SecretText]>, directory: &Path) -> Result<Client, Box<dyn Error>> {
    if secrets.is_some_and(<[_]>::is_empty) {
        return Err("secrets: must not be empty; a public client has no such setting".into());
    }
    secrets.into_iter().flatten().try_fold(client, |client, text| Ok(client.secret(read(text, directory)?)?))
}

/// Reads a secret, or the digest that `--client-secret` has printed.
fn read(text: &SecretText, directory: &Path) -> Result<ClientSecretDigest, String> {
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

//! What stands in the body of a call.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde::{Deserialize, Deserializer};
use zeroize::{Zeroize, Zeroizing};

use super::problem::{Code, Problem};
use crate::{
    json::{self, JsonError},
    login::ClientParameters,
    replay::ReadError,
};

/// The longest body that is read.
pub(super) const MOST_BYTES: usize = 64 * 1024;

/// The members of a body. One left out, `null` and empty are the same; names that are not known are passed over.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Fields {
    #[serde(default, deserialize_with = "given")]
    pub(super) identifier: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) session_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) method: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) username: Option<String>,
    #[serde(default)]
    pub(super) password: Option<Typed>,
    #[serde(default, deserialize_with = "given")]
    pub(super) phone_number: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) email: Option<String>,
    #[serde(default)]
    pub(super) otp: Option<Typed>,
    #[serde(default, deserialize_with = "given")]
    pub(super) acr_values: Option<String>,
    #[serde(default, deserialize_with = "given")]
    client_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    redirect_uri: Option<String>,
    #[serde(default, deserialize_with = "given")]
    response_type: Option<String>,
    #[serde(default, deserialize_with = "given")]
    scope: Option<String>,
    #[serde(default, deserialize_with = "given")]
    code_challenge: Option<String>,
    #[serde(default, deserialize_with = "given")]
    code_challenge_method: Option<String>,
}

/// A secret that somebody typed; wiped when it is dropped.
pub(super) struct Typed(pub(super) Zeroizing<String>);

impl std::fmt::Debug for Typed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Typed(..)")
    }
}

impl<'de> Deserialize<'de> for Typed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|text| text.filter(|text| !text.is_empty()))
}

impl Fields {
    /// Reads a body, and wipes it: it may have a password in it.
    pub(super) fn read(body: Bytes) -> Result<Self, Problem> {
        let fields = json::from_object(&body).map_err(|error| {
            Problem::invalid(match error {
                JsonError::Malformed => "the body is no JSON object of the members that this call takes",
                JsonError::Duplicate => "a name stands twice in an object",
            })
        });
        if let Ok(mut bytes) = body.try_into_mut() {
            bytes.zeroize();
        }
        fields
    }

    /// The parameters of the client.
    pub(super) fn client(&mut self) -> ClientParameters {
        ClientParameters {
            client_id: self.client_id.take(),
            redirect_uri: self.redirect_uri.take(),
            response_type: self.response_type.take(),
            scope: self.scope.take(),
            code_challenge: self.code_challenge.take(),
            code_challenge_method: self.code_challenge_method.take(),
        }
    }
}

/// Whether the body is what is read here: JSON, as it is. A form that a page of another site sends never is.
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
    };
    let media_type = only(header::CONTENT_TYPE).and_then(|text| text.split(';').next()).unwrap_or_default();
    let coded = headers.contains_key(header::CONTENT_ENCODING)
        && !only(header::CONTENT_ENCODING).is_some_and(|coding| coding.eq_ignore_ascii_case("identity"));
    if coded || !media_type.trim().eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(Code::UnsupportedMediaType, "the body must be application/json, not compressed"));
    }
    Ok(())
}

pub(super) fn unreadable(error: &ReadError) -> Problem {
    match error {
        ReadError::TooLarge => Problem::new(Code::TooLarge, "the body is longer than 64 KiB"),
        ReadError::Broken => Problem::invalid("the body can't be read"),
    }
}

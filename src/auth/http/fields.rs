//! Reads and parses request bodies.

use bytes::Bytes;
use http::{HeaderMap, header, request::Parts};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::Value;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    auth::http::problem::{Code, Problem},
    http::{drain::read_whole, replay::ReadError},
    util::json::{self, JsonError},
};

/// The members of a body. A member that is missing, `null` or empty counts as absent. Unknown members are ignored.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Fields {
    pub(crate) identifier: Option<String>,
    /// The id of the login, which is called a session on the wire.
    pub(crate) session_id: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Typed>,
    pub(crate) phone_number: Option<String>,
    pub(crate) email: Option<String>,
    pub(crate) otp: Option<Typed>,
    /// The name of another identity provider.
    #[cfg_attr(not(feature = "external-providers"), allow(dead_code, reason = "only the method `sso` reads it"))]
    pub(crate) provider: Option<String>,
    /// The query of the login page that sends the user to a provider.
    #[cfg_attr(not(feature = "external-providers"), allow(dead_code, reason = "only the method `sso` reads it"))]
    pub(crate) query: Option<String>,
    /// The challenge that a passkey has signed.
    pub(crate) challenge: Option<String>,
    /// The response of a passkey, as the browser returned it.
    pub(crate) response: Option<Value>,
    /// A code of an authenticator app, or a recovery code.
    pub(crate) code: Option<Typed>,
    /// One of the contacts that the choices after a step list, in place of an address.
    pub(crate) contact_id: Option<String>,
    /// The secret of a link.
    pub(crate) link: Option<Typed>,
    /// The full name of a new user.
    pub(crate) name: Option<String>,
    /// Whether the user wants to stay signed in.
    pub(crate) remember: Option<bool>,
    /// Whether a new login continues from the browser's session, if it can. `true` unless given.
    pub(crate) continue_session: Option<bool>,
    /// The path to return to after a sign-in to the site itself.
    pub(crate) return_to: Option<String>,
    /// The languages that the user prefers.
    pub(crate) ui_locales: Option<String>,
    acr_values: Option<String>,
    prompt: Option<String>,
    #[serde(default, deserialize_with = "number_or_text")]
    max_age: Option<String>,
    #[serde(default, deserialize_with = "number_or_text")]
    steps: Option<String>,
    nonce: Option<String>,
    dpop_jkt: Option<String>,
    #[serde(default, deserialize_with = "object_or_text")]
    claims: Option<String>,
    client_id: Option<String>,
    redirect_uri: Option<String>,
    response_type: Option<String>,
    scope: Option<String>,
    code_challenge: Option<String>,
    code_challenge_method: Option<String>,
}

/// A secret that a user typed. It is wiped when it is dropped.
pub(crate) struct Typed(pub(crate) Zeroizing<String>);

crate::util::fmt::opaque_debug!(Typed);

impl<'de> Deserialize<'de> for Typed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

/// Accepts a number, or its text as in a query.
fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    Ok(Option::<Either>::deserialize(deserializer)?.map(|either| match either {
        Either::Number(number) => number.to_string(),
        Either::Text(text) => text,
    }))
}

/// Accepts an object, or its text as in a query.
fn object_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        object @ Value::Object(_) => Ok(Some(object.to_string())),
        _ => Err(D::Error::custom("expected an object or a string")),
    }
}

impl Fields {
    /// Reads the body of a request with these headers.
    pub(crate) async fn from_json_body<B: http_body::Body<Data = Bytes>>(
        headers: &HeaderMap,
        body: B,
    ) -> Result<Self, Problem> {
        let mut fields: Self = parse_json_body(headers, body).await?;
        // an empty text counts as missing
        for text in [
            &mut fields.identifier,
            &mut fields.session_id,
            &mut fields.method,
            &mut fields.username,
            &mut fields.phone_number,
            &mut fields.email,
            &mut fields.provider,
            &mut fields.query,
            &mut fields.challenge,
            &mut fields.contact_id,
            &mut fields.name,
            &mut fields.return_to,
            &mut fields.ui_locales,
            &mut fields.acr_values,
            &mut fields.prompt,
            &mut fields.max_age,
            &mut fields.steps,
            &mut fields.nonce,
            &mut fields.dpop_jkt,
            &mut fields.claims,
            &mut fields.client_id,
            &mut fields.redirect_uri,
            &mut fields.response_type,
            &mut fields.scope,
            &mut fields.code_challenge,
            &mut fields.code_challenge_method,
        ] {
            let _ = text.take_if(|text| text.is_empty());
        }
        Ok(fields)
    }

    pub(crate) fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// Returns a parameter of the client, or an optional one of OpenID Connect.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let parameter = match name {
            "client_id" => &self.client_id,
            "redirect_uri" => &self.redirect_uri,
            "response_type" => &self.response_type,
            "scope" => &self.scope,
            "code_challenge" => &self.code_challenge,
            "code_challenge_method" => &self.code_challenge_method,
            "acr_values" => &self.acr_values,
            "prompt" => &self.prompt,
            "max_age" => &self.max_age,
            "steps" => &self.steps,
            "nonce" => &self.nonce,
            "dpop_jkt" => &self.dpop_jkt,
            "claims" => &self.claims,
            _ => &None,
        };
        parameter.as_deref()
    }
}

/// Reads a JSON object, and wipes the body afterwards, because it can contain a password or a code.
pub(crate) async fn parse_json_body<T, B>(headers: &HeaderMap, body: B) -> Result<T, Problem>
where
    T: DeserializeOwned,
    B: http_body::Body<Data = Bytes>,
{
    check_type(headers, "application/json", "the body must be uncompressed application/json")?;
    let body = read_body_bytes(body).await?;
    let fields = json::from_object(&body).map_err(|error| {
        Problem::invalid(match error {
            JsonError::Malformed => "the body is not a valid JSON object for this call",
            JsonError::Duplicate => "an object contains the same name twice",
        })
    });
    if let Ok(mut bytes) = body.try_into_mut() {
        bytes.zeroize();
    }
    fields
}

/// Reads the body of a form. The query is ignored, because queries end up in logs.
pub(crate) async fn form<B: http_body::Body<Data = Bytes>>(parts: &Parts, body: B) -> Result<Bytes, Problem> {
    const FORM: &str = "application/x-www-form-urlencoded";
    check_type(&parts.headers, FORM, "the body must be uncompressed application/x-www-form-urlencoded")?;
    if parts.uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(Problem::invalid("parameters must be sent in the request body"));
    }
    read_body_bytes(body).await
}

/// Checks the media type, and that the body is not compressed. A form on a page of another site cannot send JSON.
fn check_type(headers: &HeaderMap, wanted: &str, otherwise: &'static str) -> Result<(), Problem> {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
    };
    let media_type = only(header::CONTENT_TYPE).and_then(|text| text.split(';').next()).unwrap_or_default();
    let coded = headers.contains_key(header::CONTENT_ENCODING)
        && !only(header::CONTENT_ENCODING).is_some_and(|coding| coding.eq_ignore_ascii_case("identity"));
    if coded || !media_type.trim().eq_ignore_ascii_case(wanted) {
        return Err(Problem::new(Code::UnsupportedMediaType, otherwise));
    }
    Ok(())
}

async fn read_body_bytes<B: http_body::Body<Data = Bytes>>(body: B) -> Result<Bytes, Problem> {
    read_whole(body).await.map(|whole| whole.data).map_err(|error| unreadable(&error))
}

fn unreadable(error: &ReadError) -> Problem {
    match error {
        ReadError::TooLarge => Problem::new(Code::TooLarge, "the body is longer than 64 KiB"),
        ReadError::Broken => Problem::invalid("the body can't be read"),
    }
}

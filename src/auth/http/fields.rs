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
    http::{drain::read_whole, reader::ReadError},
    util::json::{self, JsonError},
};

/// Declares the members of a body. A text or a parameter that is empty counts as missing.
macro_rules! fields {
    (
        texts { $($(#[$text_attribute:meta])* $text:ident,)* }
        parameters { $($(#[$parameter_attribute:meta])* $parameter:ident,)* }
        others { $($(#[$other_attribute:meta])* $other:ident: $kind:ty,)* }
    ) => {
        /// The members of a body. A member that is missing, `null` or empty counts as absent. Unknown members are ignored.
        #[derive(Debug, Default, Deserialize)]
        pub(crate) struct Fields {
            $($(#[$text_attribute])* pub(crate) $text: Option<String>,)*
            $($(#[$parameter_attribute])* $parameter: Option<String>,)*
            $($(#[$other_attribute])* pub(crate) $other: Option<$kind>,)*
        }

        impl Fields {
            fn drop_empty_texts(&mut self) {
                for text in [$(&mut self.$text,)* $(&mut self.$parameter,)*] {
                    let _ = text.take_if(|text| text.is_empty());
                }
            }

            /// Returns a parameter of the client, or an optional one of OpenID Connect.
            pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
                match name {
                    $(stringify!($parameter) => self.$parameter.as_deref(),)*
                    _ => None,
                }
            }
        }
    };
}

fields! {
    texts {
        identifier,
        /// The id of the login, which is called a session on the wire.
        session_id,
        method,
        username,
        phone_number,
        email,
        /// The name of another identity provider.
        provider,
        /// The query of the login page that sends the user to a provider.
        query,
        /// The challenge that a passkey has signed.
        challenge,
        /// One of the contacts that the choices after a step list, in place of an address.
        contact_id,
        /// The full name of a new user.
        name,
        /// The path to return to after a sign-in to the site itself.
        return_to,
        /// The languages that the user prefers.
        ui_locales,
    }
    parameters {
        acr_values,
        prompt,
        #[serde(default, deserialize_with = "number_or_text")]
        max_age,
        #[serde(default, deserialize_with = "number_or_text")]
        steps,
        nonce,
        dpop_jkt,
        #[serde(default, deserialize_with = "object_or_text")]
        claims,
        client_id,
        redirect_uri,
        response_type,
        scope,
        code_challenge,
        code_challenge_method,
    }
    others {
        password: Typed,
        otp: Typed,
        /// The response of a passkey, as the browser returned it.
        response: Value,
        /// A code of an authenticator app, or a recovery code.
        code: Typed,
        /// The secret of a link.
        link: Typed,
        /// Whether the user wants to stay signed in.
        remember: bool,
        /// Whether a new login continues from the browser's session, if it can. `true` unless given.
        continue_session: bool,
    }
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
        fields.drop_empty_texts();
        Ok(fields)
    }

    pub(crate) fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
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
    read_whole(body).await.map_err(|error| unreadable(&error))
}

fn unreadable(error: &ReadError) -> Problem {
    match error {
        ReadError::TooLarge => Problem::new(Code::TooLarge, "the body is longer than 64 KiB"),
        ReadError::Broken => Problem::invalid("the body can't be read"),
    }
}

//! How the client of a call authenticates: not at all, with a secret, or with an assertion (RFC 6749 §2.3).

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, header};
use zeroize::Zeroizing;

use super::{RequestContext, client_assertion};
use crate::{
    auth::http::problem::{Code, Problem},
    client::{Client, credentials::Credentials},
    tenant::LimitKey,
    util::{encoding::base64url_of_32, form, secret::SecretDigest},
};

/// The parameters of a form with which clients authenticate.
pub(crate) const PARAMETERS: [&str; 3] = ["client_secret", "client_assertion", "client_assertion_type"];

/// Returns the client that a call names: in the parameter `client_id`, or else in its credentials.
pub(crate) fn named_client<'f>(headers: &HeaderMap, value: impl Fn(&str) -> Option<&'f str>) -> Option<Cow<'f, str>> {
    match (value("client_id"), BasicCredentials::from_headers(headers)) {
        (Some(id), _) => Some(id.into()),
        (None, Some(basic)) => Some(basic.ok()?.id.into()),
        (None, None) => value("client_assertion").and_then(client_assertion::claimed_client).map(Cow::Owned),
    }
}

/// Authenticates the client of a call, unless it is public. A caller that names an unknown client must not send credentials
/// either.
pub(crate) async fn authenticate_caller<'f>(
    cx: &RequestContext<'_>,
    client: Option<&Client>,
    value: impl Fn(&str) -> Option<&'f str>,
) -> Result<(), Problem> {
    match client {
        Some(client) => authenticate_client(cx, client, value).await,
        None => refuse_credentials(&cx.parts.headers, value, "the client is unknown"),
    }
}

/// Authenticates the client of a call. Wrong credentials count as failed attempts for this client from the caller's address.
/// They never delay a caller with the right ones.
///
/// Public clients must not send credentials (RFC 6749 §5.2, RFC 9126 §2).
pub(crate) async fn authenticate_client<'f>(
    cx: &RequestContext<'_>,
    client: &Client,
    value: impl Fn(&str) -> Option<&'f str>,
) -> Result<(), Problem> {
    let headers = &cx.parts.headers;
    match &client.tokens.credentials {
        Credentials::None => refuse_credentials(headers, value, "public clients do not authenticate"),
        Credentials::Secrets(secrets) => {
            let secret = shown_secret(headers, client, value)?;
            let right = secrets.iter().fold(false, |found, own| found | own.is_secret(&secret));
            let checked = if right { Ok(()) } else { Err(Problem::unauthenticated_client("client_secret is wrong")) };
            count_failure(cx, client, checked).await
        }
        Credentials::Keys(keys) => {
            let assertion = client_assertion::shown_assertion(headers, value)?;
            let checked = client_assertion::check_assertion(cx, client, keys, assertion).await;
            count_failure(cx, client, checked).await
        }
    }
}

/// Refuses requests with client credentials of any kind.
fn refuse_credentials<'f>(
    headers: &HeaderMap,
    value: impl Fn(&str) -> Option<&'f str>,
    detail: &'static str,
) -> Result<(), Problem> {
    if PARAMETERS.iter().any(|name| value(name).is_some()) || headers.contains_key(header::AUTHORIZATION) {
        return Err(Problem::unauthenticated_client(detail));
    }
    Ok(())
}

/// Returns the secret of a request, which must contain it in exactly one way.
fn shown_secret<'f>(
    headers: &HeaderMap,
    client: &Client,
    value: impl Fn(&str) -> Option<&'f str>,
) -> Result<Zeroizing<String>, Problem> {
    if value("client_assertion").or(value("client_assertion_type")).is_some() {
        return Err(Problem::unauthenticated_client("this client authenticates with its secret"));
    }
    match (BasicCredentials::from_headers(headers), value("client_secret")) {
        (None, None) => Err(Problem::unauthenticated_client("this client must authenticate with its secret")),
        (None, Some(secret)) => Ok(Zeroizing::new(secret.to_owned())),
        (Some(_), Some(_)) => Err(Problem::unauthenticated_client("the client must authenticate in one way only")),
        (Some(basic), None) => match basic? {
            BasicCredentials { id, secret } if id == client.id() => Ok(secret),
            _ => Err(Problem::unauthenticated_client("client_id is not that of the credentials")),
        },
    }
}

/// Counts wrong credentials. Right ones are never refused, so that others behind the same address can't lock a client out. Secrets and keys
/// can't be guessed, and the limit of the tenant bounds what checks cost.
async fn count_failure(cx: &RequestContext<'_>, client: &Client, checked: Result<(), Problem>) -> Result<(), Problem> {
    let has_failed = checked.as_ref().is_err_and(|problem| problem.code == Code::ClientAuthentication);
    let Some(address) = cx.address.clone().filter(|_| has_failed) else { return checked };
    let client = base64url_of_32(SecretDigest::of_secret(client.id()).as_bytes());
    let name = [address.as_str().as_bytes(), b"/", &client].concat();
    let decision = cx.core.limits.failures.check(&LimitKey::parse_reserved(name).unwrap_or(address), 1).await;
    if decision.is_admitted() {
        return checked;
    }
    Err(Problem::new(Code::TooManyAttempts, "too many attempts; wait").retry_in(decision.retry_after()))
}

/// The id and the secret of a client in the header `authorization`, each encoded like a value of a form (RFC 6749 §2.3.1).
struct BasicCredentials {
    id: String,
    secret: Zeroizing<String>,
}

impl BasicCredentials {
    /// Returns `None` without the header, and a problem if it is malformed.
    fn from_headers(headers: &HeaderMap) -> Option<Result<Self, Problem>> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (value, more) = (values.next()?, values.next());
        let basic = Self::parse(value.as_bytes()).filter(|_| more.is_none());
        Some(basic.ok_or(Problem::unauthenticated_client("the authorization header is not that of a client")))
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (scheme, rest) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let decoded = Zeroizing::new(STANDARD.decode(rest.trim_ascii_start()).ok()?);
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let (id, secret) = decoded.split_at_checked(colon)?;
        let secret = form::decode_form_value(secret.get(1..)?).ok()?;
        Some(Self { id: form::decode_form_value(id).ok()?.into_owned(), secret: Zeroizing::new(secret.into_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(String, String)> {
        BasicCredentials::parse(text.as_bytes()).map(|it| (it.id, it.secret.to_string()))
    }

    #[test]
    fn c136_id_and_secret_are_decoded_like_a_form() {
        let basic = |text: &str| parse(&format!("Basic {}", STANDARD.encode(text)));
        let pair = |id: &str, secret: &str| Some((id.to_owned(), secret.to_owned()));
        assert_eq!(basic("shop:secret"), pair("shop", "secret"));
        assert_eq!(basic("https%3A%2F%2Fapp.example:a%2Bb+c:d"), pair("https://app.example", "a+b c:d"));
        assert_eq!(basic("shop:"), pair("shop", ""));
        assert_eq!(parse("bAsIc   YTpi"), pair("a", "b"));
        for bad in ["shop", "", "a%:b", "a:%zz", "a:\u{fffd}%ff"] {
            assert_eq!(basic(bad), None, "{bad:?}");
        }
        for bad in ["", "Basic", "Basic ", "Basic YTpi=", "Basic YTp", "Basic YTpi YTpi", "Bearer YTpi", "BasicYTpi"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}

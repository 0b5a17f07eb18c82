//! Credentials of clients. Only machine clients have any.

use http::{HeaderMap, HeaderValue, header};

use crate::auth::http::problem::{Code, Problem};

/// Refuses requests with client credentials of any kind, because clients with users are public (RFC 6749 §5.2, RFC 9126
/// §2).
pub(crate) fn refuse_credentials<'f>(
    headers: &HeaderMap,
    value: impl Fn(&str) -> Option<&'f str>,
) -> Result<(), Problem> {
    let shown = ["client_secret", "client_assertion", "client_assertion_type"].iter().any(|name| value(name).is_some());
    if shown || headers.contains_key(header::AUTHORIZATION) {
        return Err(credentials_problem("public clients do not authenticate"));
    }
    Ok(())
}

/// The answer to credentials that are wrong or missing.
pub(crate) fn credentials_problem(detail: &'static str) -> Problem {
    const BASIC: HeaderValue = HeaderValue::from_static(r#"Basic realm="token""#);
    Problem::new(Code::ClientAuthentication, detail).header(header::WWW_AUTHENTICATE, BASIC)
}

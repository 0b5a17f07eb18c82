//! Refuses client credentials. Clients are public and have no secret.

use http::{HeaderMap, HeaderValue, header};

use crate::auth::http::problem::{Code, Problem};

/// Refuses requests with client credentials of any kind, because clients are public (RFC 6749 §5.2, RFC 9126 §2).
pub(crate) fn refuse<'f>(headers: &HeaderMap, value: impl Fn(&str) -> Option<&'f str>) -> Result<(), Problem> {
    let shown = ["client_secret", "client_assertion", "client_assertion_type"].iter().any(|name| value(name).is_some());
    if shown || headers.contains_key(header::AUTHORIZATION) {
        let basic = HeaderValue::from_static(r#"Basic realm="token""#);
        let problem = Problem::new(Code::ClientAuthentication, "clients are public and must not authenticate");
        return Err(problem.header(header::WWW_AUTHENTICATE, basic));
    }
    Ok(())
}

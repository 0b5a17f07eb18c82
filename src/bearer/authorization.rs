//! The `Authorization` header of a request (RFC 6750 §2.1).

use http::{HeaderMap, header};

use crate::util::scan;

/// The maximum length of a token in bytes.
const MOST_BYTES: usize = 8 * 1024;

/// The parsed `Authorization` header. Tokens in queries and bodies end up in logs and are never
/// read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Authorization<'a> {
    /// There is no token: no header, or another scheme.
    Nothing,
    /// The header is malformed or repeated.
    Malformed,
    Token {
        scheme: Scheme,
        token: &'a str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Bearer,
    /// With a proof of possession (RFC 9449).
    DPoP,
}

impl<'a> Authorization<'a> {
    pub(crate) fn from_auth_headers(headers: &'a HeaderMap) -> Self {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Nothing,
            (Some(value), None) => Self::parse_header_value(value.as_bytes()).unwrap_or(Self::Malformed),
            // readers of the first header and readers of the last one would disagree
            (Some(_), Some(_)) => Self::Malformed,
        }
    }

    fn parse_header_value(value: &'a [u8]) -> Option<Self> {
        let (scheme, rest) = scan::split_before(value, b' ');
        if !scan::is_token(scheme) {
            return None;
        }
        let scheme = if scheme.eq_ignore_ascii_case(b"bearer") {
            Scheme::Bearer
        } else if scheme.eq_ignore_ascii_case(b"dpop") {
            Scheme::DPoP
        } else {
            return Some(Self::Nothing);
        };
        let token = std::str::from_utf8(rest).ok()?.trim_start_matches(' ');
        (token.len() <= MOST_BYTES && is_token68(token)).then_some(Self::Token { scheme, token })
    }
}

/// RFC 9110 §11.2.
fn is_token68(text: &str) -> bool {
    let text = text.trim_end_matches('=');
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let value = |value: &&[u8]| (header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        values.iter().map(value).collect()
    }

    #[test]
    fn c099_the_token_is_read_from_a_single_authorization_header() {
        for (value, scheme, token) in [
            ("Bearer a.b.c", Scheme::Bearer, "a.b.c"),
            ("bearer a", Scheme::Bearer, "a"),
            ("BEARER   a-._~+/9==", Scheme::Bearer, "a-._~+/9=="),
            ("DPoP a", Scheme::DPoP, "a"),
            ("dpop a", Scheme::DPoP, "a"),
        ] {
            let headers = headers(&[value.as_bytes()]);
            assert_eq!(Authorization::from_auth_headers(&headers), Authorization::Token { scheme, token }, "{value}");
        }
    }

    #[test]
    fn c099_other_schemes_are_not_tokens() {
        for value in ["Basic YTpi", "Bearers a", "SecretDigest a=b, c=d", "Basic"] {
            assert_eq!(
                Authorization::from_auth_headers(&headers(&[value.as_bytes()])),
                Authorization::Nothing,
                "{value}"
            );
        }
        assert_eq!(Authorization::from_auth_headers(&HeaderMap::new()), Authorization::Nothing);
    }

    #[test]
    fn c099_ambiguous_headers_are_malformed() {
        let long = format!("Bearer {}", "a".repeat(MOST_BYTES + 1));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer ==",
            "Bearer a b",
            "Bearer a,b",
            "Bearer a, Bearer b",
            "Bearer a=b",
            "Bearer \ta",
            "Bearer\ta",
            "Bearer \"a\"",
            " Bearer a",
            "Bearer é",
            "Bearer=a",
            "Basic=, Bearer a",
            &long,
        ] {
            let headers = headers(&[value.as_bytes()]);
            // the scheme must not contain a comma or `=`
            assert_eq!(Authorization::from_auth_headers(&headers), Authorization::Malformed, "{value}");
        }
        let fits = format!("Bearer {}", "a".repeat(MOST_BYTES));
        assert!(matches!(Authorization::from_auth_headers(&headers(&[fits.as_bytes()])), Authorization::Token { .. }));
        for two in [[&b"Bearer a"[..], b"Bearer a"], [b"Basic YTpi", b"Bearer a"], [b"Bearer a", b""]] {
            assert_eq!(Authorization::from_auth_headers(&headers(&two)), Authorization::Malformed);
        }
    }

    proptest! {
        #[test]
        fn a_token_is_always_the_end_of_the_header(value in prop_oneof![
            prop::collection::vec(32..=255u8, 0..60),
            "(Bearer|dpop|Basic)[ ,]{0,2}[a-c=,. ]{0,8}".prop_map(String::into_bytes),
        ]) {
            prop_assume!(!value.contains(&127));
            let headers = headers(&[&value]);
            if let Authorization::Token { token, .. } = Authorization::from_auth_headers(&headers) {
                let end = [b" ", token.as_bytes()].concat();
                prop_assert!(value.ends_with(&end));
                prop_assert!(!token.contains([' ', ',', '"']));
            }
        }
    }
}

//! Login cookies. Each login has a cookie with its own name, so that two tabs don't interfere.

use http::HeaderMap;

use crate::{
    http::cookie::{self, SetCookie},
    login::LoginId,
    util::{
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

/// The maximum number of concurrent logins in one browser.
pub(crate) const MOST_LOGINS: usize = 4;
/// The maximum number of login cookies read from a request.
const MOST_COOKIES: usize = 16;
/// The number of characters of a login id in the name of its cookie.
const NAMED_BY: usize = 8;

/// Names and creates login cookies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginCookies {
    /// Leaves out `Secure` and the `__Host-` prefix, for development on a loopback address without TLS.
    pub(crate) loopback: bool,
}

/// A login cookie in a request.
pub(crate) struct PresentedLogin<'a> {
    pub(crate) name: &'a str,
    pub(crate) digest: SecretDigest,
}

impl LoginCookies {
    /// Creates the cookie with the secret of this login.
    #[expect(clippy::expect_used, reason = "names and secrets are made of base64url")]
    pub(crate) fn set(self, secret: &Secret, id: &LoginId) -> SetCookie {
        let cookie = SetCookie::new(&self.name_of(id), secret.expose()).expect("the cookie is good");
        self.sent(cookie).expect("it has no prefix")
    }

    /// Creates a cookie that removes the one with this name. Returns `None` if no such cookie can exist.
    pub(crate) fn removal(self, name: &str) -> Option<SetCookie> {
        self.sent(SetCookie::removal(name).ok()?).ok()
    }

    fn sent(self, cookie: SetCookie) -> Result<SetCookie, crate::util::error::ConfigError> {
        if self.loopback { cookie.insecure_plain_http() } else { Ok(cookie) }
    }

    fn prefix(self) -> &'static str {
        if self.loopback { "auth_session_" } else { "__Host-auth_session_" }
    }

    fn name(self, id: &str) -> String {
        format!("{}{}", self.prefix(), id.get(..NAMED_BY).unwrap_or(id))
    }

    /// Returns the name of the cookie of this login.
    pub(crate) fn name_of(self, id: &LoginId) -> String {
        self.name(&id.to_string())
    }

    /// Returns the digest of the secret of this login, if the request has its cookie. The login id is derived from the
    /// secret.
    pub(crate) fn secret_of(self, headers: &HeaderMap, id: &LoginId) -> Option<SecretDigest> {
        let name = self.name_of(id);
        let secrets = cookie::read_cookies(headers, &name).take(MOST_COOKIES).filter_map(Secret::parse);
        secrets.map(|secret| secret.digest()).find(|digest| PublicId::of_digest(digest) == *id)
    }

    /// Returns all login cookies in the order of the request.
    pub(crate) fn read_login_cookies(self, headers: &HeaderMap) -> Vec<PresentedLogin<'_>> {
        let own = cookie::pairs(headers).filter(|(name, _)| name.starts_with(self.prefix())).take(MOST_COOKIES);
        let mut found: Vec<PresentedLogin<'_>> = Vec::new();
        for (name, value) in own {
            // an invalid value counts as a login that has ended
            let digest = Secret::parse(value).map_or_else(|| SecretDigest::of_secret(value), |secret| secret.digest());
            if !found.iter().any(|known| known.name == name && known.digest.matches(&digest)) {
                found.push(PresentedLogin { name, digest });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::COOKIE};

    use super::*;

    const COOKIES: LoginCookies = LoginCookies { loopback: false };

    fn carrying(line: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(line).unwrap())])
    }

    #[test]
    fn a_login_cookie_is_found_among_others_and_must_contain_the_secret_of_its_login() {
        let (secret, other) = (Secret::generate(), Secret::generate());
        let id = PublicId::of_digest(&secret.digest());
        let name = COOKIES.name_of(&id);
        let found = |line: &str| COOKIES.secret_of(&carrying(line), &id).map(|digest| *digest.as_bytes());
        let own = Some(*secret.digest().as_bytes());
        assert_eq!(found(&format!("{name}={}", secret.expose())), own);
        assert_eq!(found(&format!("{name}={}; {name}={}", other.expose(), secret.expose())), own);
        assert_eq!(found(&format!("{name}={}", other.expose())), None);
        assert_eq!(found(&format!("{}={}", &name[7..], secret.expose())), None);
        assert_eq!(found("a=b"), None);
    }

    #[test]
    fn c107_every_cookie_named_like_a_login_counts_up_to_a_limit_of_16() {
        let line: String = (0..40).map(|n| format!("__Host-auth_session_{n:08}=x{n}; ")).collect();
        assert_eq!(COOKIES.read_login_cookies(&carrying(&line)).len(), MOST_COOKIES);
        let same = "__Host-auth_session_a=x; __Host-auth_session_a=x; auth_session_b=x; __Host-auth_sessio=y";
        assert_eq!(COOKIES.read_login_cookies(&carrying(same)).len(), 1);
    }
}

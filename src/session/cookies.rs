//! The cookies of sessions: how they are named, written and read.

use std::{cell::LazyCell, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderMap;

use crate::{
    http::cookie::{self, SetCookie},
    tenant::Tenant,
    util::{
        encoding::{LEN_OF_16, LEN_OF_32},
        error::ConfigError,
        public_id::PublicId,
        secret::{Secret, SecretDigest},
    },
};

/// The maximum number of cookies of one tenant that are looked up for a request.
const MOST_OF_A_TENANT: usize = 4;
/// The maximum number of cookies of all tenants that are looked up for a request.
const MOST_OF_ALL_TENANTS: usize = 16;
/// Characters of a tenant's digest in the name of its cookie.
const SUFFIX_LEN: usize = 8;

/// How session cookies are named and written.
#[derive(Clone, Debug)]
pub(super) struct CookieFormat {
    /// The name up to the tenant: `__Host-session_`.
    prefix: String,
    loopback: bool,
}

impl CookieFormat {
    /// Creates the format of cookies with this base name, such as `session`.
    pub(super) fn new(base: &str, loopback: bool) -> Result<Self, ConfigError> {
        let reason = "must be a name without a prefix such as __Host-";
        ConfigError::refuse_if(base.is_empty() || base.starts_with("__"), "session cookie name", base, reason)?;
        let format = Self::unchecked(base, loopback);
        // as long as any cookie will be
        let name = format!("{}{}", format.prefix, "A".repeat(SUFFIX_LEN));
        let _valid = format.cookie(&name, &"A".repeat(LEN_OF_16 + 1 + LEN_OF_32))?;
        Ok(format)
    }

    /// Creates the format of cookies named `session`.
    pub(super) fn default_name() -> Self {
        Self::unchecked("session", false)
    }

    fn unchecked(base: &str, loopback: bool) -> Self {
        let prefix = if loopback { "" } else { "__Host-" };
        Self { prefix: format!("{prefix}{base}_"), loopback }
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Returns the name of a tenant's cookie. The names of two tenants can be equal, so the
    /// tenant of the session must be compared as well.
    pub(super) fn name(&self, tenant: &Tenant) -> String {
        let digest = SecretDigest::of_secret(tenant.as_str());
        let mut name = String::with_capacity(self.prefix.len() + SUFFIX_LEN);
        name.push_str(&self.prefix);
        // 6 bytes are 8 characters
        URL_SAFE_NO_PAD.encode_string(digest.as_bytes().first_chunk::<6>().unwrap_or(&[0; 6]), &mut name);
        name
    }

    /// Creates the cookie `<sid>.<secret>`.
    #[expect(clippy::expect_used, reason = "the name was checked when it was set, and the value is base64url")]
    pub(super) fn set(&self, tenant: &Tenant, sid: PublicId, secret: &Secret, max_age: Option<Duration>) -> SetCookie {
        let value = zeroize::Zeroizing::new(format!("{sid}.{}", secret.expose()));
        let cookie = self.cookie(&self.name(tenant), &value).expect("the name is valid");
        match max_age {
            Some(max_age) => cookie.max_age(max_age),
            None => cookie,
        }
    }

    /// Creates the cookie that removes the session cookie of this tenant.
    #[expect(clippy::expect_used, reason = "the name was checked when it was set")]
    pub(super) fn removal(&self, tenant: &Tenant) -> SetCookie {
        self.cookie(&self.name(tenant), "").expect("the name is valid").max_age(Duration::ZERO)
    }

    /// Creates the cookies that remove those of a request, valid or not: of all tenants, or of this one only.
    pub(super) fn presented_removals(&self, headers: &HeaderMap, tenant: Option<&Tenant>) -> Vec<SetCookie> {
        let only = tenant.map(|tenant| self.name(tenant));
        let is_meant = |name: &&str| only.as_ref().map_or_else(|| self.is_name(name.as_bytes()), |only| only == name);
        let names = cookie::pairs(headers).map(|(name, _)| name).filter(is_meant).take(MOST_OF_ALL_TENANTS);
        let names: std::collections::BTreeSet<&str> = names.collect();
        names.into_iter().filter_map(|name| Some(self.cookie(name, "").ok()?.max_age(Duration::ZERO))).collect()
    }

    fn cookie(&self, name: &str, value: &str) -> Result<SetCookie, ConfigError> {
        let cookie = SetCookie::new(name, value)?;
        if self.loopback { cookie.insecure_plain_http() } else { Ok(cookie) }
    }

    /// Returns whether a request carries a session cookie of any tenant, valid or not.
    pub(super) fn is_presented(&self, headers: &HeaderMap) -> bool {
        cookie::pairs(headers).any(|(name, _)| self.is_name(name.as_bytes()))
    }

    /// Reads the session cookies of one tenant.
    pub(super) fn of_tenant(&self, headers: &HeaderMap, tenant: &Tenant) -> PresentedCookies {
        // most requests have no session cookie, and need no digest
        let own = LazyCell::new(|| self.name(tenant));
        PresentedCookies::read_session_cookies(headers, MOST_OF_A_TENANT, |name| {
            self.is_name(name) && name == own.as_bytes()
        })
    }

    /// Reads the session cookies of all tenants.
    pub(super) fn of_all_tenants(&self, headers: &HeaderMap) -> PresentedCookies {
        PresentedCookies::read_session_cookies(headers, MOST_OF_ALL_TENANTS, |name| self.is_name(name))
    }

    /// Reads the first session cookies of all tenants, however many there are.
    pub(super) fn first_of_all_tenants(&self, headers: &HeaderMap) -> Vec<SessionCookie> {
        let own = cookie::raw_pairs(headers).filter(|(name, _)| self.is_name(name));
        own.filter_map(|(_, value)| SessionCookie::parse(value)).take(MOST_OF_ALL_TENANTS).collect()
    }

    fn is_name(&self, name: &[u8]) -> bool {
        name.strip_prefix(self.prefix.as_bytes()).is_some_and(|suffix| suffix.len() == SUFFIX_LEN && suffix.is_ascii())
    }
}

/// The content of a session cookie.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionCookie {
    pub(super) sid: PublicId,
    /// The digest of the secret.
    pub(super) secret: SecretDigest,
}

impl SessionCookie {
    /// Reads `<sid>.<secret>`.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (sid, secret) = value.split_at_checked(LEN_OF_16)?;
        let (sid, secret) = (PublicId::parse(sid)?, secret.strip_prefix(b".")?);
        Some(Self { sid, secret: Secret::digest_of(secret)? })
    }

    fn equals(&self, other: &Self) -> bool {
        self.sid == other.sid && self.secret.matches(&other.secret)
    }
}

/// The session cookies of a request, each different one once.
#[derive(Debug)]
pub(super) enum PresentedCookies {
    /// No cookie has such a name and a value that a cookie may have.
    Absent,
    /// No cookie of the name has a valid form, or there are too many to look up.
    Unusable,
    One(SessionCookie),
    Several(Vec<SessionCookie>),
}

impl PresentedCookies {
    fn read_session_cookies(headers: &HeaderMap, most: usize, is_own: impl Fn(&[u8]) -> bool) -> Self {
        let mut found = Self::Absent;
        for (_, value) in cookie::raw_pairs(headers).filter(|(name, _)| is_own(name)) {
            match SessionCookie::parse(value) {
                Some(cookie) => found.add(cookie),
                None if matches!(found, Self::Absent) && cookie::is_value(value) => found = Self::Unusable,
                None => {}
            }
            if let Self::Several(all) = &found
                && all.len() > most
            {
                return Self::Unusable;
            }
        }
        found
    }

    fn add(&mut self, cookie: SessionCookie) {
        match self {
            Self::Absent | Self::Unusable => *self = Self::One(cookie),
            Self::One(one) if one.equals(&cookie) => {}
            Self::One(one) => *self = Self::Several(vec![*one, cookie]),
            Self::Several(all) if all.iter().any(|known| known.equals(&cookie)) => {}
            Self::Several(all) => all.push(cookie),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::COOKIE};
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn acme() -> Tenant {
        Tenant::parse("acme").unwrap()
    }

    fn headers(lines: &[String]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_str(line).unwrap());
        }
        headers
    }

    fn cookie_value(number: u8) -> String {
        let secret = crate::util::encoding::base64url_of_32(&[number; 32]);
        format!("{}.{}", PublicId::from_bytes([number; 16]), std::str::from_utf8(&secret).unwrap())
    }

    #[test]
    fn c103_the_name_has_8_characters_of_the_tenants_digest() {
        let format = CookieFormat::default_name();
        // base64url of the first 6 bytes of SHA-256("acme")
        assert_eq!(format.name(&acme()), "__Host-session_giszrYfB");
        assert_eq!(CookieFormat::new("app", true).unwrap().name(&acme()), "app_giszrYfB");
        assert_ne!(format.name(&acme()), format.name(&Tenant::parse("globex").unwrap()));
        let longest = format!("{}{}", format.name(&acme()), cookie_value(1)).len();
        assert!(longest <= 4096, "c103 {longest}");
    }

    #[test]
    fn c107_only_one_form_of_the_value_is_read() {
        let good = cookie_value(7);
        let cookie = SessionCookie::parse(good.as_bytes()).unwrap();
        assert_eq!(cookie.sid, PublicId::from_bytes([7; 16]));
        let (sid, secret) = good.split_once('.').unwrap();
        for bad in [
            "",
            ".",
            sid,
            secret,
            &format!("{sid}{secret}"),
            &format!("{sid}-{secret}"),
            &format!("{secret}.{sid}"),
            &format!("{good}A"),
            &format!("{good}="),
            &format!("A{good}"),
            &format!(".{good}"),
            &format!("{sid}.{secret}."),
            &format!("\"{good}\""),
            &format!("{}.{}", sid.replace("Bw", "+/"), secret),
            &"é".repeat(33),
        ] {
            assert!(SessionCookie::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn c107_cookies_are_bounded_and_other_names_are_ignored() {
        let format = CookieFormat::default_name();
        let name = format.name(&acme());
        let read = |lines: &[String]| format.of_tenant(&headers(lines), &acme());
        let own = |number| format!("{name}={}", cookie_value(number));
        assert!(matches!(read(&[]), PresentedCookies::Absent));
        let case = name.replace("__Host-", "__host-");
        for other in ["session", "__Host-session", "__Host-session_", &name[7..], &case, &format!("{name}x")] {
            let line = format!("{other}={}", cookie_value(1));
            assert!(matches!(read(std::slice::from_ref(&line)), PresentedCookies::Absent), "{other}");
            assert!(!format.is_presented(&headers(&[line])), "{other}");
        }
        for bad in ["", "x", &"A".repeat(66), &"A".repeat(4096), "\"quoted\""] {
            let line = format!("{name}={bad}");
            assert!(format.is_presented(&headers(std::slice::from_ref(&line))), "{bad}");
            assert!(matches!(read(&[line]), PresentedCookies::Unusable), "{bad}");
        }
        assert!(matches!(read(&[own(0)]), PresentedCookies::One(_)));
        assert!(matches!(read(&[format!("{}; {}", own(0), own(0))]), PresentedCookies::One(_)));
        assert!(matches!(read(&[format!("{name}=bad; {}", own(0))]), PresentedCookies::One(_)));
        assert!(matches!(read(&[own(0), format!("{name}=bad")]), PresentedCookies::One(_)));
        let twice = [own(0), own(1), own(1), own(0)];
        assert!(matches!(read(&twice), PresentedCookies::Several(all) if all.len() == 2));
        let lines: Vec<_> = (0..6).map(own).collect();
        for several in 2..=MOST_OF_A_TENANT {
            let read = read(&lines[..several]);
            assert!(matches!(read, PresentedCookies::Several(all) if all.len() == several));
        }
        // one that is left out could be the right one
        assert!(matches!(read(&lines[..=MOST_OF_A_TENANT]), PresentedCookies::Unusable));
    }

    #[test]
    fn c121_cookies_of_all_tenants_are_read_together_and_bounded() {
        let format = CookieFormat::default_name();
        let cookie = |number: u8| {
            let tenant = Tenant::parse(format!("tenant-{number}")).unwrap();
            format!("{}={}", format.name(&tenant), cookie_value(number))
        };
        let lines: Vec<_> = (0..20).map(cookie).collect();
        let read = |count: usize| format.of_all_tenants(&headers(&lines[..count]));
        assert!(matches!(read(0), PresentedCookies::Absent));
        assert!(matches!(read(1), PresentedCookies::One(_)));
        assert!(matches!(read(16), PresentedCookies::Several(all) if all.len() == 16));
        assert!(matches!(read(17), PresentedCookies::Unusable));
        // one tenant's cookie is found among them all
        let third = format.of_tenant(&headers(&lines), &Tenant::parse("tenant-3").unwrap());
        assert!(matches!(third, PresentedCookies::One(cookie) if cookie.sid == PublicId::from_bytes([3; 16])));
    }

    proptest! {
        #[test]
        fn c107_arbitrary_headers_do_not_panic(
            lines in vec(vec(prop_oneof![32..127_u8, 128..=255_u8, Just(b'\t')], 0..300), 0..8),
            times in 1..100_usize,
        ) {
            let format = CookieFormat::default_name();
            let name = format.name(&acme());
            let mut headers = HeaderMap::new();
            for line in lines {
                let line = [name.as_bytes(), b"=", &line, b"; __Host-session_="].concat().repeat(times);
                headers.append(COOKIE, HeaderValue::from_bytes(&line).unwrap());
            }
            let _ = (format.of_tenant(&headers, &acme()), format.of_all_tenants(&headers));
        }

        #[test]
        fn c107_a_written_cookie_is_read_back_and_no_other_byte_is_the_same(
            sid: [u8; 16],
            place in 0..66_usize,
            byte in "[!-~]",
        ) {
            let (format, sid, secret) = (CookieFormat::default_name(), PublicId::from_bytes(sid), Secret::generate());
            let written = format.set(&acme(), sid, &secret, None).header_value();
            let pair = written.to_str().unwrap().split(';').next().unwrap();
            let read = |pair: &str| format.of_tenant(&headers(&[pair.to_owned()]), &acme());
            let own = |read: &PresentedCookies| {
                matches!(read, PresentedCookies::One(cookie)
                    if cookie.sid == sid && cookie.secret.matches(&secret.digest()))
            };
            prop_assert!(own(&read(pair)));
            let place = pair.len() - 66 + place;
            let mut changed = pair.to_owned();
            changed.replace_range(place..=place, &byte);
            prop_assert_eq!(own(&read(&changed)), changed == pair, "{}", changed);
        }
    }
}

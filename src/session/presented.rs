//! What a request presents as its session.

use http::HeaderMap;

use crate::{
    http::cookie,
    util::secret::{Digest, Secret},
};

/// The most session cookies of one request that are looked up.
const MOST: usize = 4;

/// The session cookies of a request.
#[derive(Debug)]
pub(super) enum Presented {
    /// There is none of that name.
    Nothing,
    /// There are some, but none that could be a secret, or too many.
    Useless,
    One(Digest),
    Several(Vec<Digest>),
}

impl Presented {
    pub(super) fn read(headers: &HeaderMap, name: &str) -> Self {
        let mut found = Self::Nothing;
        for value in cookie::read(headers, name) {
            found = match Secret::parse(value) {
                Some(secret) => found.and(secret.digest()),
                None if matches!(found, Self::Nothing) => Self::Useless,
                None => found,
            };
            if let Self::Several(all) = &found
                && all.len() > MOST
            {
                return Self::Useless;
            }
        }
        found
    }

    fn and(self, digest: Digest) -> Self {
        match self {
            Self::Nothing | Self::Useless => Self::One(digest),
            Self::One(one) if one.matches(&digest) => Self::One(one),
            Self::One(one) => Self::Several(vec![one, digest]),
            Self::Several(all) if all.iter().any(|known| known.matches(&digest)) => Self::Several(all),
            Self::Several(mut all) => {
                all.push(digest);
                Self::Several(all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::COOKIE};
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn read(lines: &[String]) -> Presented {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_str(line).unwrap());
        }
        Presented::read(&headers, "__Host-session")
    }

    #[test]
    fn c107_duplicates_are_bounded_and_a_wrong_prefix_is_ignored() {
        let secrets: Vec<_> = (0..6).map(|_| Secret::generate()).collect();
        let cookie = |name: &str, at: usize| format!("{name}={}", secrets[at].expose());
        let own = |at| cookie("__Host-session", at);
        assert!(matches!(read(&[]), Presented::Nothing));
        for other in ["session", "__host-session", "__Secure-session", "__Host-session2", "x__Host-session"] {
            assert!(matches!(read(&[cookie(other, 0)]), Presented::Nothing), "{other}");
        }
        for bad in ["", "x", &"A".repeat(44), &"A".repeat(4096), "\"quoted\""] {
            assert!(matches!(read(&[format!("__Host-session={bad}")]), Presented::Useless), "{bad}");
        }
        assert!(matches!(read(&[own(0)]), Presented::One(_)));
        assert!(matches!(read(&[format!("{}; {}", own(0), own(0))]), Presented::One(_)));
        assert!(matches!(read(&[format!("__Host-session=bad; {}", own(0))]), Presented::One(_)));
        assert!(matches!(read(&[own(0), String::from("__Host-session=bad")]), Presented::One(_)));
        let lines: Vec<_> = (0..6).map(own).collect();
        for several in 2..=MOST {
            assert!(matches!(read(&lines[..several]), Presented::Several(all) if all.len() == several));
        }
        // more than are looked up: whose would the one left out be?
        assert!(matches!(read(&lines[..=MOST]), Presented::Useless));
        assert!(matches!(read(&lines), Presented::Useless));
    }

    proptest! {
        #[test]
        fn c107_no_header_makes_it_panic(lines in vec(vec(any::<u8>(), 0..300), 0..8), times in 1..100_usize) {
            let mut headers = HeaderMap::new();
            for line in lines {
                let line = [&b"__Host-session="[..], &line, b"; __Host-session="].concat().repeat(times);
                if let Ok(line) = HeaderValue::from_bytes(&line) {
                    headers.append(COOKIE, line);
                }
            }
            let _ = Presented::read(&headers, "__Host-session");
        }
    }
}

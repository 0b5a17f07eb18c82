//! The lifetime of fetched keys.

use std::time::Duration;

use http::{HeaderMap, header};

const LEAST: Duration = Duration::from_secs(60);
const USUAL: Duration = Duration::from_secs(5 * 60);
const MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// The lifetime that the issuer wants, clamped to between a minute and a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime(pub(super) Duration);

impl Lifetime {
    /// Reads the lifetime from the response headers (RFC 9111): `max-age` minus the age in caches
    /// on the way.
    pub(super) fn from_cache_control(headers: &HeaderMap) -> Self {
        let texts = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
        let stated = texts.flat_map(|text| text.split(',')).filter_map(of_directive).min();
        let age = headers.get(header::AGE).and_then(|value| seconds(value.to_str().ok()?)).unwrap_or_default();
        let left = |stated: Duration| stated.saturating_sub(age);
        Self(stated.map_or(USUAL, left).clamp(LEAST, MOST))
    }

    /// Returns when to fetch new keys, early enough for them to arrive before these expire.
    pub(super) fn early(self) -> Duration {
        self.0 / 5 * 4
    }
}

/// Returns the lifetime according to one directive.
fn of_directive(directive: &str) -> Option<Duration> {
    let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
    match name.trim().to_ascii_lowercase().as_str() {
        // an unreadable value counts as expired
        "max-age" => Some(seconds(value.trim().trim_matches('"')).unwrap_or_default()),
        "no-cache" | "no-store" => Some(Duration::ZERO),
        _ => None,
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // a number that overflows is a long time
    is_number.then(|| Duration::from_secs(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lifetime(cache_control: &[&str], age: Option<&str>) -> u64 {
        let mut headers = HeaderMap::new();
        for value in cache_control {
            headers.append(header::CACHE_CONTROL, value.parse().unwrap());
        }
        if let Some(age) = age {
            headers.insert(header::AGE, age.parse().unwrap());
        }
        Lifetime::from_cache_control(&headers).0.as_secs()
    }

    #[test]
    fn max_age_is_followed_within_limits() {
        for (cache_control, expected) in [
            (&[][..], 300),
            (&["public"], 300),
            (&["max-age=600"], 600),
            (&["public, Max-Age=600, must-revalidate"], 600),
            (&["max-age=\"600\""], 600),
            (&["s-maxage=600"], 300),
            (&["max-age=0"], 60),
            (&["max-age=59"], 60),
            (&["max-age=99999999999999999999999999"], 86_400),
            (&["max-age=86401"], 86_400),
            (&["max-age=-1"], 60),
            (&["max-age"], 60),
            (&["max-age=ten"], 60),
            (&["no-store"], 60),
            (&["no-cache, max-age=600"], 60),
            (&["max-age=600, max-age=700"], 600),
            (&["public", "max-age=700"], 700),
        ] {
            assert_eq!(lifetime(cache_control, None), expected, "{cache_control:?}");
        }
    }

    #[test]
    fn time_in_caches_on_the_way_is_subtracted() {
        for (age, expected) in [("100", 500), ("599", 60), ("700", 60), ("x", 600), ("-1", 600)] {
            assert_eq!(lifetime(&["max-age=600"], Some(age)), expected, "{age}");
        }
    }

    proptest! {
        #[test]
        fn lifetimes_are_always_between_a_minute_and_a_day(text in "[a-z=,0-9\" -]{0,60}", age in "[0-9-]{0,30}") {
            let seconds = lifetime(&[&text], Some(&age).filter(|age| !age.is_empty()).map(String::as_str));
            prop_assert!((60..=86_400).contains(&seconds));
        }
    }
}

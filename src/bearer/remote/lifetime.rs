//! [`Lifetime`]: how long keys last.

use std::time::Duration;

use http::{HeaderMap, header};

const LEAST: Duration = Duration::from_secs(60);
const USUAL: Duration = Duration::from_secs(5 * 60);
const MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// From a minute to a day, as the issuer wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime(Duration);

impl Lifetime {
    /// What an answer says of itself (RFC 9111): `max-age` less the time that a cache on the way has had it.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let texts = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
        let wished = texts.flat_map(|text| text.split(',')).filter_map(wish).min();
        let age = headers.get(header::AGE).and_then(|value| seconds(value.to_str().ok()?)).unwrap_or_default();
        let left = |wished: Duration| wished.saturating_sub(age);
        Self(wished.map_or(USUAL, left).clamp(LEAST, MOST))
    }

    pub(super) fn whole(self) -> Duration {
        self.0
    }

    /// When it is time to look for the next, so that these are still good when they come.
    pub(super) fn early(self) -> Duration {
        self.0 / 5 * 4
    }
}

/// How long one directive lets an answer be kept.
fn wish(directive: &str) -> Option<Duration> {
    let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
    match name.trim().to_ascii_lowercase().as_str() {
        // one that can't be read is as good as over
        "max-age" => Some(seconds(value.trim().trim_matches('"')).unwrap_or_default()),
        "no-cache" | "no-store" => Some(Duration::ZERO),
        _ => None,
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // a number that is too large is a long time
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
        Lifetime::of(&headers).whole().as_secs()
    }

    #[test]
    fn max_age_is_heeded_within_bounds() {
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
    fn what_lay_in_a_cache_on_the_way_has_less_time_left() {
        for (age, expected) in [("100", 500), ("599", 60), ("700", 60), ("x", 600), ("-1", 600)] {
            assert_eq!(lifetime(&["max-age=600"], Some(age)), expected, "{age}");
        }
    }

    proptest! {
        #[test]
        fn whatever_an_issuer_says_it_is_a_minute_to_a_day(text in "[a-z=,0-9\" -]{0,60}", age in "[0-9-]{0,30}") {
            let seconds = lifetime(&[&text], Some(&age).filter(|age| !age.is_empty()).map(String::as_str));
            prop_assert!((60..=86_400).contains(&seconds));
        }
    }
}

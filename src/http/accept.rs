//! What a caller would rather read: the `Accept` header.

use http::{HeaderMap, header};

/// The most media types of a header that are looked at.
const MOST_TYPES: usize = 32;

/// Whether HTML is what the caller would like best.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    favourite(headers)
        .is_some_and(|name| ["text/html", "application/xhtml+xml"].iter().any(|html| name.eq_ignore_ascii_case(html)))
}

/// The first media type of the highest quality; `None` where none is acceptable or nothing is said.
pub(crate) fn favourite(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::ACCEPT).iter();
    let types = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).take(MOST_TYPES);
    let best = types.map(media_type).reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.filter(|(_, quality)| *quality > 0).map(|(name, _)| name)
}

/// A media type and its quality in thousandths; a malformed quality counts as none.
fn media_type(text: &str) -> (&str, u16) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, quality.map_or(1000, thousandths))
}

fn thousandths(quality: &str) -> u16 {
    match quality.parse::<f32>() {
        Ok(quality) if (0.0..=1.0).contains(&quality) => (quality * 1000.0) as u16,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_favourite_is_the_first_of_the_highest_quality() {
        for (line, expected) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Some("text/html")),
            ("application/json;q=0.9, TEXT/HTML;q=0.95", Some("TEXT/HTML")),
            ("application/problem+json, application/json", Some("application/problem+json")),
            ("*/*", Some("*/*")),
            ("text/html;q=0", None),
            ("text/html;q=NaN, a/b;q=0.1", Some("a/b")),
            ("", Some("")),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(line))]);
            assert_eq!(favourite(&headers), expected, "{line}");
        }
        assert_eq!(favourite(&HeaderMap::new()), None);
    }
}

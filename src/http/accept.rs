//! Content negotiation with `Accept` and `Accept-Language`.

use http::{HeaderMap, HeaderName, header};

/// The maximum number of media types or languages that are read from a header.
const MOST_ENTRIES: usize = 32;

/// Returns whether the caller prefers HTML.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    favourite(headers)
        .is_some_and(|name| ["text/html", "application/xhtml+xml"].iter().any(|html| name.eq_ignore_ascii_case(html)))
}

/// Returns the first media type of the highest quality. Returns `None` if there is no header or
/// nothing is acceptable.
pub(crate) fn favourite(headers: &HeaderMap) -> Option<&str> {
    let types = weighted(headers, header::ACCEPT);
    let best = types.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.filter(|(_, quality)| *quality > 0).map(|(name, _)| name)
}

/// Returns the entries of a header and their qualities in thousandths. A malformed quality counts as zero.
pub(crate) fn weighted(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = (&str, u16)> {
    let lines = headers.get_all(name).into_iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).take(MOST_ENTRIES).map(entry)
}

fn entry(text: &str) -> (&str, u16) {
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
    fn the_first_type_of_the_highest_quality_wins() {
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

use http::{HeaderMap, header};

use super::is_value;

/// The most bytes of the `Cookie` headers of one request that are looked at.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The most cookies of one request that are looked at.
pub const MAX_COOKIES: usize = 200;

/// The values of all cookies of this name, in the order in which they were
/// sent, over all `Cookie` headers.
///
/// There can be several: another host of the same domain may set one of the same
/// name, and the header does not tell them apart. So try each, and trust the
/// name only if it begins with `__Host-`, which no other host can set.
///
/// The name is compared byte by byte: neither `session` nor `__host-session` is
/// read for `__Host-session`. Quotes around a value are part of it. A cookie
/// without a name, or with bytes that no server may set, is passed over and its
/// neighbours are read. What lies beyond [`MAX_HEADER_BYTES`] or
/// [`MAX_COOKIES`] is not looked at.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::COOKIE};
/// use tollgate::cookie;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(COOKIE, HeaderValue::from_static("theme=dark; __Host-session=abc; session=evil"));
/// assert!(cookie::read(&headers, "__Host-session").eq(["abc"]));
/// ```
pub fn read<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    pairs(headers).filter_map(move |(found, value)| (found == name).then_some(value))
}

/// Names and values of all cookies, within the same bounds and by the same rules.
pub(crate) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let mut budget = MAX_HEADER_BYTES;
    headers
        .get_all(header::COOKIE)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .take(MAX_COOKIES)
        // one more for the semicolon
        .map_while(move |pair| {
            budget = budget.checked_sub(pair.len() + 1)?;
            Some(pair)
        })
        .filter_map(named)
}

/// A `name=value` pair, if it has a name and its value is well formed.
fn named(pair: &[u8]) -> Option<(&str, &str)> {
    let mut halves = pair.splitn(2, |byte| *byte == b'=');
    let name = trim(halves.next()?);
    let value = trim(halves.next()?);
    if name.is_empty() || !is_value(value) {
        return None;
    }
    Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
}

/// Without the blanks at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

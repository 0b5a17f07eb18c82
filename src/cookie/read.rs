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
        .filter_map(move |pair| value_of(pair, name))
}

/// The value of a `name=value` pair, if that is its name and the value is well formed.
fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a str> {
    let mut halves = pair.splitn(2, |byte| *byte == b'=');
    let found = trim(halves.next()?);
    let value = trim(halves.next()?);
    if found.is_empty() || found != name.as_bytes() || !is_value(value) {
        return None;
    }
    std::str::from_utf8(value).ok()
}

/// Without the blanks at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

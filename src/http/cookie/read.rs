use http::{HeaderMap, header};

use super::is_value;

/// The maximum number of bytes read from the `Cookie` headers of a request.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The maximum number of cookies read from a request.
pub const MAX_COOKIES: usize = 200;

/// Returns the values of all cookies with this name, in the order in which they were sent, across
/// all `Cookie` headers.
///
/// There can be several, because another host of the same domain can set a cookie with the same
/// name, and the header does not tell which host set which. Try each of them, and trust the name
/// only if it starts with `__Host-`, which other hosts cannot set.
///
/// Names are compared byte by byte: neither `session` nor `__host-session` matches
/// `__Host-session`. Quotes are part of the value. Cookies without a name, or with bytes that no
/// server may set, are skipped. Cookies beyond [`MAX_HEADER_BYTES`] or [`MAX_COOKIES`] are ignored.
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

/// Returns the names and values of all cookies, with the same limits and rules as [`read`].
pub(crate) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let mut budget = MAX_HEADER_BYTES;
    headers
        .get_all(header::COOKIE)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .take(MAX_COOKIES)
        // plus one for the semicolon
        .map_while(move |pair| {
            budget = budget.checked_sub(pair.len() + 1)?;
            Some(pair)
        })
        .filter_map(named)
}

/// Parses a `name=value` pair. Returns `None` if it has no name or a malformed value.
fn named(pair: &[u8]) -> Option<(&str, &str)> {
    let mut halves = pair.splitn(2, |byte| *byte == b'=');
    let name = trim(halves.next()?);
    let value = trim(halves.next()?);
    if name.is_empty() || !is_value(value) {
        return None;
    }
    Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
}

/// Trims spaces and tabs at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

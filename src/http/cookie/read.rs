use http::{
    HeaderMap, HeaderValue,
    header::{self, ValueIter},
};

use super::is_value;
use crate::util::scan::split_before;

/// The maximum number of bytes read from the `Cookie` headers of a request.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The maximum number of cookies read from a request.
pub const MAX_COOKIES: usize = 200;

/// Returns the values of all cookies with this name, in the order in which they were sent, across
/// all `Cookie` headers.
///
/// There can be several, because another host of the same domain can set a cookie with the same name, and the header
/// does not show which host set which. Try each of them, and trust the name only if it starts with `__Host-`, which
/// other hosts cannot set.
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
/// assert!(cookie::read_cookies(&headers, "__Host-session").eq(["abc"]));
/// ```
pub fn read_cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    pairs(headers).filter_map(move |(found, value)| (found == name).then_some(value))
}

/// Returns the names and values of all cookies, with the same limits and rules as [`read_cookies`].
pub(crate) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let valid = |(name, value)| is_value(value).then_some((name, value));
    raw_pairs(headers).filter_map(valid).filter_map(|(name, value)| Some((as_text(name)?, as_text(value)?)))
}

/// Like [`pairs`], but also returns cookies with bytes that no server may set. Check those that count with [`is_value`].
pub(crate) fn raw_pairs(headers: &HeaderMap) -> RawPairs<'_> {
    let lines = headers.get_all(header::COOKIE).into_iter();
    RawPairs { lines, rest: None, cookies: MAX_COOKIES, bytes: MAX_HEADER_BYTES }
}

/// The cookies of a request that were not read yet.
pub(crate) struct RawPairs<'a> {
    lines: ValueIter<'a, HeaderValue>,
    rest: Option<&'a [u8]>,
    /// How many more are read.
    cookies: usize,
    bytes: usize,
}

impl<'a> Iterator for RawPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.rest {
                Some(rest) => rest,
                None => self.lines.next()?.as_bytes(),
            };
            let (pair, rest) = split_before(line, b';');
            self.rest = rest.get(1..);
            self.cookies = self.cookies.checked_sub(1)?;
            // plus one for the semicolon
            let Some(bytes) = self.bytes.checked_sub(pair.len() + 1) else {
                self.cookies = 0;
                return None;
            };
            self.bytes = bytes;
            if let Some(found) = named(pair) {
                return Some(found);
            }
        }
    }
}

/// Splits a pair into its name and its value. Returns `None` if it has no name.
#[inline]
fn named(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = split_before(pair, b'=');
    let (name, value) = (trim(name), trim(value.get(1..)?));
    (!name.is_empty()).then_some((name, value))
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Trims spaces and tabs at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

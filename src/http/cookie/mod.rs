//! Cookies (RFC 6265bis): [`read_cookies`] finds the cookies with a name in a request, and [`SetCookie`]
//! writes one.

mod read;
mod set;
#[cfg(test)]
mod tests;

pub(crate) use self::read::{pairs, raw_pairs};
pub use self::{
    read::{MAX_COOKIES, MAX_HEADER_BYTES, read_cookies},
    set::{MAX_COOKIE_BYTES, SetCookie},
};

/// Matches `cookie-value` of RFC 6265bis §4.1.1.
pub(crate) fn is_value(value: &[u8]) -> bool {
    let inner = match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    };
    inner.iter().all(|byte| matches!(byte, 0x21 | 0x23..=0x2b | 0x2d..=0x3a | 0x3c..=0x5b | 0x5d..=0x7e))
}

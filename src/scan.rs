//! Steps that several parsers of headers take.

/// Whether this is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// Splits in front of the first of these bytes, else at the end.
pub(crate) fn split_before(text: &[u8], byte: u8) -> (&[u8], &[u8]) {
    let place = text.iter().position(|other| *other == byte).unwrap_or(text.len());
    text.split_at_checked(place).unwrap_or((text, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_in_front_of_the_first_such_byte_or_at_its_end() {
        assert_eq!(split_before(b"a=b=c", b'='), (&b"a"[..], &b"=b=c"[..]));
        assert_eq!(split_before(b"=", b'='), (&b""[..], &b"="[..]));
        assert_eq!(split_before(b"abc", b'='), (&b"abc"[..], &b""[..]));
    }

    #[test]
    fn a_token_has_a_byte_and_no_delimiter() {
        assert!(is_token(b"x-Key_1.~"));
        for text in ["", "a b", "a=b", "a;b", "\"a\"", "(a)", "a/b", "\u{e9}"] {
            assert!(!is_token(text.as_bytes()), "{text}");
        }
    }
}

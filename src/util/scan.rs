//! Helpers for header parsers.

/// Returns whether `text` is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// Returns whether a character is invisible: control characters, line separators, zero-width
/// spaces, and characters that change how others are displayed. They can make one name look like
/// another.
#[cfg(feature = "login")]
pub(crate) fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Splits before the first occurrence of `byte`, or at the end.
pub(crate) fn split_before(text: &[u8], byte: u8) -> (&[u8], &[u8]) {
    let place = text.iter().position(|other| *other == byte).unwrap_or(text.len());
    text.split_at_checked(place).unwrap_or((text, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_before_the_byte_or_at_the_end() {
        assert_eq!(split_before(b"a=b=c", b'='), (&b"a"[..], &b"=b=c"[..]));
        assert_eq!(split_before(b"=", b'='), (&b""[..], &b"="[..]));
        assert_eq!(split_before(b"abc", b'='), (&b"abc"[..], &b""[..]));
    }

    #[test]
    fn a_token_is_not_empty_and_has_no_delimiters() {
        assert!(is_token(b"x-Key_1.~"));
        for text in ["", "a b", "a=b", "a;b", "\"a\"", "(a)", "a/b", "\u{e9}"] {
            assert!(!is_token(text.as_bytes()), "{text}");
        }
    }
}

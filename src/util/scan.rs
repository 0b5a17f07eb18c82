//! Helpers for header parsers.

/// Returns whether a URI carries this character as it is (RFC 3986).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns whether `text` is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// Returns whether a character is invisible: control characters, line separators, zero-width
/// spaces, and characters that change how others are displayed. They can make one name look like
/// another.
pub(crate) fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the place of the first occurrence of `byte`. Compares 16 bytes at once, because cookie headers are long.
pub(crate) fn find(text: &[u8], byte: u8) -> Option<usize> {
    let is_without = |block: &&[u8; 16]| !block.iter().fold(false, |found, other| found | (*other == byte));
    let before = text.as_chunks().0.iter().take_while(is_without).count() * 16;
    text.get(before..)?.iter().position(|other| *other == byte).map(|place| before + place)
}

/// Reads digits alone. `str::parse` would also accept a leading `+`.
pub(crate) fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Splits before the first occurrence of `byte`, or at the end.
#[inline]
pub(crate) fn split_before(text: &[u8], byte: u8) -> (&[u8], &[u8]) {
    let place = find(text, byte).unwrap_or(text.len());
    text.split_at_checked(place).unwrap_or((text, &[]))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn the_first_occurrence_of_a_byte_is_found(text in vec(prop_oneof![58_u8..61, any::<u8>()], 0..40), byte in 58_u8..61) {
            prop_assert_eq!(find(&text, byte), text.iter().position(|other| *other == byte));
        }
    }

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

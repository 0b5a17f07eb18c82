//! Encodings: base64url without padding (RFC 4648 §5), which is safe in URLs, headers and cookies, and text in HTML.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// The length of 32 encoded bytes.
pub(crate) const LEN_OF_32: usize = 43;

/// The length of 16 encoded bytes.
pub(crate) const LEN_OF_16: usize = 22;

/// Marks a byte that is no character of the alphabet.
const INVALID: u8 = 0x80;

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static SEXTETS: [u8; 256] = {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut sextets = [INVALID; 256];
    let mut sextet = 0;
    while sextet < ALPHABET.len() {
        sextets[ALPHABET[sextet] as usize] = sextet as u8;
        sextet += 1;
    }
    sextets
};

fn sextet(byte: u8) -> u8 {
    SEXTETS.get(usize::from(byte)).copied().unwrap_or(INVALID)
}

/// Encodes 32 bytes.
pub(crate) fn base64url_of_32(bytes: &[u8; 32]) -> [u8; LEN_OF_32] {
    let mut text = [0; LEN_OF_32];
    // never fails: 32 bytes always take 43 characters
    let _written = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
    text
}

/// Returns whether this is the encoding of 32 bytes, without decoding it.
pub(crate) fn is_base64url_of_32(text: &[u8]) -> bool {
    let seen = text.iter().fold(0, |seen, byte| seen | sextet(*byte));
    // the last character has two bits more than needed
    text.len() == LEN_OF_32 && seen & INVALID == 0 && text.last().is_some_and(|last| sextet(*last) & 0b11 == 0)
}

/// Decodes 16 bytes. Each value has exactly one encoding.
pub(crate) fn base64url_to_16(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; LEN_OF_16] = text.try_into().ok()?;
    let (last, first) = text.split_last()?;
    let append = |(number, seen), byte: &u8| (number << 6 | u128::from(sextet(*byte)), seen | sextet(*byte));
    let (number, seen) = first.iter().fold((0, 0), append);
    // the last character has four bits more than needed
    let last = sextet(*last);
    ((seen | last) & INVALID == 0 && last & 0b1111 == 0).then(|| (number << 2 | u128::from(last >> 4)).to_be_bytes())
}

/// Decodes 32 bytes.
///
/// Each value has exactly one encoding. Padding, the standard alphabet, white space and stray
/// trailing bits are rejected.
pub(crate) fn base64url_to_32(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    // three bytes more than needed, because the decoder estimates the required space
    let mut room = Zeroizing::new([0; 35]);
    let len = URL_SAFE_NO_PAD.decode_slice(text, room.as_mut_slice()).ok()?;
    bytes.copy_from_slice(room.get(..len).filter(|decoded| decoded.len() == 32)?);
    Some(bytes)
}

/// Escapes a text between tags or in quotes.
pub(crate) fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_encoding_is_accepted() {
        let good = base64url_of_32(&[0xff; 32]);
        assert_eq!(good, *b"__________________________________________8");
        assert!(base64url_to_32(&good).is_some());
        for bad in [
            &b""[..],
            b"__________________________________________",
            b"__________________________________________8=",
            b"__________________________________________9",
            b"//////////////////////////////////////////8",
            b"_____________________ ____________________8",
            b"_____________________=____________________8",
        ] {
            assert!(base64url_to_32(bad).is_none(), "{bad:?}");
        }
    }

    proptest! {
        /// Compares the readers with the crate `base64`.
        #[test]
        fn exactly_the_canonical_encodings_are_read(
            text in prop_oneof![
                "[A-Za-z0-9_-]{22}",
                "[A-Za-z0-9_-]{43}",
                "[A-Za-z0-9_-]{20,22}[ -~]{1,2}",
                "[A-Za-z0-9_-]{0,42}[\\x00-\\x7f][A-Za-z0-9_-]{0,42}",
                "[A-Za-z0-9_-]{41}é",
                "([A-Za-z0-9_-]{4}){0,12}[A-Za-z0-9_-][AQgw]",
            ],
            bytes: ([u8; 16], [u8; 32]),
        ) {
            let decoded = URL_SAFE_NO_PAD.decode(&text).unwrap_or_default();
            prop_assert_eq!(base64url_to_16(text.as_bytes()), decoded.as_slice().try_into().ok());
            prop_assert_eq!(is_base64url_of_32(text.as_bytes()), decoded.len() == 32);
            prop_assert_eq!(base64url_to_16(URL_SAFE_NO_PAD.encode(bytes.0).as_bytes()), Some(bytes.0));
            prop_assert!(is_base64url_of_32(&base64url_of_32(&bytes.1)));
        }

        #[test]
        fn values_round_trip(bytes: [u8; 32]) {
            prop_assert_eq!(*base64url_to_32(&base64url_of_32(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn each_value_has_one_encoding(text in "[A-Za-z0-9_-]{43}") {
            if let Some(bytes) = base64url_to_32(text.as_bytes()) {
                prop_assert_eq!(&base64url_of_32(&bytes)[..], text.as_bytes());
            }
        }
    }

    #[test]
    fn sent_text_cannot_leave_its_quotes() {
        assert_eq!(escape_html(r#"<a href='x' b="y">&"#), "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;");
    }
}

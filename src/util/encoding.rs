//! Bytes as text that is safe in a URL, a header and a cookie: base64url
//! without padding (RFC 4648 §5).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Characters that 32 bytes take.
pub(crate) const LEN_OF_32: usize = 43;

/// 32 bytes as text.
pub(crate) fn base64url_of_32(bytes: &[u8; 32]) -> [u8; LEN_OF_32] {
    let mut text = [0; LEN_OF_32];
    // never an error: 43 characters are what 32 bytes take
    let _written = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
    text
}

/// The 32 bytes that `text` stands for.
///
/// There is one text for each value: padding, the other alphabet, white space
/// and stray bits at the end are refused.
pub(crate) fn base64url_to_32(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    // three more than needed, for the decoder asks for room by its estimate
    let mut room = Zeroizing::new([0; 35]);
    let len = URL_SAFE_NO_PAD.decode_slice(text, room.as_mut_slice()).ok()?;
    bytes.copy_from_slice(room.get(..len).filter(|decoded| decoded.len() == 32)?);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_but_the_canonical_text_is_refused() {
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
        #[test]
        fn what_is_written_is_read_back(bytes: [u8; 32]) {
            prop_assert_eq!(*base64url_to_32(&base64url_of_32(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn each_value_has_one_text(text in "[A-Za-z0-9_-]{43}") {
            if let Some(bytes) = base64url_to_32(text.as_bytes()) {
                prop_assert_eq!(&base64url_of_32(&bytes)[..], text.as_bytes());
            }
        }
    }
}

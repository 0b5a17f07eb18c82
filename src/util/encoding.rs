//! base64url without padding (RFC 4648 §5), which is safe in URLs, headers and cookies.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// The length of 32 encoded bytes.
pub(crate) const LEN_OF_32: usize = 43;

/// Encodes 32 bytes.
pub(crate) fn base64url_of_32(bytes: &[u8; 32]) -> [u8; LEN_OF_32] {
    let mut text = [0; LEN_OF_32];
    // never fails: 32 bytes always take 43 characters
    let _written = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
    text
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
}

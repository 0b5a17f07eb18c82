//! Signatures by the scheme of Standard Webhooks.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::util::error::ConfigError;

const LEAST: usize = 24;

/// A key in use.
pub(super) struct WebhookSigner(Hmac<Sha256>);

impl WebhookSigner {
    /// Takes a key as bytes, or as `whsec_` and standard base64.
    pub(super) fn new(key: &[u8]) -> Result<Self, ConfigError> {
        // the key itself is never shown
        let wrong = |reason| ConfigError::new("webhook key", "the given key", reason);
        let key = Zeroizing::new(match key.strip_prefix(b"whsec_") {
            Some(text) => STANDARD.decode(text).map_err(|_| wrong("must be base64 after whsec_"))?,
            None => key.to_vec(),
        });
        if key.len() < LEAST {
            return Err(wrong("must have at least 24 bytes"));
        }
        Hmac::new_from_slice(&key).map(Self).map_err(|_| wrong("has a length that can't be used"))
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    #[test]
    fn the_example_of_the_scheme_is_signed_as_it_is_there() {
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(WebhookSigner::new(KEY.as_bytes()).unwrap().sign(ID, 1_614_265_330, BODY), expected);
        let raw = STANDARD.decode(&KEY["whsec_".len()..]).unwrap();
        assert_eq!(WebhookSigner::new(&raw).unwrap().sign(ID, 1_614_265_330, BODY), expected);
    }

    #[test]
    fn each_part_counts() {
        let signer = WebhookSigner::new(KEY.as_bytes()).unwrap();
        let signed = signer.sign("id", 1, b"body");
        assert_ne!(signed, signer.sign("ie", 1, b"body"));
        assert_ne!(signed, signer.sign("id", 2, b"body"));
        assert_ne!(signed, signer.sign("id", 1, b"bodz"));
        assert_ne!(signed, WebhookSigner::new(&[7; 24]).unwrap().sign("id", 1, b"body"));
    }

    #[test]
    fn a_short_or_garbled_key_is_refused_and_not_shown() {
        for bad in [&b""[..], b"twenty-three-bytes-long", b"whsec_c2hvcnQ=", b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS*"]
        {
            let error = WebhookSigner::new(bad).err().unwrap().to_string();
            assert!(bad.is_empty() || !error.contains(std::str::from_utf8(bad).unwrap()), "{error}");
        }
    }
}

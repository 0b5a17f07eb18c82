//! Signatures according to Standard Webhooks.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::util::error::ConfigError;

const LEAST: usize = 24;

/// A signing key.
pub(super) struct WebhookSigner(Hmac<Sha256>);

impl WebhookSigner {
    /// Parses a key, given as raw bytes or as `whsec_` and standard base64.
    pub(super) fn new(key: &[u8]) -> Result<Self, ConfigError> {
        // errors don't show the key
        let wrong = |reason| ConfigError::new("webhook key", "the given key", reason);
        let key = Zeroizing::new(match key.strip_prefix(b"whsec_") {
            Some(text) => STANDARD.decode(text).map_err(|_| wrong("must be base64 after whsec_"))?,
            None => key.to_vec(),
        });
        if key.len() < LEAST {
            return Err(wrong("must be at least 24 bytes long"));
        }
        Hmac::new_from_slice(&key).map(Self).map_err(|_| wrong("has an unsupported length"))
    }

    /// Returns the value of `webhook-signature`.
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
    fn the_published_test_vector() {
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(WebhookSigner::new(KEY.as_bytes()).unwrap().sign(ID, 1_614_265_330, BODY), expected);
        let raw = STANDARD.decode(&KEY["whsec_".len()..]).unwrap();
        assert_eq!(WebhookSigner::new(&raw).unwrap().sign(ID, 1_614_265_330, BODY), expected);
    }

    #[test]
    fn every_part_is_signed() {
        let signer = WebhookSigner::new(KEY.as_bytes()).unwrap();
        let signed = signer.sign("id", 1, b"body");
        assert_ne!(signed, signer.sign("ie", 1, b"body"));
        assert_ne!(signed, signer.sign("id", 2, b"body"));
        assert_ne!(signed, signer.sign("id", 1, b"bodz"));
        assert_ne!(signed, WebhookSigner::new(&[7; 24]).unwrap().sign("id", 1, b"body"));
    }

    #[test]
    fn invalid_keys_are_rejected_and_not_shown() {
        for bad in [&b""[..], b"twenty-three-bytes-long", b"whsec_c2hvcnQ=", b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS*"]
        {
            let error = WebhookSigner::new(bad).err().unwrap().to_string();
            assert!(bad.is_empty() || !error.contains(std::str::from_utf8(bad).unwrap()), "{error}");
        }
    }
}

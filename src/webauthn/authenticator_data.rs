//! The statement of the authenticator: `authenticatorData`.

use subtle::ConstantTimeEq;

use super::{
    cbor::{self, Value},
    error::WebauthnError,
    policy::{BackupPolicy, UserVerification},
    relying_party::RelyingParty,
};
use crate::util::secret::SecretDigest;

/// CTAP2 messages have about 1,200 bytes by default, so large keys and extensions fit.
const MOST_BYTES: usize = 8192;
/// The limit of the specification.
const LONGEST_ID: usize = 1023;

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKED_UP: u8 = 1 << 4;
const ATTESTED: u8 = 1 << 6;
const EXTENSIONS: u8 = 1 << 7;

/// The parsed authenticator data. It is not trustworthy before its signature is verified.
#[derive(Debug)]
pub(super) struct AuthenticatorData<'a> {
    rp_id_hash: &'a [u8; 32],
    flags: u8,
    pub(super) sign_count: u32,
    pub(super) attested: Option<AttestedCredential<'a>>,
}

/// A new credential.
#[derive(Debug)]
pub(super) struct AttestedCredential<'a> {
    pub(super) aaguid: [u8; 16],
    pub(super) id: &'a [u8],
    /// The public key as a COSE key.
    pub(super) key: &'a [u8],
}

impl<'a> AuthenticatorData<'a> {
    /// Parses the data. Trailing bytes are refused, and so are extensions that are not a map.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, WebauthnError> {
        Some(bytes)
            .filter(|bytes| bytes.len() <= MOST_BYTES)
            .and_then(Self::read_authenticator_data)
            .ok_or(Self::malformed())
    }

    pub(super) const fn malformed() -> WebauthnError {
        WebauthnError::Malformed("authenticatorData")
    }

    fn read_authenticator_data(mut rest: &'a [u8]) -> Option<Self> {
        let rp_id_hash = chunk::<32>(&mut rest)?;
        let [flags] = *chunk(&mut rest)?;
        let sign_count = u32::from_be_bytes(*chunk(&mut rest)?);
        let attested = if flags & ATTESTED == 0 { None } else { Some(AttestedCredential::read_attested(&mut rest)?) };
        if flags & EXTENSIONS != 0 {
            let Value::Map(extensions) = cbor::read_cbor_value(&mut rest)? else { return None };
            if !extensions.iter().all(|(name, _)| matches!(name, Value::Text(_))) {
                return None;
            }
        }
        rest.is_empty().then_some(Self { rp_id_hash, flags, sign_count, attested })
    }

    /// Checks the relying party and the flags.
    pub(super) fn check(&self, party: &RelyingParty) -> Result<(), WebauthnError> {
        let expected = SecretDigest::of_secret(&party.id);
        if !bool::from(self.rp_id_hash.ct_eq(expected.as_bytes())) {
            return Err(WebauthnError::RelyingParty);
        }
        if !self.has(USER_PRESENT) {
            return Err(WebauthnError::UserPresence);
        }
        if party.user_verification == UserVerification::Required && !self.user_verified() {
            return Err(WebauthnError::UserVerification);
        }
        let contradicts = self.backed_up() && !self.backup_eligible();
        if contradicts || (party.backup == BackupPolicy::Refuse && self.backup_eligible()) {
            return Err(WebauthnError::Backup);
        }
        Ok(())
    }

    pub(super) fn user_verified(&self) -> bool {
        self.has(USER_VERIFIED)
    }

    pub(super) fn backup_eligible(&self) -> bool {
        self.has(BACKUP_ELIGIBLE)
    }

    pub(super) fn backed_up(&self) -> bool {
        self.has(BACKED_UP)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl<'a> AttestedCredential<'a> {
    fn read_attested(rest: &mut &'a [u8]) -> Option<Self> {
        let aaguid = *chunk(rest)?;
        let len = usize::from(u16::from_be_bytes(*chunk(rest)?));
        let (id, after) = rest.split_at_checked(len).filter(|(id, _)| !id.is_empty() && id.len() <= LONGEST_ID)?;
        *rest = after;
        // the key has no length of its own: it ends where its map ends
        let Value::Map(_) = cbor::read_cbor_value(rest)? else { return None };
        let key = after.get(..after.len() - rest.len())?;
        Some(Self { aaguid, id, key })
    }
}

fn chunk<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (chunk, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(chunk)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn party() -> RelyingParty {
        RelyingParty::new("example.com").unwrap()
    }

    fn data(flags: u8, rest: &[u8]) -> Vec<u8> {
        [SecretDigest::of_secret("example.com").as_bytes(), &[flags][..], &[0, 0, 1, 2], rest].concat()
    }

    /// An id of two bytes, and a key that is an empty map.
    fn attested() -> Vec<u8> {
        [&[9; 16][..], &[0, 2, 0xaa, 0xbb, 0xa0]].concat()
    }

    #[test]
    fn all_parts_are_read() {
        let bytes = data(USER_PRESENT | ATTESTED | EXTENSIONS, &[attested(), vec![0xa1, 0x61, b'x', 0xf5]].concat());
        let parsed = AuthenticatorData::parse(&bytes).unwrap();
        assert_eq!(parsed.sign_count, 0x102);
        let attested = parsed.attested.unwrap();
        assert_eq!((attested.aaguid, attested.id, attested.key), ([9; 16], &[0xaa, 0xbb][..], &[0xa0][..]));
    }

    #[test]
    fn c078_every_other_length_and_every_malformed_extension_is_refused() {
        for (flags, rest) in [
            (0, vec![]),
            (ATTESTED, attested()),
            (EXTENSIONS, vec![0xa0]),
            (ATTESTED | EXTENSIONS, [attested(), vec![0xa0]].concat()),
        ] {
            let bytes = data(flags, &rest);
            assert!(AuthenticatorData::parse(&bytes).is_ok(), "{flags}");
            for len in 0..bytes.len() {
                assert!(AuthenticatorData::parse(&bytes[..len]).is_err(), "{flags} {len}");
            }
            assert!(AuthenticatorData::parse(&[bytes, vec![0]].concat()).is_err(), "{flags}");
        }
        for extensions in [vec![0x80], vec![0xf6], vec![0xa1, 0x00, 0x00], vec![0xbf, 0xff]] {
            assert!(AuthenticatorData::parse(&data(EXTENSIONS, &extensions)).is_err(), "{extensions:?}");
        }
        for len in [0, 1024] {
            let id = [&[0; 16][..], &u16::to_be_bytes(len), &vec![1; len.into()], &[0xa0]].concat();
            assert!(AuthenticatorData::parse(&data(ATTESTED, &id)).is_err(), "{len}");
        }
        assert!(AuthenticatorData::parse(&data(EXTENSIONS, &[0xa1, 0x61, b'x', 0x59, 0x20, 0x00, 0x00])).is_err());
    }

    #[test]
    fn c073_the_relying_party_is_exact() {
        let mut bytes = data(USER_PRESENT | USER_VERIFIED, &[]);
        assert_eq!(AuthenticatorData::parse(&bytes).unwrap().check(&party()), Ok(()));
        for byte in 0..32 {
            bytes[byte] ^= 1;
            let result = AuthenticatorData::parse(&bytes).unwrap().check(&party());
            assert_eq!(result, Err(WebauthnError::RelyingParty));
            bytes[byte] ^= 1;
        }
    }

    #[test]
    fn c074_flags_are_checked_as_the_policy_requires() {
        use WebauthnError::{Backup, UserPresence, UserVerification as Verification};
        let strict = party();
        let preferred = party().user_verification(UserVerification::Preferred);
        let in_one_device = party().backup(BackupPolicy::Refuse);
        let both = USER_PRESENT | USER_VERIFIED;
        for (flags, by_default, by_preference, by_device) in [
            (both, Ok(()), Ok(()), Ok(())),
            (0, Err(UserPresence), Err(UserPresence), Err(UserPresence)),
            (USER_VERIFIED, Err(UserPresence), Err(UserPresence), Err(UserPresence)),
            (USER_PRESENT, Err(Verification), Ok(()), Err(Verification)),
            (both | BACKUP_ELIGIBLE, Ok(()), Ok(()), Err(Backup)),
            (both | BACKUP_ELIGIBLE | BACKED_UP, Ok(()), Ok(()), Err(Backup)),
            (both | BACKED_UP, Err(Backup), Err(Backup), Err(Backup)),
        ] {
            let bytes = data(flags, &[]);
            let parsed = AuthenticatorData::parse(&bytes).unwrap();
            assert_eq!(parsed.check(&strict), by_default, "{flags}");
            assert_eq!(parsed.check(&preferred), by_preference, "{flags}");
            assert_eq!(parsed.check(&in_one_device), by_device, "{flags}");
        }
    }

    proptest! {
        #[test]
        fn c078_nothing_panics(flags: u8, rest in prop::collection::vec(any::<u8>(), 0..120), attested_first: bool) {
            let rest = if attested_first { [attested(), rest].concat() } else { rest };
            let bytes = data(flags, &rest);
            let _ = AuthenticatorData::parse(&bytes).map(|data| data.check(&party()));
        }
    }
}

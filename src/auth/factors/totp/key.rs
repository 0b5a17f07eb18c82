//! The keys of authenticator apps, as they are stored, and their codes (RFC 6238).

use aws_lc_rs::hmac::{self, HMAC_SHA1_FOR_LEGACY_USE_ONLY};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{qr, settings::Totp};
use crate::{
    auth::factors::credentials::credential::{Credential, Strength, enrolment_mark},
    login::Keyed,
    policy::Method,
    session::UserId,
    support::seal::{Seal, Sealed},
    tenant::Tenant,
    util::{clock::UnixTime, form::encode_form_value, public_id::PublicId},
};

/// How long a code is shown. All apps use this time, and many ignore another one.
const STEP_SECONDS: u64 = 30;

/// The key that an authenticator app shares with this service. It belongs to the user and the tenant that it was made for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TotpKey {
    /// A random id, which marks the proofs by this key.
    #[serde(with = "crate::util::text")]
    pub(crate) enrolment: PublicId,
    secret: Sealed,
    kind: TotpKind,
    /// The time step of the last accepted code. No code of this step or an earlier one is accepted any more.
    last_step: u64,
    pub(crate) created_at: u64,
    pub(crate) strength: Strength,
}

/// How the codes of an app are made, as it is stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TotpKind {
    digits: u8,
}

/// A new key, in the form that the user's app reads. It is shown once.
#[derive(Serialize)]
pub(crate) struct NewTotp {
    /// The secret in base32, to be typed into an app.
    pub(crate) secret: Zeroizing<String>,
    /// The secret with its settings as an `otpauth` URI.
    pub(crate) uri: Zeroizing<String>,
    /// The URI as a QR code, an inline SVG.
    pub(crate) qr_svg: Zeroizing<String>,
}

impl TotpKey {
    /// Creates a key. It counts once the user has [confirmed](Self::confirm) it. `account` is the name that the app shows.
    /// Returns `None` if the seal fails.
    pub(crate) fn new(settings: &Totp, owner: (&Tenant, &UserId), account: &str) -> Option<(NewTotp, Self)> {
        // as long as the hash, as RFC 4226 recommends
        let mut secret = Zeroizing::new([0; 20]);
        getrandom::fill(&mut *secret).ok()?;
        let shown = Zeroizing::new(base32(&*secret));
        let uri = Zeroizing::new(uri(&shown, settings, account));
        let new = NewTotp { qr_svg: Zeroizing::new(qr::svg(&uri)?), secret: shown, uri };
        let secret = settings.seal.close(&name(owner), &*secret)?;
        let (enrolment, strength) = (PublicId::random(), Strength::NONE.clone());
        let kind = TotpKind { digits: settings.digits };
        Some((new, Self { enrolment, secret, kind, last_step: 0, created_at: 0, strength }))
    }

    /// Returns the key to store if the user has typed its current code, which is used up by that.
    pub(crate) fn confirm(
        self,
        owner: (&Tenant, &UserId),
        typed: &str,
        (strength, now): (Strength, UnixTime),
        seal: &Seal,
    ) -> Option<Self> {
        let secret = seal.open(&name(owner), &self.secret)?;
        let last_step = self.step_of(&secret, &digits_of(typed), now)?;
        Some(Self { last_step, created_at: now.as_secs(), strength, ..self })
    }

    /// Uses up a code. Returns whether it is right and was not used before.
    pub(crate) fn accept(&mut self, owner: (&Tenant, &UserId), typed: &str, now: UnixTime, seal: &Seal) -> bool {
        let Some(secret) = seal.open(&name(owner), &self.secret) else { return false };
        match self.step_of(&secret, &digits_of(typed), now) {
            Some(step) if step > self.last_step => {
                self.last_step = step;
                seal.renew(&name(owner), &mut self.secret);
                true
            }
            _ => false,
        }
    }

    /// Returns the time step of a code that is valid now, in constant time. The clock of the device may be one step off.
    ///
    /// If several steps have the same code, it is the last one, so that the code can't be used again.
    fn step_of(&self, secret: &[u8], typed: &str, now: UnixTime) -> Option<u64> {
        let current = now.as_secs() / STEP_SECONDS;
        [current.saturating_sub(1), current, current + 1].into_iter().fold(None, |found, step| {
            let is_same = bool::from(code(self.kind.digits, secret, step).as_bytes().ct_eq(typed.as_bytes()));
            if is_same { Some(step) } else { found }
        })
    }
}

/// Returns the code of a time step. It is made with SHA-1, because many apps ignore another setting and show wrong codes.
fn code(digits: u8, secret: &[u8], step: u64) -> Zeroizing<String> {
    let key = hmac::Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let offset = usize::from(tag.as_ref().last().copied().unwrap_or_default() & 0x0f);
    // the default is never used: a tag has 20 bytes
    let part = tag.as_ref().get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    let number = u32::from_be_bytes(part) & 0x7fff_ffff;
    let number = u64::from(number) % 10_u64.pow(digits.into());
    Zeroizing::new(format!("{number:0width$}", width = usize::from(digits)))
}

fn uri(secret: &str, settings: &Totp, account: &str) -> String {
    let service = settings.name.as_deref().unwrap_or_default();
    // a colon separates the names
    let [service, account] = [service, account].map(|name| encode_form_value(&name.replace(':', " ")));
    let digits = settings.digits;
    format!(
        "otpauth://totp/{service}:{account}?secret={secret}&issuer={service}&algorithm=SHA1&digits={digits}\
         &period={STEP_SECONDS}"
    )
}

impl Credential for TotpKey {
    fn method(&self) -> Method {
        Method::Totp
    }

    fn mark(&self, keyed: &Keyed) -> [u8; 32] {
        enrolment_mark(&self.enrolment, keyed)
    }
}

/// The name under which a secret is sealed. A secret that is copied to another user can't be opened.
fn name((tenant, user): (&Tenant, &UserId)) -> String {
    format!("totp {tenant} {user}")
}

/// Removes the spaces that apps show between groups of digits.
fn digits_of(typed: &str) -> Zeroizing<String> {
    Zeroizing::new(typed.chars().filter(|character| *character != ' ').collect())
}

/// Encodes bytes in base32 without padding (RFC 4648 §6), as apps expect.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
    let letter = |first: usize| {
        let number = (first..first + 5).fold(0, |number, at| number << 1 | bit(at));
        LETTERS.get(number).copied().map_or('A', char::from)
    };
    (0..bytes.len() * 8).step_by(5).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::secret::Secret;

    const SECRET: &[u8] = b"12345678901234567890";

    /// Returns a key of eight digits that is not confirmed.
    fn pending(owner: (&Tenant, &UserId), seal: &Seal) -> TotpKey {
        let secret = seal.close(&name(owner), SECRET).unwrap();
        TotpKey { secret, ..TotpKey::new(&Totp::new().digits(8), owner, "ada").unwrap().1 }
    }

    fn unix_seconds(seconds: u64) -> UnixTime {
        UnixTime::from_secs(seconds)
    }

    #[test]
    fn c124_the_codes_are_those_of_the_rfcs() {
        // RFC 6238, appendix B
        for (seconds, expected) in [
            (59, "94287082"),
            (1_111_111_109, "07081804"),
            (1_111_111_111, "14050471"),
            (1_234_567_890, "89005924"),
            (2_000_000_000, "69279037"),
            (20_000_000_000, "65353130"),
        ] {
            assert_eq!(*code(8, SECRET, seconds / 30), *expected, "{seconds}");
        }
        // RFC 4226, appendix D
        for (counter, expected) in ["755224", "287082", "359152", "969429", "338314", "254676"].iter().enumerate() {
            assert_eq!(*code(6, SECRET, counter as u64), **expected);
        }
    }

    #[test]
    fn c124_a_code_is_accepted_once_and_within_one_step() {
        let (tenant, user) = (Tenant::parse("acme").unwrap(), UserId::parse("u-ada").unwrap());
        let (owner, seal) = ((&tenant, &user), Seal::new(&Secret::generate()));
        let pending = pending(owner, &seal);
        let confirm = |typed: &str, seconds| {
            pending.clone().confirm(owner, typed, (Strength::FULL.clone(), unix_seconds(seconds)), &seal)
        };
        // the code of the step from 1_111_111_080 to 1_111_111_109
        let first = "07081804";
        for (seconds, is_valid) in [
            (1_111_111_049, false),
            (1_111_111_050, true),
            (1_111_111_109, true),
            (1_111_111_139, true),
            (1_111_111_140, false),
        ] {
            assert_eq!(confirm(first, seconds).is_some(), is_valid, "{seconds}");
        }
        for wrong in ["", "0708180", "070818040", "7081804", "07081805", "０7081804", "0708-1804"] {
            assert!(confirm(wrong, 1_111_111_109).is_none(), "{wrong:?}");
        }
        let mut key = confirm("0708 1804", 1_111_111_109).unwrap();
        assert_eq!((key.last_step, key.created_at, &key.strength), (37_037_036, 1_111_111_109, Strength::FULL));
        // the code of the enrolment and older ones are used up
        assert!(!key.accept(owner, first, unix_seconds(1_111_111_109), &seal));
        let next = code(8, SECRET, 37_037_037);
        let older = code(8, SECRET, 37_037_035);
        assert!(!key.accept(owner, &older, unix_seconds(1_111_111_109), &seal));
        assert!(key.clone().accept(owner, &next, unix_seconds(1_111_111_109), &seal));
        // a secret that was copied to another user, or whose seal is lost, accepts nothing
        let (grace, globex) = (UserId::parse("u-grace").unwrap(), Tenant::parse("globex").unwrap());
        for other in [(&tenant, &grace), (&globex, &user)] {
            assert!(!key.clone().accept(other, &next, unix_seconds(1_111_111_109), &seal));
        }
        assert!(!key.clone().accept(owner, &next, unix_seconds(1_111_111_109), &Seal::new(&Secret::generate())));
        assert!(key.accept(owner, &next, unix_seconds(1_111_111_109), &seal));
        assert!(!key.accept(owner, &next, unix_seconds(1_111_111_130), &seal));
    }

    #[test]
    fn c124_an_app_works_on_with_a_new_seal_and_needs_the_old_one_until_its_next_code() {
        let (tenant, user) = (Tenant::parse("acme").unwrap(), UserId::parse("u-ada").unwrap());
        let (owner, old, new) = ((&tenant, &user), Secret::generate(), Secret::generate());
        let (was, is, both) = (Seal::new(&old), Seal::new(&new), Seal::new(&new).with_older(&old));
        let first = code(8, SECRET, 100);
        let mut key =
            pending(owner, &was).confirm(owner, &first, (Strength::FULL.clone(), unix_seconds(3_000)), &was).unwrap();
        let mut uses =
            |step: u64, seal: &Seal| key.accept(owner, &code(8, SECRET, step), unix_seconds(step * STEP_SECONDS), seal);
        assert!(!uses(101, &is) && uses(101, &both) && uses(102, &is) && !uses(103, &was));
    }

    #[test]
    fn c124_a_new_key_is_sealed_and_fits_what_the_app_reads() {
        let (tenant, user) = (Tenant::parse("acme").unwrap(), UserId::parse("u-ada").unwrap());
        let (owner, seal) = ((&tenant, &user), Seal::new(&Secret::generate()));
        for (digits, tail) in [(6, "&algorithm=SHA1&digits=6&period=30"), (8, "&algorithm=SHA1&digits=8&period=30")] {
            let settings = Totp { seal: seal.clone(), ..Totp::new().name("Exa: mple").digits(digits) };
            let (new, pending) = TotpKey::new(&settings, owner, "ada@example.com").unwrap();
            assert_eq!(new.secret.len(), 32);
            let shown = &*new.secret;
            let uri =
                format!("otpauth://totp/Exa%20%20mple:ada%40example.com?secret={shown}&issuer=Exa%20%20mple{tail}");
            assert_eq!(*new.uri, uri);
            assert!(new.qr_svg.starts_with("<svg "));
            let stored = serde_json::to_string(&pending).unwrap();
            let secret = seal.open(&name(owner), &pending.secret).unwrap();
            assert_eq!(base32(&secret), *new.secret);
            assert!(!stored.contains(&*new.secret) && stored.contains("nonce"), "{stored}");
            assert_ne!(*TotpKey::new(&settings, owner, "y").unwrap().0.secret, *new.secret);
        }
    }

    #[test]
    fn base32_is_that_of_the_rfc() {
        // RFC 4648, section 10, without padding
        for (bytes, text) in
            [("", ""), ("f", "MY"), ("fo", "MZXQ"), ("foo", "MZXW6"), ("foob", "MZXW6YQ"), ("fooba", "MZXW6YTB")]
        {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
        assert_eq!(base32(b"foobar"), "MZXW6YTBOI");
    }
}

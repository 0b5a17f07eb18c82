//! Trusted browsers, whose attempts are counted apart from those of others.

use std::{iter, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderMap;

use crate::{
    http::cookie::{self, SetCookie},
    login::{Keyed, LoginId},
    tenant::Tenant,
    user::Account,
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// The most users that one browser is trusted for. The oldest makes room.
const MOST: usize = 4;
/// The length of an entry: id, expiry, signature.
const ENTRY: usize = 16 + 8 + 32;
/// The most characters of a cookie.
const LONGEST: usize = (MOST * ENTRY * 4).div_ceil(3);

/// The device cookie. It has one entry for each user who completed a login in the browser: a random id, an expiry, and a
/// signature for this user.
///
/// The signature also covers the generation of the user and the mark of the password, so the entry ends with either of them.
/// Nothing is stored, and all nodes that share the hash key can check it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    /// Leaves out `Secure` and the `__Host-` prefix, for development on a loopback address without TLS.
    pub(crate) loopback: bool,
    pub(crate) lifetime: Duration,
}

/// The user that a browser may be trusted for. Without an account there is as much work, and no trust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceOwner<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) account: Option<&'a Account>,
    pub(crate) generation: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    id: PublicId,
    expires_at: UnixTime,
    signature: SecretDigest,
}

impl Devices {
    /// Returns the id of the device if the browser is trusted for this user.
    pub(crate) fn trusted(
        &self,
        headers: &HeaderMap,
        owner: DeviceOwner<'_>,
        keyed: &Keyed,
        now: UnixTime,
    ) -> Option<PublicId> {
        let mut trusted = None;
        // as many signatures with an account as without
        for entry in self.entries(headers) {
            let is_signed = entry.signature.matches(&owner.signature(entry.id, entry.expires_at, keyed));
            if is_signed && now < entry.expires_at && owner.account.is_some() {
                trusted = trusted.or(Some(entry.id));
            }
        }
        trusted
    }

    /// Returns whether a request has entries. They are not verified.
    pub(crate) fn are_presented(&self, headers: &HeaderMap) -> bool {
        !self.entries(headers).is_empty()
    }

    /// Creates the cookie that makes the browser trusted for this user, and keeps it so for others. A trusted browser keeps
    /// its id, and another one gets that of its login, because each id has attempts of its own.
    #[expect(clippy::expect_used, reason = "the name is fixed, and the value is base64url")]
    pub(crate) fn trust(
        &self,
        headers: &HeaderMap,
        (owner, login): (DeviceOwner<'_>, &LoginId),
        keyed: &Keyed,
        now: UnixTime,
    ) -> SetCookie {
        let own = || PublicId::of_digest(&keyed.hash("device id", [login.as_bytes()]));
        let id = self.trusted(headers, owner, keyed, now).unwrap_or_else(own);
        let expires_at = now + self.lifetime;
        let new = Entry { id, expires_at, signature: owner.signature(id, expires_at, keyed) };
        let others = self.entries(headers).into_iter().filter(|other| other.id != id && now < other.expires_at);
        let bytes: Vec<u8> = iter::once(new).chain(others).take(MOST).flat_map(Entry::encode_device_entry).collect();
        let cookie = SetCookie::new(self.name(), &URL_SAFE_NO_PAD.encode(bytes)).expect("the cookie is valid");
        let cookie = if self.loopback { cookie.insecure_plain_http().expect("it has no prefix") } else { cookie };
        cookie.max_age(self.lifetime)
    }

    fn name(&self) -> &'static str {
        if self.loopback { "auth_device" } else { "__Host-auth_device" }
    }

    /// Returns the first entries of a request. They are not verified.
    fn entries(&self, headers: &HeaderMap) -> Vec<Entry> {
        let values = cookie::read_cookies(headers, self.name()).filter(|value| value.len() <= LONGEST);
        let values = values.filter_map(|value| URL_SAFE_NO_PAD.decode(value).ok());
        // a truncated value has no entries
        let values = values.filter(|bytes| bytes.len() % ENTRY == 0);
        values
            .flat_map(|bytes| bytes.chunks(ENTRY).filter_map(Entry::decode_device_entry).collect::<Vec<_>>())
            .take(MOST)
            .collect()
    }
}

impl DeviceOwner<'_> {
    fn signature(&self, id: PublicId, expires_at: UnixTime, keyed: &Keyed) -> SecretDigest {
        let user = self.account.map_or("", |account| account.id().as_str());
        let mark = self.account.and_then(Account::current_password_mark);
        keyed.hash(
            "device",
            [
                self.tenant.as_str().as_bytes(),
                user.as_bytes(),
                &self.generation.to_be_bytes(),
                mark.as_ref().map_or(&[], |mark| mark.as_bytes()),
                id.as_bytes(),
                &expires_at.as_nanos().to_be_bytes(),
            ],
        )
    }
}

impl Entry {
    fn decode_device_entry(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (expires_at, signature) = rest.split_first_chunk()?;
        let expires_at = UnixTime::from_nanos(u64::from_be_bytes(*expires_at));
        let signature = SecretDigest::from_bytes(signature.try_into().ok()?);
        Some(Self { id: PublicId::from_bytes(*id), expires_at, signature })
    }

    fn encode_device_entry(self) -> Vec<u8> {
        [&self.id.as_bytes()[..], &self.expires_at.as_nanos().to_be_bytes(), self.signature.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::COOKIE};
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{session::UserId, util::secret::Secret};

    const DEVICES: Devices = Devices { loopback: false, lifetime: Duration::from_secs(60) };
    const NOW: UnixTime = UnixTime::from_secs(1_000_000);

    fn carrying(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&format!("__Host-auth_device={value}")).unwrap())])
    }

    /// Returns the value of the cookie that this browser gets.
    fn trust(headers: &HeaderMap, owner: DeviceOwner<'_>, keyed: &Keyed) -> String {
        let cookie = DEVICES.trust(headers, (owner, &PublicId::random()), keyed, NOW).header_value();
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        pair.strip_prefix("__Host-auth_device=").unwrap().to_owned()
    }

    proptest! {
        #[test]
        fn c125_only_whole_signed_entries_count(bytes in vec(any::<u8>(), 0..300), cut in 0..300_usize, bit in 0..448_usize) {
            let keyed = Keyed::new(&Secret::generate());
            let (tenant, ada) = (Tenant::parse("acme").unwrap(), Account::new(UserId::parse("u-ada").unwrap()));
            let owner = DeviceOwner { tenant: &tenant, account: Some(&ada), generation: 3 };
            let trusted = |value: &str, keyed: &Keyed| DEVICES.trusted(&carrying(value), owner, keyed, NOW);

            let arbitrary = URL_SAFE_NO_PAD.encode(&bytes);
            prop_assert_eq!(trusted(&arbitrary, &keyed), None);
            // what the browser had is kept where it has the form of entries, and never costs the new entry its place
            let value = trust(&carrying(&arbitrary), owner, &keyed);
            prop_assert!(value.len() <= LONGEST);
            let id = trusted(&value, &keyed);
            prop_assert!(id.is_some());
            prop_assert_eq!(trusted(&trust(&carrying(&value), owner, &keyed), &keyed), id);

            let value = trust(&HeaderMap::new(), owner, &keyed);
            prop_assert!(trusted(&value, &keyed).is_some());
            prop_assert_eq!(trusted(&value, &Keyed::new(&Secret::generate())), None);
            prop_assert_eq!(trusted(&value[..cut.min(value.len() - 1)], &keyed), None);
            let mut flipped = URL_SAFE_NO_PAD.decode(&value).unwrap();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(trusted(&URL_SAFE_NO_PAD.encode(flipped), &keyed), None);
        }
    }

    #[test]
    fn c125_without_an_account_there_is_no_trust() {
        let (keyed, tenant) = (Keyed::new(&Secret::generate()), Tenant::parse("acme").unwrap());
        let nobody = DeviceOwner { tenant: &tenant, account: None, generation: 0 };
        let value = trust(&HeaderMap::new(), nobody, &keyed);
        assert_eq!(DEVICES.trusted(&carrying(&value), nobody, &keyed, NOW), None);
        let loopback =
            Devices { loopback: true, ..DEVICES }.trust(&HeaderMap::new(), (nobody, &PublicId::random()), &keyed, NOW);
        let loopback = loopback.header_value();
        assert!(loopback.to_str().unwrap().starts_with("auth_device="));
        assert!(!loopback.to_str().unwrap().contains("Secure"));
    }
}

//! Users and how they proved who they are.

use serde::{Deserialize, Serialize};

use crate::{
    tenant::{Tenant, inline::InlineBytes},
    util::clock::UnixTime,
};

/// The id of a user, as the application knows it.
///
/// Use a name that never changes, such as the primary key of the account, and not an
/// e-mail address. A token carries it as `sub`, and most clients and APIs know a user by
/// `sub` alone, so it must be unique across all tenants of one issuer.
///
/// An id has 1 to 255 visible ASCII characters, so that it fits the `sub` of a token. Ids of up to 38 characters, such as
/// UUIDs, are stored without an allocation.
///
/// ```
/// use tollgate::UserId;
///
/// assert_eq!(UserId::parse("u-1815")?.as_str(), "u-1815");
/// assert!(UserId::parse("").is_err());
/// # Ok::<(), tollgate::session::IdentityError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UserId(InlineBytes<IN_PLACE>);

const IN_PLACE: usize = 38;

impl UserId {
    /// The maximum number of bytes of an id.
    pub const MAX_LEN: usize = 255;

    /// Parses the id of a user.
    ///
    /// # Errors
    ///
    /// Returns an error unless the id has 1 to 255 visible ASCII characters.
    pub fn parse(id: impl AsRef<str>) -> Result<Self, IdentityError> {
        let id = id.as_ref();
        Self::restore(id.as_bytes())
            .ok_or(IdentityError("the id of a user must have 1 to 255 visible ASCII characters"))
    }

    /// Reads a stored id.
    #[inline]
    pub(super) fn restore(id: &[u8]) -> Option<Self> {
        is_visible(id, Self::MAX_LEN).then(|| Self(InlineBytes::new(&[id])))
    }

    /// Returns the id.
    pub fn as_str(&self) -> &str {
        // the default is never used, because ids are ASCII
        std::str::from_utf8(self.0.as_bytes()).unwrap_or_default()
    }
}

crate::util::fmt::display!(UserId, |own| own.as_str());

crate::util::fmt::debug_text!(UserId, |own| format_args!("{own}"));

crate::util::fmt::from_str!(UserId, IdentityError);

/// The error of an invalid part of an identity. It contains nothing of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityError(pub(super) &'static str);

crate::util::fmt::text_error!(IdentityError, |own| own.0);

/// Returns whether the text has 1 to `most` characters, all of them visible ASCII.
pub(super) fn is_visible(text: impl AsRef<[u8]>, most: usize) -> bool {
    let text = text.as_ref();
    (1..=most).contains(&text.len()) && text.iter().fold(true, |all, byte| all & byte.is_ascii_graphic())
}

/// The identity of a user and how it was proved. Sign-ins, sessions, authorization codes and
/// refresh families all carry this one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Authentication {
    #[serde(with = "crate::util::text")]
    pub(crate) tenant: Tenant,
    #[serde(with = "crate::util::text")]
    pub(crate) user: UserId,
    /// The generation of the user when the sign-in began. Raising the generation ends
    /// everything that carries a lower one.
    pub(crate) generation: u64,
    /// Empty if an application created the session itself.
    pub(crate) proofs: Vec<Proof>,
    pub(crate) acr: Option<Box<str>>,
}

/// One proved step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Proof {
    pub(crate) method: Box<str>,
    /// When it was accepted here, in Unix nanoseconds.
    pub(crate) at: u64,
    /// The version of what was proved: of the password, the contact or the credential.
    pub(crate) mark: Option<[u8; 32]>,
    /// When the user authenticated, if that was at another identity provider, in Unix nanoseconds. Zero if the provider did
    /// not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elsewhere: Option<u64>,
}

impl Proof {
    /// Returns when the user authenticated. An unknown time is before all others.
    pub(crate) fn authenticated_at(&self) -> UnixTime {
        UnixTime::from_nanos(self.elsewhere.unwrap_or(self.at))
    }

    /// Returns whether another identity provider did not say when the user authenticated.
    pub(crate) fn has_unknown_age(&self) -> bool {
        self.elsewhere == Some(0)
    }
}

/// Returns when the user last authenticated, if that is known.
pub(super) fn auth_time(proofs: &[Proof]) -> Option<UnixTime> {
    let latest = proofs.iter().map(Proof::authenticated_at).max();
    latest.filter(|time| *time > UnixTime::default())
}

impl Authentication {
    /// Returns when the user last authenticated, if that is known.
    pub(crate) fn auth_time(&self) -> Option<UnixTime> {
        auth_time(&self.proofs)
    }

    /// Returns the methods that were proved, in the order of the proofs.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &str> {
        self.proofs.iter().map(|proof| &*proof.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authentication_survives_json_and_its_latest_proof_counts() {
        let proof = |method: &str, at, mark| Proof { method: method.into(), at, mark, elsewhere: None };
        let authentication = Authentication {
            tenant: Tenant::parse("acme").unwrap(),
            user: UserId::parse("ada").unwrap(),
            generation: 7,
            proofs: vec![proof("password", 9, Some([3; 32])), proof("email", 5, None)],
            acr: Some("mfa".into()),
        };
        let json = serde_json::to_string(&authentication).unwrap();
        assert_eq!(serde_json::from_str::<Authentication>(&json).unwrap(), authentication);
        assert_eq!(authentication.auth_time(), Some(UnixTime::from_nanos(9)));
        assert!(authentication.methods().eq(["password", "email"]));
        // a provider can tell that the user authenticated earlier, or nothing
        for (elsewhere, expected) in [(Some(4), Some(5)), (Some(7), Some(7)), (Some(0), Some(5))] {
            let mut authentication = authentication.clone();
            authentication.proofs[0].elsewhere = elsewhere;
            assert_eq!(authentication.auth_time(), expected.map(UnixTime::from_nanos));
            authentication.proofs.truncate(1);
            let alone = elsewhere.filter(|time| *time > 0).map(UnixTime::from_nanos);
            assert_eq!(authentication.auth_time(), alone, "{elsewhere:?}");
            let json = serde_json::to_string(&authentication).unwrap();
            assert_eq!(serde_json::from_str::<Authentication>(&json).unwrap(), authentication);
        }
        assert_eq!(Authentication { proofs: Vec::new(), ..authentication }.auth_time(), None);
    }

    #[test]
    fn the_id_of_a_user_has_1_to_255_visible_characters() {
        let long = "u".repeat(255);
        for good in ["u", "~!", &long] {
            assert_eq!(UserId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", " ", "a b", "é", "a\n", &format!("{long}u")] {
            let error = UserId::parse(bad).unwrap_err();
            assert_eq!(error.to_string(), "the id of a user must have 1 to 255 visible ASCII characters", "{bad:?}");
        }
    }
}

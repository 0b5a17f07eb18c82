//! The common part of all credentials, and how strongly they were vouched for when they were enrolled.

use serde::{Deserialize, Serialize};

use crate::{
    login::Keyed,
    policy::{LoginPlan, Method, MethodSet},
    session::Proof,
    user::Account,
    util::{public_id::PublicId, secret::SecretDigest},
};

/// A passkey, an authenticator app, the recovery codes or a link to an account at another identity provider.
pub(crate) trait Credential: Send + Sync {
    /// Returns the method that it proves.
    fn method(&self) -> Method;

    /// Returns the mark of a proof by it.
    fn mark(&self, keyed: &Keyed) -> [u8; 32];

    /// Returns its id, if only one user of a tenant can have it.
    fn id(&self) -> Option<CredentialId<'_>> {
        None
    }

    /// Returns whether the account page shows it with this id.
    fn is_shown_as(&self, _id: &str, _keyed: &Keyed) -> bool {
        false
    }

    /// Returns whether there is something left to prove a step with.
    fn is_usable(&self) -> bool {
        true
    }
}

/// Identifies a credential that only one user of a tenant can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialId<'a> {
    /// The credential id of a passkey.
    Passkey(&'a [u8]),
    /// An account at another identity provider.
    Link { provider: &'a str, issuer: &'a str, subject: &'a str },
}

impl CredentialId<'_> {
    /// Returns a digest of constant length. Ids of passkeys can be too long for a key of the store.
    pub(crate) fn digest(self) -> [u8; 32] {
        let bytes = match self {
            CredentialId::Passkey(id) => [b"passkey:", id].concat(),
            // the lengths keep the parts apart
            CredentialId::Link { provider, issuer, subject } => {
                let lengths = [provider, issuer].map(|part| (part.len() as u64).to_be_bytes());
                [b"link:", lengths.as_flattened(), provider.as_bytes(), issuer.as_bytes(), subject.as_bytes()].concat()
            }
        };
        *SecretDigest::of_secret(bytes).as_bytes()
    }
}

/// Returns the mark of a proof by something with a random id from its enrolment. A proof does not count again if the same
/// account is linked anew.
pub(crate) fn enrolment_mark(enrolment: &PublicId, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("enrolment mark", [enrolment.as_bytes()]).as_bytes()
}

/// The proofs behind a credential: how many steps, and by which methods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Strength {
    /// The most steps of a login in which the credential counts: how many factors were proved for it, or two for the first
    /// second factor of a user, for which one was proved.
    steps: u8,
    /// The methods that were proved when it was enrolled. If one of them was a credential, also those with which that one was
    /// enrolled, and so on. A policy that names methods must be met by each of these sets, so that no credential vouches for
    /// more than was vouched for itself.
    proved: Vec<MethodSet>,
}

impl Strength {
    /// The strength of passwords and contacts, and of credentials for which the application or the operator vouches.
    pub(crate) const FULL: &'static Self = &Self { steps: u8::MAX, proved: Vec::new() };
    /// The strength of a credential that counts in no login.
    pub(crate) const NONE: &'static Self = &Self { steps: 0, proved: Vec::new() };

    /// Returns the strength of a credential that is enrolled with these proofs: their number, their methods, and the strength
    /// of each.
    pub(crate) fn of_proofs<'s>(
        steps: usize,
        methods: MethodSet,
        strengths: impl IntoIterator<Item = &'s Strength>,
    ) -> Self {
        let through = strengths.into_iter().flat_map(|strength| strength.proved.iter().copied());
        let proved = MethodSet::smallest([methods].into_iter().chain(through));
        Self { steps: u8::try_from(steps).unwrap_or(u8::MAX - 1), proved }
    }

    /// Returns whether the credential can count in a login of this many steps, if no policy names methods.
    pub(crate) fn suffices_for(&self, steps: usize) -> bool {
        usize::from(self.steps) >= steps
    }

    /// Returns whether the credential counts in a login with this plan: by its number of steps, and for policies that name
    /// methods also by the methods that vouched for it.
    pub(crate) fn counts_for(&self, plan: &LoginPlan) -> bool {
        let is_vouched = || !self.proved.is_empty() && self.proved.iter().all(|set| plan.is_named_by(*set));
        self.counts_for_steps(plan) && (!plan.names_methods() || self.is_full() || is_vouched())
    }

    /// Returns whether the credential counts in a login with this plan, if no policy names methods.
    pub(crate) fn counts_for_steps(&self, plan: &LoginPlan) -> bool {
        let steps = plan.policy_steps();
        self.suffices_for(steps) && (!plan.without_self_enrolment || self.is_proved_for(steps))
    }

    /// Returns whether as many factors were proved for the credential as a login of this many steps needs. A first second factor
    /// counts for one step more.
    pub(crate) fn is_proved_for(&self, steps: usize) -> bool {
        self.is_full() || self.proved.iter().all(|set| set.classes() >= steps)
    }

    /// Returns whether an authenticator can prove a step of a login with this plan. For a step that was added for an enrolled
    /// factor, the methods that policies name don't matter, because the other steps meet the policies.
    pub(crate) fn counts_as_factor(&self, plan: &LoginPlan) -> bool {
        self.counts_for(plan) || plan.is_extended && self.counts_for_steps(plan)
    }

    pub(crate) fn is_full(&self) -> bool {
        self == Self::FULL
    }
}

/// An account that may sign in, and the proofs that still count for it.
#[derive(Debug)]
pub(crate) struct CurrentProofs {
    pub(crate) account: Account,
    pub(crate) proofs: Vec<Proof>,
    /// What vouches for each proof.
    pub(crate) strengths: Vec<Strength>,
}

impl CurrentProofs {
    /// Returns whether the proofs that count for a plan complete it.
    pub(crate) fn meets(&self, plan: &LoginPlan) -> bool {
        plan.is_met_by(self.methods(|strength| strength.counts_for(plan)))
    }

    /// Returns the methods of the proofs that count.
    pub(crate) fn methods(&self, counts: impl Fn(&Strength) -> bool) -> MethodSet {
        let strong = self.proofs.iter().zip(&self.strengths).filter(|(_, strength)| counts(strength));
        strong.filter_map(|(proof, _)| Method::from_name(&proof.method)).collect()
    }
}

/// A digest in the row of a user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct StoredDigest(#[serde(with = "base64url")] pub(crate) [u8; 32]);

/// For serde's `with`: bytes as base64url.
pub(crate) mod base64url {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: impl AsRef<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, T: TryFrom<Vec<u8>>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| D::Error::custom("invalid base64url"))?;
        bytes.try_into().map_err(|_| D::Error::custom("wrong number of bytes"))
    }
}

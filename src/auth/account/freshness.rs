//! How much a user must have proved within the last minutes to change how they sign in.

use std::{cmp::Reverse, time::Duration};

use crate::{
    auth::{
        authorize::signed_in::SignedIn,
        core::Core,
        methods::{contacts::reachable, provider_label},
    },
    credential::{Credentials, SsoLink},
    policy::{FactorClass, Method, MethodSet},
    session::Proof,
    util::clock::UnixTime,
};

/// How long a proof is fresh.
const FRESH: Duration = Duration::from_secs(300);

/// The proofs of the last five minutes: each factor class with its newest proof, newest first.
#[derive(Debug)]
pub(super) struct FreshProofs(Vec<FreshProof>);

#[derive(Clone, Copy, Debug)]
struct FreshProof {
    class: FactorClass,
    at: UnixTime,
    /// The number of steps that a login can have at most in which the proof counts.
    strength: u8,
}

impl FreshProofs {
    pub(super) fn of(who: &SignedIn, now: UnixTime) -> Self {
        let proof = |(proof, strength): (&Proof, u8)| {
            let class = Method::from_name(&proof.method)?.class();
            Some(FreshProof { class, at: UnixTime::from_nanos(proof.at), strength })
        };
        let mut young: Vec<_> = who.strengths().filter_map(proof).filter(|proof| now < proof.at + FRESH).collect();
        young.sort_by_key(|proof| Reverse(proof.at));
        let mut fresh: Vec<FreshProof> = Vec::new();
        for proof in young {
            if fresh.iter().all(|known| known.class != proof.class) {
                fresh.push(proof);
            }
        }
        Self(fresh)
    }

    /// Returns until when this many classes are proved, if they are.
    pub(super) fn until(&self, classes: usize) -> Option<UnixTime> {
        let oldest = self.strong(classes).nth(classes.checked_sub(1)?)?;
        Some(oldest.at + FRESH)
    }

    /// Returns the largest number of classes whose proofs count in a login of as many steps.
    pub(super) fn strength(&self) -> u8 {
        let reached = (1..=self.0.len()).rev().find(|classes| self.strong(*classes).count() >= *classes);
        u8::try_from(reached.unwrap_or_default()).unwrap_or(u8::MAX)
    }

    fn strong(&self, steps: usize) -> impl Iterator<Item = &FreshProof> {
        self.0.iter().filter(move |proof| usize::from(proof.strength) >= steps)
    }
}

/// Returns how many factor classes must be proved: as many as the longest login of this tenant that the account can
/// complete has steps, and at least two if the account can complete a login of two.
pub(super) fn required(core: &Core, who: &SignedIn, credentials: Option<&Credentials>) -> usize {
    let tenant = who.session.tenant();
    let usable = |steps| usable(core, who, credentials, steps);
    let listed = core.clients.listed();
    let clients = listed.iter().filter(|client| client.tenant() == tenant).map(|client| client.demands());
    let most = core.policies.most_steps(tenant, clients, usable);
    let has_two = core.policies.longer_plan(tenant, None, None, (usable(2), 2)).is_ok();
    most.max(if has_two { 2 } else { 1 })
}

/// Returns the methods that the account can use in a login of this many steps.
fn usable(core: &Core, who: &SignedIn, credentials: Option<&Credentials>, steps: usize) -> MethodSet {
    let can_use = |method: &Method| match method {
        // a password that the application alone knows shows in the session
        Method::Password => {
            let mut proved = who.session.authentication().methods();
            who.account.current_password_mark().is_some() || proved.any(|name| name == method.as_str())
        }
        Method::Sms | Method::Email | Method::Whatsapp => reachable(&who.account, *method).next().is_some(),
        Method::Passkey | Method::Totp | Method::RecoveryCode => {
            credentials.is_some_and(|row| row.can_prove(*method, steps))
        }
        Method::Sso => credentials.is_some_and(|row| {
            let is_offered = |link: &SsoLink| provider_label(core, who.session.tenant(), &link.provider).is_some();
            row.links.iter().any(|link| usize::from(link.strength) >= steps && is_offered(link))
        }),
    };
    core.enabled(who.session.tenant()).iter().filter(can_use).collect()
}

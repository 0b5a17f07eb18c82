//! How much a user must have proved within the last minutes to change how they sign in.

use std::{cmp::Reverse, time::Duration};

use crate::{
    auth::{authorize::signed_in::SignedIn, core::Core},
    credential::Credentials,
    policy::{FactorClass, Method, MethodSet},
    user::Contact,
    util::clock::UnixTime,
};

/// How long a proof is fresh.
const FRESH: Duration = Duration::from_secs(300);

/// What a user has proved within the last five minutes: each factor class with its newest proof, newest first.
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
        let proof = |(proof, strength): (&crate::session::Proof, u8)| {
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
    let usable = |steps| usable(who, credentials, steps).intersection(core.enabled());
    let listed = core.clients.listed();
    let clients = listed.iter().filter(|client| client.tenant() == tenant).map(|client| client.demands());
    let most = core.policies.most_steps(tenant, clients, usable);
    let has_two = core.policies.longer_plan(tenant, None, None, (usable(2), 2)).is_ok();
    most.max(if has_two { 2 } else { 1 })
}

/// Returns the methods that the account can use in a login of this many steps.
fn usable(who: &SignedIn, credentials: Option<&Credentials>, steps: usize) -> MethodSet {
    // a password that the application alone knows shows in the session
    let has_proved_password = || who.session.authentication().methods().any(|name| name == Method::Password.as_str());
    let has_password = who.account.current_password_mark().is_some() || has_proved_password();
    let verified = who.account.contacts().filter(|(_, is_verified)| *is_verified);
    let by_code = verified.flat_map(|(contact, _)| match contact {
        Contact::Email(_) => [Method::Email].iter(),
        Contact::Phone(_) => [Method::Sms, Method::Whatsapp].iter(),
    });
    let is_strong = |strength: u8| usize::from(strength) >= steps;
    let enrolled = credentials.into_iter().flat_map(|row| {
        [
            (Method::Passkey, row.passkeys.iter().any(|passkey| is_strong(passkey.strength))),
            (Method::Totp, row.totp.as_ref().is_some_and(|key| is_strong(key.strength))),
            (
                Method::RecoveryCode,
                row.recovery.as_ref().is_some_and(|codes| is_strong(codes.strength) && !codes.unused.is_empty()),
            ),
            (Method::Sso, row.links.iter().any(|link| is_strong(link.strength))),
        ]
    });
    let known = [(Method::Password, has_password)].into_iter().chain(enrolled);
    known.filter(|(_, has)| *has).map(|(method, _)| method).chain(by_code.copied()).collect()
}

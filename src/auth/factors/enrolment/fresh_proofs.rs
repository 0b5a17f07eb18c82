//! The proofs of a user within the last minutes, and the strength of a credential that they vouch for.

use std::{cmp::Reverse, time::Duration};

use crate::{
    auth::factors::credentials::credential::Strength,
    policy::{FactorClass, Method, MethodSet},
    session::Proof,
    util::clock::UnixTime,
};

/// How long a proof is fresh.
pub(crate) const FRESH: Duration = Duration::from_secs(300);

/// The proofs of the last five minutes: each factor class with its newest proof, newest first.
#[derive(Debug)]
pub(crate) struct FreshProofs(Vec<FreshProof>);

#[derive(Clone, Debug)]
struct FreshProof {
    method: Method,
    /// When the user authenticated, or, if that is unknown, when the proof was accepted here.
    at: UnixTime,
    /// Whether the user authenticated then. Another provider may have taken the user from a session of its own.
    is_known: bool,
    strength: Strength,
}

impl FreshProofs {
    pub(crate) fn from_proofs<'p>(proofs: impl Iterator<Item = (&'p Proof, &'p Strength)>, now: UnixTime) -> Self {
        let proof = |(proof, strength): (&Proof, &Strength)| {
            let (method, strength) = (Method::from_name(&proof.method)?, strength.clone());
            let is_known = !proof.has_unknown_age();
            let at = if is_known { proof.authenticated_at() } else { UnixTime::from_nanos(proof.at) };
            Some(FreshProof { method, at, is_known, strength })
        };
        Self::among(proofs.filter_map(proof).collect(), now)
    }

    fn among(mut proofs: Vec<FreshProof>, now: UnixTime) -> Self {
        proofs.retain(|proof| now < proof.at + FRESH);
        proofs.sort_by_key(|proof| Reverse(proof.at));
        let mut fresh: Vec<FreshProof> = Vec::new();
        for proof in proofs {
            if fresh.iter().all(|known| known.method.class() != proof.method.class()) {
                fresh.push(proof);
            }
        }
        Self(fresh)
    }

    /// Returns until when this many classes are proved, if they are. One of unknown age counts next to another one.
    pub(crate) fn until(&self, classes: usize) -> Option<UnixTime> {
        let oldest = self.strong(classes).nth(classes.checked_sub(1)?)?.at;
        let newest_known = self.strong(classes).find(|proof| proof.is_known)?.at;
        Some(oldest.min(newest_known) + FRESH)
    }

    /// Returns the proofs that count in a login of this many steps whose policy refuses what users enrol by themselves.
    pub(crate) fn without_self_enrolled(&self, steps: usize) -> Self {
        Self(self.0.iter().filter(|proof| proof.strength.is_proved_for(steps)).cloned().collect())
    }

    pub(crate) fn has_class(&self, class: FactorClass) -> bool {
        self.0.iter().any(|proof| proof.method.class() == class)
    }

    /// Returns the proofs by factors of other classes.
    pub(crate) fn without_class(&self, class: FactorClass) -> Self {
        Self(self.0.iter().filter(|proof| proof.method.class() != class).cloned().collect())
    }

    /// Returns until when an enrolled factor and another class are proved, if they are, however weak the factor is.
    pub(crate) fn until_with_factor(&self) -> Option<UnixTime> {
        let factor = self.strong(1).find(|proof| MethodSet::ENROLLED.contains(proof.method))?;
        let other = self.strong(1).find(|proof| proof.method.class() != factor.method.class())?;
        Some(factor.at.min(other.at) + FRESH)
    }

    /// Returns the largest number of classes whose proofs count in a login of as many steps.
    pub(crate) fn classes(&self) -> usize {
        (1..=self.0.len()).rev().find(|classes| self.until(*classes).is_some()).unwrap_or_default()
    }

    /// Returns the strength of a credential that is enrolled with these proofs.
    pub(crate) fn strength(&self) -> Strength {
        let classes = self.classes();
        let methods = self.strong(classes).map(|proof| proof.method).collect();
        Strength::of_proofs(classes, methods, self.strong(classes).map(|proof| &proof.strength))
    }

    /// Returns the strength of the first second factor of a user, a credential for this method: it and a fresh proof of the
    /// factor that the user has are two steps. Returns `None` without such a proof by another class of factors.
    pub(crate) fn strength_of_first(&self, method: Method) -> Option<Strength> {
        let vouching: Vec<_> = self.strong(2).filter(|proof| proof.method.class() != method.class()).collect();
        vouching.iter().find(|proof| proof.is_known)?;
        let methods = vouching.iter().map(|proof| proof.method).collect();
        Some(Strength::of_proofs(2, methods, vouching.iter().map(|proof| &proof.strength)))
    }

    fn strong(&self, steps: usize) -> impl Iterator<Item = &FreshProof> {
        self.0.iter().filter(move |proof| proof.strength.suffices_for(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MethodSet;
    use Method::{Email, Passkey, Password, Sms, Totp, Whatsapp};

    fn known(method: Method, at: u64, strength: Strength) -> FreshProof {
        FreshProof { method, at: UnixTime::from_secs(at), is_known: true, strength }
    }

    #[test]
    fn c117_each_class_counts_once_with_its_newest_proof_and_only_if_it_is_strong_enough() {
        let weak = |steps| Strength::of_proofs(steps, Password.into(), []);
        let fresh = |proofs: &[(Method, u64, Strength)]| {
            let proof = |(method, at, strength)| known(method, at, strength);
            let found = FreshProofs::among(proofs.iter().cloned().map(proof).collect(), UnixTime::from_secs(1000));
            let until = [1, 2, 3].map(|classes| found.until(classes).map(UnixTime::as_secs));
            (until, found.classes())
        };
        let any = || Strength::FULL.clone();
        assert_eq!(fresh(&[]), ([None; 3], 0));
        assert_eq!(fresh(&[(Password, 700, any())]), ([None; 3], 0));
        assert_eq!(fresh(&[(Password, 701, any())]), ([Some(1001), None, None], 1));
        // two proofs of one class are one
        assert_eq!(fresh(&[(Sms, 900, any()), (Whatsapp, 950, any())]), ([Some(1250), None, None], 1));
        assert_eq!(fresh(&[(Sms, 900, any()), (Email, 950, any()), (Sms, 990, any())]).0[1], Some(1250));
        assert_eq!(fresh(&[(Sms, 900, any()), (Email, 600, any())]), ([Some(1200), None, None], 1));
        // a credential that was enrolled with one class does not make two
        assert_eq!(fresh(&[(Password, 900, any()), (Passkey, 950, weak(1))]), ([Some(1250), None, None], 1));
        assert_eq!(fresh(&[(Password, 900, any()), (Passkey, 950, weak(2))]), ([Some(1250), Some(1200), None], 2));
        let three = [(Password, 900, any()), (Passkey, 950, weak(2)), (Totp, 990, weak(3))];
        assert_eq!(fresh(&three), ([Some(1290), Some(1250), None], 2));
    }

    #[test]
    fn b01_c117_a_credential_inherits_what_vouched_for_those_that_were_proved_for_it() {
        let strength = |proofs: Vec<FreshProof>| FreshProofs::among(proofs, UnixTime::from_secs(1000)).strength();
        let by = |methods: MethodSet, through: &[&Strength]| {
            Strength::of_proofs(methods.classes(), methods, through.iter().copied())
        };
        let password = known(Password, 900, Strength::FULL.clone());
        let mail = known(Email, 910, Strength::FULL.clone());
        assert_eq!(strength(vec![password.clone(), mail.clone()]), by(Password | Email, &[]));
        let by_password = Strength::of_proofs(2, Password.into(), []);
        let key = |strength: &Strength| known(Passkey, 920, strength.clone());
        // a passkey that a password vouched for vouches for no more than that password
        let next = strength(vec![password.clone(), key(&by_password)]);
        assert_eq!(next, by(Password | Passkey, &[&by_password]));
        let after = strength(vec![password, key(&next)]);
        assert_eq!(after, next);
        // one for which the application vouches is a method like any other
        assert_eq!(strength(vec![key(Strength::FULL)]), by(Passkey.into(), &[]));
        // one that is too weak to count adds nothing and takes nothing away
        let weak = Strength::of_proofs(1, Password.into(), []);
        assert_eq!(strength(vec![known(Sms, 905, Strength::FULL.clone()), mail, key(&weak)]), by(Sms | Email, &[]));
    }
}

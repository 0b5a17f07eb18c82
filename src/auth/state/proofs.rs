//! Which proofs of a user still count.
//!
//! A proof carries a mark of what was proved: the version of the password, or the contact that a one-time code went to.
//! It stops counting when the account does not have that any more. Marks are keyed hashes, because a phone number can
//! be guessed from a plain one.

use crate::{
    auth::state::guard::submitted,
    login::Keyed,
    policy::Method,
    session::{Authentication, Proof},
    tenant::Tenant,
    user::{Account, Contact},
    util::secret::Digest,
};

/// Returns the mark of the account's current password.
pub(crate) fn password_mark(account: &Account, keyed: &Keyed) -> Option<[u8; 32]> {
    let mark = account.current_password_mark()?;
    Some(*keyed.hash("password mark", [mark.as_bytes()]).as_bytes())
}

/// Returns the mark of a contact that a one-time code was sent to.
pub(crate) fn contact_mark(tenant: &Tenant, contact: &Contact, keyed: &Keyed) -> [u8; 32] {
    *submitted::address(tenant, contact, keyed).as_bytes()
}

/// Returns the proofs that still count for the account. A proof without a mark always counts.
pub(crate) fn counting_proofs(tenant: &Tenant, account: &Account, proofs: &[Proof], keyed: &Keyed) -> Vec<Proof> {
    let counts = |proof: &&Proof| {
        let Some(mark) = proof.mark.map(Digest::from_bytes) else { return true };
        let is_mark = |other: [u8; 32]| mark.matches(&Digest::from_bytes(other));
        match Method::from_name(&proof.method) {
            Some(Method::Password) => password_mark(account, keyed).is_some_and(is_mark),
            Some(Method::Email | Method::Sms | Method::Whatsapp) => {
                let verified = account.contacts().filter(|(_, verified)| *verified);
                verified.fold(false, |found, (contact, _)| found | is_mark(contact_mark(tenant, contact, keyed)))
            }
            // credentials are checked where they are kept
            Some(_) => true,
            None => false,
        }
    };
    proofs.iter().filter(counts).cloned().collect()
}

/// Returns the part of an authentication that still counts for the account. It keeps its `acr` only if every proof
/// counts. Returns `None` if no proof does, or if the user may not sign in any more.
pub(crate) fn still_counts(who: &Authentication, account: &Account, keyed: &Keyed) -> Option<Authentication> {
    if *account.id() != who.user || account.is_disabled() {
        return None;
    }
    let proofs = counting_proofs(&who.tenant, account, &who.proofs, keyed);
    let acr = who.acr.clone().filter(|_| proofs.len() == who.proofs.len());
    (!proofs.is_empty()).then(|| Authentication { proofs, acr, ..who.clone() })
}

//! Which proofs still count: a proof ends when the password, contact or credential behind it changes.

use crate::{
    auth::state::guard::submitted,
    login::Keyed,
    password::PasswordMark,
    policy::Method,
    session::Proof,
    user::{Account, Contact},
};

/// Returns the mark of a proof by password. It changes with the password, and not when the password is hashed again.
pub(crate) fn password_mark(mark: &PasswordMark, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("password mark", [mark.as_bytes()]).as_bytes()
}

/// Returns the mark of a proof by a code that was sent to this contact.
pub(crate) fn contact_mark(contact: &Contact, keyed: &Keyed) -> [u8; 32] {
    *submitted::address(contact, keyed).as_bytes()
}

/// Returns the proofs that still count for this account, in their order. Proofs without a mark always count.
pub(crate) fn counting_proofs(account: &Account, proofs: &[Proof], keyed: &Keyed) -> Vec<Proof> {
    let counts = |proof: &&Proof| {
        let Some(mark) = proof.mark else { return true };
        match Method::from_name(&proof.method) {
            Some(Method::Password) => {
                account.current_password_mark().is_some_and(|now| password_mark(&now, keyed) == mark)
            }
            Some(Method::Sms | Method::Email | Method::Whatsapp) => {
                let mut verified = account.contacts().filter(|(_, is_verified)| *is_verified);
                verified.any(|(contact, _)| contact_mark(contact, keyed) == mark)
            }
            // no proof of another method has a mark yet
            Some(Method::Sso | Method::Passkey) | None => false,
        }
    };
    proofs.iter().filter(counts).cloned().collect()
}

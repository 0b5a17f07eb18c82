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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        session::UserId,
        user::{EmailAddress, PhoneNumber},
        util::secret::Secret,
    };

    #[test]
    fn c120_a_proof_counts_while_its_password_or_verified_contact_is_the_same() {
        let keyed = Keyed::new(&Secret::generate());
        let phone = Contact::Phone(PhoneNumber::parse("+15555550100").unwrap());
        let mailbox = Contact::Email(EmailAddress::parse("ada@example.com").unwrap());
        let (old, new) = (PasswordMark::of("1"), PasswordMark::of("2"));
        let account = || Account::new(UserId::parse("u-ada").unwrap());
        let proof = |method: &str, mark| Proof { method: method.into(), at: 0, mark };
        let proofs = [
            proof("password", Some(password_mark(&old, &keyed))),
            proof("sms", Some(contact_mark(&phone, &keyed))),
            proof("whatsapp", Some(contact_mark(&phone, &keyed))),
            proof("email", Some(contact_mark(&mailbox, &keyed))),
            proof("password", None),
            proof("email", Some(password_mark(&old, &keyed))),
            proof("unknown", Some([0; 32])),
        ];
        let counting = |account: &Account, keyed: &Keyed| {
            let counting = counting_proofs(account, &proofs, keyed);
            proofs.iter().map(|proof| counting.contains(proof)).collect::<Vec<_>>()
        };
        let whole = account().password_mark(old).contact(phone.clone()).contact(mailbox.clone());
        assert_eq!(counting(&whole, &keyed), [true, true, true, true, true, false, false]);
        let changed = account().password_mark(new).contact(phone).unverified_contact(mailbox);
        assert_eq!(counting(&changed, &keyed), [false, true, true, false, true, false, false]);
        assert_eq!(counting(&account(), &keyed), [false, false, false, false, true, false, false]);
        let other_key = Keyed::new(&Secret::generate());
        assert_eq!(counting(&whole, &other_key), [false, false, false, false, true, false, false]);
    }
}

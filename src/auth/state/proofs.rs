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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        password::{PasswordHash, PasswordMark},
        session::UserId,
        user::{EmailAddress, PhoneNumber},
        util::secret::Secret,
    };

    fn hash(salt: &str) -> PasswordHash {
        PasswordHash::parse(format!("$argon2id$v=19$m=8,t=1,p=1${salt}$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0"))
            .unwrap()
    }

    #[test]
    fn c120_a_proof_counts_as_long_as_the_account_has_what_it_proved() {
        let keyed = Keyed::new(&Secret::generate());
        let tenant = Tenant::parse("acme").unwrap();
        let phone = Contact::from(PhoneNumber::parse("+15555550100").unwrap());
        let email = Contact::from(EmailAddress::parse("ada@example.com").unwrap());
        let account = || Account::new(UserId::parse("u-ada").unwrap()).password_mark(PasswordMark::of("1"));
        let before = account().password(hash("MDEyMzQ1Njc4OWFiY2RlZg")).contact(phone.clone()).contact(email.clone());
        let proof = |method: &str, mark| Proof { method: method.into(), at: 1, mark };
        let proofs = vec![
            proof("password", password_mark(&before, &keyed)),
            proof("sms", Some(contact_mark(&tenant, &phone, &keyed))),
            proof("whatsapp", Some(contact_mark(&tenant, &phone, &keyed))),
            proof("email", Some(contact_mark(&tenant, &email, &keyed))),
            proof("sso", None),
        ];
        let who = Authentication {
            tenant: tenant.clone(),
            user: before.id().clone(),
            generation: 0,
            proofs: proofs.clone(),
            acr: Some("mfa".into()),
        };
        let left = |account: &Account| {
            let left = still_counts(&who, account, &keyed).unwrap();
            assert_eq!(left.acr.is_some(), left.proofs == proofs);
            left.methods().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(left(&before), ["password", "sms", "whatsapp", "email", "sso"]);
        // the same password with another hash
        let rehashed = account().password(hash("AAAAQ1Njc4OWFiY2RlZg")).contact(email.clone());
        assert_eq!(left(&rehashed), ["password", "email", "sso"]);
        let changed = rehashed.password_mark(PasswordMark::of("2")).unverified_contact(phone);
        assert_eq!(left(&changed), ["email", "sso"]);
        assert_eq!(left(&Account::new(who.user.clone())), ["sso"]);
        // a contact of another tenant has another mark
        assert!(counting_proofs(&Tenant::parse("globex").unwrap(), &before, &proofs[1..4], &keyed).is_empty());

        let without_sso = Authentication { proofs: proofs[..4].to_vec(), ..who.clone() };
        assert!(still_counts(&without_sso, &Account::new(who.user.clone()), &keyed).is_none());
        assert!(still_counts(&who, &before.clone().disabled(true), &keyed).is_none());
        let other = Account::new(UserId::parse("u-grace").unwrap()).contact(email);
        assert!(still_counts(&who, &other, &keyed).is_none());
        assert!(still_counts(&Authentication { proofs: Vec::new(), ..who }, &before, &keyed).is_none());
    }
}

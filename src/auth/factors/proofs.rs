//! Which proofs still count: a proof ends when the password, contact or credential behind it changes.
//!
//! Each proof has a *mark*: the version of what was proved ([`Proof::mark`]). It is made of the password, the contact or the
//! credential, so it changes with them.

use super::credentials::{
    row::{Credentials, Passkey},
    strength::Strength,
};
use crate::{
    auth::state::guard::submitted,
    login::Keyed,
    password::PasswordMark,
    policy::Method,
    session::Proof,
    user::{Account, Contact},
    util::handle::Handle,
};

/// Returns the mark of a proof by password. It changes with the password, and not when the password is hashed again.
pub(crate) fn password_mark(mark: &PasswordMark, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("password mark", [mark.as_bytes()]).as_bytes()
}

/// Returns the mark of a proof by a code that was sent to this contact.
pub(crate) fn contact_mark(contact: &Contact, keyed: &Keyed) -> [u8; 32] {
    *submitted::address(contact, keyed).as_bytes()
}

/// Returns whether codes of this method are sent to this contact.
pub(crate) fn is_reached_by(contact: &Contact, method: Method) -> bool {
    match contact {
        Contact::Email(_) => method == Method::Email,
        Contact::Phone(_) => matches!(method, Method::Sms | Method::Whatsapp),
    }
}

/// Returns the mark of a proof by this passkey. It contains the key, because another one can be added under the same id once
/// this one is removed.
pub(crate) fn passkey_mark(passkey: &Passkey, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("passkey mark", [&*passkey.id, &*passkey.public_key]).as_bytes()
}

/// Returns the mark of a proof by an authenticator app, by recovery codes or by a link to an account at another identity
/// provider. They have a random id from their enrolment, so a proof does not count again if the same account is linked anew.
pub(crate) fn enrolment_mark(enrolment: &Handle, keyed: &Keyed) -> [u8; 32] {
    *keyed.hash("enrolment mark", [enrolment.as_bytes()]).as_bytes()
}

/// Returns the mark that a proof by this method has now, if an account can have only one thing that is proved by it.
pub(crate) fn current_mark(
    account: &Account,
    credentials: Option<&Credentials>,
    method: Method,
    keyed: &Keyed,
) -> Option<[u8; 32]> {
    match method {
        Method::Password => account.current_password_mark().map(|mark| password_mark(&mark, keyed)),
        Method::Totp => credentials?.totp.as_ref().map(|totp| enrolment_mark(&totp.enrolment, keyed)),
        Method::RecoveryCode => credentials?.recovery.as_ref().map(|codes| enrolment_mark(&codes.enrolment, keyed)),
        Method::Sms | Method::Email | Method::Whatsapp | Method::Passkey | Method::Sso => None,
    }
}

/// Returns the strength of the credential that was proved, if the user still has it. Proofs that need no credential have
/// full strength.
pub(crate) fn strength<'c>(credentials: Option<&'c Credentials>, proof: &Proof, keyed: &Keyed) -> Option<&'c Strength> {
    let Some(mark) = proof.mark.filter(|_| is_of_credential(proof)) else { return Some(Strength::FULL) };
    let row = credentials?;
    match Method::from_name(&proof.method)? {
        Method::Passkey => {
            let mut passkeys = row.passkeys.iter();
            passkeys.find(|passkey| passkey_mark(passkey, keyed) == mark).map(|passkey| &passkey.strength)
        }
        Method::Sso => {
            let mut links = row.links.iter();
            links.find(|link| enrolment_mark(&link.enrolment, keyed) == mark).map(|link| &link.strength)
        }
        Method::Totp => {
            let totp = row.totp.as_ref().filter(|totp| enrolment_mark(&totp.enrolment, keyed) == mark);
            totp.map(|totp| &totp.strength)
        }
        Method::RecoveryCode => {
            let codes = row.recovery.as_ref().filter(|codes| enrolment_mark(&codes.enrolment, keyed) == mark);
            codes.map(|codes| &codes.strength)
        }
        Method::Password | Method::Sms | Method::Email | Method::Whatsapp => None,
    }
}

/// Returns whether a proof counts only as long as the user has a credential.
pub(crate) fn is_of_credential(proof: &Proof) -> bool {
    let method = Method::from_name(&proof.method);
    let is_enrolled = matches!(method, Some(Method::Sso | Method::Passkey | Method::Totp | Method::RecoveryCode));
    is_enrolled && proof.mark.is_some()
}

/// Returns the proofs that still count for this account, in their order. Proofs without a mark always count.
///
/// Codes of an authenticator can't be the first step of a login, so they count only together with another proof.
pub(crate) fn counting_proofs(
    account: &Account,
    credentials: Option<&Credentials>,
    proofs: &[Proof],
    keyed: &Keyed,
) -> Vec<Proof> {
    let counts = |proof: &&Proof| {
        let Some(mark) = proof.mark else { return true };
        match Method::from_name(&proof.method) {
            Some(Method::Password) => {
                account.current_password_mark().is_some_and(|now| password_mark(&now, keyed) == mark)
            }
            Some(method @ (Method::Sms | Method::Email | Method::Whatsapp)) => {
                let mut contacts = account.verified_contacts().filter(|contact| is_reached_by(contact, method));
                contacts.any(|contact| contact_mark(contact, keyed) == mark)
            }
            Some(Method::Passkey | Method::Totp | Method::RecoveryCode | Method::Sso) => {
                strength(credentials, proof, keyed).is_some()
            }
            None => false,
        }
    };
    let can_be_first = |proof: &Proof| Method::from_name(&proof.method).is_none_or(Method::can_be_first);
    let counting: Vec<Proof> = proofs.iter().filter(counts).cloned().collect();
    if counting.iter().any(can_be_first) { counting } else { Vec::new() }
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
        let proof = |method: &str, mark| Proof { method: method.into(), at: 0, mark, elsewhere: None };
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
            let counting = counting_proofs(account, None, &proofs, keyed);
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

    #[test]
    fn c120_a_proof_by_a_credential_counts_while_the_user_has_it() {
        let keyed = Keyed::new(&Secret::generate());
        let account = Account::new(UserId::parse("u-ada").unwrap());
        let row = r#"{"handle":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "passkeys":[{"id":"AQI","public_key":"","algorithm":-7,"sign_count":0,"backup_eligible":false,"backed_up":false,
                "user_verified":true,"transports":[],"name":"","created_at":0,"last_used_at":null,"strength":{"steps":1,"proved":[["password"]]}}],
            "totp":{"enrolment":"AAAAAAAAAAAAAAAAAAAAAA","secret":{"key":""},"kind":{"algorithm":"sha1","digits":6},"last_step":0,
                "created_at":0,"strength":{"steps":1,"proved":[["password"]]}},
            "recovery":{"enrolment":"AAAAAAAAAAAAAAAAAAAAAQ","unused":[],"created_at":0,"strength":{"steps":1,"proved":[["password"]]}},
            "links":[{"enrolment":"AAAAAAAAAAAAAAAAAAAAAg","issuer":"https://a","subject":"b","provider":"p","name":"",
                "created_at":0,"strength":{"steps":1,"proved":[["password"]]}}]}"#;
        let whole: Credentials = serde_json::from_str(row).unwrap();
        let [totp, recovery, link] = ["A", "Q", "g"].map(|end| Handle::parse(format!("{:A<21}{end}", "")).unwrap());
        let proof = |method: &str, mark| Proof { method: method.into(), at: 0, mark: Some(mark), elsewhere: None };
        let proofs = [
            proof("passkey", passkey_mark(&whole.passkeys[0], &keyed)),
            proof("totp", enrolment_mark(&totp, &keyed)),
            proof("recovery_code", enrolment_mark(&recovery, &keyed)),
            proof("sso", enrolment_mark(&link, &keyed)),
            proof("passkey", passkey_mark(&Passkey { public_key: vec![1], ..whole.passkeys[0].clone() }, &keyed)),
            proof("totp", enrolment_mark(&recovery, &keyed)),
            proof("sso", enrolment_mark(&totp, &keyed)),
            proof("totp", enrolment_mark(&link, &keyed)),
        ];
        assert!(proofs.iter().all(is_of_credential));
        let counting = |row: Option<&Credentials>| {
            let counting = counting_proofs(&account, row, &proofs, &keyed);
            proofs.iter().map(|proof| counting.contains(proof)).collect::<Vec<_>>()
        };
        assert_eq!(counting(Some(&whole)), [true, true, true, true, false, false, false, false]);
        assert_eq!(counting(None), [false; 8]);
        let without = |change: fn(&mut Credentials)| {
            let mut row = whole.clone();
            change(&mut row);
            counting(Some(&row))
        };
        assert_eq!(without(|row| row.passkeys.clear())[..4], [false, true, true, true]);
        assert_eq!(without(|row| row.totp = None)[..4], [true, false, true, true]);
        assert_eq!(without(|row| row.recovery = None)[..4], [true, true, false, true]);
        assert_eq!(without(|row| row.links.clear())[..4], [true, true, true, false]);
        // codes of authenticators are not enough to stay signed in
        let only_codes = without(|row| {
            row.passkeys.clear();
            row.links.clear();
        });
        assert_eq!(only_codes, [false; 8]);
    }
}

//! Tests of the proofs that still count, for all factors.

use super::{
    counting_proofs,
    credentials::{
        credential::{Credential, enrolment_mark},
        row::{Credentials, is_of_credential},
    },
    otp::contacts::contact_mark,
    passkey::row::Passkey,
    password,
};
use crate::{
    login::Keyed,
    password::PasswordMark,
    session::{Proof, UserId},
    user::{Account, Contact, EmailAddress, PhoneNumber},
    util::{public_id::PublicId, secret::Secret},
};

#[test]
fn c120_a_proof_counts_while_its_password_or_verified_contact_is_the_same() {
    let keyed = Keyed::new(&Secret::generate());
    let phone = Contact::Phone(PhoneNumber::parse("+15555550100").unwrap());
    let mailbox = Contact::Email(EmailAddress::parse("ada@example.com").unwrap());
    let (old, new) = (PasswordMark::of_version("1"), PasswordMark::of_version("2"));
    let account = || Account::new(UserId::parse("u-ada").unwrap());
    let by_password = password::current_mark(&account().password_mark(old), &keyed).unwrap();
    let proof = |method: &str, mark| Proof { method: method.into(), at: 0, mark, elsewhere: None };
    let proofs = [
        proof("password", Some(by_password)),
        proof("sms", Some(contact_mark(&phone, &keyed))),
        proof("whatsapp", Some(contact_mark(&phone, &keyed))),
        proof("email", Some(contact_mark(&mailbox, &keyed))),
        proof("password", None),
        proof("email", Some(by_password)),
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
    let [totp, recovery, link] = ["A", "Q", "g"].map(|end| PublicId::parse(format!("{:A<21}{end}", "")).unwrap());
    let proof = |method: &str, mark| Proof { method: method.into(), at: 0, mark: Some(mark), elsewhere: None };
    let proofs = [
        proof("passkey", whole.passkeys[0].mark(&keyed)),
        proof("totp", enrolment_mark(&totp, &keyed)),
        proof("recovery_code", enrolment_mark(&recovery, &keyed)),
        proof("sso", enrolment_mark(&link, &keyed)),
        proof("passkey", Passkey { public_key: vec![1], ..whole.passkeys[0].clone() }.mark(&keyed)),
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

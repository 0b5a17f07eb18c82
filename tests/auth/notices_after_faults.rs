//! Changes of an account on a store that fails at each operation in turn: no change stays without its notice.

use serde_json::{Value, json};
use tollgate::{Users, delivery::NoticeKind};

use crate::{
    controlled_store::{ControlledStore, FAULTS, Fault},
    enrolled::stored,
    forgotten_users::{Enrolment, prepared, world},
    own_account::{acme, call, told},
    world::ADA,
};

/// Makes a change while the store fails at this operation. Returns whether it has failed.
async fn enrolled_at(kind: &str, (credential, notice): (&str, NoticeKind), (at, fault): (usize, Fault)) -> bool {
    let store = ControlledStore::default();
    let world = world(&store).await;
    let (mut browser, enrolment) = prepared(&world, kind).await;
    store.fail(at, fault);
    match enrolment {
        Enrolment::Call(path, body) => call(&mut browser, path, body).await,
        Enrolment::Post(body) => browser.post("/authentication/enrol", &body).await,
        Enrolment::Visit(target) => browser.get(&target).await,
    };
    let failed = store.heal();
    let row = stored(&world, "u-ada").await.unwrap_or_default();
    let is_told = told(&world).await.into_iter().any(|(_, kind)| kind == notice);
    // the user of an enrolment in a login has no contact any more
    let is_reachable = !kind.ends_with("in a login");
    assert!(row[credential] == Value::Null || is_told || !is_reachable, "{kind} {at} {fault:?}");
    failed
}

#[tokio::test]
async fn c117_no_credential_is_added_without_its_notice_whatever_the_store_does() {
    let kinds = [
        ("app", "totp", NoticeKind::TotpAdded),
        ("recovery codes", "recovery", NoticeKind::RecoveryCodesRenewed),
        ("passkey", "passkeys", NoticeKind::PasskeyAdded),
        ("account page", "links", NoticeKind::LinkAdded),
        ("link", "links", NoticeKind::LinkAdded),
        ("link by hook", "links", NoticeKind::LinkAdded),
    ];
    for (kind, credential, notice) in kinds {
        for fault in FAULTS {
            let mut at = 0;
            while enrolled_at(kind, (credential, notice), (at, fault)).await {
                at += 1;
            }
            assert!(at > 3, "{kind}");
        }
    }
}

#[tokio::test]
async fn c130_no_contact_is_added_without_its_notice_whatever_the_store_does() {
    const MOVED: &str = "lovelace@example.com";
    for fault in [Fault::Before, Fault::Down] {
        for at in 0.. {
            let store = ControlledStore::default();
            let world = world(&store).await;
            let mut browser = crate::own_account::sign_in(&world, ADA, &["password", "sms"]).await;
            assert_eq!(call(&mut browser, "contacts/begin", json!({ "email": MOVED })).await.status, 200);
            let code = world.code(MOVED).await;
            store.fail(at, fault);
            call(&mut browser, "contacts", json!({ "code": code })).await;
            let failed = store.heal();
            let account = world.users.by_id(&acme(), &"u-ada".parse().unwrap()).await.unwrap().unwrap();
            let has_it = account.contacts().any(|(contact, _)| contact.as_str() == MOVED);
            let is_told = told(&world).await.contains(&(ADA.to_owned(), NoticeKind::EmailChanged));
            assert!(!has_it || is_told, "{at} {fault:?}");
            if !failed {
                break;
            }
        }
    }
}

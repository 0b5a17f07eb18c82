//! No secret and no address of a sign-up, a reset or a change is logged.

use http::StatusCode;
use serde_json::json;
use tollgate::{
    auth::{Invitation, SignUp},
    event::Query,
    user::EmailAddress,
};
use tracing::Level;

use crate::{
    controlled_store::{ControlledStore, Fault},
    logged::Logged,
    own_account::{acme, call, sign_in},
    reset::{self, FRESH},
    sign_up::{self, NEW, NEW_PASSWORD, newest},
    world::{ADA, ADA_PASSWORD, ADA_PHONE, Answer, World},
};

const CHANGED: &str = "gravel under moonlight";
const MOVED: &str = "lovelace@example.com";

/// Makes each call twice: the store fails in the middle of the first one, so that there is something to log.
macro_rules! twice {
    ($store:expr, $call:expr) => {{
        $store.fail(2, Fault::Before);
        let first: Answer = $call.await;
        // the failure may have been later than its last operation
        $store.heal();
        if first.status.is_success() { first } else { $call.await }
    }};
}

#[tokio::test]
async fn c127_c128_c129_c130_no_secret_and_no_address_of_the_life_of_an_account_is_logged() {
    let logged = Logged::up_to(Level::TRACE);
    let store = ControlledStore::default();
    let world = World::with(store.clone(), |service| service.sign_up(SignUp::Open).first_party(acme())).await;
    let mut secrets: Vec<String> =
        [ADA_PASSWORD, NEW_PASSWORD, FRESH, CHANGED, ADA, ADA_PHONE, NEW, MOVED].map(str::to_owned).into();

    let mut browser = world.browser();
    let id = sign_up::begin(&mut browser, "web").await;
    assert_eq!(twice!(store, browser.life("sign-up/code", "web", &id, &[("email", NEW)])).status, 200);
    let code = world.code(NEW).await;
    secrets.push(code.clone());
    assert_eq!(twice!(store, browser.life("sign-up/verify", "web", &id, &[("otp", &code)])).status, 200);
    assert_eq!(twice!(store, browser.life("sign-up", "web", &id, &[("password", NEW_PASSWORD)])).status, 200);
    secrets.extend(browser.cookies.values().cloned());

    let guest = EmailAddress::parse("guest@example.com").unwrap();
    world.service.invite(&acme(), Invitation::new(guest)).await.unwrap();
    let invitation = newest(&world, "guest@example.com").await.link().unwrap().url().to_owned();
    let invitation = invitation.split_once('=').unwrap().1.to_owned();
    let id = sign_up::begin(&mut browser, "web").await;
    let accepted = twice!(store, browser.life("sign-up/invitation", "web", &id, &[("link", &invitation)]));
    assert_eq!(accepted.status, 200, "{accepted:?}");
    secrets.extend([invitation, "guest@example.com".to_owned()]);

    let mut own = sign_in(&world, ADA, &["password", "sms"]).await;
    assert_eq!(twice!(store, call(&mut own, "contacts/begin", json!({ "email": MOVED }))).status, 200);
    let code = world.code(MOVED).await;
    secrets.push(code.clone());
    assert_eq!(twice!(store, call(&mut own, "contacts", json!({ "code": code }))).status, 204);
    assert_eq!(twice!(store, call(&mut own, "name", json!({ "name": "Ada Lovelace" }))).status, 204);
    let changed = twice!(store, call(&mut own, "password", json!({ "new_password": CHANGED })));
    assert_eq!(changed.status, 204, "{changed:?}");
    secrets.extend(own.cookies.values().cloned().chain(["Lovelace".to_owned()]));

    world.advance(61);
    let id = reset::begin(&mut browser, "web", ADA).await;
    for address in [ADA, ADA_PHONE] {
        let method = if address == ADA { "email" } else { "sms" };
        assert_eq!(twice!(store, browser.ask("web", &id, method, address)).status, 200);
        let code = world.code(address).await;
        secrets.push(code.clone());
        assert_eq!(twice!(store, browser.verify("web", &id, &code)).status, 200);
    }
    assert_eq!(twice!(store, reset::set(&mut browser, "web", &id)).status, 200);
    let link = world.service.create_reset_link(&acme(), &"u-ada".parse().unwrap()).await.unwrap().unwrap();
    let link = link.split_once('=').unwrap().1.to_owned();
    let id = reset::begin_unnamed(&mut browser, "web").await;
    let used = twice!(store, browser.life("reset-password/link", "web", &id, &[("link", &link)]));
    assert_eq!(used.status, StatusCode::OK, "{used:?}");
    secrets.push(link);
    secrets.extend(browser.cookies.values().cloned());

    world.settle().await;
    world.log.flush();
    let lines = logged.take();
    assert!(lines.len() >= 8, "{lines:?}");
    let text = format!("{lines:?} {:?} {:?}", world.log.read_events(&Query::default()).events, world.outbox.messages());
    for secret in secrets {
        assert!(secret.len() >= 6 && !text.contains(&secret), "{secret}: {text}");
    }
}

//! A user changes the e-mail address that they sign in with.

use crate::{
    five_tenants::{name, tenant, user, world},
    issued_tokens::{IssuedTokens, all_are, claims},
    world::{ADA, ADA_PASSWORD, GRACE, GRACE_PASSWORD, World},
};

const NEW: &str = "ada.king@example.com";

/// The application proves the new address, adds it as a name, and removes the old one.
async fn rename(world: &World) {
    let acme = tenant("acme");
    world.change_contact(&acme, "u-ada", ADA, NEW).await;
    world.rename(&acme, "u-ada", ADA, NEW).await;
}

#[tokio::test]
async fn c120_a_new_sign_in_address_ends_neither_sessions_nor_tokens() {
    let (world, acme) = (world().await, tenant("acme"));
    let mut browser = world.browser();
    let scope = [("scope", "openid email")];
    let code = browser.sign_in_as(&world, "acme-web", (ADA, ADA_PASSWORD), None, &scope).await;
    let issued = IssuedTokens::of(&browser.redeem("acme-web", &code).await);
    let open = browser.silently("acme-shop").await.unwrap();
    let before = world.sessions_of(&acme, "u-ada").await;
    let sid = before[0].sid().to_string();

    rename(&world).await;

    all_are(true, &world, "acme-web", &issued).await;
    let info = browser.with_token("/userinfo", &issued.access).await.json();
    assert_eq!((&info["sub"], &info["email"], &info["email_verified"]), (&"u-ada".into(), &NEW.into(), &true.into()));
    let known = browser.introspect("acme-web", issued.refresh()).await;
    assert_eq!((&known["active"], &known["sub"]), (&true.into(), &"u-ada".into()));
    let next = IssuedTokens::of(&browser.refresh("acme-web", issued.refresh()).await);
    for token in [next.id(), &*next.access] {
        assert_eq!((&claims(token)["sub"], claims(token)["sid"].as_str()), (&"u-ada".into(), Some(&*sid)));
    }
    all_are(true, &world, "acme-web", &next).await;
    // a code that was issued before
    assert_eq!(browser.redeem("acme-shop", &open).await.status, 200);
    // single sign-on
    let code = browser.silently("acme-shop").await.unwrap();
    let silent = IssuedTokens::of(&browser.redeem("acme-shop", &code).await);
    assert_eq!(claims(silent.id())["sid"].as_str(), Some(&*sid));
    assert_eq!(world.seen(Some(&acme), &browser).await, Some(sid.clone()));
    // a further step with the new address
    let login = browser.begin("acme-bank", &[]).await;
    assert_eq!((&login.started["required_steps"], &login.started["next_step"]), (&2.into(), &2.into()));
    assert_eq!(browser.prove_mailbox(&world, &login, ADA).await.status, 401, "the old address gets no code");
    world.advance(31);
    assert_eq!(browser.prove_mailbox(&world, &login, NEW).await.status, 200);
    browser.finish(&login).await.unwrap();
    let after = world.sessions_of(&acme, "u-ada").await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].sid().to_string(), sid);

    // only the new name leads to the account
    let mut other = world.browser();
    let login = other.begin("acme-web", &[("identifier", ADA)]).await;
    assert_eq!(other.prove_password(&login, ADA, ADA_PASSWORD).await.error(), "invalid_credentials");
    other.sign_in_as(&world, "acme-web", (NEW, ADA_PASSWORD), None, &[]).await;
}

#[tokio::test]
async fn c116_logins_in_progress_continue_after_a_new_address() {
    let world = world().await;
    let [mut unproved, mut half, mut whole, mut mailed] = [(); 4].map(|()| world.browser());
    let unproved_login = unproved.begin("acme-two", &[("identifier", ADA)]).await;
    let half_login = half.begin("acme-two", &[("identifier", ADA)]).await;
    assert_eq!(half.prove_password(&half_login, ADA, ADA_PASSWORD).await.status, 200);
    let whole_login = whole.begin("acme-web", &[("identifier", ADA)]).await;
    assert_eq!(whole.prove_password(&whole_login, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(whole.step(&whole_login, "complete", &[]).await.status, 200);
    let mailed_login = mailed.begin("acme-web", &[("identifier", ADA)]).await;
    assert_eq!(mailed.prove_mailbox(&world, &mailed_login, ADA).await.status, 200);
    world.advance(31);

    rename(&world).await;

    assert_eq!(unproved.prove_password(&unproved_login, NEW, ADA_PASSWORD).await.status, 200);
    for (browser, login) in [(&mut unproved, &unproved_login), (&mut half, &half_login)] {
        assert_eq!(browser.prove_mailbox(&world, login, NEW).await.status, 200);
        world.advance(31);
        let code = browser.finish(login).await.unwrap();
        assert_eq!(browser.redeem("acme-two", &code).await.status, 200);
    }
    let code = whole.return_of(&whole_login).await.unwrap();
    assert_eq!(whole.redeem("acme-web", &code).await.status, 200);
    // but a proof with the old address no longer counts
    assert_eq!(mailed.finish(&mailed_login).await.unwrap_err().redirected("code"), None);
}

#[tokio::test]
async fn c116_a_login_stays_bound_to_its_user_if_another_user_gets_the_name_that_it_began_with() {
    let world = world().await;
    let mut browser = world.browser();
    let login = browser.begin("acme-web", &[("identifier", ADA)]).await;
    let acme = tenant("acme");
    world.rename(&acme, "u-ada", ADA, NEW).await;
    // another user takes over the name
    world.users.add_identifier(&acme, &user("u-grace"), &name(ADA)).await.unwrap();
    for (name, password) in [(ADA, GRACE_PASSWORD), (GRACE, ADA_PASSWORD), (GRACE, GRACE_PASSWORD)] {
        let answer = browser.prove_password(&login, name, password).await;
        assert_eq!((answer.status.as_u16(), &*answer.error()), (401, "invalid_credentials"), "{name}");
    }
    let [mut by_old, mut by_new] = [(); 2].map(|()| browser.clone());
    drop(browser);
    let mut other = world.browser();
    let fresh = other.begin("acme-web", &[("identifier", ADA)]).await;
    assert_eq!(other.prove_password(&fresh, ADA, ADA_PASSWORD).await.status, 401, "a new login is for grace");
    assert_eq!(by_old.prove_password(&login, ADA, ADA_PASSWORD).await.status, 200);
    assert_eq!(by_new.prove_password(&login, NEW, ADA_PASSWORD).await.error(), "no_step_remaining");
    let code = by_old.finish(&login).await.unwrap();
    let issued = IssuedTokens::of(&by_old.redeem("acme-web", &code).await);
    assert_eq!(claims(issued.id())["sub"], "u-ada");
}

//! A walk through the pages of the demo and the event page in a real browser, on a desktop and a small phone, light and dark.

use crate::{
    FREE_PORT,
    support::{
        chromium::Chromium,
        example::Example,
        inspector::{DESKTOP, Inspector, PHONE},
    },
};

const LOOKS: [(&str, u32); 4] = [("light", PHONE), ("dark", PHONE), ("light", DESKTOP), ("dark", DESKTOP)];

/// The code in the message to the new user, once it has arrived.
const CODE_OF_NEW: &str = "(async () => {
    for (;;) {
        const sent = await (await fetch('/demo/outbox', { headers: { accept: 'application/json' } })).json();
        const found = sent.find(({ to }) => to === 'new@example.org');
        if (found) return found.code;
    }
})()";

fn focus(name: &str) -> String {
    format!(
        "[document.activeElement.id, document.activeElement.value].includes('{name}') \
         && document.readyState === 'complete' && !document.body.hasAttribute('aria-busy')"
    )
}

async fn enter(tab: &mut Chromium, fields: &[(&str, &str)]) {
    for (field, text) in fields {
        tab.until(&focus(field)).await;
        tab.insert(text).await;
        tab.press("Enter").await;
    }
}

#[tokio::test]
async fn the_pages_of_the_demo_are_accessible_and_fit_a_phone() {
    let Some(inspector) = Inspector::find("en", &LOOKS) else { return };
    let Some(mut tab) = Chromium::start("demo-pages").await else { return };
    let server = Example::start("server", &FREE_PORT).await;
    let origin = server.origin.clone();
    let open = async |tab: &mut Chromium, path: &str| {
        tab.open(&format!("{origin}{path}")).await;
        tab.until("document.readyState === 'complete' && document.querySelector('main')").await;
    };
    open(&mut tab, "/demo/").await;
    inspector.inspect(&mut tab, "demo-start").await;
    open(&mut tab, "/demo/outbox").await;
    tab.until("!document.getElementById('none').hidden").await;
    inspector.inspect(&mut tab, "demo-outbox-empty").await;

    // the outbox is open in another tab, shows the code at once, and copies it with one click
    let outbox = tab.open_tab().await;
    tab.call(
        "Browser.grantPermissions",
        serde_json::json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] }),
    )
    .await;
    open(&mut tab, "/demo/login/demo-mfa").await;
    enter(
        &mut tab,
        &[("identifier", "ada@example.com"), ("password", ""), ("secret", "correct horse battery staple"), ("sms", "")],
    )
    .await;
    tab.until(&focus("otp")).await;
    tab.until(&format!("document.getElementById('sent').textContent.endsWith('{origin}/demo/outbox')")).await;
    assert_eq!(tab.ask("document.querySelector('#sent a').href").await.unwrap(), format!("{origin}/demo/outbox"));
    inspector.inspect(&mut tab, "demo-code").await;
    let login = tab.use_tab(outbox).await;
    tab.until("document.querySelector('#messages button.code') && document.getElementById('none').hidden").await;
    tab.click("#messages button.code").await;
    tab.until("document.querySelector('#messages button span').textContent === 'Copied'").await;
    let code = tab.ask("document.querySelector('#messages button').dataset.code").await.unwrap();
    assert_eq!(tab.ask("navigator.clipboard.readText()").await.unwrap(), code);
    inspector.inspect(&mut tab, "demo-outbox").await;
    tab.use_tab(login).await;
    tab.insert(code.as_str().unwrap()).await;
    tab.press("Enter").await;
    tab.until("document.getElementById('answer')?.textContent.includes('Ada Lovelace')").await;
    inspector.inspect(&mut tab, "demo-tokens").await;
    open(&mut tab, "/demo/callback?state=unknown&code=x").await;
    inspector.inspect(&mut tab, "demo-not-logged-in").await;
    for (path, name) in [("/nothing/here", "demo-not-found"), ("/demo/login/nobody", "demo-unknown-client")] {
        open(&mut tab, path).await;
        tab.until("document.querySelector('a[href=\"/demo/\"]')").await;
        inspector.inspect(&mut tab, name).await;
    }
    open(&mut tab, "/account").await;
    inspector.inspect(&mut tab, "demo-account").await;

    open(&mut tab, "/account/security").await;
    tab.until("!document.getElementById('all').hidden").await;
    assert_eq!(tab.ask("document.querySelector('main > p > a').href").await.unwrap(), format!("{origin}/demo/"));
    inspector.inspect(&mut tab, "demo-security").await;
    // the page also says so for the code of a new contact, and the sign-up for its code
    tab.click("#add-email").await;
    enter(&mut tab, &[("contact-value", "ada@example.org")]).await;
    tab.until(&format!("document.querySelector('#contact-sent a')?.href === '{origin}/demo/outbox'")).await;
    inspector.inspect(&mut tab, "demo-contact").await;
    open(&mut tab, "/sign-up?return_to=/account/security").await;
    let word = "JSON.parse(document.getElementById('words').textContent)['login.code_join']";
    assert!(tab.ask(word).await.unwrap().as_str().unwrap().ends_with(&format!("find it at {origin}/demo/outbox")));
    // a new account has no name
    enter(&mut tab, &[("join-to", "new@example.org")]).await;
    tab.until(&focus("otp")).await;
    let code = tab.ask(CODE_OF_NEW).await.unwrap();
    enter(&mut tab, &[("otp", code.as_str().unwrap()), ("new-secret", "gravel under moonlight")]).await;
    tab.until("location.pathname === '/account/security' && !document.getElementById('all').hidden").await;
    open(&mut tab, "/account").await;
    assert_eq!(tab.ask("document.querySelector('main strong').textContent").await.unwrap(), "new@example.org");
    open(&mut tab, "/account/security").await;
    open(&mut tab, "/logout").await;
    tab.click("button").await;
    tab.until("location.pathname === '/logout' && !document.querySelector('form') && document.querySelector('main a')")
        .await;
    assert_eq!(tab.ask("document.querySelector('main a').href").await.unwrap(), format!("{origin}/demo/"));
    inspector.inspect(&mut tab, "demo-logged-out").await;

    open(&mut tab, "/demo/").await;
    tab.click("#flood").await;
    tab.until("Number(document.querySelector('#acme b.refused').textContent) > 100").await;
    inspector.inspect(&mut tab, "demo-flood").await;
    open(&mut tab, "/events/").await;
    tab.until("document.querySelector('#tenants [data-tenant=acme].limited') && document.getElementById('rows').rows.length > 3").await;
    inspector.inspect(&mut tab, "events").await;
    tab.click("#rows button").await;
    tab.until("document.getElementById('details').open").await;
    inspector.inspect(&mut tab, "events-details").await;
}

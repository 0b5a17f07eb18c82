//! Single sign-on between two servers on this machine.

use super::*;

#[cfg(not(feature = "external-providers"))]
#[tokio::test]
async fn a_server_without_single_sign_on_tells_how_to_get_it() {
    let output = run("server", &["--sso-demo"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("cargo run --features external-providers --example server"),
        "{said}"
    );
}

#[cfg(feature = "external-providers")]
#[tokio::test]
async fn login_google_passkeys_offers_google_codes_and_passkeys() {
    let mut command = support::example::command("login_google_passkeys", &["127.0.0.1:0"]);
    command.env("GOOGLE_CLIENT_ID", "our-client").env("GOOGLE_CLIENT_SECRET", "s3cret");
    let example = Example::of(command).await;
    let mut browser = Browser::new(&example.origin, "");
    let sent = browser.send("GET", "/account", &[("sec-fetch-mode", "navigate")], "").await;
    let page = browser.open(sent.header("location")).await.header("location").to_owned();
    let page = browser.send("GET", &page, &[("accept", "application/json")], "").await.json();
    assert_eq!(page["providers"], members!([{ "name": "google", "label": "Google" }]));
    assert_eq!(page["available_methods"], members!(["email", "sso", "passkey"]));
    let without = support::example::command("login_google_passkeys", &[]).env_clear().output().await.unwrap();
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(!without.status.success() && said.contains("GOOGLE_CLIENT_ID"), "{said}");
}

/// Opens the page of a login and follows it to its code, by the calls that the page makes. Returns the URL at the end.
#[cfg(feature = "external-providers")]
async fn logged_in(
    browser: &mut Browser,
    authorize: &str,
    steps: &[Value],
    at_provider: Option<(&str, &str)>,
) -> String {
    let page = browser.open(authorize).await;
    assert_eq!(page.status, 302, "{page:?}");
    let mut body = members!({});
    for name in ["client_id", "redirect_uri", "response_type", "scope", "code_challenge", "code_challenge_method"] {
        body[name] = page.redirected(name).unwrap().into();
    }
    let json = [("content-type", "application/json")];
    let call = async |browser: &mut Browser, endpoint: &str, body: &Value| {
        let answer = browser.send("POST", &format!("/authentication/{endpoint}"), &json, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    body["session_id"] = call(browser, "start", &body).await["session_id"].clone();
    for step in steps {
        body.as_object_mut().unwrap().extend(step.as_object().unwrap().clone());
        call(browser, "authenticate", &body).await;
    }
    if let Some((name, password)) = at_provider {
        body["method"] = "sso".into();
        body["provider"] = "example-id".into();
        let there = call(browser, "authenticate", &body).await["redirect_url"].as_str().unwrap().to_owned();
        let (origin, _) = there.split_once("/authorize").unwrap();
        let mut away = Browser::new(origin, "");
        let step = members!({ "method": "password", "username": name, "password": password });
        let callback = Box::pin(logged_in(&mut away, &there, &[step], None)).await;
        let back = browser.open(&callback).await;
        assert!(back.header("location").ends_with("#sso=ok"), "{back:?}");
    }
    call(browser, "complete", &body).await;
    browser.open(authorize).await.header("location").to_owned()
}

#[cfg(feature = "external-providers")]
#[tokio::test]
async fn users_of_a_second_server_sign_in_at_the_first() {
    let server = Example::start("server", &["--listen", "localhost:0", "--sso-demo"]).await;
    let alan = ("alan", "can machines think");
    let ada = ("ada", "notes on the engine");
    let here = members!({ "method": "password", "username": "ada", "password": "correct horse battery staple" });
    // alan gets an account, and keeps it; ada links hers, and needs it alone afterwards
    for (client, steps, who, expected) in [
        ("demo-web", vec![], alan, "Alan Turing"),
        ("demo-web", vec![], alan, "Alan Turing"),
        ("demo-mfa", vec![here], ada, "Ada Lovelace"),
        ("demo-web", vec![], ada, "Ada Lovelace"),
    ] {
        let mut browser = server.browser();
        let sent = browser.open(&format!("/demo/login/{client}")).await;
        let authorize = sent.header("location").to_owned();
        let callback = logged_in(&mut browser, &authorize, &steps, Some(who)).await;
        assert!(callback.starts_with(&format!("{}/demo/callback?code=", server.origin)), "{callback}");
        assert_eq!(browser.open(&callback).await.status, 200);
        let account = browser.open("/account").await;
        assert!(account.text.contains(&format!("<strong>{expected}</strong>")), "{}", account.text);
    }
}

//! The languages of pages and messages, and the look of the pages.

use std::time::Duration;

use http::Request;
use serde_json::json;
use tollgate::{
    AuthService, ClientIp, Language, Limiter, Plans, Quota, Tenant,
    auth::{AuthServiceBuilder, Colors, Pages},
    store::Memory,
    testing::ManualClock,
};

use crate::world::{ADA, ADA_PHONE, Answer, Browser, ISSUER, World, encode, parameters, query, with};

const PERSON: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const LOGO: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";

/// Opens a page with a browser that prefers these languages.
async fn open(browser: &mut Browser, target: &str, languages: &str) -> Answer {
    let request = Request::get(target).header("accept", PERSON).header("accept-language", languages);
    browser.send(request, "").await
}

async fn themed(pages: Pages) -> World {
    World::with(Memory::new(), |service| service.pages(pages).first_party("acme".parse::<Tenant>().unwrap())).await
}

fn assert_language(answer: &Answer, language: &str, vary: &str) {
    assert!(answer.text.contains(&format!("<html lang=\"{language}\">")), "{answer:?}");
    assert_eq!((answer.header("content-language"), answer.header("vary")), (language, vary), "{answer:?}");
}

#[tokio::test]
async fn a_page_takes_the_requested_language_then_the_accepted_one_then_english() {
    let world = World::new().await;
    let mut browser = world.browser();
    for (ui_locales, accepted, language) in [
        ("", "de-CH,de;q=0.9,en;q=0.8", "de"),
        ("", "fr", "en"),
        ("de", "en", "de"),
        ("fr de-AT en", "en", "de"),
        ("en", "de", "en"),
        ("fr", "de", "de"),
        ("<script>", "de", "de"),
    ] {
        let target = format!("/authentication/start?{}&ui_locales={}", query("web"), encode(ui_locales));
        let page = open(&mut browser, &target, accepted).await;
        assert_language(&page, language, "accept, accept-language");
        assert!(page.text.contains(if language == "de" { ">Weiter<" } else { ">Continue<" }));
        // all names are filled in, up to those that the script fills in
        assert!(!page.text.split("</script>").nth(1).unwrap().contains('{'), "{page:?}");
    }
}

#[tokio::test]
async fn pages_for_errors_and_for_logout_have_a_language() {
    let world = World::new().await;
    let mut browser = world.browser();
    let error = open(&mut browser, "/authorize?client_id=nobody", "de").await;
    assert_language(&error, "de", "accept-language");
    assert!(error.text.contains("Die Anmeldung kann nicht fortgesetzt werden"), "{error:?}");
    assert!(error.text.contains("<code>invalid_client</code>"), "{error:?}");
    let error = open(&mut browser, "/authorize?client_id=nobody&ui_locales=en", "de").await;
    assert_language(&error, "en", "accept-language");

    let done = open(&mut browser, "/logout", "de").await;
    assert_language(&done, "de", "accept-language");
    assert!(done.text.contains("Sie sind abgemeldet") && done.text.contains("Sie können diese Seite schließen."));
    browser.log_in("web", ADA).await;
    browser.authorize("web").await;
    let question = open(&mut browser, "/logout?ui_locales=de", "en").await;
    assert_language(&question, "de", "accept-language");
    assert!(question.text.contains("Möchten Sie sich abmelden?"), "{question:?}");
    assert!(question.text.contains(r#"<input type="hidden" name="ui_locales" value="de">"#), "{question:?}");
}

#[tokio::test]
async fn a_sign_in_to_the_site_keeps_the_requested_language() {
    let world = themed(Pages::new()).await;
    let sent = open(&mut world.browser(), "/sign-in?ui_locales=de%20en", "en").await;
    assert!(
        sent.header("location").contains("ui_locales=de+en") || sent.header("location").contains("ui_locales=de%20en"),
        "{sent:?}"
    );
}

#[tokio::test]
async fn codes_are_in_the_language_of_the_login_and_unknown_addresses_get_the_same_answer() {
    let world = World::new().await;
    for (ui_locales, accepted, language) in [
        (Some("de"), "en", Language::German),
        (None, "de", Language::German),
        (Some("fr"), "de", Language::German),
        (Some("en"), "de", Language::English),
        (None, "", Language::English),
    ] {
        let mut answers = Vec::new();
        for phone in [ADA_PHONE, "+15555550999"] {
            let mut browser = world.browser();
            let mut body = with(parameters("web"), &[("identifier", ADA)]);
            if let Some(locales) = ui_locales {
                body["ui_locales"] = locales.into();
            }
            let id =
                browser.post("/authentication/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
            let body = with(parameters("web"), &[("session_id", &id), ("method", "sms"), ("phone_number", phone)]);
            let request = Request::post("/authentication/authenticate").header("content-type", "application/json");
            let request = request.header("accept-language", accepted);
            let answer = browser.send(request, body.to_string()).await;
            let mut json = answer.json();
            json["session_id"] = json!("");
            answers.push((answer.status, json));
        }
        assert_eq!(answers[0], answers[1]);
        world.settle().await;
        let sent = world.outbox.messages();
        assert_eq!(sent.last().unwrap().language(), language, "{ui_locales:?} {accepted}");
        world.advance(3600);
    }
    assert_eq!(world.outbox.messages().len(), 5);
}

#[tokio::test]
async fn texts_replace_words_of_pages_and_messages() {
    let pages = Pages::new()
        .texts(Language::German, [("login.title", "Willkommen & hallo"), ("message.code_subject", "Ihr Code für Acme")])
        .texts(Language::English, [("error.heading", "Sorry")]);
    let world = themed(pages).await;
    let mut browser = world.browser();
    let start = format!("/authentication/start?{}", query("web"));
    let page = open(&mut browser, &start, "de").await;
    assert!(page.text.contains("<title>Willkommen &amp; hallo</title>"), "{page:?}");
    assert!(page.text.contains(r#""login.title":"Willkommen & hallo""#), "{page:?}");
    assert!(open(&mut browser, &start, "en").await.text.contains("<title>Sign in</title>"));
    assert!(open(&mut browser, "/authorize", "en").await.text.contains("<h1>Sorry</h1>"));
    let body = with(parameters("web"), &[("identifier", ADA), ("ui_locales", "de")]);
    let id = browser.post("/authentication/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
    browser.ask("web", &id, "email", ADA).await;
    world.settle().await;
    let message = world.outbox.messages().pop().unwrap();
    assert_eq!(message.subject(world.time()), "Ihr Code für Acme");
    assert!(message.text(world.time()).ends_with("nur auf der Anmeldeseite ein."));
}

#[tokio::test]
async fn the_logo_is_on_each_page_and_runs_nothing() {
    let colors = Colors::new().accent("#0b6b43");
    let world = themed(Pages::new().logo("Acme \"&\" Sons", LOGO).colors(colors)).await;
    let mut browser = world.browser();
    let start = format!("/authentication/start?{}", query("web"));
    for (target, root) in [(start.as_str(), ""), ("/authorize", "authentication/"), ("/logout", "authentication/")] {
        let page = open(&mut browser, target, "en").await;
        let image = page.text.split("<img ").nth(1).unwrap_or_else(|| panic!("{page:?}"));
        assert!(image.starts_with(&format!("class=\"logo\" src=\"{root}logo?v=")), "{image}");
        assert!(image.contains("alt=\"Acme &quot;&amp;&quot; Sons\""), "{image}");
        assert!(page.header("content-security-policy").contains("img-src 'self';"), "{page:?}");
        let url = image.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
        let logo = open(&mut browser, &format!("/authentication/{}", url.trim_start_matches(root)), "en").await;
        assert_eq!(
            (logo.status.as_u16(), logo.header("content-type"), logo.text.as_str()),
            (200, "image/svg+xml", LOGO)
        );
        assert_eq!(logo.header("content-security-policy"), "default-src 'none'; style-src 'unsafe-inline'; sandbox");
        assert_eq!(logo.header("x-content-type-options"), "nosniff");
        assert_eq!(logo.header("cache-control"), "public, max-age=31536000, immutable");
    }
    let style = open(&mut browser, "/authentication/page.css", "en").await.text;
    assert!(style.contains("(prefers-color-scheme: light) { :root { --accent: #0b6b43;"), "{style}");

    let world = themed(Pages::new()).await;
    let mut browser = world.browser();
    assert_eq!(open(&mut browser, "/authentication/logo", "en").await.status.as_u16(), 404);
    let page = open(&mut browser, &start, "en").await;
    assert!(!page.text.contains("<img") && !page.header("content-security-policy").contains("img-src"), "{page:?}");
}

#[tokio::test]
async fn errors_a_sign_out_and_the_account_link_to_the_home_of_the_application() {
    let link = |home: &str, text: &str| format!("<p><a href=\"{home}\">{text}</a></p>");
    let world = themed(Pages::new().home_url("https://acme.example/?a=1&b='")).await;
    let mut browser = world.browser();
    let home = "https://acme.example/?a=1&amp;b=&#39;";
    browser.log_in("web", ADA).await;
    browser.authorize("web").await;
    for target in ["/account/security", "/authorize", "/nothing/here", "/logout"] {
        let page = open(&mut browser, target, "de").await;
        assert!(page.text.contains(&link(home, "Zurück zur Anwendung")), "{page:?}");
    }
    let mut other = world.browser();
    let done = open(&mut other, "/logout", "en").await;
    assert!(done.text.contains(&link(home, "Go back to the application")), "{done:?}");
    let own = "<!doctype html><p>{advice}</p>{link}{home}";
    let own = themed(Pages::new().home_url("/app").error_html(own)).await;
    let page = open(&mut own.browser(), "/authorize", "en").await;
    assert!(page.text.ends_with(&link("/app", "Go back to the application")), "{page:?}");

    // nothing of the request becomes a link
    let world = themed(Pages::new()).await;
    for target in ["/authorize?home=https://evil.example", "/logout?home=/evil", "/nothing/here"] {
        let page = open(&mut world.browser(), target, "en").await;
        assert!(!page.text.contains("<a ") && !page.text.contains("{home}"), "{page:?}");
    }
}

#[tokio::test]
async fn the_page_of_a_limited_request_names_the_wait_of_its_retry_after() {
    let clock = ManualClock::new();
    for (quota, english, german) in [
        (Quota::new(1, Duration::from_secs(1)), "one second", "einer Sekunde"),
        (Quota::new(1, Duration::from_millis(11_500)), "12 seconds", "12 Sekunden"),
        (Quota::new(1, Duration::from_secs(99)), "99 seconds", "99 Sekunden"),
        (Quota::new(1, Duration::from_secs(121)), "3 minutes", "3 Minuten"),
        (Quota::new(1, Duration::from_secs(7201)), "3 hours", "3 Stunden"),
    ] {
        let limiter = Limiter::builder(Plans::new(quota.unwrap())).clock(clock.clone()).build().unwrap();
        let more = |service: AuthServiceBuilder| service.limiter(limiter);
        let world = World::on(Memory::new().into(), clock.clone(), more).await;
        let mut browser = world.browser();
        let targets = [format!("/authorize?{}", query("web")), "/logout?client_id=web".to_owned()];
        open(&mut browser, &targets[0], "en").await;
        for target in targets {
            for (language, text) in [
                ("en", format!("<p>There were too many requests. Try again in {english}.</p>")),
                ("de", format!("<p>Es gab zu viele Anfragen. Versuchen Sie es in {german} erneut.</p>")),
            ] {
                let page = open(&mut browser, &target, language).await;
                assert_eq!(page.status.as_u16(), 429, "{page:?}");
                assert!(page.text.contains(&text), "{page:?}");
                let (heading, link) = match language {
                    "en" => ("This page is not available right now", "Try again"),
                    _ => ("Diese Seite ist gerade nicht verfügbar", "Erneut versuchen"),
                };
                assert!(page.text.contains(&format!("<h1>{heading}</h1>")), "{page:?}");
                assert!(page.text.contains(&format!(r#"<p><a href="">{link}</a></p>"#)), "{page:?}");
                let seconds: u64 = page.header("retry-after").parse().unwrap();
                let number: u64 = english.split(' ').next().unwrap().parse().unwrap_or(1);
                let unit = if english.contains("hour") {
                    3600
                } else if english.contains("minute") {
                    60
                } else {
                    1
                };
                assert_eq!(number, seconds.div_ceil(unit), "{page:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_page_of_ones_own_gets_the_advice_in_the_language_of_the_user() {
    let own = "<!doctype html><html lang={lang}><style>p { color: red }</style><p>{advice}</p><i>{code}</i>";
    let world = themed(Pages::new().error_html(own)).await;
    let page = open(&mut world.browser(), "/authorize", "de").await;
    let advice = "Dieser Link funktioniert nicht. Bitte kehren Sie zur Anwendung zurück und versuchen Sie es erneut.";
    let expected =
        format!("<!doctype html><html lang=de><style>p {{ color: red }}</style><p>{advice}</p><i>invalid_request</i>");
    assert_eq!(page.text, expected);
}

#[tokio::test]
async fn pages_that_cannot_work_are_configuration_errors() {
    let world = World::new().await;
    let build = |pages: Pages| {
        let service: AuthServiceBuilder = AuthService::builder(ISSUER, world.store.clone());
        service.users(world.users.clone()).client_ip(ClientIp::peer()).pages(pages).build().map(drop)
    };
    assert!(build(Pages::new().logo("Acme", LOGO)).is_ok());
    for (wrong, setting) in [
        (Pages::new().logo("Acme", "GIF89a"), "logo"),
        (Pages::new().colors(Colors::new().accent("red")), "color"),
        (Pages::new().colors(Colors::new().accent("#fd0")), "accent color on the card"),
        (Pages::new().dark_colors(Colors::new().text("#555")), "text color on the card"),
        (Pages::new().texts(Language::German, [("login.titel", "Anmelden")]), "text"),
        (Pages::new().texts(Language::English, [("login.to_client", "to us")]), "text"),
    ] {
        assert_eq!(build(wrong).unwrap_err().setting(), setting);
    }
}

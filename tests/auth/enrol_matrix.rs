//! Calls what sets up a second factor within a login in every state of that login, and compares the responses with a table.
//!
//! `enrol_matrix.txt` contains the expected text. It is written like `matrix.txt`.

use std::collections::BTreeMap;

use http::Request;
use serde_json::{Value, json};

use crate::{
    enrolled::app,
    first_second_factor::{Half, world},
    matrix::{self, Case, compare, table},
    own_account::{LONE, totp},
    soft_passkey::SoftPasskey,
    wire_text::after,
    world::{ADA, ADA_PASSWORD, Answer, Browser, World, parameters, with},
};

const STATES: &[&str] = &[
    "no login",
    "started",
    "wrong password",
    "one step done",
    "one step done 5 min ago",
    "app begun",
    "app begun, then another one",
    "app begun 299 s ago",
    "passkey begun",
    "app set up",
    "completed",
    "consumed",
    "failed",
    "idle for 10 min",
    "app set up in another login",
    "password changed",
    "the account has a mailbox",
    "the policy names methods",
    "the policy is without self-enrolment",
    "one step is enough",
];

const CALLS: &[&str] = &[
    "POST /authentication/enrol totp",
    "POST /authentication/enrol totp, right code",
    "POST /authentication/enrol totp, wrong code",
    "POST /authentication/enrol passkey",
    "POST /authentication/enrol passkey, right",
    "POST /authentication/enrol passkey, malformed",
    "POST /authentication/enrol password",
    "POST /authentication/enrol without a method",
    "POST /authentication/enrol totp, for another client",
    "POST /authentication/enrol totp, from another site",
    "GET /authentication/enrol",
    "GET /authentication/choices",
    "POST /authentication/authenticate totp, with the code of the new app",
    "POST /authentication/complete",
];

struct EnrolCase {
    world: World,
    half: Half,
    secret: String,
    /// The newest options for a passkey.
    options: Value,
    /// The cookies before the call.
    cookies: BTreeMap<String, String>,
}

async fn case_in(state: &str) -> EnrolCase {
    let world = world().await;
    let client = match state {
        "the policy names methods" => "named",
        "the policy is without self-enrolment" => "in-person",
        "one step is enough" => "web",
        _ => "mfa",
    };
    let who = if state == "the account has a mailbox" { ADA } else { LONE };
    let mut browser = world.browser();
    let id = browser.start(client, who).await;
    let mut case = EnrolCase {
        half: Half { browser, client, id },
        secret: "A".repeat(32),
        options: json!({ "publicKey": { "challenge": "A".repeat(43), "user": { "id": "AAAA" } } }),
        cookies: BTreeMap::new(),
        world,
    };
    let (world, half) = (&case.world, &mut case.half);
    if !["no login", "started", "wrong password"].contains(&state) {
        assert_eq!(half.browser.password(client, &half.id, who, ADA_PASSWORD).await.status, 200);
    }
    match state {
        "no login" => half.browser.cookies.clear(),
        "wrong password" => drop(half.browser.password(client, &half.id, who, "wrong").await),
        "one step done 5 min ago" => world.advance(300),
        "app begun" => case.secret = half.begin().await,
        "app begun, then another one" => {
            case.secret = half.begin().await;
            half.begin().await;
        }
        "app begun 299 s ago" => {
            case.secret = half.begin().await;
            world.advance(299);
        }
        "passkey begun" => case.options = half.enrol("passkey", &[]).await.json(),
        "app set up" | "completed" | "consumed" => {
            case.secret = half.begin().await;
            assert_eq!(half.confirm(world, &case.secret).await.status, 200);
            if state != "app set up" {
                assert_eq!(half.browser.complete(client, &half.id).await.status, 200);
            }
            if state == "consumed" {
                let cookies = half.browser.cookies.clone();
                assert!(half.browser.authorize(client).await.redirected("code").is_some());
                half.browser.cookies = cookies;
            }
        }
        "failed" => {
            case.secret = half.begin().await;
            // from other addresses, after the waits
            for failure in 0..15 {
                let answer = half.enrol("totp", &[("code", "12345")]).await;
                assert_eq!(answer.error() == "session_failed", failure == 14, "{failure} {answer:?}");
                if failure % 5 == 4 {
                    world.service.unlock(&"acme".parse().unwrap(), &LONE.parse().unwrap()).await.unwrap();
                }
            }
        }
        "idle for 10 min" => world.advance(600),
        "app set up in another login" => {
            crate::enrolled::enrol(world, "u-lone", json!({ "totp": app(2) })).await;
        }
        "password changed" => {
            let new = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new(ADA_PASSWORD)).await.unwrap();
            let (acme, lone) = ("acme".parse().unwrap(), "u-lone".parse().unwrap());
            world.users.set_password(&acme, &lone, Some(new)).await.unwrap();
        }
        _ => {}
    }
    case.cookies = case.half.browser.cookies.clone();
    case
}

impl Case for EnrolCase {
    async fn call(&mut self, call: &str) -> Answer {
        let code = totp(&self.secret, self.world.time());
        let half = &mut self.half;
        let body = |method: &str| with(parameters(half.client), &[("session_id", &half.id), ("method", method)]);
        match call {
            "POST /authentication/enrol totp" => half.enrol("totp", &[]).await,
            "POST /authentication/enrol totp, right code" => half.enrol("totp", &[("code", &code)]).await,
            "POST /authentication/enrol totp, wrong code" => half.enrol("totp", &[("code", "12345")]).await,
            "POST /authentication/enrol passkey" => half.enrol("passkey", &[]).await,
            "POST /authentication/enrol passkey, right" => {
                let mut body = body("passkey");
                body["response"] = SoftPasskey::new().create(&self.options);
                half.browser.post("/authentication/enrol", &body).await
            }
            "POST /authentication/enrol passkey, malformed" => {
                let mut body = body("passkey");
                body["response"] = json!({ "id": "AA" });
                half.browser.post("/authentication/enrol", &body).await
            }
            "POST /authentication/enrol password" => half.enrol("password", &[("password", ADA_PASSWORD)]).await,
            "POST /authentication/enrol without a method" => {
                half.browser.call("enrol", half.client, &half.id, &[]).await
            }
            "POST /authentication/enrol totp, for another client" => {
                half.browser.call("enrol", "native", &half.id, &[("method", "totp")]).await
            }
            "POST /authentication/enrol totp, from another site" => {
                let body = body("totp").to_string();
                let request = Request::post("/authentication/enrol").header("content-type", "application/json");
                half.browser.send(request.header("origin", "https://other.example"), body).await
            }
            "GET /authentication/enrol" => half.browser.get("/authentication/enrol").await,
            "GET /authentication/choices" => {
                half.browser.get(&format!("/authentication/choices?session_id={}", half.id)).await
            }
            "POST /authentication/authenticate totp, with the code of the new app" => {
                let more = [("method", "totp"), ("code", &*code)];
                half.browser.call("authenticate", half.client, &half.id, &more).await
            }
            "POST /authentication/complete" => half.browser.complete(half.client, &half.id).await,
            _ => panic!("{call}"),
        }
    }

    async fn state(&self) -> String {
        let mut browser = Browser { cookies: self.cookies.clone(), ..self.half.browser.clone() };
        let answer = browser.status(&self.half.id).await;
        if answer.status != 200 {
            return "-".to_owned();
        }
        let shown = answer.json();
        let enrolled = crate::enrolled::stored(&self.world, "u-lone").await.is_some_and(|row| {
            row["totp"].is_object() || row["passkeys"].as_array().is_some_and(|passkeys| !passkeys.is_empty())
        });
        let enrolled = if enrolled { " with a second factor" } else { "" };
        format!(
            "{} {}+{}{enrolled}",
            shown["status"].as_str().unwrap(),
            shown["completed_steps"],
            shown["remaining_steps"]
        )
    }
}

/// Replaces what is random in new keys and options.
fn own(answer: &Answer) -> String {
    let text = matrix::own(answer);
    let text = ["\"challenge\":\"", "\"user\":{\"id\":\"", "\"secret\":\"", "?secret="]
        .iter()
        .fold(text, |text, mark| after(&text, mark, |_| "<random>".to_owned()));
    match text.split_once("\"qr_svg\":\"") {
        Some((before, rest)) => {
            let end = rest.find("</svg>").unwrap();
            format!("{before}\"qr_svg\":\"<picture>{}", &rest[end + 6..])
        }
        None => text,
    }
}

#[tokio::test]
async fn b09_enrolments_in_every_state_of_a_login_respond_as_the_table_says() {
    compare(&table(STATES, CALLS, case_in, own).await, "enrol_matrix.txt");
}

//! Calls the endpoints of sign-up and reset in each of their states, and compares the responses with `life_matrix.txt`.

use serde_json::json;
use tollgate::{
    Tenant,
    auth::{Invitation, SignUp},
    store::Memory,
    user::EmailAddress,
};

use crate::{
    matrix::{Case, compare, table},
    reset,
    sign_up::{NEW, NEW_PASSWORD, newest},
    wire_text::after,
    world::{ADA, ADA_PHONE, Answer, Browser, World, parameters, query, with},
};

const CLIENT: &str = "mfa";

const STATES: &[&str] = &[
    "no login",
    "login begun with a name",
    "login begun without a name",
    "code sent",
    "address proved",
    "invitation accepted",
    "account created",
    "reset begun",
    "reset with one proof",
    "reset with two proofs",
    "reset link accepted",
    "password set",
    "reset of 10 min ago",
];

const CALLS: &[&str] = &[
    "POST /sign-up/code",
    "POST /sign-up/code of a known address",
    "POST /sign-up/verify right",
    "POST /sign-up/verify wrong",
    "GET /sign-up",
    "GET /sign-up for a client",
    "POST /sign-up/invitation, made up",
    "POST /sign-up/invitation, valid",
    "POST /sign-up/invitation, of a reset",
    "POST /sign-up",
    "POST /sign-up with a weak password",
    "GET /reset-password",
    "GET /reset-password for a client",
    "POST /reset-password/start",
    "POST /reset-password/start without a name",
    "POST /reset-password/link, made up",
    "POST /reset-password/link, valid",
    "POST /reset-password/link, of an invitation",
    "POST /reset-password",
    "POST /reset-password with a weak password",
    "POST /authentication/complete",
    "POST /authentication/enrol totp",
    "POST /authentication/authenticate password",
    "GET /authentication/choices",
    "GET /authentication/status",
];

struct LifeInState {
    world: World,
    browser: Browser,
    id: String,
    code: String,
}

async fn begun_in(state: &str) -> LifeInState {
    let world = World::with(Memory::new(), |service| service.sign_up(SignUp::Open).first_party(acme())).await;
    let mut browser = world.browser();
    let mut case = match state {
        "no login" | "login begun with a name" => {
            let id = browser.start(CLIENT, ADA).await;
            if state == "no login" {
                browser.cookies.clear();
            }
            LifeInState { world, browser, id, code: String::new() }
        }
        "reset link accepted" => {
            let id = reset::begin_unnamed(&mut browser, CLIENT).await;
            LifeInState { world, browser, id, code: String::new() }
        }
        state if state.starts_with("reset") || state == "password set" => {
            let id = reset::begin(&mut browser, CLIENT, "ada").await;
            LifeInState { world, browser, id, code: String::new() }
        }
        _ => {
            let mut body = parameters(CLIENT);
            body["continue_session"] = json!(false);
            let id =
                browser.post("/authentication/start", &body).await.json()["session_id"].as_str().unwrap().to_owned();
            LifeInState { world, browser, id, code: String::new() }
        }
    };
    let proofs = match state {
        "reset with one proof" => 1,
        "reset with two proofs" | "password set" => 2,
        _ => 0,
    };
    for (method, address) in [("email", ADA), ("sms", ADA_PHONE)].into_iter().take(proofs) {
        assert_eq!(case.browser.ask(CLIENT, &case.id, method, address).await.status, 200);
        let code = case.world.code(address).await;
        assert_eq!(case.browser.verify(CLIENT, &case.id, &code).await.status, 200);
    }
    if ["code sent", "address proved", "account created"].contains(&state) {
        assert_eq!(case.life("sign-up/code", &[("email", NEW)]).await.status, 200);
        case.code = case.world.code(NEW).await;
    }
    if ["address proved", "account created"].contains(&state) {
        let code = case.code.clone();
        assert_eq!(case.life("sign-up/verify", &[("otp", &code)]).await.status, 200);
    }
    match state {
        "invitation accepted" => {
            let link = case.invite().await;
            assert_eq!(case.life("sign-up/invitation", &[("link", &link)]).await.status, 200);
        }
        "reset link accepted" => {
            let link = case.reset_link().await;
            assert_eq!(case.life("reset-password/link", &[("link", &link)]).await.status, 200);
        }
        "account created" => assert_eq!(case.life("sign-up", &[("password", NEW_PASSWORD)]).await.status, 200),
        "password set" => {
            // plays a caller who kept a copy of the removed cookie
            let cookies = case.browser.cookies.clone();
            assert_eq!(case.life("reset-password", &[("password", NEW_PASSWORD)]).await.status, 200);
            case.browser.cookies = cookies;
        }
        "reset of 10 min ago" => case.world.advance(600),
        _ => {}
    }
    case
}

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

impl LifeInState {
    /// Returns the secret of an invitation.
    async fn invite(&self) -> String {
        let address = EmailAddress::parse("guest@example.com").unwrap();
        self.world.service.invite(&acme(), Invitation::new(address)).await.unwrap();
        let message = newest(&self.world, "guest@example.com").await;
        message.link().unwrap().url().split_once("#invitation=").unwrap().1.to_owned()
    }

    /// Returns the secret of a link with which ada can set a password.
    async fn reset_link(&self) -> String {
        let link = self.world.service.create_reset_link(&acme(), &"u-ada".parse().unwrap()).await.unwrap();
        link.unwrap().split_once("#reset=").unwrap().1.to_owned()
    }

    async fn life(&mut self, path: &str, more: &[(&str, &str)]) -> Answer {
        self.browser.life(path, CLIENT, &self.id, more).await
    }
}

impl Case for LifeInState {
    async fn call(&mut self, call: &str) -> Answer {
        let link = match call.split_once(", ") {
            Some((path, "valid")) if path.ends_with("invitation") => self.invite().await,
            Some((_, "of an invitation")) => self.invite().await,
            Some((_, "valid" | "of a reset")) => self.reset_link().await,
            _ => "A".repeat(43),
        };
        let code = if self.code.is_empty() { "123456".to_owned() } else { self.code.clone() };
        match call {
            "POST /sign-up/code" => self.life("sign-up/code", &[("email", "else@example.com")]).await,
            "POST /sign-up/code of a known address" => self.life("sign-up/code", &[("email", ADA)]).await,
            "POST /sign-up/verify right" => self.life("sign-up/verify", &[("otp", &code)]).await,
            "POST /sign-up/verify wrong" => self.life("sign-up/verify", &[("otp", "wrong")]).await,
            call if call.starts_with("POST /sign-up/invitation") => {
                self.life("sign-up/invitation", &[("link", &link)]).await
            }
            "POST /sign-up" => self.life("sign-up", &[("password", NEW_PASSWORD)]).await,
            "POST /sign-up with a weak password" => self.life("sign-up", &[("password", "short")]).await,
            call if call.starts_with("POST /reset-password/link") => {
                self.life("reset-password/link", &[("link", &link)]).await
            }
            "POST /reset-password/start" => {
                let body = with(parameters(CLIENT), &[("identifier", "grace")]);
                self.browser.post("/reset-password/start", &body).await
            }
            "POST /reset-password/start without a name" => {
                self.browser.post("/reset-password/start", &parameters(CLIENT)).await
            }
            "GET /sign-up" | "GET /reset-password" => {
                let mut answer = self.browser.get(&call["GET ".len()..]).await;
                // the PKCE challenge of the site is random
                let location = after(answer.header("location"), "code_challenge=", |_| "<challenge>".to_owned());
                answer.headers.insert("location", location.parse().unwrap());
                answer
            }
            "GET /sign-up for a client" => self.browser.get(&format!("/sign-up?{}", query(CLIENT))).await,
            "GET /reset-password for a client" => self.browser.get(&format!("/reset-password?{}", query(CLIENT))).await,
            "POST /reset-password" => self.life("reset-password", &[("password", NEW_PASSWORD)]).await,
            "POST /reset-password with a weak password" => self.life("reset-password", &[("password", "short")]).await,
            "POST /authentication/complete" => self.browser.complete(CLIENT, &self.id).await,
            "POST /authentication/enrol totp" => self.life("authentication/enrol", &[("method", "totp")]).await,
            "POST /authentication/authenticate password" => {
                self.browser.password(CLIENT, &self.id, "ada", "wrong").await
            }
            "GET /authentication/choices" => {
                self.browser.get(&format!("/authentication/choices?session_id={}", self.id)).await
            }
            "GET /authentication/status" => self.browser.status(&self.id).await,
            _ => panic!("{call}"),
        }
    }

    async fn state(&self) -> String {
        let answer = self.browser.clone().status(&self.id).await;
        if answer.status != 200 {
            return "-".to_owned();
        }
        let shown = answer.json();
        format!("{} {}+{}", shown["status"].as_str().unwrap(), shown["completed_steps"], shown["remaining_steps"])
    }
}

#[tokio::test]
async fn c127_c128_c129_every_call_of_sign_up_and_reset_in_every_state() {
    compare(&table(STATES, CALLS, begun_in, crate::matrix::own).await, "life_matrix.txt");
}

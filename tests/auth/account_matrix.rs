//! Calls about the account itself in every state of the session, and compares the responses with a table.
//!
//! `account_matrix.txt` contains the expected text. It is written like `matrix.txt`.

use http::Request;
use serde_json::json;
use tollgate::Users;

use crate::{
    matrix::{Case, compare, own, table},
    own_account::{LONE, acme, ada, sessions, sign_in, site},
    world::{ADA, Answer, Browser, World},
};

const STATES: &[&str] = &[
    "signed out",
    "two fresh proofs",
    "one fresh proof of two factors",
    "password and mailbox",
    "proofs 5 min old",
    "one factor",
    "a code was sent",
    "the code was used",
    "the code is 10 min old",
    "signed out elsewhere",
    "account disabled",
    "account deleted",
    "password changed by the application",
];

const CALLS: &[&str] = &[
    "POST /account/password",
    "POST /account/password, too short",
    "POST /account/password without one",
    "POST /account/password from another site",
    "GET /account/password",
    "POST /account/name",
    "POST /account/name from another site",
    "POST /account/contacts/begin, e-mail",
    "POST /account/contacts/begin, phone",
    "POST /account/contacts/begin, of another account",
    "POST /account/contacts/begin without one",
    "POST /account/contacts/begin from another site",
    "POST /account/contacts, right",
    "POST /account/contacts, wrong",
    "POST /account/contacts from another site",
    "POST /account/delete",
    "POST /account/delete, not confirmed",
    "POST /account/delete from another site",
    "GET /.well-known/change-password",
];

const NEW: &str = "lovelace@example.com";

struct AccountCase {
    world: World,
    browser: Browser,
    user: &'static str,
    code: String,
}

async fn case_in(state: &str) -> AccountCase {
    let world = site(|service| service).await;
    let (who, user) = if state == "one factor" { (LONE, "u-lone") } else { (ADA, "u-ada") };
    let browser = match state {
        "signed out" => world.browser(),
        "password and mailbox" => ada(&world).await,
        "one factor" | "one fresh proof of two factors" => sign_in(&world, who, &["password"]).await,
        _ => sign_in(&world, who, &["password", "sms"]).await,
    };
    let mut case = AccountCase { world, browser, user, code: "123456".to_owned() };
    let id = case.user.parse().unwrap();
    match state {
        "proofs 5 min old" => case.world.advance(300),
        "a code was sent" | "the code was used" | "the code is 10 min old" => {
            assert_eq!(case.call("POST /account/contacts/begin, e-mail").await.status, 200);
            case.code = case.world.code(NEW).await;
            match state {
                "the code was used" => assert_eq!(case.call("POST /account/contacts, right").await.status, 204),
                "the code is 10 min old" => case.world.advance(600),
                _ => {}
            }
        }
        "signed out elsewhere" => drop(case.world.sessions.end_user(&acme(), &id).await.unwrap()),
        "account disabled" => case.world.users.disable(&acme(), &id).await.unwrap(),
        "account deleted" => case.world.users.remove(&acme(), &id).await.unwrap(),
        "password changed by the application" => {
            let new = tollgate::Passwords::insecure_fast().hash(tollgate::Password::new("another one")).await.unwrap();
            case.world.users.set_password(&acme(), &id, Some(new)).await.unwrap();
        }
        _ => {}
    }
    case
}

impl Case for AccountCase {
    async fn call(&mut self, call: &str) -> Answer {
        let (path, _) =
            call.split_once(' ').unwrap().1.split_once([',', ' ']).unwrap_or((call.split_once(' ').unwrap().1, ""));
        let body = match call {
            "POST /account/password" | "POST /account/password from another site" => {
                json!({ "new_password": "gravel under moonlight" })
            }
            "POST /account/password, too short" => json!({ "new_password": "short" }),
            "POST /account/name" | "POST /account/name from another site" => json!({ "name": "Ada Lovelace" }),
            "POST /account/contacts/begin, e-mail" | "POST /account/contacts/begin from another site" => {
                json!({ "email": NEW })
            }
            "POST /account/contacts/begin, phone" => json!({ "phone_number": "+15555550177" }),
            "POST /account/contacts/begin, of another account" => json!({ "email": "grace@example.com" }),
            "POST /account/contacts, right" | "POST /account/contacts from another site" => {
                json!({ "code": self.code })
            }
            "POST /account/contacts, wrong" => json!({ "code": "1234567" }),
            "POST /account/delete" | "POST /account/delete from another site" => json!({ "confirmed": true }),
            _ => json!({}),
        };
        if call.starts_with("GET") {
            return self.browser.get(path).await;
        }
        let site = if call.ends_with("from another site") { "cross-site" } else { "same-origin" };
        let request = Request::post(path).header("sec-fetch-site", site);
        self.browser.send(request.header("content-type", "application/json"), body.to_string()).await
    }

    async fn state(&self) -> String {
        let account = self.world.users.by_id(&acme(), &self.user.parse().unwrap()).await.unwrap();
        let Some(account) = account else { return "no account".to_owned() };
        let name = if account.display_name().is_some() { " with a name" } else { "" };
        let contacts = account.contacts().count();
        format!("{} sessions, {contacts} contacts{name}", sessions(&self.world, self.user).await.len())
    }
}

#[tokio::test]
async fn c130_c132_calls_about_the_account_respond_as_the_table_says() {
    compare(&table(STATES, CALLS, case_in, own).await, "account_matrix.txt");
}

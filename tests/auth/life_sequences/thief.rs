//! The calls of the thief.

use http::Request;
use serde_json::{Value, json};

use super::{
    scene::{Login, Scene},
    steps::{ADDRESSES, AccountCall, Another, CLIENTS, LoginCall, NAMES, PHONES, READ, THIEF, THIEF_PHONE},
};
use crate::{
    own_account::{call, totp},
    random_provider::{PROVIDERS, Visit},
    reset::FRESH,
    world::{Answer, Browser, parameters, with},
};

/// The person of a provider that the thief is.
const STRANGER: usize = 7;

impl Scene {
    pub(super) async fn start(&mut self, browser: usize, place: usize, name: Option<usize>, is_reset: bool) {
        // only the newest two and this one, because chance decides which of several ended logins makes room for a fifth
        for old in self.logins.iter().filter(|login| login.browser == browser).rev().skip(2) {
            let id = old.fields["session_id"].as_str().unwrap();
            self.thief[browser].cookies.remove(&format!("__Host-auth_session_{}", &id[..8]));
        }
        let fields = match CLIENTS.get(place) {
            Some(client) => Some(parameters(client)),
            None => entry(self.at_site(browser, place - 3), ["/sign-in?steps=1", "/sign-in?steps=2"][browser]).await,
        };
        let Some(mut fields) = fields else { return };
        if let Some(name) = name {
            fields = with(fields, &[("identifier", NAMES[name])]);
        }
        let path = if is_reset { "/reset-password/start" } else { "/authentication/start" };
        let answer = self.at_site(browser, place.saturating_sub(3)).post(path, &fields).await;
        if answer.status == 200 {
            fields["session_id"] = answer.json()["session_id"].clone();
            self.logins.push(Login { browser, site: usize::from([2, 4].contains(&place)), fields, invitation: None });
        }
        self.note(path, &answer);
    }

    pub(super) async fn call_login(&mut self, login: usize, as_another: Option<Another>, call: &LoginCall) {
        let Some(place) = self.logins.len().checked_sub(1 + login) else { return };
        let Login { mut browser, site, mut fields, invitation } = self.logins[place].clone();
        match as_another {
            Some(Another::Browser) => browser = 1 - browser,
            Some(Another::Tenant) => {
                let client = if fields["client_id"] == "other" { "web" } else { "other" };
                fields = with(parameters(client), &[("session_id", fields["session_id"].as_str().unwrap())]);
            }
            None => {}
        }
        let code = match call {
            LoginCall::Verify(mailbox) | LoginCall::SignUpVerify(mailbox) => self.newest_code(READ[*mailbox]).await,
            LoginCall::App | LoginCall::ConfirmEnrolment => totp(&self.thiefs_app, self.sites[0].time()),
            LoginCall::Invitation(at) | LoginCall::ResetLink(at) => {
                self.links.iter().rev().nth(*at).map_or("A".repeat(43), |link| link.secret.clone())
            }
            _ => String::new(),
        };
        let (path, more): (&str, Vec<(&str, &str)>) = match call {
            LoginCall::Ask(to) => ("authentication/authenticate", vec![("method", "email"), ("email", ADDRESSES[*to])]),
            LoginCall::AskPhone(to) => {
                ("authentication/authenticate", vec![("method", "sms"), ("phone_number", PHONES[*to])])
            }
            LoginCall::Verify(_) => ("authentication/verify-otp", vec![("otp", &code)]),
            LoginCall::Password(name) => {
                let more = vec![("method", "password"), ("username", NAMES[*name]), ("password", FRESH)];
                ("authentication/authenticate", more)
            }
            LoginCall::App => ("authentication/authenticate", vec![("method", "totp"), ("code", &code)]),
            LoginCall::RecoveryCode => {
                ("authentication/authenticate", vec![("method", "recovery_code"), ("code", "abcd-efgh-jkmn")])
            }
            LoginCall::SignUpCode(to) => ("sign-up/code", vec![("email", ADDRESSES[*to])]),
            LoginCall::SignUpVerify(_) => ("sign-up/verify", vec![("otp", &code)]),
            LoginCall::Invitation(_) => ("sign-up/invitation", vec![("link", &code)]),
            LoginCall::ResetLink(_) => ("reset-password/link", vec![("link", &code)]),
            LoginCall::Create => ("sign-up", vec![("password", FRESH)]),
            LoginCall::SetPassword => ("reset-password", vec![("password", FRESH)]),
            LoginCall::Enrol => ("authentication/enrol", vec![("method", "totp")]),
            LoginCall::ConfirmEnrolment => ("authentication/enrol", vec![("method", "totp"), ("code", &code)]),
            LoginCall::Choices => ("authentication/choices", Vec::new()),
            LoginCall::Complete => ("authentication/complete", Vec::new()),
        };
        let own = with(fields, &more);
        let answer = match call {
            LoginCall::Choices => {
                let id = own["session_id"].as_str().unwrap();
                self.at_site(browser, 0).get(&format!("/{path}?session_id={id}")).await
            }
            _ => self.at_site(browser, 0).post(&format!("/{path}"), &own).await,
        };
        let is_accepted = answer.status == 200;
        if let LoginCall::Invitation(at) | LoginCall::ResetLink(at) = call
            && let Some(link) = self.links.iter_mut().rev().nth(*at).filter(|_| is_accepted)
        {
            let is_right = link.site == site && link.is_reset == matches!(call, LoginCall::ResetLink(_));
            // an invitation is used by its account
            if !is_right || link.is_used {
                self.faults
                    .push(format!("a link of the site {} was accepted at the site {site} by {call:?}", link.site));
            }
            link.is_used |= link.is_reset;
        }
        match call {
            LoginCall::Invitation(at) if is_accepted => {
                self.logins[place].invitation = self.links.len().checked_sub(1 + at);
            }
            LoginCall::SignUpVerify(_) if is_accepted => self.logins[place].invitation = None,
            LoginCall::Create if is_accepted => {
                if let Some(link) = invitation.and_then(|at| self.links.get_mut(at))
                    && std::mem::replace(&mut link.is_used, true)
                {
                    self.faults.push(format!("an invitation to the site {site} has created a second account"));
                }
            }
            _ => {}
        }
        if is_accepted && as_another.is_some() && !matches!(call, LoginCall::Choices) {
            self.faults.push(format!("{call:?} as {as_another:?}"));
        }
        if matches!(call, LoginCall::Enrol) && is_accepted {
            self.thiefs_app = answer.json()["secret"].as_str().unwrap().to_owned();
        }
        self.note(path, &answer);
    }

    pub(super) async fn call_account(&mut self, browser: usize, site: usize, what: &AccountCall) {
        let shown = show(self.at_site(browser, site)).await;
        let (path, body) = match what {
            AccountCall::Show => return self.note("credentials", &shown),
            AccountCall::Contact { contact, replaces } => {
                let all = [ADDRESSES[0], THIEF, ADDRESSES[2], PHONES[0], THIEF_PHONE];
                let name = if *contact < 3 { "email" } else { "phone_number" };
                let mut body = json!({ name: all[*contact] });
                if let Some(place) = replaces {
                    body["contact_id"] = shown.json()["contacts"][place]["id"].clone();
                }
                ("contacts/begin", body)
            }
            AccountCall::Confirm(mailbox) => ("contacts", json!({ "code": self.newest_code(READ[*mailbox]).await })),
            AccountCall::Password => ("password", json!({ "new_password": FRESH })),
            AccountCall::Name => ("name", json!({ "name": "Thief" })),
            AccountCall::App => ("totp/begin", json!({})),
            AccountCall::RemoveApp => ("totp/delete", json!({})),
            AccountCall::RecoveryCodes => ("recovery-codes", json!({})),
            AccountCall::Link => ("links/begin", json!({ "provider": PROVIDERS[0] })),
            AccountCall::RemoveLink => ("links/delete", json!({ "id": shown.json()["links"][0]["id"] })),
            AccountCall::EndOthers => ("sessions/end-others", json!({})),
            AccountCall::Delete => ("delete", json!({ "confirmed": true })),
        };
        let answer = call(self.at_site(browser, site), path, body).await;
        self.note(path, &answer);
        if answer.status != 200 {
            return;
        }
        match what {
            AccountCall::App => {
                self.thiefs_app = answer.json()["secret"].as_str().unwrap().to_owned();
                let code = totp(&self.thiefs_app, self.sites[0].time());
                let answer = call(self.at_site(browser, site), "totp", json!({ "code": code })).await;
                self.note("totp", &answer);
            }
            AccountCall::Link => {
                let visit = Visit::of(0, answer.json()["redirect_url"].as_str().unwrap());
                let fields = [("state", visit.state()), ("code", &*visit.code(STRANGER))];
                let answer = self.at_site(browser, site).get(&visit.callback(0, &fields)).await;
                if answer.header("location").ends_with("#link=ok") {
                    *self.reached.entry("linked".to_owned()).or_default() += 1;
                }
                self.note("link", &answer);
            }
            _ => {}
        }
    }
}

/// Opens the sign-in of a site, and returns the parameters of its login. Returns `None` if the browser is signed in.
pub(super) async fn entry(browser: &mut Browser, target: &str) -> Option<Value> {
    let answer = browser.get(target).await;
    let (_, query) = answer.header("location").split_once('?')?;
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(Value::Object(pairs.map(|(name, value)| (decoded(name), json!(decoded(value)))).collect()))
}

/// Asks for what the account page shows.
pub(super) async fn show(browser: &mut Browser) -> Answer {
    browser.send(Request::get("/account/credentials").header("sec-fetch-site", "same-origin"), "").await
}

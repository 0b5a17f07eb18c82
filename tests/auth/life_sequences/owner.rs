//! The calls of ada about her own account.

use serde_json::{Value, json};
use tollgate::Users;

use super::{
    scene::{Scene, ada},
    steps::OwnerCall,
    thief::{entry, show},
};
use crate::{
    enrolled,
    own_account::{acme, call, totp},
    reset,
    world::{ADA, ADA_PHONE, Answer, with},
};

impl Scene {
    /// Performs a call of ada, which fails while strangers have locked her account. Returns whether it was done.
    pub(super) async fn act_as_owner(&mut self, what: OwnerCall) -> bool {
        let what_is_done = match what {
            OwnerCall::Reset => self.reset_forgotten_password().await,
            _ => self.signs_in_by_two_factors().await.is_ok() && self.change_own_account(what).await,
        };
        self.sites[0].settle().await;
        if what_is_done {
            *self.reached.entry(format!("owner {what:?}")).or_default() += 1;
        }
        what_is_done
    }

    /// Signs ada in with her password, and her app or phone. Returns the answer that refuses it.
    pub(super) async fn signs_in_by_two_factors(&mut self) -> Result<(), Answer> {
        // for another code
        self.sites[0].advance(31);
        let fields = entry(&mut self.owner, "/sign-in?steps=2&max_age=0").await.unwrap();
        let started = self.owner.post("/authentication/start", &with(fields.clone(), &[("identifier", "ada")])).await;
        let id = done(started)?.json()["session_id"].as_str().unwrap().to_owned();
        let own = with(fields, &[("session_id", &id)]);
        let typed = [("method", "password"), ("username", "ada"), ("password", &*self.password)];
        done(self.owner.post("/authentication/authenticate", &with(own.clone(), &typed)).await)?;
        self.proves_app_or_phone(&own).await?;
        done(self.owner.post("/authentication/complete", &own).await)?;
        let finished = self.owner.get("/sign-in/finish").await;
        if finished.header("location") != "/" {
            return Err(finished);
        }
        let shown = show(&mut self.owner).await.json();
        let sessions = shown["sessions"].as_array().unwrap();
        let sid = sessions.iter().find(|session| session["current"] == true).unwrap()["sid"].as_str().unwrap();
        self.own_sessions.push(sid.to_owned());
        Ok(())
    }

    async fn proves_app_or_phone(&mut self, own: &Value) -> Result<Answer, Answer> {
        let path = "/authentication/authenticate";
        if let Some(key) = &self.app {
            let code = totp(key, self.sites[0].time());
            let typed = with(own.clone(), &[("method", "totp"), ("code", &code)]);
            return done(self.owner.post(path, &typed).await);
        }
        done(self.owner.post(path, &with(own.clone(), &[("method", "sms"), ("phone_number", ADA_PHONE)])).await)?;
        let code = self.newest_code(ADA_PHONE).await;
        done(self.owner.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await)
    }

    /// Sets a new password with the mailbox, and the app or phone.
    async fn reset_forgotten_password(&mut self) -> bool {
        self.sites[0].advance(31);
        let id = reset::begin(&mut self.owner, "web", "ada").await;
        let own = with(crate::world::parameters("web"), &[("session_id", &id)]);
        let mailbox = self.mailbox().await;
        let asked = with(own.clone(), &[("method", "email"), ("email", &mailbox)]);
        self.owner.post("/authentication/authenticate", &asked).await;
        let code = self.newest_code(&mailbox).await;
        let proved = self.owner.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await;
        if proved.status != 200 || self.proves_app_or_phone(&own).await.is_err() {
            return false;
        }
        let new = self.new_password();
        let is_set = self.owner.post("/reset-password", &with(own, &[("password", &new)])).await.status == 200;
        if is_set {
            self.password = new;
        }
        is_set
    }

    async fn change_own_account(&mut self, what: OwnerCall) -> bool {
        match what {
            OwnerCall::SignIn | OwnerCall::Reset => true,
            OwnerCall::Password => {
                let new = self.new_password();
                let done = call(&mut self.owner, "password", json!({ "new_password": new })).await.status == 204;
                if done {
                    self.password = new;
                }
                done
            }
            OwnerCall::Name => {
                self.changes += 1;
                let name = format!("Ada {}", self.changes);
                call(&mut self.owner, "name", json!({ "name": name })).await.status == 204
            }
            OwnerCall::Email => {
                self.changes += 1;
                let address = format!("lovelace{}@example.com", self.changes);
                let shown = show(&mut self.owner).await.json();
                let contacts = shown["contacts"].as_array().unwrap();
                let old = &contacts.iter().find(|contact| contact["kind"] == "email").unwrap()["id"];
                let body = json!({ "email": address, "contact_id": old });
                call(&mut self.owner, "contacts/begin", body).await;
                let code = self.newest_code(&address).await;
                call(&mut self.owner, "contacts", json!({ "code": code })).await.status == 204
            }
            OwnerCall::App => {
                let begun = call(&mut self.owner, "totp/begin", json!({})).await;
                let Some(key) = begun.json()["secret"].as_str().map(str::to_owned) else { return false };
                let code = totp(&key, self.sites[0].time());
                let done = call(&mut self.owner, "totp", json!({ "code": code })).await.status.is_success();
                if done {
                    self.app = Some(key);
                }
                done
            }
            OwnerCall::RemoveApp => {
                let done = call(&mut self.owner, "totp/delete", json!({})).await.status.is_success();
                if done {
                    self.app = None;
                }
                done
            }
            OwnerCall::RecoveryCodes => call(&mut self.owner, "recovery-codes", json!({})).await.status.is_success(),
            OwnerCall::Delete => call(&mut self.owner, "delete", json!({ "confirmed": true })).await.status == 204,
        }
    }

    fn new_password(&mut self) -> String {
        self.changes += 1;
        format!("a phrase that only she knows, {}", self.changes)
    }

    /// Returns the address of ada.
    async fn mailbox(&self) -> String {
        let account = self.sites[0].users.by_id(&acme(), &ada()).await.unwrap();
        let account =
            account.as_ref().map(|account| account.contacts().map(|(contact, _)| contact.as_str().to_owned()));
        account.into_iter().flatten().find(|contact| contact.contains('@')).unwrap_or_else(|| ADA.to_owned())
    }

    /// Returns what of the account must not change: all of it except the full name, which needs no fresh proofs.
    pub(super) async fn account(&self) -> Option<Kept> {
        let account = self.sites[0].users.by_id(&acme(), &ada()).await.unwrap()?;
        let row = enrolled::stored(&self.sites[0], "u-ada").await.unwrap_or_default();
        let mut contacts: Vec<_> = account.contacts().map(|(contact, _)| contact.as_str().to_owned()).collect();
        contacts.sort();
        Some(Kept {
            name: account.display_name().map(str::to_owned),
            password: account.password_hash().map(|hash| hash.as_str().to_owned()),
            contacts,
            factors: ["secret", "enrolment"].map(|part| row["totp"][part].to_string()).join(" ")
                + &row["recovery"].to_string()
                + &row["links"].to_string()
                + &row["passkeys"].to_string(),
        })
    }
}

fn done(answer: Answer) -> Result<Answer, Answer> {
    if answer.status == 200 { Ok(answer) } else { Err(answer) }
}

/// The account of ada, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) name: Option<String>,
    pub(super) password: Option<String>,
    pub(super) contacts: Vec<String>,
    pub(super) factors: String,
}

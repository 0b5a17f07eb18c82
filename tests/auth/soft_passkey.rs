//! An authenticator in software, and worlds whose users have passkeys.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::Request;
use serde_json::{Value, json};
use tollgate::{
    SecretDigest, Tenant,
    auth::{AuthServiceBuilder, Passkeys},
    store::Memory,
};

use crate::world::{ADA_PASSWORD, Answer, Browser, GRACE, GRACE_PASSWORD, World, parameters, with};

pub(crate) const RP_ID: &str = "auth.example";
pub(crate) const ORIGIN: &str = "https://auth.example";
/// Present, verified, can be backed up, and is.
pub(crate) const SYNCED: u8 = 0x01 | 0x04 | 0x08 | 0x10;

/// A passkey, with everything that an authenticator or a browser might state wrongly.
pub(crate) struct SoftPasskey {
    key: EcdsaKeyPair,
    pub(crate) id: Vec<u8>,
    pub(crate) handle: Vec<u8>,
    pub(crate) rp_id: String,
    pub(crate) origin: String,
    pub(crate) flags: u8,
    /// Sent as it is. Synced passkeys always send zero.
    pub(crate) count: u32,
    pub(crate) cross_origin: bool,
}

fn random(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

pub(crate) fn text(bytes: &[u8]) -> String {
    BASE64URL.encode(bytes)
}

pub(crate) fn bytes(text: &Value) -> Vec<u8> {
    BASE64URL.decode(text.as_str().unwrap()).unwrap()
}

impl SoftPasskey {
    /// Creates a passkey that no service knows.
    pub(crate) fn new() -> Self {
        Self {
            key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap(),
            id: random(16),
            handle: random(32),
            rp_id: RP_ID.to_owned(),
            origin: ORIGIN.to_owned(),
            flags: SYNCED,
            count: 0,
            cross_origin: false,
        }
    }

    /// Answers the options for a new passkey.
    pub(crate) fn create(&mut self, options: &Value) -> Value {
        let options = &options["publicKey"];
        self.handle = bytes(&options["user"]["id"]);
        let len = u16::try_from(self.id.len()).unwrap().to_be_bytes();
        let data = [&self.data(0x40)[..], &[0; 16], &len, &self.id, &self.public_key()].concat();
        let head = [0x58, u8::try_from(data.len()).unwrap()];
        let object = [&b"\xa3cfmtdnonegattStmt\xa0hauthData"[..], &head, &data].concat();
        self.credential(&json!({
            "clientDataJSON": text(&self.client_data("webauthn.create", &options["challenge"])),
            "attestationObject": text(&object),
            "transports": ["internal"],
        }))
    }

    /// Returns the public key in the form of COSE.
    fn public_key(&self) -> Vec<u8> {
        let point = self.key.public_key().as_ref();
        let head = [0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20];
        [&head[..], &point[1..33], &[0x22, 0x58, 0x20], &point[33..]].concat()
    }

    /// Returns this passkey as the service stores it, enrolled with this strength.
    pub(crate) fn stored(&self, strength: u8) -> Value {
        json!({
            "id": text(&self.id),
            "public_key": text(&self.public_key()),
            "algorithm": -7,
            "sign_count": self.count,
            "backup_eligible": true,
            "backed_up": true,
            "user_verified": true,
            "transports": ["internal"],
            "name": "phone",
            "created_at": 0,
            "last_used_at": null,
            "strength": strength,
        })
    }

    /// Signs a challenge.
    pub(crate) fn get(&self, options: &Value) -> Value {
        let client_data = self.client_data("webauthn.get", &options["challenge"]);
        let data = self.data(0);
        let signed = [&data[..], SecretDigest::of_secret(&client_data).as_bytes()].concat();
        let signature = self.key.sign(&SystemRandom::new(), &signed).unwrap();
        self.credential(&json!({
            "clientDataJSON": text(&client_data),
            "authenticatorData": text(&data),
            "signature": text(signature.as_ref()),
            "userHandle": text(&self.handle),
        }))
    }

    fn credential(&self, response: &Value) -> Value {
        json!({
            "id": text(&self.id),
            "rawId": text(&self.id),
            "type": "public-key",
            "response": response,
            "clientExtensionResults": {},
            "authenticatorAttachment": "platform",
        })
    }

    fn client_data(&self, kind: &str, challenge: &Value) -> Vec<u8> {
        let data = json!({
            "type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": self.cross_origin,
        });
        data.to_string().into_bytes()
    }

    fn data(&self, more_flags: u8) -> Vec<u8> {
        let hash = SecretDigest::of_secret(&self.rp_id);
        [&hash.as_bytes()[..], &[self.flags | more_flags], &self.count.to_be_bytes()].concat()
    }
}

pub(crate) async fn world() -> World {
    world_with(Passkeys::new(RP_ID), |service| service).await
}

pub(crate) async fn world_with(
    passkeys: Passkeys,
    more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder,
) -> World {
    let acme: Tenant = "acme".parse().unwrap();
    World::with(Memory::new(), |service| more(service.first_party(acme).passkeys(passkeys))).await
}

/// Returns the query of a redirect as an object.
pub(crate) fn query(answer: &Answer) -> Value {
    let (_, query) = answer.header("location").split_once('?').unwrap();
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    Value::Object(pairs.map(|(name, value)| (decoded(name), json!(decoded(value)))).collect())
}

/// Signs in to the site with a fresh password and a code by e-mail.
pub(crate) async fn sign_in_fresh(world: &World, browser: &mut Browser, who: &str) {
    let begun = browser.get("/sign-in?return_to=%2Faccount%2Fsecurity&max_age=0&steps=2").await;
    let fields = query(&begun);
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", who)])).await;
    assert_eq!(started.json()["required_steps"], 2, "{started:?}");
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    let own = with(fields, &[("session_id", &id)]);
    let password = if who == GRACE { GRACE_PASSWORD } else { ADA_PASSWORD };
    let step = with(own.clone(), &[("method", "password"), ("username", who), ("password", password)]);
    assert_eq!(browser.post("/authentication/authenticate", &step).await.status, 200);
    let step = with(own.clone(), &[("method", "email"), ("email", who)]);
    assert_eq!(browser.post("/authentication/authenticate", &step).await.status, 200);
    let code = world.code(who).await;
    assert_eq!(browser.post("/authentication/verify-otp", &with(own.clone(), &[("otp", &code)])).await.status, 200);
    assert_eq!(browser.post("/authentication/complete", &own).await.status, 200);
    assert_eq!(browser.get("/sign-in/finish").await.status, 303);
}

/// Posts JSON like a page of this site.
pub(crate) async fn account(browser: &mut Browser, path: &str, body: &Value) -> Answer {
    let request =
        Request::post(path).header("content-type", "application/json").header("sec-fetch-site", "same-origin");
    browser.send(request, body.to_string()).await
}

/// Adds a passkey to the account that is signed in.
pub(crate) async fn add(browser: &mut Browser, passkey: &mut SoftPasskey) -> Answer {
    let options = account(browser, "/account/passkeys/options", &json!({})).await;
    assert_eq!(options.status, 200, "{options:?}");
    let response = passkey.create(&options.json());
    account(browser, "/account/passkeys", &json!({ "name": "phone", "response": response })).await
}

/// Creates a passkey of this user, enrolled with two proofs.
pub(crate) async fn enrolled(world: &World, who: &str) -> SoftPasskey {
    let (mut browser, mut passkey) = (world.browser(), SoftPasskey::new());
    sign_in_fresh(world, &mut browser, who).await;
    let added = add(&mut browser, &mut passkey).await;
    assert_eq!(added.status, 201, "{added:?}");
    passkey
}

/// A login that was started, and its challenge.
pub(crate) struct Begun {
    pub(crate) client: &'static str,
    pub(crate) id: String,
    pub(crate) options: Value,
}

/// Begins a login with or without a name.
pub(crate) async fn begin(browser: &mut Browser, client: &'static str, identifier: Option<&str>) -> Begun {
    let mut body = parameters(client);
    if let Some(identifier) = identifier {
        body["identifier"] = json!(identifier);
    }
    let started = browser.post("/authentication/start", &body).await;
    assert_eq!(started.status, 200, "{started:?}");
    let json = started.json();
    let id = json["session_id"].as_str().unwrap().to_owned();
    Begun { client, id, options: json["challenges"]["passkey"].clone() }
}

impl Begun {
    /// Posts a response to the challenge.
    pub(crate) async fn post(&self, browser: &mut Browser, response: &Value) -> Answer {
        self.send(browser, &json!({ "challenge": self.options["challenge"], "response": response })).await
    }

    /// Posts these members for the method `passkey`.
    pub(crate) async fn send(&self, browser: &mut Browser, members: &Value) -> Answer {
        let mut body = with(parameters(self.client), &[("session_id", &self.id), ("method", "passkey")]);
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        browser.post("/authentication/authenticate", &body).await
    }

    /// Asks for a new challenge.
    pub(crate) async fn renew(&mut self, browser: &mut Browser) -> Answer {
        let answer = self.send(browser, &json!({})).await;
        if answer.status == 200 {
            self.options = answer.json()["challenges"]["passkey"].clone();
        }
        answer
    }
}

pub(crate) async fn prove(browser: &mut Browser, begun: &Begun, passkey: &SoftPasskey) -> Answer {
    begun.post(browser, &passkey.get(&begun.options)).await
}

/// The status and the error of an answer.
pub(crate) fn outcome(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.error())
}

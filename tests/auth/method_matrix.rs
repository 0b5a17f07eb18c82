//! Calls what matters for passkeys and for other identity providers in every state of a login, and compares the responses
//! with a table.
//!
//! `method_matrix.txt` contains the expected text. It is written like `matrix.txt`.

use serde_json::{Value, json};
use tollgate::{auth::Passkeys, sso::SsoConnection, store::Memory, testing::ManualClock};

use crate::{
    enrolled::{self, enrol},
    matrix::{self, CLIENT, Case, FACTOR, LoginInState, STATES, brought_to, compare, table},
    soft_passkey::{Begun, RP_ID, SoftPasskey, begin, text},
    sso_provider::{Behavior, Provider, oidc, sent},
    wire_text::after,
    world::{ADA, Answer, World, challenge},
};

/// A login that has just started waits for a passkey already.
const MORE_STATES: &[&str] = &[
    "passkey challenge 5 min old",
    "wrong passkey sent",
    "one step done by passkey",
    "passkey challenge open at step two",
    "sso open",
    "refused at the provider",
    "one step done by sso",
    "sso open at step two",
];

const CALLS: &[&str] = &[
    "GET /authentication/start as JSON",
    "POST /authentication/start",
    "POST /authentication/authenticate passkey",
    "POST /authentication/authenticate passkey, right",
    "POST /authentication/authenticate passkey, of another account",
    "POST /authentication/authenticate passkey, signed in another login",
    "POST /authentication/authenticate passkey, malformed",
    "POST /authentication/authenticate sso",
    "POST /authentication/authenticate sso, known provider",
    "POST /authentication/authenticate sso, unknown provider",
    "GET /authentication/sso/idp/callback right",
    "GET /authentication/sso/idp/callback of another account",
    "GET /authentication/sso/idp/callback denied",
    "GET /authentication/status",
    "GET /authentication/choices",
    "POST /authentication/authenticate password, right",
    "POST /authentication/authenticate sms, right",
    "POST /authentication/verify-otp right",
    "POST /authentication/complete",
    "GET /authorize",
];

struct MethodCase {
    login: LoginInState,
    provider: Provider,
    /// Those of ada and grace.
    passkeys: [SoftPasskey; 2],
    /// The newest challenge for a passkey.
    options: Value,
    /// Where the user was sent to last.
    url: Option<String>,
}

async fn case_in(state: &str, provider: Provider, clock: ManualClock) -> MethodCase {
    let connection = SsoConnection::new(oidc(&provider)).label("Example ID");
    let with_both = World::on(Memory::new().into(), clock, |service| {
        let service = service.sso("idp", connection).passkeys(Passkeys::new(RP_ID));
        if state == FACTOR { service } else { enrolled::optional(service) }
    });
    let (world, passkeys) = (with_both.await, [SoftPasskey::new(), SoftPasskey::new()]);
    for (passkey, user, subject) in [(&passkeys[0], "u-ada", "ada-there"), (&passkeys[1], "u-grace", "grace-there")] {
        let link = json!({
            "issuer": provider.issuer(), "subject": subject, "provider": "idp", "name": "", "created_at": 0, "strength": 2,
        });
        let handle = text(&passkey.handle);
        enrol(&world, user, json!({ "handle": handle, "passkeys": [passkey.stored(2)], "links": [link] })).await;
    }
    let mut browser = world.browser();
    let Begun { id, options, .. } = begin(&mut browser, CLIENT, Some(ADA)).await;
    let first = match state {
        "passkey challenge open at step two" | "sso open at step two" => "one step done",
        state if MORE_STATES.contains(&state) => "started",
        state => state,
    };
    let login = brought_to(first, world, browser, id).await;
    let mut case = MethodCase { login, provider, passkeys, options, url: None };
    match state {
        "passkey challenge 5 min old" => case.login.world.advance(300),
        "wrong passkey sent" => assert_eq!(case.prove(1).await.error(), "invalid_assertion"),
        "one step done by passkey" => assert_eq!(case.prove(0).await.status, 200),
        "passkey challenge open at step two" => {
            let mut begun = case.begun();
            assert_eq!(begun.renew(&mut case.login.browser).await.status, 200);
            case.options = begun.options;
        }
        "sso open" | "sso open at step two" => case.leave().await,
        "refused at the provider" => {
            case.leave().await;
            assert!(case.come_back(denied).await.header("location").ends_with("#sso=denied"));
        }
        "one step done by sso" => {
            case.leave().await;
            assert!(case.come_back(|_| {}).await.header("location").ends_with("#sso=ok"));
        }
        _ => {}
    }
    case
}

fn denied(provider: &mut Behavior) {
    provider.callback = json!({ "code": null, "error": "access_denied" });
}

impl MethodCase {
    fn begun(&self) -> Begun {
        Begun { client: CLIENT, id: self.login.id.clone(), options: self.options.clone() }
    }

    /// Answers the newest challenge with the passkey of one of the users.
    async fn prove(&mut self, user: usize) -> Answer {
        let response = self.passkeys[user].get(&self.options);
        self.begun().post(&mut self.login.browser, &response).await
    }

    async fn leave(&mut self) {
        self.url = Some(sent(&mut self.login.browser, CLIENT, &self.login.id).await);
    }

    /// Comes back from the provider, which behaves like this. Users who were never sent there have made up a state.
    async fn come_back(&mut self, change: impl FnOnce(&mut Behavior)) -> Answer {
        self.provider.set(change);
        let target = match &self.url {
            Some(url) => self.provider.signs_in(url),
            None => format!("/authentication/sso/idp/callback?code=x&state={}.{}", self.login.id, challenge()),
        };
        let answer = self.login.browser.get(&target).await;
        self.provider.set(|provider| (provider.callback, provider.claims) = (json!({}), json!({})));
        answer
    }
}

impl Case for MethodCase {
    async fn call(&mut self, call: &str) -> Answer {
        let sso = async |case: &mut Self, provider| {
            let more = [("method", "sso"), ("provider", provider)];
            case.login.browser.call("authenticate", CLIENT, &case.login.id, &more).await
        };
        match call {
            "POST /authentication/authenticate passkey, right" => self.prove(0).await,
            "POST /authentication/authenticate passkey, of another account" => self.prove(1).await,
            "POST /authentication/authenticate passkey, signed in another login" => {
                let options = begin(&mut self.login.world.browser(), CLIENT, Some(ADA)).await.options;
                let response = self.passkeys[0].get(&options);
                Begun { options, ..self.begun() }.post(&mut self.login.browser, &response).await
            }
            "POST /authentication/authenticate passkey, malformed" => {
                self.begun().post(&mut self.login.browser, &json!({ "id": "AA" })).await
            }
            "POST /authentication/authenticate sso, known provider" => sso(self, "idp").await,
            "POST /authentication/authenticate sso, unknown provider" => sso(self, "other").await,
            "GET /authentication/sso/idp/callback right" => self.come_back(|_| {}).await,
            "GET /authentication/sso/idp/callback of another account" => {
                self.come_back(|provider| provider.claims = json!({ "sub": "grace-there" })).await
            }
            "GET /authentication/sso/idp/callback denied" => self.come_back(denied).await,
            call => self.login.call(call).await,
        }
    }

    async fn state(&self) -> String {
        self.login.state().await
    }
}

/// Replaces what is random in challenges and in URLs of the provider.
fn own(answer: &Answer) -> String {
    let text = matrix::own(answer);
    let text = after(&text, "\"challenge\":\"", |_| "<challenge>".to_owned());
    if !text.contains("\"redirect_url\":") {
        return text;
    }
    let text = after(&text, "\"redirect_url\":\"", |url| format!("<provider>{}", &url[url.rfind('/').unwrap()..]));
    let marks = ["&state=", "&nonce=", "&code_challenge="];
    marks.iter().fold(text, |text, mark| after(&text, mark, |_| "<random>".to_owned()))
}

#[tokio::test]
async fn passkeys_and_providers_in_every_state_respond_as_the_table_says() {
    let clock = ManualClock::new();
    let provider = Provider::start(&clock).await;
    let states = [STATES, MORE_STATES].concat();
    let begin = async |state: &str| case_in(state, provider.clone(), clock.clone()).await;
    compare(&table(&states, CALLS, begin, own).await, "method_matrix.txt");
}

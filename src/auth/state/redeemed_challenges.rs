//! Code challenges that were redeemed. A client that uses one again does not create fresh ones, so anybody who has seen a
//! verifier could redeem its codes (RFC 9700 §2.1.1).

use std::{sync::Arc, time::Duration};

use crate::{
    login::Binding,
    store::{
        AnyStore, StoreError,
        table::{RowOperation, Table},
    },
    util::{clock::Clock, secret::SecretDigest},
};

/// How long challenges are remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub(crate) struct RedeemedChallenges(Table<()>);

impl RedeemedChallenges {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "redeemed_challenges", clock))
    }

    /// Remembers that a code for this binding was redeemed.
    pub(crate) async fn note_redeemed(&self, binding: &Binding) -> Result<(), StoreError> {
        let (id, kept_until) = (id(binding), self.0.now() + REMEMBERED);
        // one that is remembered already keeps its time
        self.0.insert(None, id.as_bytes(), &(), kept_until).await.map(|_| ())
    }

    /// Returns the operation that reads whether a code for this binding was redeemed.
    pub(crate) fn prepare_challenge_read(&self, binding: &Binding) -> Result<RowOperation<'_, ()>, StoreError> {
        self.0.prepare_row_read(None, id(binding).as_bytes())
    }

    pub(crate) async fn is_redeemed(&self, binding: &Binding) -> Result<bool, StoreError> {
        Ok(self.0.get(None, id(binding).as_bytes()).wait().await?.is_some())
    }
}

/// Each client has its own challenges.
fn id(binding: &Binding) -> SecretDigest {
    SecretDigest::of_secret([binding.code_challenge.as_str(), &*binding.client_id].join(" "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Request, Response, StatusCode};
    use tower::ServiceExt;

    use crate::{
        auth::AuthService,
        client::{Client, ClientTable, Scopes},
        http::body::Body,
        login::Binding,
        pkce::CodeChallenge,
        store::{AnyStore, Memory},
        tenant::ClientIp,
        testing::ManualClock,
        user::StoredUsers,
    };

    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    const CALLBACK: &str = "https://app.example/callback";

    fn service(clock: &ManualClock) -> AuthService {
        let client = |id| {
            let client = Client::new(id, "acme".parse().unwrap()).unwrap();
            client.redirect_uri(CALLBACK).unwrap().scopes("openid").unwrap()
        };
        let store = AnyStore::from(Memory::new());
        let clients = ClientTable::new([client("web"), client("shop")]).unwrap();
        AuthService::builder("https://auth.example", store.clone())
            .clients(clients)
            .users(StoredUsers::new(store))
            .client_ip(ClientIp::peer())
            .clock(clock.clone())
            .build()
            .unwrap()
    }

    async fn send(service: &AuthService, request: http::request::Builder, body: String) -> Response<Body> {
        service.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn c024_a_redeemed_challenge_cannot_begin_another_login_of_its_client() {
        let clock = ManualClock::new();
        let service = service(&clock);
        let query = |client: &str| {
            format!(
                "client_id={client}&redirect_uri=https%3A%2F%2Fapp.example%2Fcallback&response_type=code\
                 &scope=openid&code_challenge={CHALLENGE}&code_challenge_method=S256"
            )
        };
        let refused = async |client: &str| {
            let request = Request::get(format!("/authorize?{}", query(client))).header("accept", "text/html");
            let answer = send(&service, request, String::new()).await;
            let location = answer.headers()["location"].to_str().unwrap().to_owned();
            let told = location.starts_with(&format!("{CALLBACK}?error=invalid_request&"));
            assert_eq!(told, !location.starts_with("/authentication/start?"), "{location}");
            let body = format!(
                r#"{{"identifier":"ada","client_id":"{client}","redirect_uri":"{CALLBACK}","response_type":"code",
                    "scope":"openid","code_challenge":"{CHALLENGE}","code_challenge_method":"S256"}}"#
            );
            let request = Request::post("/authentication/start").header("content-type", "application/json");
            let started = send(&service, request, body).await.status() != StatusCode::OK;
            let request = Request::post("/par").header("content-type", "application/x-www-form-urlencoded");
            let pushed = send(&service, request, query(client)).await.status() != StatusCode::CREATED;
            assert_eq!((started, pushed), (told, told));
            told
        };
        assert!(!refused("web").await);
        let binding = Binding {
            client_id: "web".to_owned(),
            redirect_uri: CALLBACK.to_owned(),
            scope: Scopes::parse("openid").unwrap(),
            code_challenge: CodeChallenge::parse(CHALLENGE).unwrap(),
        };
        service.0.redeemed_challenges.note_redeemed(&binding).await.unwrap();
        assert!(refused("web").await && !refused("shop").await);
        clock.advance(Duration::from_secs(24 * 3600 - 1));
        assert!(refused("web").await);
        clock.advance(Duration::from_secs(1));
        assert!(!refused("web").await);
    }
}

//! Claims that the application adds to tokens and `/userinfo`.

use std::convert::Infallible;

use http::{Request, Response};
use serde_json::{Value, json};
use tollgate::{
    AccessToken, AuthService, BearerLayer, ClientIp, ClientTable, Identifier, Passwords, StoredUsers, Tenant, Tokens,
    UserId, Users,
    body::Body,
    store::{StoreError, StoreErrorKind},
    user::{Account, ClaimTarget, Claims, ClaimsRequest},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    issued_tokens::{IssuedTokens, claims},
    world::{CALLBACK, ISSUER, World},
};

/// Adds roles for clients with that scope, a department for clients that request it, and a picture at userinfo.
struct WithRoles {
    users: StoredUsers,
    fails: bool,
}

impl Users for WithRoles {
    type Error = StoreError;

    async fn find(&self, tenant: &Tenant, identifier: &Identifier) -> Result<Option<Account>, StoreError> {
        self.users.find(tenant, identifier).await
    }

    async fn by_id(&self, tenant: &Tenant, id: &UserId) -> Result<Option<Account>, StoreError> {
        self.users.by_id(tenant, id).await
    }

    async fn claims(&self, _: &Tenant, account: &Account, request: &ClaimsRequest) -> Result<Claims, StoreError> {
        if self.fails {
            return Err(StoreErrorKind::Unavailable.into());
        }
        let mut claims = Claims::new();
        if request.has_scope("roles") {
            claims.insert("roles", ["editor", account.id().as_str()]).unwrap();
        }
        let asked = |target: &ClaimTarget| request.names(*target).any(|name| name == "department");
        let targets = [ClaimTarget::IdToken, ClaimTarget::UserInfo].into_iter().filter(asked);
        claims.insert_for(targets.collect::<Vec<_>>(), "department", "engines").unwrap();
        claims.insert_for([ClaimTarget::UserInfo], "picture", "https://example.com/ada.png").unwrap();
        claims.insert_for([ClaimTarget::AccessToken], "client", request.client_id()).unwrap();
        Ok(claims)
    }
}

async fn world() -> World {
    let world = World::new().await;
    World { service: service(&world, false), ..world }
}

fn service(world: &World, fails: bool) -> AuthService {
    let client = tollgate::Client::new("web", "acme".parse().unwrap()).unwrap();
    let client = client.redirect_uri(CALLBACK).unwrap().scopes("openid roles").unwrap();
    let users = WithRoles { users: world.users.clone(), fails };
    let clients = ClientTable::new([client]).unwrap();
    AuthService::builder(ISSUER, world.store.clone())
        .clients(clients)
        .users(users)
        .client_ip(ClientIp::peer())
        .passwords(Passwords::insecure_fast())
        .clock(world.clock.clone())
        .tokens(Tokens::new())
        .build()
        .unwrap()
}

#[tokio::test]
async fn claims_of_the_application_reach_tokens_and_userinfo_by_scope_and_by_name() {
    let world = world().await;
    let mut browser = world.browser();
    let wanted = r#"{"id_token":{"department":null,"sub":null},"userinfo":{"department":{"essential":true}}}"#;
    for (scope, names, roles, department) in [
        ("openid roles", "", json!(["editor", "u-ada"]), Value::Null),
        ("openid", wanted, Value::Null, json!("engines")),
    ] {
        let names: &[_] = if names.is_empty() { &[] } else { &[("claims", names)] };
        let code = browser.sign_in_with("web", &[&[("scope", scope)], names].concat()).await;
        let first = IssuedTokens::of(&browser.redeem("web", &code).await);
        let next = IssuedTokens::of(&browser.refresh("web", first.refresh()).await);
        for issued in [&first, &next] {
            let (access, id) = (claims(&issued.access), claims(issued.id()));
            let info = browser.with_token("/userinfo", &issued.access).await.json();
            for document in [&access, &id, &info] {
                assert_eq!(document["roles"], roles);
                assert_eq!(document["sub"], "u-ada");
            }
            for (document, expected) in [(&access, &Value::Null), (&id, &department), (&info, &department)] {
                assert_eq!(document["department"], *expected);
            }
            assert_eq!((&info["picture"], &access["picture"]), (&json!("https://example.com/ada.png"), &Value::Null));
            assert_eq!((&access["client"], &id["client"]), (&json!("web"), &Value::Null));
        }
    }
    // a narrower scope yields fewer claims
    let issued = browser.tokens("web", "openid roles").await;
    let fields = [("grant_type", "refresh_token"), ("client_id", "web"), ("scope", "openid")];
    let narrow = browser.form("/token", &[&fields[..], &[("refresh_token", issued.refresh())]].concat()).await;
    assert_eq!(claims(&IssuedTokens::of(&narrow).access)["roles"], Value::Null);
}

#[tokio::test]
async fn an_api_reads_claims_of_the_access_token() {
    let world = world().await;
    let issued = world.browser().tokens("web", "openid roles").await;
    let api = BearerLayer::new(world.service.verifier()).layer(service_fn(async |request: Request<Body>| {
        let token = AccessToken::from_extensions(request.extensions()).unwrap();
        let roles: Option<Vec<String>> = token.claim("roles");
        let missing: [Option<Value>; 2] = [token.claim("sub"), token.claim("department")];
        let wrong: Option<u64> = token.claim("roles");
        Ok::<_, Infallible>(Response::new(format!("{roles:?} {missing:?} {wrong:?}")))
    }));
    let request = Request::get("/").header("authorization", format!("Bearer {}", issued.access));
    let answer = api.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.body(), r#"Some(["editor", "u-ada"]) [None, None] None"#);
}

#[tokio::test]
async fn a_failing_source_of_claims_uses_up_neither_code_nor_refresh_token() {
    let world = world().await;
    let (mut one, mut other) = (world.browser(), world.browser());
    other.service = service(&world, true);
    let code = one.sign_in("web").await;
    assert_eq!(other.redeem("web", &code).await.status, 503);
    let issued = IssuedTokens::of(&one.redeem("web", &code).await);
    assert_eq!(other.refresh("web", issued.refresh()).await.status, 503);
    assert_eq!(other.with_token("/userinfo", &issued.access).await.status, 503);
    assert_eq!(one.refresh("web", issued.refresh()).await.status, 200);
}

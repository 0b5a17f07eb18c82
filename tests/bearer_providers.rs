//! Access tokens as Auth0, Cognito, Entra ID and Keycloak issue them, signed by another library.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may panic")]
#![allow(clippy::needless_pass_by_value, reason = "for `json!` at the call")]

use std::{convert::Infallible, sync::LazyLock};

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::KeySize,
    signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RsaKeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{Request, Response};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tollgate::{
    AccessToken, BearerLayer, Tenant, Verifier,
    bearer::TokenProfile,
    clock::{Clock, SystemClock},
};
use tower::{Layer, ServiceExt, service_fn};

/// A signing key of a provider.
#[derive(Clone)]
struct Key {
    private: EncodingKey,
    algorithm: Algorithm,
    /// With `kty` and the numbers of the public key alone.
    public: Value,
}

/// Keys for RS256, because generating one takes a while.
static KEYS: LazyLock<[Key; 3]> = LazyLock::new(|| [(); 3].map(|()| rsa(Algorithm::RS256)));

fn rsa(algorithm: Algorithm) -> Key {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let pkcs8 = pair.as_der().unwrap();
    let key = pair.public_key();
    let n = BASE64URL.encode(key.modulus().big_endian_without_leading_zero());
    let e = BASE64URL.encode(key.exponent().big_endian_without_leading_zero());
    // PKCS #8 wraps PKCS #1
    let private = EncodingKey::from_rsa_der(&pkcs8.as_ref()[26..]);
    Key { private, algorithm, public: json!({ "kty": "RSA", "n": n, "e": e }) }
}

fn p384() -> Key {
    let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref()).unwrap();
    let (x, y) = pair.public_key().as_ref().strip_prefix(&[4]).unwrap().split_at(48);
    let public = json!({ "kty": "EC", "crv": "P-384", "x": BASE64URL.encode(x), "y": BASE64URL.encode(y) });
    Key { private: EncodingKey::from_ec_der(pkcs8.as_ref()), algorithm: Algorithm::ES384, public }
}

impl Key {
    /// The published key with further members.
    fn jwk(&self, more: Value) -> Value {
        merged(self.public.clone(), more)
    }

    fn sign(&self, typ: Option<&str>, claims: &Value) -> String {
        let header =
            Header { typ: typ.map(str::to_owned), kid: Some("the-key".to_owned()), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.private).unwrap()
    }
}

/// Returns an object with the members of both. `null` removes a member.
fn merged(mut object: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        object[name] = value.clone();
    }
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object
}

fn now() -> u64 {
    let clock = SystemClock::new();
    clock.unix(clock.now()).as_secs()
}

const CERTIFICATE: &str = "MIIDBTCCAe2gAwIBAgIQH4FlYNA+UJlF0G3vy9ZrhTANBgkqhkiG9w0BAQsFADAtMSswKQYDVQQDEyI";

/// A provider with its key, its tokens and how the API accepts them.
struct Provider {
    name: &'static str,
    issuer: &'static str,
    audience: &'static str,
    profile: TokenProfile,
    /// The claim of the tenant, and its value in `access`.
    tenant: (&'static str, &'static str),
    key: Key,
    jwks: Value,
    typ: Option<&'static str>,
    access: Value,
    /// The differences between an access token and an ID token of the same login.
    identity: Value,
    /// The differences between an access token and one for another API.
    elsewhere: Value,
    /// Client, subject and scopes.
    expected: (&'static str, &'static str, &'static str),
}

fn auth0() -> Provider {
    let key = KEYS[0].clone();
    let api = "https://api.acme.example";
    let more = json!({ "use": "sig", "kid": "the-key", "alg": "RS256", "x5t": "HvPd", "x5c": [CERTIFICATE] });
    Provider {
        name: "Auth0",
        issuer: "https://acme.eu.auth0.com/",
        audience: api,
        profile: TokenProfile::auth0(),
        tenant: ("org_id", "org_9ybsU1dN2dKfDkBi"),
        jwks: json!({ "keys": [key.jwk(more)] }),
        key,
        typ: Some("JWT"),
        access: json!({
            "iss": "https://acme.eu.auth0.com/", "sub": "auth0|61fc8f7e",
            "aud": [api, "https://acme.eu.auth0.com/userinfo"], "iat": now(), "exp": now() + 86_400,
            "azp": "my_client_id", "scope": "openid profile read:orders", "permissions": ["read:orders"],
            "org_id": "org_9ybsU1dN2dKfDkBi",
        }),
        identity: json!({
            "aud": "my_client_id", "azp": null, "scope": null, "permissions": null, "name": "Ada", "nonce": "n-0S6",
            "sid": "gE-kx", "email": "ada@acme.example",
        }),
        elsewhere: json!({ "aud": ["https://other.acme.example", "https://acme.eu.auth0.com/userinfo"] }),
        expected: ("my_client_id", "auth0|61fc8f7e", "openid profile read:orders"),
    }
}

fn cognito() -> Provider {
    let [key, other, _] = KEYS.clone();
    let issuer = "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Ab12Cd34E";
    Provider {
        name: "Cognito",
        issuer,
        audience: "1example23456789",
        profile: TokenProfile::cognito(),
        tenant: ("tenant_id", "acme"),
        jwks: json!({ "keys": [
            other.jwk(json!({ "alg": "RS256", "kid": "the-key-of-id-tokens", "use": "sig" })),
            key.jwk(json!({ "alg": "RS256", "kid": "the-key", "use": "sig" })),
        ] }),
        key,
        typ: None,
        access: json!({
            "sub": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "cognito:groups": ["admin"], "iss": issuer, "version": 2,
            "client_id": "1example23456789", "origin_jti": "5b9f50a3", "event_id": "64f513be", "token_use": "access",
            "scope": "openid orders/read", "auth_time": now(), "exp": now() + 3600, "iat": now(), "jti": "bb7a0ff5",
            "username": "ada", "tenant_id": "acme",
        }),
        identity: json!({
            "client_id": null, "aud": "1example23456789", "token_use": "id", "scope": null, "version": null,
            "at_hash": "abc", "email_verified": true, "cognito:username": "ada", "username": null,
        }),
        elsewhere: json!({ "client_id": "2example23456789" }),
        expected: ("1example23456789", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "openid orders/read"),
    }
}

fn entra_id() -> Provider {
    let [key, other, _] = KEYS.clone();
    let issuer = "https://login.microsoftonline.com/9122040d-6c67-4c5b-b112-36a304b66dad/v2.0";
    let api = "6e74172b-be56-4843-9ff4-e66a39bb12e3";
    // without `alg`
    let jwk = |key: &Key, kid: &str| {
        key.jwk(json!({ "use": "sig", "kid": kid, "x5t": kid, "x5c": [CERTIFICATE], "issuer": issuer }))
    };
    Provider {
        name: "Entra ID",
        issuer,
        audience: api,
        profile: TokenProfile::entra_id(),
        tenant: ("tid", "9122040d-6c67-4c5b-b112-36a304b66dad"),
        jwks: json!({ "keys": [jwk(&other, "another"), jwk(&key, "the-key")] }),
        key,
        typ: Some("JWT"),
        access: json!({
            "aud": api, "iss": issuer, "iat": now(), "nbf": now(), "exp": now() + 4000, "aio": "AXQAi/8TAAAA",
            "azp": "6731de76-14a6-49ae-97bc-6eba6914391e", "azpacr": "0", "name": "Ada", "oid": "690222be",
            "preferred_username": "ada@acme.example", "rh": "0.ARwA", "scp": "orders.read orders.write",
            "sub": "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ", "tid": "9122040d-6c67-4c5b-b112-36a304b66dad",
            "uti": "fqiBqXLPj0eQa82S-IYFAA", "ver": "2.0",
        }),
        // of the worst kind: the API is its own client, and its users have roles
        identity: json!({
            "azp": null, "azpacr": null, "scp": null, "roles": ["admin"], "nonce": "12345", "at_hash": "abc",
        }),
        elsewhere: json!({ "aud": "00000003-0000-0000-c000-000000000000" }),
        expected: (
            "6731de76-14a6-49ae-97bc-6eba6914391e",
            "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ",
            "orders.read orders.write",
        ),
    }
}

fn keycloak() -> Provider {
    let [key, encrypts, _] = KEYS.clone();
    let (issuer, api) = ("https://id.acme.example/realms/acme", "orders-api");
    let jwk = |key: &Key, kid: &str, usage: &str, alg: &str| {
        key.jwk(json!({ "use": usage, "kid": kid, "alg": alg, "x5c": [CERTIFICATE], "x5t": "a", "x5t#S256": "b" }))
    };
    Provider {
        name: "Keycloak",
        issuer,
        audience: api,
        profile: TokenProfile::keycloak(),
        tenant: ("tenant_id", "acme"),
        jwks: json!({ "keys": [
            jwk(&encrypts, "for-encryption", "enc", "RSA-OAEP"),
            jwk(&key, "the-key", "sig", "RS256"),
        ] }),
        key,
        typ: Some("JWT"),
        access: json!({
            "exp": now() + 300, "iat": now(), "auth_time": now(), "jti": "onrtac:2b3c", "iss": issuer,
            "aud": [api, "account"], "sub": "f1d2d2f9", "typ": "Bearer", "azp": "web", "sid": "4a1d", "acr": "1",
            "allowed-origins": ["https://app.acme.example"], "realm_access": { "roles": ["offline_access", "admin"] },
            "resource_access": { "account": { "roles": ["view-profile"] } }, "scope": "openid orders",
            "preferred_username": "ada", "tenant_id": "acme",
        }),
        // of the worst kind: an audience mapper that also writes into ID tokens
        identity: json!({ "typ": "ID", "at_hash": "abc", "nonce": "n", "scope": null }),
        elsewhere: json!({ "aud": "account" }),
        expected: ("web", "f1d2d2f9", "openid orders"),
    }
}

fn providers() -> [Provider; 4] {
    [auth0(), cognito(), entra_id(), keycloak()]
}

impl Provider {
    fn strict(&self) -> Verifier {
        Verifier::with_keys(self.issuer, self.audience, self.jwks.to_string().as_bytes()).unwrap()
    }

    fn with(&self, profile: TokenProfile) -> Verifier {
        self.strict().to_builder().profile(profile).build()
    }

    /// The verifier as its documentation says, with a tenant.
    fn verifier(&self) -> Verifier {
        self.with(self.profile.clone().tenant_claim(self.tenant.0))
    }

    /// A token whose claims differ from those of an access token.
    fn token(&self, changes: Value) -> String {
        self.key.sign(self.typ, &merged(self.access.clone(), changes))
    }

    fn good(&self) -> String {
        self.token(json!({}))
    }
}

/// Sends a token to an API. Returns what the API learns, or the status of the rejection.
async fn ask(verifier: &Verifier, token: &str) -> Result<AccessToken, u16> {
    let api = BearerLayer::new(verifier.clone()).layer(service_fn(async |request: Request<String>| {
        let token = AccessToken::from_extensions(request.extensions()).cloned();
        let mut response = Response::new(String::new());
        response.extensions_mut().insert(token);
        Ok::<_, Infallible>(response)
    }));
    let request = Request::get("/").header("authorization", format!("Bearer {token}")).body(String::new()).unwrap();
    let mut response = api.oneshot(request).await.unwrap();
    response.extensions_mut().remove::<Option<AccessToken>>().flatten().ok_or(response.status().as_u16())
}

fn scopes(token: &AccessToken) -> String {
    token.scopes().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a14_each_provider_s_tokens_are_accepted_with_its_profile_and_only_with_it() {
    for provider in providers() {
        let (name, good) = (provider.name, provider.good());
        let token = ask(&provider.verifier(), &good).await.unwrap_or_else(|status| panic!("{name}: {status}"));
        let (client, subject, granted) = provider.expected;
        assert_eq!((token.client_id(), token.subject(), &*scopes(&token)), (client, subject, granted), "{name}");
        assert_eq!((token.issuer(), token.tenant().map(Tenant::as_str)), (provider.issuer, Some(provider.tenant.1)));
        assert!(token.audience().any(|own| own == provider.audience) && !token.id().is_empty(), "{name}");
        assert_eq!(ask(&provider.strict(), &good).await.unwrap_err(), 401, "{name}");
        // a claim called `tenant` is not the tenant unless the profile names it
        let named = provider.token(json!({ "tenant": "globex" }));
        assert_eq!(ask(&provider.with(provider.profile.clone()), &named).await.unwrap().tenant(), None, "{name}");
        assert_eq!(ask(&provider.verifier(), &named).await.unwrap().tenant().unwrap().as_str(), provider.tenant.1);
    }
    let (auth0, keycloak) = (auth0(), keycloak());
    let token = ask(&auth0.verifier(), &auth0.good()).await.unwrap();
    assert_eq!(token.claim::<Vec<String>>("permissions").unwrap(), ["read:orders"]);
    let token = ask(&keycloak.verifier(), &keycloak.good()).await.unwrap();
    assert_eq!(token.claim::<Value>("realm_access").unwrap()["roles"][1], "admin");
}

#[tokio::test]
async fn a14_id_tokens_other_audiences_and_missing_claims_are_rejected_in_each_profile() {
    for provider in providers() {
        let verifier = provider.verifier();
        let refuse = async |what: &str, token: String| {
            assert_eq!(ask(&verifier, &token).await.unwrap_err(), 401, "{}: {what}", provider.name);
        };
        refuse("an ID token", provider.token(provider.identity.clone())).await;
        refuse("another audience", provider.token(provider.elsewhere.clone())).await;
        refuse("another issuer", provider.token(json!({ "iss": "https://evil.example/" }))).await;
        refuse("an issuer without its slash or with one more", {
            let issuer = provider.issuer;
            let other = issuer.strip_suffix('/').map_or_else(|| format!("{issuer}/"), str::to_owned);
            provider.token(json!({ "iss": other }))
        })
        .await;
        refuse("expired", provider.token(json!({ "iat": now() - 900, "nbf": null, "exp": now() - 60 }))).await;
        refuse("from the future", provider.token(json!({ "iat": now() + 600 }))).await;
        refuse("no expiry", provider.token(json!({ "exp": null }))).await;
        refuse("no subject", provider.token(json!({ "sub": null }))).await;
        refuse("no client", provider.token(json!({ "azp": null, "client_id": null }))).await;
        let tenant = provider.tenant.0;
        for bad in [json!(null), json!(""), json!(7), json!(["acme"]), json!("ip:192.0.2.1"), json!("a b")] {
            refuse("no tenant", provider.token(json!({ tenant: bad }))).await;
        }
        refuse("bound to a certificate", provider.token(json!({ "cnf": { "x5t#S256": "AAAA" } }))).await;
        for typ in ["logout+jwt", "dpop+jwt", "secevent+jwt", "at", ""] {
            refuse(typ, provider.key.sign(Some(typ), &provider.access)).await;
        }
        for typ in ["JWT", "at+jwt"] {
            assert!(ask(&verifier, &provider.key.sign(Some(typ), &provider.access)).await.is_ok(), "{typ}");
        }
    }
}

#[tokio::test]
async fn a14_unsigned_and_wrongly_signed_tokens_are_rejected_in_each_profile() {
    let stranger = &KEYS[2];
    for provider in providers() {
        let (jwks, public) = (provider.jwks.to_string(), &provider.key.public);
        let modulus = BASE64URL.decode(public["n"].as_str().unwrap()).unwrap();
        // with all the choices that there are
        let all = provider.profile.clone().tenant_claim(provider.tenant.0).es384();
        for verifier in [provider.verifier(), provider.with(all.clone()), provider.with(all.ps256())] {
            let refuse = async |what: &str, token: &str| {
                assert_eq!(ask(&verifier, token).await.unwrap_err(), 401, "{}: {what}", provider.name);
            };
            let good = provider.good();
            let (signed, signature) = good.rsplit_once('.').unwrap();
            let (_, claims) = signed.split_once('.').unwrap();
            for alg in ["none", "None", "NONE", ""] {
                let header = json!({ "alg": alg, "typ": provider.typ, "kid": "the-key" });
                let header = BASE64URL.encode(merged(header, json!({})).to_string());
                refuse(alg, &format!("{header}.{claims}.")).await;
                refuse(alg, &format!("{header}.{claims}.{signature}")).await;
            }
            for secret in [&modulus[..], jwks.as_bytes(), public.to_string().as_bytes(), CERTIFICATE.as_bytes(), b""] {
                let key = EncodingKey::from_secret(secret);
                let header = Header {
                    typ: provider.typ.map(str::to_owned),
                    kid: Some("the-key".to_owned()),
                    ..Header::new(Algorithm::HS256)
                };
                refuse("HS256", &jsonwebtoken::encode(&header, &provider.access, &key).unwrap()).await;
            }
            refuse("another key", &stranger.sign(provider.typ, &provider.access)).await;
            let changed = provider.token(json!({ "sub": "root" }));
            refuse("changed", &format!("{}.{signature}", changed.rsplit_once('.').unwrap().0)).await;
        }
    }
}

#[tokio::test]
async fn a14_es384_and_ps256_are_accepted_by_choice_alone() {
    type Choose = fn(TokenProfile) -> TokenProfile;
    let (es384, ps256): (Choose, Choose) = (TokenProfile::es384, TokenProfile::ps256);
    for (key, alg, choose, other) in [(p384(), "ES384", es384, ps256), (rsa(Algorithm::PS256), "PS256", ps256, es384)] {
        // Keycloak names the algorithm of a key, Entra ID does not
        for named in [json!({ "use": "sig", "kid": "the-key", "alg": alg }), json!({ "kid": "the-key" })] {
            let jwks = json!({ "keys": [key.jwk(named)] });
            let provider = Provider { jwks, key: key.clone(), ..keycloak() };
            let good = provider.good();
            let profile = provider.profile.clone();
            assert!(ask(&provider.with(choose(profile.clone())), &good).await.is_ok(), "{alg}");
            for refuses in [profile.clone(), other(profile)] {
                assert_eq!(ask(&provider.with(refuses), &good).await.unwrap_err(), 401, "{alg}");
            }
            // the strict profile can be extended, too
            let strict = provider.key.sign(
                Some("at+jwt"),
                &merged(provider.access.clone(), json!({ "client_id": "web", "typ": null, "azp": null })),
            );
            assert_eq!(ask(&provider.strict(), &strict).await.unwrap_err(), 401, "{alg}");
            let chosen = provider.with(choose(TokenProfile::rfc9068()));
            assert!(ask(&chosen, &strict).await.is_ok(), "{alg}");
            assert_eq!(ask(&chosen, &good).await.unwrap_err(), 401, "the type is not loosened");
            let (signed, signature) = strict.rsplit_once('.').unwrap();
            let mut changed = BASE64URL.decode(signature).unwrap();
            changed[7] ^= 1;
            let changed = format!("{signed}.{}", BASE64URL.encode(changed));
            assert_eq!(ask(&chosen, &changed).await.unwrap_err(), 401, "{alg}");
        }
    }
    // a key for RS256 does not verify PS256, and the reverse
    for (named, algorithm) in [("RS256", Algorithm::PS256), ("PS256", Algorithm::RS256)] {
        let key = rsa(algorithm);
        let jwks = json!({ "keys": [key.jwk(json!({ "use": "sig", "kid": "the-key", "alg": named }))] });
        let provider = Provider { jwks, key, ..keycloak() };
        assert_eq!(ask(&provider.with(provider.profile.clone().ps256()), &provider.good()).await.unwrap_err(), 401);
    }
}

#[tokio::test]
async fn a14_each_rule_can_be_chosen_alone() {
    let provider = Provider { profile: TokenProfile::rfc9068(), ..keycloak() };
    let strict = merged(provider.access.clone(), json!({ "client_id": "web", "aud": "orders-api" }));
    let sign = |changes: Value| provider.key.sign(Some("at+jwt"), &merged(strict.clone(), changes));
    let accepts = async |profile: TokenProfile, token: &str| ask(&provider.with(profile), token).await.is_ok();
    assert!(accepts(TokenProfile::rfc9068(), &sign(json!({}))).await);

    let cases: [(Value, TokenProfile); 5] = [
        (json!({ "jti": null }), TokenProfile::rfc9068().optional_id()),
        (json!({ "client_id": null }), TokenProfile::rfc9068().client_claim("azp")),
        (json!({ "aud": null, "client_id": "orders-api" }), TokenProfile::rfc9068().client_as_audience()),
        (json!({ "tenant": "a b" }), TokenProfile::rfc9068().tenant_claim("tenant_id")),
        (json!({ "tenant": "a b", "jti": null }), TokenProfile::rfc9068().tenant_claim("tenant_id").optional_id()),
    ];
    for (changes, chosen) in cases {
        let token = sign(changes.clone());
        assert!(!accepts(TokenProfile::rfc9068(), &token).await, "{changes}");
        assert!(accepts(chosen, &token).await, "{changes}");
    }
    // what a token has goes before what replaces it
    let profile = || TokenProfile::rfc9068().client_claim("azp").scope_claim("scp").client_as_audience().optional_id();
    let both = sign(json!({ "azp": "other", "scp": "more" }));
    let token = ask(&provider.with(profile()), &both).await.unwrap();
    assert_eq!((token.client_id(), &*scopes(&token), token.id()), ("web", "openid orders", "onrtac:2b3c"));
    assert!(!accepts(profile(), &sign(json!({ "aud": "account", "client_id": "orders-api" }))).await);
    // as Okta writes them
    let several = sign(json!({ "scope": null, "scp": ["orders.read", "orders.write"] }));
    let token = ask(&provider.with(profile()), &several).await.unwrap();
    assert_eq!(scopes(&token), "orders.read orders.write");
    assert!(!accepts(profile(), &sign(json!({ "scope": null, "scp": [7] }))).await);
    // an id of its own for each token without one
    let [one, two] = ["1", "2"].map(|x| sign(json!({ "jti": null, "x": x })));
    let (one, two) = (ask(&provider.with(profile()), &one).await, ask(&provider.with(profile()), &two).await);
    assert_ne!(one.unwrap().id(), two.unwrap().id());
    // the marks of access tokens apply to tokens of every type
    let marked = TokenProfile::rfc9068().jwt_where("token_use", &["access"]);
    assert!(!accepts(marked.clone(), &sign(json!({}))).await);
    assert!(accepts(marked, &sign(json!({ "token_use": "access" }))).await);
    let marked = TokenProfile::rfc9068().jwt_with(&["scp"]);
    assert!(!accepts(marked.clone(), &sign(json!({}))).await);
    assert!(accepts(marked, &sign(json!({ "scp": "" }))).await);
    let marked = TokenProfile::rfc9068().jwt_unless_for_client();
    assert!(!accepts(marked.clone(), &sign(json!({ "client_id": "orders-api" }))).await);
    assert!(accepts(marked, &sign(json!({}))).await);
}

#[cfg(feature = "external-providers")]
#[tokio::test]
async fn a14_keys_are_fetched_from_where_each_provider_publishes_them() {
    use tollgate::bearer::RemoteKeys;

    for provider in providers() {
        let (name, jwks) = (provider.name, provider.jwks.to_string());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/keys", axum::routing::get(async move || jwks));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let remote = RemoteKeys::new(provider.issuer).unwrap().jwks_uri(&url).unwrap();
        let builder = remote.verifier(provider.audience).unwrap().to_builder();
        let verifier = builder.profile(provider.profile.clone().tenant_claim(provider.tenant.0)).build();
        let token = ask(&verifier, &provider.good()).await.unwrap_or_else(|status| panic!("{name}: {status}"));
        assert_eq!(token.subject(), provider.expected.1);
        assert_eq!(ask(&verifier, &provider.token(provider.identity.clone())).await.unwrap_err(), 401, "{name}");
    }
}

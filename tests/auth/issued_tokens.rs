//! The tokens that a client got, and checks of whether they still work.

use std::{collections::BTreeSet, convert::Infallible, panic::Location};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{Request, Response};
use serde_json::{Value, json};
use tollgate::{BearerLayer, Verifier, body::Body};
use tower::{Layer, ServiceExt, service_fn};

use crate::world::{Answer, Browser, World};

/// The tokens of one response.
#[derive(Clone, Debug)]
pub(crate) struct IssuedTokens {
    pub(crate) access: String,
    pub(crate) refresh: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) scope: String,
}

impl IssuedTokens {
    pub(crate) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        let json = answer.json();
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        Self {
            access: text("access_token").unwrap(),
            refresh: text("refresh_token"),
            id: text("id_token"),
            scope: text("scope").unwrap(),
        }
    }

    pub(crate) fn refresh(&self) -> &str {
        self.refresh.as_deref().unwrap()
    }

    pub(crate) fn id(&self) -> &str {
        self.id.as_deref().unwrap()
    }

    /// Returns the id of the access token. Repeated responses to one request share it.
    pub(crate) fn jti(&self) -> String {
        claims(&self.access)["jti"].as_str().unwrap().to_owned()
    }
}

/// Returns the claims of a token without verifying it.
pub(crate) fn claims(token: &str) -> Value {
    part(token, 1)
}

pub(crate) fn header(token: &str) -> Value {
    part(token, 0)
}

fn part(token: &str, at: usize) -> Value {
    serde_json::from_slice(&BASE64URL.decode(token.split('.').nth(at).unwrap()).unwrap()).unwrap()
}

/// The places where tokens are checked. An access token works at each of the first three. A refresh token is
/// introspected.
pub(crate) const EVERYWHERE: [&str; 4] = ["userinfo", "introspect access", "layer", "introspect refresh"];

/// Returns the places where these tokens work.
pub(crate) async fn good_at(
    browser: &mut Browser,
    verifier: &Verifier,
    client: &str,
    issued: &IssuedTokens,
) -> BTreeSet<&'static str> {
    let [info, known, layer] = browser.opens_by(verifier, client, &issued.access).await;
    let good = [info, known, layer, browser.is_active(client, issued.refresh()).await];
    EVERYWHERE.into_iter().zip(good).filter_map(|(place, good)| good.then_some(place)).collect()
}

/// Asserts that either all or none of these tokens work.
#[track_caller]
pub(crate) fn all_are<'f>(
    alive: bool,
    world: &'f World,
    client: &'f str,
    issued: &'f IssuedTokens,
) -> impl Future<Output = ()> + 'f {
    let place = Location::caller();
    async move {
        let good = good_at(&mut world.browser(), &world.service.verifier(), client, issued).await;
        let expected = if alive { BTreeSet::from(EVERYWHERE) } else { BTreeSet::new() };
        assert_eq!(good, expected, "at {place}: {issued:?}");
    }
}

impl Browser {
    /// Returns whether an access token works at userinfo, at introspection and at a layer.
    pub(crate) async fn opens(&mut self, world: &World, client: &str, access: &str) -> [bool; 3] {
        self.opens_by(&world.service.verifier(), client, access).await
    }

    /// Does the same with another verifier in the layer.
    async fn opens_by(&mut self, verifier: &Verifier, client: &str, access: &str) -> [bool; 3] {
        let info = self.with_token("/userinfo", access).await;
        match info.status.as_u16() {
            200 => assert_eq!(info.json()["sub"], claims(access)["sub"]),
            _ => assert_eq!((info.status.as_u16(), &*info.error()), (401, "invalid_token"), "{info:?}"),
        }
        [info.status == 200, self.is_active(client, access).await, at_layer(verifier, access).await == 200]
    }

    async fn is_active(&mut self, client: &str, token: &str) -> bool {
        let known = self.introspect(client, token).await;
        assert!(known["active"] == true || known == json!({ "active": false }), "{known}");
        known["active"] == true
    }
}

/// Returns the status of an API behind a layer.
pub(crate) async fn api(world: &World, access: &str) -> u16 {
    at_layer(&world.service.verifier(), access).await
}

pub(crate) async fn at_layer(verifier: &Verifier, access: &str) -> u16 {
    shown_at_layer(verifier, &format!("Bearer {access}")).await
}

pub(crate) async fn shown_at_layer(verifier: &Verifier, authorization: &str) -> u16 {
    let inner = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let request = Request::get("/orders").header("authorization", authorization).body(Body::empty()).unwrap();
    BearerLayer::new(verifier.clone()).layer(inner).oneshot(request).await.unwrap().status().as_u16()
}

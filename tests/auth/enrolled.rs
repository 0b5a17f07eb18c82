//! A world in which users have authenticator apps, on a clock that begins in 1970 so that the codes are those of the RFC.

use serde_json::{Value, json};
use tollgate::{
    Client, ClientTable, Policies, SecretDigest, Tenant,
    auth::{AuthServiceBuilder, Totp},
    clock::UnixTime,
    policy::Policy,
    store::{AnyStore, Key, Memory, Record, WriteOutcome},
    testing::ManualClock,
};

use crate::{
    soft_passkey::{bytes, text},
    world::{World, clients},
};

/// The codes of the first steps for the secret `12345678901234567890` (RFC 4226, appendix D). Each step lasts 30 seconds.
pub(crate) const CODES: [&str; 10] =
    ["755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"];

/// Creates a world with authenticator apps at the beginning of the step 1.
pub(crate) async fn world(more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> World {
    world_on(Memory::new().into(), more).await
}

pub(crate) async fn world_on(store: AnyStore, more: impl FnOnce(AuthServiceBuilder) -> AuthServiceBuilder) -> World {
    let clock = ManualClock::new();
    clock.set_wall(UnixTime::from_secs(30));
    World::on(store, clock, |service| more(service.totp(Totp::new()))).await
}

/// Lets users leave out the factors that they have enrolled, at all clients of acme.
pub(crate) fn optional(service: AuthServiceBuilder) -> AuthServiceBuilder {
    let lax = |policy: Option<&Policy>| policy.cloned().unwrap_or_default().without_enrolled_second_factor();
    let all = clients();
    let clients: Vec<_> = all.iter().map(|client| Client::clone(client).policy(lax(client.demands()))).collect();
    service.clients(ClientTable::new(clients).unwrap()).policies(Policies::new(lax(None)))
}

/// An authenticator app that was enrolled with this strength.
pub(crate) fn app(strength: u8) -> Value {
    json!({
        "enrolment": "AAAAAAAAAAAAAAAAAAAAAA",
        "secret": { "key": "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA" },
        "kind": { "algorithm": "sha1", "digits": 6 },
        "last_step": 0,
        "created_at": 0,
        "strength": strength,
    })
}

/// An unused recovery code that was enrolled with this strength. No text has its digest.
pub(crate) fn recovery(strength: u8) -> Value {
    json!({ "enrolment": "AAAAAAAAAAAAAAAAAAAAAQ", "unused": ["A".repeat(43)], "created_at": 0, "strength": strength })
}

/// What vouched for a credential of this strength: the password, and a code by e-mail if it counts in two steps.
pub(crate) fn strength(steps: u64) -> Value {
    let proved = match steps {
        255 => json!([]),
        1 => json!([["password"]]),
        _ => json!([["password", "email"]]),
    };
    json!({ "steps": steps, "proved": proved })
}

/// Writes the credentials of a user of acme into the store, in place of those before. Their strength can be a number.
pub(crate) async fn enrol(world: &World, user: &str, mut credentials: Value) {
    for kind in ["passkeys", "totp", "recovery", "links"] {
        let Some(enrolled) = credentials.get_mut(kind) else { continue };
        let all = if enrolled.is_array() {
            enrolled.as_array_mut().unwrap().as_mut_slice()
        } else {
            std::slice::from_mut(enrolled)
        };
        for one in all {
            if let Some(steps) = one["strength"].as_u64() {
                one["strength"] = strength(steps);
            }
        }
    }
    if credentials["handle"].is_null() {
        credentials["handle"] = json!("A".repeat(43));
    }
    for passkey in credentials["passkeys"].as_array().into_iter().flatten() {
        let id = [b"passkey:", &bytes(&passkey["id"])[..]].concat();
        put(world, "credential_owners", SecretDigest::of_secret(id).as_bytes(), &json!(user)).await;
    }
    for link in credentials.get_mut("links").and_then(Value::as_array_mut).into_iter().flatten() {
        if link["enrolment"].is_null() {
            link["enrolment"] = json!(text(&SecretDigest::of_secret(link.to_string()).as_bytes()[..16]));
        }
        let parts = ["provider", "issuer", "subject"].map(|name| link[name].as_str().unwrap().as_bytes());
        let lengths = [parts[0], parts[1]].map(|part| (part.len() as u64).to_be_bytes());
        let id = [b"link:", lengths.as_flattened(), &parts.concat()].concat();
        put(world, "credential_owners", SecretDigest::of_secret(id).as_bytes(), &json!(user)).await;
    }
    put(world, "credentials", user.as_bytes(), &credentials).await;
}

async fn put(world: &World, table: &str, id: &[u8], row: &Value) {
    let acme: Tenant = "acme".parse().unwrap();
    let key = Key::new(table, Some(&acme), id).unwrap();
    let record = Record::new(row.to_string(), world.time(), UnixTime::from_nanos(u64::MAX)).unwrap();
    world.store.take(&key).await.unwrap();
    assert!(matches!(world.store.insert(&key, record).await.unwrap(), WriteOutcome::Done(_)));
}

/// Returns the stored credentials of a user of acme.
pub(crate) async fn stored(world: &World, user: &str) -> Option<Value> {
    let acme: Tenant = "acme".parse().unwrap();
    let key = Key::new("credentials", Some(&acme), user.as_bytes()).unwrap();
    let entry = world.store.get(&key).wait().await.unwrap()?;
    (entry.expires_at > world.time()).then(|| serde_json::from_slice(&entry.value).unwrap())
}

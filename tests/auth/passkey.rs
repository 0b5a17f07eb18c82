//! The method `passkey`: the right responses, and each wrong one.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tollgate::{
    EventLog, Tenant, UserId,
    auth::Passkeys,
    event::{EventKind, Query},
    webauthn::{CounterPolicy, UserVerification},
};

use crate::{
    soft_passkey::{
        Begun, RP_ID, SoftPasskey, account, add, begin, bytes, enrolled, outcome, prove, sign_in_fresh, text, world,
        world_with,
    },
    world::{ADA, ADA_PASSWORD, Answer, Browser, GRACE, NOBODY, World, join, with},
};

fn refused(answer: &Answer) {
    assert_eq!(outcome(answer), (401, "invalid_assertion".to_owned()), "{answer:?}");
    assert_eq!(answer.json()["completed_steps"], 0);
}

fn count(log: &EventLog, kind: EventKind) -> u64 {
    log.read_events(&Query::new().kind(kind)).events.iter().map(|event| event.count).sum()
}

async fn is_proved(browser: &mut Browser, begun: &Begun) -> bool {
    browser.status(&begun.id).await.json()["completed_steps"] == 1
}

#[tokio::test]
async fn a_passkey_signs_in_with_and_without_a_name() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    for name in [Some(ADA), None] {
        let mut browser = world.browser();
        let begun = begin(&mut browser, "web", name).await;
        let answer = prove(&mut browser, &begun, &passkey).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["status"]), (200, &json!("success")), "{answer:?}");
        assert_eq!(browser.complete("web", &begun.id).await.status, 200);
        let code = browser.authorize("web").await;
        assert!(code.redirected("code").is_some(), "{code:?}");
        let sessions = world.sessions.list(&"acme".parse().unwrap(), &UserId::parse("u-ada").unwrap()).await.unwrap();
        assert!(sessions.iter().any(|session| session.amr().eq(["pop"])));
    }
    assert_eq!(count(&world.log, EventKind::LoginFailed), 0);
}

#[tokio::test]
async fn c067_a_challenge_is_random_bound_to_its_login_and_lives_five_minutes() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    let mut challenges = BTreeSet::new();
    let mut browser = world.browser();
    for _ in 0..20 {
        let mut begun = begin(&mut browser, "web", None).await;
        assert_eq!(bytes(&begun.options["challenge"]).len(), 32);
        assert_eq!(begun.options["timeout"], 300_000);
        assert!(challenges.insert(begun.options["challenge"].to_string()));
        begun.renew(&mut browser).await;
        assert!(challenges.insert(begun.options["challenge"].to_string()));
    }
    // the challenge of another login
    let mut browser = world.browser();
    let (first, second) = (begin(&mut browser, "web", None).await, begin(&mut browser, "web", None).await);
    let response = passkey.get(&first.options);
    let members = json!({ "challenge": first.options["challenge"], "response": response });
    refused(&second.send(&mut browser, &members).await);
    assert_eq!(first.send(&mut browser, &members).await.status, 200, "its own login still accepts it");

    for (seconds, expected) in [(299, 200), (300, 409)] {
        let mut begun = begin(&mut browser, "web", None).await;
        let response = passkey.get(&begun.options);
        world.advance(seconds);
        let answer = begun.post(&mut browser, &response).await;
        assert_eq!(answer.status.as_u16(), expected, "{answer:?}");
        if expected == 409 {
            assert_eq!(answer.error(), "no_pending_challenge");
            assert_eq!(begun.renew(&mut browser).await.status, 200);
            assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
        }
    }
}

#[tokio::test]
async fn c067_a_challenge_can_be_answered_once() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    // a failed assertion burns it
    let mut browser = world.browser();
    let mut begun = begin(&mut browser, "web", None).await;
    let right = passkey.get(&begun.options);
    let mut wrong = right.clone();
    wrong["response"]["signature"] = json!(text(&[0; 70]));
    refused(&begun.post(&mut browser, &wrong).await);
    let answer = begun.post(&mut browser, &right).await;
    assert_eq!(outcome(&answer), (409, "no_pending_challenge".to_owned()));
    // a new one closes the one before
    assert_eq!(begun.renew(&mut browser).await.json()["status"], "pending");
    let older = passkey.get(&begun.options);
    let challenge = begun.options["challenge"].clone();
    begun.renew(&mut browser).await;
    refused(&begun.send(&mut browser, &json!({ "challenge": challenge, "response": older })).await);
    // a replay
    begun.renew(&mut browser).await;
    let right = passkey.get(&begun.options);
    assert_eq!(begun.post(&mut browser, &right).await.status, 200);
    let again = begun.post(&mut browser, &right).await;
    assert_eq!(outcome(&again), (409, "no_step_remaining".to_owned()));
}

#[tokio::test]
async fn c067_only_one_of_several_answers_at_once_counts() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    for _ in 0..20 {
        let mut browser = world.browser();
        let begun = begin(&mut browser, "mfa", None).await;
        let response = passkey.get(&begun.options);
        let answers = join((0..5).map(|_| {
            let (mut browser, begun, response) = (browser.clone(), &begun, &response);
            async move { begun.post(&mut browser, response).await }
        }))
        .await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409, 409, 409, 409]);
        assert!(is_proved(&mut browser, &begun).await);
    }
}

#[tokio::test]
async fn opening_a_challenge_leaves_a_code_open_and_costs_no_message() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    world.advance(60);
    let mut browser = world.browser();
    let mut begun = begin(&mut browser, "web", Some(ADA)).await;
    assert_eq!(browser.ask("web", &begun.id, "email", ADA).await.status, 200);
    for _ in 0..50 {
        assert_eq!(begun.renew(&mut browser).await.status, 200);
    }
    let code = world.code(ADA).await;
    assert_eq!(browser.verify("web", &begun.id, &code).await.status, 200);
    let answer = prove(&mut browser, &begun, &passkey).await;
    assert_eq!(answer.error(), "no_pending_challenge");
    // and a code leaves the challenge open
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    browser.ask("web", &begun.id, "sms", crate::world::ADA_PHONE).await;
    assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
}

#[tokio::test]
async fn c068_c069_the_credential_must_belong_to_the_user_of_the_login() {
    let world = world().await;
    let (adas, graces) = (enrolled(&world, ADA).await, enrolled(&world, GRACE).await);
    let mut browser = world.browser();
    // another user's passkey, in a login that a name was given for
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    refused(&prove(&mut browser, &begun, &graces).await);
    // a name without an account
    let begun = begin(&mut browser, "web", Some(NOBODY)).await;
    refused(&prove(&mut browser, &begun, &adas).await);
    for name in [None, Some(ADA)] {
        for (change, needs_name) in [
            (
                (|it: &mut Value, other: &SoftPasskey| it["response"]["userHandle"] = json!(text(&other.handle)))
                    as fn(&mut Value, &SoftPasskey),
                false,
            ),
            (|it, _| it["response"]["userHandle"] = json!(text(b"u-ada")), false),
            (|it, _| drop(it["response"].as_object_mut().unwrap().remove("userHandle")), true),
            (|it, _| it["response"]["userHandle"] = json!(""), true),
            (|it, other| it["id"] = json!(text(&other.id)), false),
            (|it, other| it["rawId"] = json!(text(&other.id)), false),
            (|it, _| (it["id"], it["rawId"]) = (json!("AAAA"), json!("AAAA")), false),
        ] {
            // the failures before are forgotten
            world.advance(3600);
            let begun = begin(&mut browser, "web", name).await;
            let mut response = adas.get(&begun.options);
            change(&mut response, &graces);
            let answer = begun.post(&mut browser, &response).await;
            if needs_name && name.is_some() {
                assert_eq!(answer.status, 200, "a known user need not be named: {answer:?}");
            } else {
                refused(&answer);
            }
        }
    }
    // the passkey of another tenant
    let begun = begin(&mut browser, "other", None).await;
    refused(&prove(&mut browser, &begun, &adas).await);
}

#[tokio::test]
async fn c070_c071_c072_c073_c074_c075_each_wrong_statement_is_refused_alike() {
    let world = world().await;
    let mut passkey = enrolled(&world, ADA).await;
    let mut browser = world.browser();
    let unknown = SoftPasskey::new();
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    let expected = prove(&mut browser, &begun, &unknown).await;
    refused(&expected);

    type Change = fn(&mut SoftPasskey);
    let changes: [(&str, Change, Change); 6] = [
        ("origin", |it| it.origin = "https://auth.example.evil".into(), |it| it.origin = "https://auth.example".into()),
        ("crossOrigin", |it| it.cross_origin = true, |it| it.cross_origin = false),
        ("rpIdHash", |it| it.rp_id = "example".into(), |it| it.rp_id = RP_ID.into()),
        ("UP", |it| it.flags &= !0x01, |it| it.flags |= 0x01),
        ("UV", |it| it.flags &= !0x04, |it| it.flags |= 0x04),
        ("BE", |it| it.flags &= !0x18, |it| it.flags |= 0x18),
    ];
    for (name, wrong, right) in changes {
        world.advance(3600);
        let begun = begin(&mut browser, "web", Some(ADA)).await;
        wrong(&mut passkey);
        let answer = prove(&mut browser, &begun, &passkey).await;
        assert_eq!(without_id(&answer), without_id(&expected), "{name}");
        right(&mut passkey);
    }
    world.advance(3600);
    // backed up, although it can't be
    passkey.flags = 0x01 | 0x04 | 0x10;
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    refused(&prove(&mut browser, &begun, &passkey).await);
    passkey.flags = crate::soft_passkey::SYNCED;
    for (member, change) in [
        ("clientDataJSON", (|data| replace(data, "webauthn.get", "webauthn.create")) as fn(&mut Vec<u8>)),
        ("clientDataJSON", |data| replace(data, "\"origin\"", "\"other\":1,\"origin\"")),
        ("signature", |signature| signature[20] ^= 1),
        ("authenticatorData", |data| data[36] ^= 1),
    ] {
        world.advance(3600);
        let begun = begin(&mut browser, "web", Some(ADA)).await;
        let mut response = passkey.get(&begun.options);
        let mut changed = bytes(&response["response"][member]);
        change(&mut changed);
        response["response"][member] = json!(text(&changed));
        let answer = begun.post(&mut browser, &response).await;
        assert_eq!(without_id(&answer), without_id(&expected), "{member}");
    }
    world.advance(3600);
    // signed for another challenge than the body names
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    let response = passkey.get(&json!({ "challenge": text(&[7; 32]) }));
    refused(&begun.post(&mut browser, &response).await);
    world.advance(3600);
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    let members = json!({ "challenge": text(&[7; 32]), "response": response });
    refused(&begun.send(&mut browser, &members).await);
    assert!(!is_proved(&mut browser, &begun).await);
    world.advance(3600);
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    *bytes = String::from_utf8(bytes.clone()).unwrap().replacen(from, to, 1).into_bytes();
}

fn without_id(answer: &Answer) -> (u16, Value) {
    let mut json = answer.json();
    json["session_id"] = Value::Null;
    (answer.status.as_u16(), json)
}

#[tokio::test]
async fn c074_user_verification_is_always_required_in_a_login_of_one_step() {
    let passkeys = Passkeys::new(RP_ID).user_verification(UserVerification::Preferred);
    let world = world_with(passkeys, |service| service).await;
    let mut passkey = enrolled(&world, ADA).await;
    passkey.flags &= !0x04;
    let mut browser = world.browser();
    let begun = begin(&mut browser, "web", None).await;
    assert_eq!(begun.options["userVerification"], "required");
    refused(&prove(&mut browser, &begun, &passkey).await);
    let begun = begin(&mut browser, "mfa", None).await;
    assert_eq!(begun.options["userVerification"], "preferred");
    assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
}

#[tokio::test]
async fn c076_a_cloned_counter_is_refused_with_an_event() {
    let world = world().await;
    let mut passkey = enrolled(&world, ADA).await;
    let mut browser = world.browser();
    for (sent, accepted) in [(0, true), (5, true), (5, false), (4, false), (0, false), (6, true), (u32::MAX, true)] {
        let before = count(&world.log, EventKind::PasskeyCloned);
        passkey.count = sent;
        let begun = begin(&mut browser, "web", None).await;
        let answer = prove(&mut browser, &begun, &passkey).await;
        if accepted {
            assert_eq!(answer.status, 200, "{sent}");
        } else {
            refused(&answer);
        }
        let events = count(&world.log, EventKind::PasskeyCloned) - before;
        assert_eq!(events, u64::from(!accepted), "{sent}");
    }
    // a wrong signature says nothing about clones
    let begun = begin(&mut browser, "web", None).await;
    let mut response = passkey.get(&begun.options);
    response["response"]["signature"] = json!("AAAA");
    let before = count(&world.log, EventKind::PasskeyCloned);
    refused(&begun.post(&mut browser, &response).await);
    assert_eq!(count(&world.log, EventKind::PasskeyCloned), before);
}

#[tokio::test]
async fn c076_a_cloned_counter_can_be_reported_only() {
    let world = world_with(Passkeys::new(RP_ID).counter(CounterPolicy::Report), |service| service).await;
    let mut passkey = enrolled(&world, ADA).await;
    let mut browser = world.browser();
    for (sent, events) in [(7, 0), (7, 1), (3, 2), (8, 2)] {
        passkey.count = sent;
        let begun = begin(&mut browser, "web", None).await;
        assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
        assert_eq!(count(&world.log, EventKind::PasskeyCloned), events, "{sent}");
    }
}

#[tokio::test]
async fn c076_two_copies_that_sign_at_once_are_noticed() {
    let world = world().await;
    let mut passkey = enrolled(&world, ADA).await;
    passkey.count = 1;
    for round in 2..12 {
        passkey.count = round;
        let mut logins = Vec::new();
        for _ in 0..2 {
            let mut browser = world.browser();
            let begun = begin(&mut browser, "web", None).await;
            logins.push((browser, begun));
        }
        let answers = join(logins.iter_mut().map(|(browser, begun)| prove(browser, begun, &passkey))).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401], "the same counter twice");
    }
}

#[tokio::test]
async fn c077_a_refused_assertion_does_not_move_the_counter_or_the_last_use() {
    let world = world().await;
    let (mut owner, mut passkey) = (world.browser(), SoftPasskey::new());
    sign_in_fresh(&world, &mut owner, ADA).await;
    let added = add(&mut owner, &mut passkey).await;
    assert_eq!(added.json()["last_used_at"], Value::Null);
    let mut browser = world.browser();
    let stolen = |count: u32, passkey: &mut SoftPasskey, begun: &Begun| {
        passkey.count = count;
        let mut response = passkey.get(&begun.options);
        response["response"]["signature"] = json!(text(&[0x30; 64]));
        response
    };
    let begun = begin(&mut browser, "web", None).await;
    refused(&begun.post(&mut browser, &stolen(1000, &mut passkey, &begun)).await);
    // if the count had been stored, this one would be a clone
    passkey.count = 1;
    let begun = begin(&mut browser, "web", None).await;
    assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
}

#[tokio::test]
async fn c078_malformed_responses_are_a_400_and_leave_the_login_alive() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    let mut browser = world.browser();
    for (member, change) in [
        ("authenticatorData", (|data| data.push(0)) as fn(&mut Vec<u8>)),
        ("authenticatorData", |data| data.truncate(36)),
        ("authenticatorData", Vec::clear),
        ("authenticatorData", |data| data[32] |= 0x80),
        ("authenticatorData", |data| data[32] |= 0x40),
        ("authenticatorData", |data| {
            // extensions that are no canonical map
            data[32] |= 0x80;
            data.extend([0xbf, 0xff]);
        }),
        ("authenticatorData", |data| data.resize(20_000, 0)),
        ("clientDataJSON", |data| data.truncate(data.len() - 1)),
        ("clientDataJSON", |data| data.push(b'x')),
        ("clientDataJSON", |data| data[3] = 0xff),
        ("clientDataJSON", |data| data.resize(5_000, b' ')),
        ("signature", |data| data.resize(2_000, 0)),
    ] {
        for (name, own) in [(Some(ADA), true), (Some(NOBODY), false), (None, true), (None, false)] {
            let mut begun = begin(&mut browser, "web", name).await;
            let unknown = SoftPasskey::new();
            let mut response = if own { passkey.get(&begun.options) } else { unknown.get(&begun.options) };
            let mut changed = bytes(&response["response"][member]);
            change(&mut changed);
            response["response"][member] = json!(text(&changed));
            let answer = begun.post(&mut browser, &response).await;
            assert_eq!(outcome(&answer), (400, "invalid_request".to_owned()), "{member}: {answer:?}");
            if own {
                begun.renew(&mut browser).await;
                assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
            }
        }
    }
    let begun = begin(&mut browser, "web", Some(ADA)).await;
    let right = passkey.get(&begun.options);
    for members in [
        json!({ "response": right }),
        json!({ "challenge": "!", "response": right }),
        json!({ "challenge": begun.options["challenge"], "response": "x" }),
        json!({ "challenge": begun.options["challenge"], "response": {} }),
        json!({ "challenge": begun.options["challenge"], "response": { "id": "AA", "rawId": "AA", "type": "other", "response": {} } }),
    ] {
        let answer = begun.send(&mut browser, &members).await;
        assert_eq!(outcome(&answer), (400, "invalid_request".to_owned()), "{members}");
    }
    assert_eq!(begun.post(&mut browser, &right).await.status, 200, "nothing was tried yet");
}

#[tokio::test]
async fn c079_options_are_the_same_for_every_user() {
    let world = world().await;
    enrolled(&world, ADA).await;
    let mut browser = world.browser();
    let mut seen = BTreeSet::new();
    for name in [Some(ADA), Some(GRACE), Some(NOBODY), None] {
        let mut begun = begin(&mut browser, "web", name).await;
        for _ in 0..2 {
            let mut options = begun.options.clone();
            options["challenge"] = Value::Null;
            assert_eq!(options["allowCredentials"], json!([]));
            assert_eq!(options["rpId"], RP_ID);
            seen.insert(options.to_string());
            let answer = begun.renew(&mut browser).await;
            assert_eq!(answer.json()["status"], "pending");
        }
    }
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn c080_every_form_of_base64_is_accepted() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    let mut browser = world.browser();
    let recode = |value: &Value, padded: bool, standard: bool| {
        let mut text = STANDARD.encode(bytes(value));
        if !standard {
            text = text.replace('+', "-").replace('/', "_");
        }
        json!(if padded { text } else { text.trim_end_matches('=').to_owned() })
    };
    for (padded, standard) in [(true, true), (true, false), (false, true), (false, false)] {
        let begun = begin(&mut browser, "web", None).await;
        let mut response = passkey.get(&begun.options);
        for member in ["id", "rawId"] {
            response[member] = recode(&response[member], padded, standard);
        }
        for (_, member) in response["response"].as_object_mut().unwrap() {
            *member = recode(member, padded, standard);
        }
        let challenge = recode(&begun.options["challenge"], padded, standard);
        let answer = begun.send(&mut browser, &json!({ "challenge": challenge, "response": response })).await;
        assert_eq!(answer.status, 200, "{padded} {standard}: {answer:?}");
    }
    // exactly the members of the interface
    let begun = begin(&mut browser, "web", None).await;
    let mut response = passkey.get(&begun.options);
    for member in ["clientExtensionResults", "authenticatorAttachment"] {
        response.as_object_mut().unwrap().remove(member);
    }
    assert_eq!(begun.post(&mut browser, &response).await.status, 200);
}

#[tokio::test]
async fn c117_a_passkey_of_less_strength_counts_in_shorter_logins_only() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    // enrolled with two proofs: good for two steps, and not for three
    let mut browser = world.browser();
    let begun = begin(&mut browser, "mfa", Some(ADA)).await;
    let answer = prove(&mut browser, &begun, &passkey).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["remaining_steps"]), (200, &json!(1)));
    // a login of three steps, which the site itself can ask for
    let mut browser = world.browser();
    let begun = browser.get("/sign-in?return_to=%2F&max_age=0&steps=3").await;
    let fields = crate::soft_passkey::query(&begun);
    let started = browser.post("/authentication/start", &with(fields.clone(), &[("identifier", ADA)])).await.json();
    assert_eq!(started["required_steps"], 3);
    let id = started["session_id"].as_str().unwrap();
    let mut body = with(fields, &[("session_id", id), ("method", "passkey")]);
    let options = &started["challenges"]["passkey"];
    (body["challenge"], body["response"]) = (options["challenge"].clone(), passkey.get(options));
    refused(&browser.post("/authentication/authenticate", &body).await);
}

#[tokio::test]
async fn c116_without_a_name_the_passkey_binds_the_user() {
    let world = world().await;
    let (adas, graces) = (enrolled(&world, ADA).await, enrolled(&world, GRACE).await);
    let mut browser = world.browser();
    let begun = begin(&mut browser, "mfa", None).await;
    assert_eq!(prove(&mut browser, &begun, &adas).await.json()["completed_steps"], 1);
    let other = browser.password("mfa", &begun.id, GRACE, crate::world::GRACE_PASSWORD).await;
    assert_eq!(outcome(&other), (401, "invalid_credentials".to_owned()));
    assert_eq!(browser.password("mfa", &begun.id, ADA, ADA_PASSWORD).await.json()["remaining_steps"], 0);
    // and the other way round
    let mut begun = begin(&mut browser, "mfa", None).await;
    assert_eq!(browser.password("mfa", &begun.id, GRACE, crate::world::GRACE_PASSWORD).await.status, 200);
    let closed = prove(&mut browser, &begun, &adas).await;
    assert_eq!(closed.error(), "no_pending_challenge", "a proved step closes the challenge");
    begun.renew(&mut browser).await;
    let answer = prove(&mut browser, &begun, &adas).await;
    assert_eq!(outcome(&answer), (401, "invalid_assertion".to_owned()));
    begun.renew(&mut browser).await;
    assert_eq!(prove(&mut browser, &begun, &graces).await.json()["remaining_steps"], 0);
}

#[tokio::test]
async fn c120_a_deleted_passkey_proves_nothing_and_its_session_ends() {
    let world = world().await;
    let (mut owner, mut passkey) = (world.browser(), SoftPasskey::new());
    sign_in_fresh(&world, &mut owner, ADA).await;
    assert_eq!(add(&mut owner, &mut passkey).await.status, 201);
    let mut browser = world.browser();
    let begun = begin(&mut browser, "web", None).await;
    assert_eq!(prove(&mut browser, &begun, &passkey).await.status, 200);
    assert_eq!(browser.complete("web", &begun.id).await.status, 200);
    let late = begin(&mut browser, "web", None).await;
    let response = passkey.get(&late.options);

    let deleted = account(&mut owner, "/account/passkeys/delete", &json!({ "id": text(&passkey.id) })).await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    refused(&late.post(&mut browser, &response).await);
    let authorize = browser.authorize("web").await;
    assert_eq!(authorize.redirected("code"), None, "{authorize:?}");
}

#[tokio::test]
async fn relying_parties_and_origins_are_set_per_tenant() {
    let globex: Tenant = "globex".parse().unwrap();
    let passkeys = Passkeys::new(RP_ID).tenant(&globex, "globex.example", ["https://login.globex.example"]);
    let world = world_with(passkeys, |service| service).await;
    let mut browser = world.browser();
    assert_eq!(begin(&mut browser, "web", None).await.options["rpId"], RP_ID);
    assert_eq!(begin(&mut browser, "other", None).await.options["rpId"], "globex.example");
}

#[tokio::test]
async fn without_passkeys_the_method_is_unsupported_and_start_has_no_challenge() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut begun = begin(&mut browser, "web", None).await;
    assert_eq!(begun.options, Value::Null);
    assert_eq!(outcome(&begun.renew(&mut browser).await), (400, "unsupported_method".to_owned()));
}

#[tokio::test]
async fn c110_failures_end_the_login_and_lock_nobody_out() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    let mut stranger = world.browser();
    let mut begun = begin(&mut stranger, "web", Some(ADA)).await;
    let mut statuses = BTreeSet::new();
    for _ in 0..15 {
        let unknown = SoftPasskey::new();
        statuses.insert(outcome(&prove(&mut stranger, &begun, &unknown).await));
        begun.renew(&mut stranger).await;
    }
    let expected = [(401, "invalid_assertion"), (409, "session_failed")];
    assert_eq!(statuses, expected.map(|(status, error)| (status, error.to_owned())).into());
    let mut owner = world.browser();
    owner.address = [192, 0, 2, 9].into();
    let begun = begin(&mut owner, "web", Some(ADA)).await;
    assert_eq!(prove(&mut owner, &begun, &passkey).await.status, 200);
}

#[tokio::test]
async fn c110_an_account_at_its_ceiling_refuses_the_right_passkey_like_a_wrong_one() {
    let world = world().await;
    let passkey = enrolled(&world, ADA).await;
    // strangers have eighty of the hundred failures
    for _ in 0..80 {
        world.advance(3600);
        let mut stranger = world.browser();
        let begun = begin(&mut stranger, "web", Some(ADA)).await;
        let mut wrong = passkey.get(&begun.options);
        wrong["response"]["signature"] = json!(text(&[0; 70]));
        refused(&begun.post(&mut stranger, &wrong).await);
    }
    for (seconds, expected) in [(3600, 401), (86_400, 200)] {
        world.advance(seconds);
        let mut browser = world.browser();
        let begun = begin(&mut browser, "web", Some(ADA)).await;
        assert_eq!(prove(&mut browser, &begun, &passkey).await.status.as_u16(), expected);
    }
}

//! Validity over time: expiry, revocation and key rotation.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use proptest::prelude::*;

use super::{
    keys::{KeySource, Revocation},
    token::AccessToken,
    token::claims::AccessTokenClaims,
    verifier::{TokenError, Verifier},
};
use crate::{
    gate::MaybeReady,
    jose::{KeySet, Unavailable},
    store::BoxFuture,
    testing::{ManualClock, TestIssuer, block_on},
    util::clock::{Clock, UnixTime},
};

const API: &str = "https://api.example";

fn issuer() -> (TestIssuer, ManualClock) {
    let clock = ManualClock::new();
    (TestIssuer::new("https://auth.example", API).clock(clock.clone()), clock)
}

fn verify(verifier: &Verifier, token: &str) -> Result<AccessToken, TokenError> {
    block_on(verifier.verify(token).wait())
}

/// A remote key source of a test issuer, with counters of its calls.
#[derive(Clone)]
struct Far {
    issuer: TestIssuer,
    asked: Arc<Asked>,
}

#[derive(Default)]
struct Asked {
    keys: AtomicUsize,
    newer: AtomicUsize,
    revoked: AtomicUsize,
    revocation_is_down: AtomicBool,
}

async fn take_a_while() {
    let mut polled = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

impl KeySource for Far {
    fn keys(&self) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        self.asked.keys.fetch_add(1, SeqCst);
        let issuer = self.issuer.clone();
        MaybeReady::Pending(Box::pin(async move {
            take_a_while().await;
            issuer.keys().wait().await
        }))
    }

    fn newer_keys(&self, seen: &Arc<KeySet>) -> MaybeReady<BoxFuture<'static, Result<Arc<KeySet>, Unavailable>>> {
        self.asked.newer.fetch_add(1, SeqCst);
        let newer = self.issuer.newer_keys(seen);
        MaybeReady::Pending(Box::pin(async move {
            take_a_while().await;
            newer.wait().await
        }))
    }

    fn revocation(&self, claims: &AccessTokenClaims) -> Option<Box<dyn Revocation>> {
        Some(Box::new(FarRevocation { near: self.issuer.revocation(claims)?, asked: Arc::clone(&self.asked) }))
    }
}

struct FarRevocation {
    near: Box<dyn Revocation>,
    asked: Arc<Asked>,
}

impl Revocation for FarRevocation {
    fn is_revoked(&self) -> MaybeReady<BoxFuture<'static, Result<bool, Unavailable>>> {
        self.asked.revoked.fetch_add(1, SeqCst);
        let revoked = self.near.is_revoked();
        let down = self.asked.revocation_is_down.load(SeqCst);
        MaybeReady::Pending(Box::pin(async move {
            take_a_while().await;
            if down { Err(Unavailable) } else { revoked.wait().await }
        }))
    }
}

fn far() -> (Far, Verifier) {
    let (issuer, clock) = issuer();
    let source = Far { issuer, asked: Arc::default() };
    let verifier = Verifier::new(source.clone(), "https://auth.example", API, Arc::new(clock)).unwrap();
    (source, verifier)
}

#[test]
fn c097_a_token_is_valid_from_its_first_to_its_last_moment() {
    let now = |clock: &ManualClock| clock.unix(clock.now()).as_secs();
    for (leeway, cache) in [(0, 0), (0, 16), (5, 16), (60, 16)] {
        let (issuer, clock) = issuer();
        let verifier = issuer.verifier().to_builder().leeway(Duration::from_secs(leeway)).unwrap().cache(cache).build();
        let began = now(&clock);
        let token = issuer.token(|mut claims| {
            claims.0.nbf = Some(began + 100);
            claims
        });
        let counts_at = |seconds: u64| {
            clock.set_wall(UnixTime::from_secs(seconds));
            verify(&verifier, &token).is_ok()
        };
        for (at, expected) in [
            (began + 100 - leeway - 1, false),
            (began + 100 - leeway, true),
            (began + 600 + leeway - 1, true),
            (began + 600 + leeway, false),
            (began + 100 - leeway, true),
            (began + 100 - leeway - 1, false),
            (0, false),
            (u64::MAX / 1_000_000_000, false),
        ] {
            assert_eq!(counts_at(at), expected, "{at} with leeway {leeway} and cache {cache}");
        }
        clock.set_wall(UnixTime::from_secs(began));
        // issued in the future
        let token = issuer.token(|mut claims| {
            claims.0.iat += leeway + 1;
            claims
        });
        assert!(verify(&verifier, &token).is_err());
        clock.advance(Duration::from_secs(1));
        assert!(verify(&verifier, &token).is_ok());
    }
}

#[test]
fn c097_fractional_seconds_never_extend_a_token() {
    let (issuer, clock) = issuer();
    let verifier = issuer.verifier().to_builder().leeway(Duration::ZERO).unwrap().build();
    let began = clock.unix(clock.now()).as_secs();
    let at = |seconds: u64, fraction: f64| serde_json::json!(seconds as f64 + fraction);
    for (fraction, begins, ends) in [(0.0, 100, 200), (0.25, 101, 200), (0.75, 101, 200)] {
        for first in ["iat", "nbf"] {
            let mut claims = serde_json::to_value(issuer.claims().0).unwrap();
            claims["exp"] = at(began + 200, fraction);
            claims["auth_time"] = at(began - 50, fraction);
            claims[first] = at(began + 100, fraction);
            let token = issuer.sign("at+jwt", &claims);
            for (second, counts) in [(begins - 1, false), (begins, true), (ends - 1, true), (ends, false)] {
                clock.set_wall(UnixTime::from_secs(began + second));
                let found = verify(&verifier, &token);
                assert_eq!(found.is_ok(), counts, "{first} with {fraction} at {second}");
                let Ok(token) = found else { continue };
                assert_eq!(token.auth_time(), Some(UnixTime::from_secs(began - 50)));
            }
            clock.set_wall(UnixTime::from_secs(began));
        }
    }
}

#[test]
fn a_revoked_token_is_rejected_at_the_next_request() {
    let (issuer, _) = issuer();
    let verifier = issuer.verifier();
    let (token, other) = (issuer.token(|claims| claims), issuer.token(|claims| claims));
    assert!(verify(&verifier, &token).is_ok() && verify(&verifier, &other).is_ok());
    issuer.revoke(&token);
    assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Invalid);
    assert!(verify(&verifier, &other).is_ok());
}

#[test]
fn new_keys_are_fetched_when_named_and_old_ones_forgotten() {
    let (source, verifier) = far();
    let old = source.issuer.token(|claims| claims);
    assert!(verify(&verifier, &old).is_ok());
    source.issuer.rotate();
    // the new key is not in use yet
    assert!(verify(&verifier, &old).is_ok());
    assert_eq!(source.asked.newer.load(SeqCst), 0);
    let new = source.issuer.token(|claims| claims);
    assert!(verify(&verifier, &new).is_ok());
    assert_eq!(source.asked.newer.load(SeqCst), 1);
    // cached with keys that the issuer no longer uses; its key id is unknown now
    assert_eq!(verify(&verifier, &old).unwrap_err(), TokenError::Invalid);
    assert!(verify(&verifier, &new).is_ok());
}

#[test]
fn an_unknown_key_id_causes_one_request_and_a_bad_signature_causes_none() {
    let (source, verifier) = far();
    let (other, _) = issuer();
    assert_eq!(verify(&verifier, &other.token(|claims| claims)).unwrap_err(), TokenError::Invalid);
    assert_eq!(source.asked.newer.load(SeqCst), 1);
    let token = source.issuer.token(|claims| claims);
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert!(verify(&verifier, &format!("{signed}.AAAA")).is_err());
    assert!(verify(&verifier, "a.b.c").is_err());
    assert_eq!(source.asked.newer.load(SeqCst), 1);
    // revocation is not checked for invalid tokens
    assert_eq!(source.asked.revoked.load(SeqCst), 0);
}

#[test]
fn c114_tokens_are_not_accepted_without_keys_or_revocations() {
    let (source, verifier) = far();
    let token = source.issuer.token(|claims| claims);
    assert!(verify(&verifier, &token).is_ok());
    source.issuer.down(true);
    assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Unavailable);
    assert_eq!(verify(&source.issuer.verifier(), &token).unwrap_err(), TokenError::Unavailable);
    source.issuer.down(false);
    source.asked.revocation_is_down.store(true, SeqCst);
    assert_eq!(verify(&verifier, &token).unwrap_err(), TokenError::Unavailable);
    source.asked.revocation_is_down.store(false, SeqCst);
    assert!(verify(&verifier, &token).is_ok());
}

#[test]
fn a_cached_token_is_verified_synchronously() {
    let (issuer, _) = issuer();
    let verifier = issuer.verifier();
    let token = issuer.token(|claims| claims);
    for _ in 0..3 {
        assert!(matches!(verifier.verify(&token), MaybeReady::Ready(Ok(_))));
    }
    assert!(verifier.remembers(&token));
}

#[test]
fn c097_tokens_of_a_new_key_are_checked_for_expiry_and_revocation() {
    let (source, verifier) = far();
    let refused = |token: &str| assert_eq!(verify(&verifier, token).unwrap_err(), TokenError::Invalid);
    source.issuer.rotate();
    refused(&source.issuer.token(crate::testing::TestClaims::expired));
    source.issuer.rotate();
    let revoked = source.issuer.token(|claims| claims);
    source.issuer.revoke(&revoked);
    refused(&revoked);
    source.issuer.rotate();
    refused(&source.issuer.token(|claims| claims.audience("https://other.example")));
    assert_eq!(source.asked.newer.load(SeqCst), 3);
    assert!(verify(&verifier, &source.issuer.token(|claims| claims)).is_ok());
}

#[test]
fn verifiers_do_not_share_decisions() {
    let (issuer, clock) = issuer();
    let strict = issuer.verifier().to_builder().leeway(Duration::ZERO).unwrap().build();
    let wide = strict.to_builder().audience("https://other.example").unwrap().build();
    let lax = strict.to_builder().leeway(Duration::from_secs(60)).unwrap().build();
    let other = issuer.token(|claims| claims.audience("https://other.example"));
    assert!(verify(&wide, &other).is_ok());
    assert!(verify(&strict, &other).is_err());
    let token = issuer.token(|claims| claims.expires_in(Duration::from_secs(10)));
    clock.advance(Duration::from_secs(10));
    assert!(verify(&lax, &token).is_ok());
    assert!(verify(&strict, &token).is_err());
    assert_ne!(strict.number(), wide.number());
    assert_eq!(strict.number(), strict.clone().number());
}

proptest! {
    /// The cache never changes a result.
    #[test]
    fn the_cache_never_changes_a_result(
        size in prop_oneof![Just(0usize), 1..9usize, Just(64)],
        steps in prop::collection::vec((0..12usize, 0..40u64, 0..12u8), 1..60),
    ) {
        let (issuer, clock) = issuer();
        let (with, without) = (issuer.verifier().to_builder().cache(size).build(), issuer.verifier().to_builder().cache(0).build());
        let mut tokens: Vec<String> = (0..6)
            .map(|number| issuer.token(|claims| claims.expires_in(Duration::from_secs(50 * number))))
            .collect();
        for (place, wait, what) in steps {
            let token = tokens[place % tokens.len()].clone();
            match what {
                0 => issuer.revoke(&token),
                1 => issuer.rotate(),
                2 => tokens.push(issuer.token(|claims| claims.expires_in(Duration::from_secs(wait * 10)))),
                3 => clock.advance(Duration::from_secs(wait)),
                _ => {
                    // the one that fetches newer keys changes them for both
                    let _ = verify(&without, &token);
                    let answers = [&with, &without].map(|verifier| {
                        verify(verifier, &token).map(|token| token.id().to_owned())
                    });
                    prop_assert_eq!(&answers[0], &answers[1]);
                }
            }
        }
    }
}

#[test]
fn the_cache_is_limited_and_returns_the_right_token() {
    let (issuer, _) = issuer();
    let verifier = issuer.verifier().to_builder().cache(8).build();
    let tokens: Vec<String> = (0..50).map(|_| issuer.token(|claims| claims)).collect();
    let mut ids = HashSet::new();
    for token in tokens.iter().chain(&tokens) {
        ids.insert(verify(&verifier, token).unwrap().id().to_owned());
    }
    assert_eq!(ids.len(), 50);
    assert_eq!(verifier.remembered(), 8);
}

#[test]
fn tokens_that_expire_first_are_evicted() {
    let (issuer, _) = issuer();
    let verifier = issuer.verifier().to_builder().cache(4).build();
    let token = |seconds| issuer.token(|claims| claims.expires_in(Duration::from_secs(seconds)));
    let tokens: Vec<String> = [400, 100, 300, 200, 500].map(token).to_vec();
    for token in &tokens {
        verify(&verifier, token).unwrap();
    }
    let kept: Vec<bool> = tokens.iter().map(|token| verifier.remembers(token)).collect();
    assert_eq!(kept, [true, false, true, true, true]);
}

/// Each of many threads gets the token that it asked for.
#[test]
fn threads_share_a_cache() {
    let (issuer, _) = issuer();
    let verifier = issuer.verifier().to_builder().cache(8).build();
    let tokens: Vec<(String, String)> =
        (0..16).map(|number| (issuer.token(|claims| claims.id(&number.to_string())), number.to_string())).collect();
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for start in 0..4 {
            let (tokens, verifier, wrong) = (&tokens, &verifier, &wrong);
            scope.spawn(move || {
                for round in 0..200 {
                    let (token, id) = &tokens[(start * 5 + round * 7) % tokens.len()];
                    if verify(verifier, token).unwrap().id() != id {
                        wrong.lock().unwrap().push(id.clone());
                    }
                }
            });
        }
    });
    assert!(wrong.lock().unwrap().is_empty());
}

#[tokio::test]
async fn static_keys_work() {
    let issuer = TestIssuer::new("https://auth.example", API);
    let jwks = issuer.keys().wait().await.unwrap().to_json();
    let verifier = Verifier::with_keys("https://auth.example", API, &jwks).unwrap();
    let now = crate::clock::SystemClock::new();
    let now = now.unix(now.now()).as_secs();
    let timely = |mut claims: crate::testing::TestClaims| {
        (claims.0.iat, claims.0.exp) = (now, now + 600);
        claims.subject("ada")
    };
    assert_eq!(verifier.verify(&issuer.token(timely)).wait().await.unwrap().subject(), "ada");
    let other = TestIssuer::new("https://auth.example", API);
    assert_eq!(verifier.verify(&other.token(timely)).wait().await.unwrap_err(), TokenError::Invalid);
    for bad in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AA"}]}"#] {
        assert!(Verifier::with_keys("https://auth.example", API, bad.as_bytes()).is_err(), "{bad}");
    }
}

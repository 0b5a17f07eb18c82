//! The examples of the RFC, and proofs of broken clients and of thieves.

#![cfg(feature = "login")]

use std::{sync::Arc, thread, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    nonce::Nonces,
    proof::DpopError::{self, Invalid, Unavailable, UseNonce},
    verifier::DpopVerifier,
};
use crate::{
    gate::MaybeReady,
    jose::Algorithm,
    store::{
        AnyStore, BoxFuture, Entry, Key, Memory, Record, Store, StoreError, StoreErrorKind, Version, WriteOutcome,
    },
    testing::{DpopKey, DpopProof, ManualClock, block_on},
    util::{
        clock::{Clock, UnixTime},
        secret::Secret,
    },
};

const URL: &str = "https://api.example/me";
const TOKEN: &str = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU";

const MALFORMED: DpopError = Invalid("the proof is malformed");
const NOT_OF_ITS_KEY: DpopError = Invalid("the proof is not signed by the key that it contains");
const NO_KEY: DpopError = Invalid("the proof contains no key of a supported type and size");
const BAD_CLAIMS: DpopError = Invalid("jti, htm, htu or iat is missing, or a claim is malformed");
const USED: DpopError = Invalid("the proof was already used");
const TOO_OLD: DpopError = Invalid("the proof is too old");
const TO_COME: DpopError = Invalid("the proof was issued in the future");
const BAD_JTI: DpopError = Invalid("the jti must be 1 to 256 bytes long");
const OTHER_TOKEN: DpopError = Invalid("the proof is not for this access token");

/// A verifier, and the key of a client with the same clock.
struct World {
    clock: ManualClock,
    key: DpopKey,
    proofs: DpopVerifier,
}

impl World {
    fn new() -> Self {
        Self::with(|clock| DpopVerifier::in_memory(Arc::new(clock)))
    }

    fn with(proofs: impl FnOnce(ManualClock) -> DpopVerifier) -> Self {
        let clock = ManualClock::new();
        Self { key: DpopKey::generate(), proofs: proofs(clock.clone()), clock }
    }

    fn now(&self) -> UnixTime {
        self.clock.unix(self.clock.now())
    }

    fn good(&self) -> DpopProof<'_> {
        self.key.proof("GET", URL).issued_at(self.now())
    }

    /// Checks a proof for a GET request without a token. Returns the thumbprint.
    fn check(&self, proof: &str) -> Result<String, DpopError> {
        self.check_with(proof, None)
    }

    fn check_with(&self, proof: &str, token: Option<&str>) -> Result<String, DpopError> {
        let found = block_on(self.proofs.check(&headers([proof]), &Method::GET, URL, token).wait());
        found.map(Option::unwrap)
    }

    /// Checks a correctly signed proof with this content.
    fn check_signed(&self, header: &Value, claims: &Value) -> Result<String, DpopError> {
        self.check(&self.key.sign(&header.to_string(), &claims.to_string()))
    }
}

fn headers<const N: usize>(proofs: [&str; N]) -> HeaderMap {
    proofs.iter().map(|proof| (http::HeaderName::from_static("dpop"), HeaderValue::from_str(proof).unwrap())).collect()
}

fn nonces(key: &Secret) -> Arc<Nonces> {
    Arc::new(Nonces::new(key))
}

fn without(object: &Value, member: &str) -> Value {
    let mut rest = object.clone();
    rest.as_object_mut().unwrap().remove(member);
    rest
}

fn with(object: &Value, member: &str, value: impl Into<Value>) -> Value {
    let mut more = object.clone();
    more[member] = value.into();
    more
}

#[test]
fn c100_the_proofs_of_rfc_9449_sections_4_1_and_7_1() {
    const JWK: &str = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19";
    const FOR_A_TOKEN: &str = "eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg";
    const FOR_A_RESOURCE: &str = "eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA";
    const THUMBPRINT: &str = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
    let world = World::new();
    world.clock.set_wall(UnixTime::from_secs(1_562_262_618));
    let check = |proof: &str, method: Method, url: &str, token: Option<&str>| {
        let found = block_on(world.proofs.check(&headers([&format!("{JWK}.{proof}")]), &method, url, token).wait());
        found.map(Option::unwrap)
    };
    let (token_url, resource_url) =
        ("https://server.example.com/token", "https://resource.example.org/protectedresource");
    let other = check(FOR_A_RESOURCE, Method::GET, resource_url, Some("another"));
    assert_eq!(other, Err(OTHER_TOKEN));
    assert_eq!(check(FOR_A_TOKEN, Method::POST, token_url, None).unwrap(), THUMBPRINT);
    assert_eq!(check(FOR_A_RESOURCE, Method::GET, resource_url, Some(TOKEN)).unwrap(), THUMBPRINT);
    assert_eq!(check(FOR_A_TOKEN, Method::POST, token_url, None), Err(USED));
}

#[test]
fn c100_every_key_type_is_accepted_and_a_missing_proof_is_not_an_error() {
    for algorithm in Algorithm::ALL {
        let world = World { key: DpopKey::of_algorithm(*algorithm), ..World::new() };
        assert_eq!(world.check(&world.good().sign()).unwrap(), world.key.thumbprint());
        let bound = world.good().token(TOKEN).sign();
        assert_eq!(world.check_with(&bound, Some(TOKEN)).unwrap(), world.key.thumbprint());
    }
    let none = block_on(World::new().proofs.check(&HeaderMap::new(), &Method::GET, URL, Some(TOKEN)).wait());
    assert_eq!(none, Ok(None));
}

#[test]
fn b23_a_proof_can_name_its_algorithm_ed25519() {
    let world = World { key: DpopKey::of_algorithm(Algorithm::EdDsa), ..World::new() };
    for (alg, expected) in
        [("EdDSA", Ok(world.key.thumbprint())), ("Ed25519", Ok(world.key.thumbprint())), ("Ed448", Err(NOT_OF_ITS_KEY))]
    {
        let header = with(&world.key.header(), "alg", alg);
        let proof = world.good();
        assert_eq!(world.check_signed(&header, proof.claims()), expected.map(str::to_owned), "{alg}");
    }
    // it is not the algorithm of another key
    let world = World::new();
    let header = with(&world.key.header(), "alg", "Ed25519");
    assert_eq!(world.check_signed(&header, world.good().claims()), Err(NOT_OF_ITS_KEY));
}

#[test]
fn c100_a_proof_must_match_its_request() {
    let world = World::new();
    let now = world.now().as_secs();
    for method in ["POST", "get", "Get", "GET ", ""] {
        let proof = world.good().claim("htm", method).sign();
        assert_eq!(world.check(&proof), Err(Invalid("the proof is for another method")), "{method}");
    }
    for url in ["http://api.example/me", "https://api.example/me/", "https://api.example:8443/me", "/me", ""] {
        let proof = world.good().claim("htu", url).sign();
        assert_eq!(world.check(&proof), Err(Invalid("the proof is for another URL")), "{url}");
    }
    for url in ["HTTPS://API.example:443/me", "https://api.example/me?a=b", "https://api.example/%6De#c"] {
        assert!(world.check(&world.good().claim("htu", url).sign()).is_ok(), "{url}");
    }
    for iat in [0, now - 61, now - 3600] {
        assert_eq!(world.check(&world.good().claim("iat", iat).sign()), Err(TOO_OLD), "{iat}");
    }
    for iat in [now + 11, now + 3600, u64::MAX] {
        assert_eq!(world.check(&world.good().claim("iat", iat).sign()), Err(TO_COME), "{iat}");
    }
    for iat in [now - 60, now + 10] {
        assert!(world.check(&world.good().claim("iat", iat).sign()).is_ok(), "{iat}");
    }
    for jti in [String::new(), "j".repeat(257), "é".repeat(129)] {
        assert_eq!(world.check(&world.good().id(&jti).sign()), Err(BAD_JTI), "{jti}");
    }
    for jti in ["j", &"j".repeat(256), "\0\"é"] {
        assert!(world.check(&world.good().id(jti).sign()).is_ok(), "{jti}");
    }
    let claims = world.good().claims().clone();
    for member in ["jti", "htm", "htu", "iat"] {
        let header = world.key.header();
        assert_eq!(world.check_signed(&header, &without(&claims, member)), Err(BAD_CLAIMS), "{member}");
        assert_eq!(world.check_signed(&header, &with(&claims, member, json!([]))), Err(BAD_CLAIMS), "{member}");
    }
}

#[test]
fn c100_fractional_times_are_rounded_down() {
    let world = World::new();
    let now = world.now().as_secs() as f64;
    for iat in [now, now + 0.5, now + 10.5, now - 60.0] {
        assert!(world.check(&world.good().claim("iat", iat).sign()).is_ok(), "{iat}");
    }
    assert_eq!(world.check(&world.good().claim("iat", now - 60.5).sign()), Err(TOO_OLD));
    assert_eq!(world.check(&world.good().claim("iat", now + 11.0).sign()), Err(TO_COME));
    for iat in [-1.0, 1e300] {
        assert_eq!(world.check(&world.good().claim("iat", iat).sign()), Err(BAD_CLAIMS), "{iat}");
    }
}

#[test]
fn c100_rsa_keys_are_neither_short_nor_expensive() {
    let world = World::new();
    let claims = world.good().claims().to_string();
    let number = |bytes: usize| BASE64URL.encode([&[0xc5], &vec![1; bytes - 1][..]].concat());
    let check = |n: usize, e: usize| {
        let jwk = json!({ "kty": "RSA", "n": number(n), "e": number(e) });
        let header = json!({ "typ": "dpop+jwt", "alg": "RS256", "jwk": jwk }).to_string();
        let parts = [BASE64URL.encode(header), BASE64URL.encode(&claims), number(n)];
        world.check(&parts.join("."))
    };
    // the signatures are invalid: the error shows whether they were checked
    for n in [256, 384, 512] {
        assert_eq!((check(n, 3), check(n, 4)), (Err(NOT_OF_ITS_KEY), Err(NOT_OF_ITS_KEY)), "{n}");
    }
    for (n, e) in [(255, 3), (513, 3), (1024, 3), (256, 5), (256, 256)] {
        assert_eq!(check(n, e), Err(NO_KEY), "{n} and {e}");
    }
}

#[test]
fn c100_a_proof_with_a_token_must_name_it() {
    let world = World::new();
    let check = |proof: DpopProof<'_>| world.check_with(&proof.sign(), Some(TOKEN));
    assert_eq!(check(world.good()), Err(OTHER_TOKEN));
    assert_eq!(check(world.good().token("another")), Err(OTHER_TOKEN));
    for ath in ["", "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo=", "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQE", TOKEN]
    {
        assert_eq!(check(world.good().claim("ath", ath)), Err(OTHER_TOKEN), "{ath}");
    }
    assert!(check(world.good().claim("ath", "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo")).is_ok());
    // without a token, `ath` is ignored
    assert!(world.check(&world.good().token(TOKEN).sign()).is_ok());
}

#[test]
fn c100_the_header_must_contain_a_public_signing_key() {
    let world = World::new();
    let (header, claims) = (world.key.header(), world.good().claims().clone());
    let other = DpopKey::generate();
    let rsa = DpopKey::of_algorithm(Algorithm::Rs256).header();
    let jwk = |member: &str, value: &str| with(&header, "jwk", with(&header["jwk"], member, value));
    for (what, bad) in [
        ("the key of somebody else", with(&header, "jwk", other.header()["jwk"].clone())),
        ("alg none", with(&header, "alg", "none")),
        ("alg HS256", with(&header, "alg", "HS256")),
        ("alg of another key", with(&header, "alg", "EdDSA")),
        ("alg in another case", with(&header, "alg", "es256")),
        ("a key of another type", with(&header, "jwk", rsa["jwk"].clone())),
        ("a point that is not on the curve", jwk("x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
    ] {
        assert_eq!(world.check_signed(&bad, &claims), Err(NOT_OF_ITS_KEY), "{what}");
    }
    for (what, bad) in [
        ("a symmetric key", with(&header, "jwk", json!({ "kty": "oct", "k": "AAAA" }))),
        ("a key with its private half", jwk("d", "AAAA")),
        ("a key on another curve", jwk("crv", "P-384")),
        ("a truncated point", jwk("x", "AAAA")),
        ("no key", without(&header, "jwk")),
        ("only a key id", with(&without(&header, "jwk"), "kid", world.key.thumbprint())),
    ] {
        assert_eq!(world.check_signed(&bad, &claims), Err(NO_KEY), "{what}");
    }
    for (what, bad) in [
        ("no typ", without(&header, "typ")),
        ("a plain token", with(&header, "typ", "JWT")),
        ("an access token", with(&header, "typ", "at+jwt")),
        ("an unknown critical extension", with(&header, "crit", json!(["b64"]))),
        ("an empty list of critical extensions", with(&header, "crit", json!([]))),
        ("no alg", without(&header, "alg")),
        ("a key that is a string", with(&header, "jwk", "{}")),
    ] {
        assert_eq!(world.check_signed(&bad, &claims), Err(MALFORMED), "{what}");
    }
    assert!(world.check_signed(&header, &claims).is_ok());
}

#[test]
fn c100_ambiguous_proofs_are_rejected() {
    let world = World::new();
    let (header, claims) = (world.key.header().to_string(), world.good().claims().to_string());
    let twice = |text: &str, member: &str| text.replacen('{', &format!("{{{member},"), 1);
    let sign = |header: &str, claims: &str| world.check(&world.key.sign(header, claims));
    assert_eq!(sign(&twice(&header, r#""alg":"ES256""#), &claims), Err(MALFORMED));
    assert_eq!(sign(&header, &twice(&claims, r#""htm":"GET""#)), Err(BAD_CLAIMS));
    assert_eq!(sign(&header, "[]"), Err(BAD_CLAIMS));
    assert_eq!(sign("null", &claims), Err(MALFORMED));

    let good = world.good().sign();
    let two = block_on(world.proofs.check(&headers([&good, &good]), &Method::GET, URL, None).wait());
    assert_eq!(two, Err(Invalid("the DPoP header appears more than once")));
    for bad in
        ["", ".", "..", &format!("{good}."), &format!("{good}="), &format!("{good}, {good}"), &good[..good.len() / 2]]
    {
        assert!(matches!(world.check(bad), Err(Invalid(_))), "{bad}");
    }
    let (signed, _) = good.rsplit_once('.').unwrap();
    for signature in ["", "AAAA", &"A".repeat(86)] {
        assert_eq!(world.check(&format!("{signed}.{signature}")), Err(NOT_OF_ITS_KEY), "{signature}");
    }
    let long = world.good().claim("more", "m".repeat(8 * 1024)).sign();
    assert_eq!(world.check(&long), Err(Invalid("the proof is too long")));
    assert!(world.check(&good).is_ok(), "rejected proofs are not marked as used");
}

fn everywhere() -> Vec<(&'static str, World)> {
    vec![
        ("memory", World::new()),
        ("a store", World::with(|clock| DpopVerifier::in_store(Memory::new().into(), Arc::new(clock)))),
    ]
}

#[test]
fn c100_a_proof_is_accepted_once_until_it_is_too_old() {
    for (place, world) in everywhere() {
        // issued as far in the future as allowed
        let proof = world.good().issued_at(world.now() + Duration::from_secs(10)).id("a").sign();
        assert!(world.check(&proof).is_ok(), "{place}");
        let other = DpopKey::generate();
        assert!(
            world.check(&other.proof("GET", URL).issued_at(world.now()).id("a").sign()).is_ok(),
            "{place}: of another key"
        );
        assert!(world.check(&world.good().id("b").sign()).is_ok(), "{place}: under another name");
        for _ in 0..70 {
            assert_eq!(world.check(&proof), Err(USED), "{place}");
            // a new signature does not make a new proof
            assert_eq!(world.check(&world.good().id("a").sign()), Err(USED), "{place}");
            world.clock.advance(Duration::from_secs(1));
        }
        assert_eq!(world.check(&proof), Err(USED), "{place}");
        world.clock.advance(Duration::from_nanos(1));
        assert_eq!(world.check(&proof), Err(TOO_OLD), "{place}");
        world.clock.advance(Duration::from_secs(140));
        assert!(world.check(&world.good().id("a").sign()).is_ok(), "{place}: the name is free again");
    }
}

#[test]
fn c100_rejected_proofs_are_not_marked_as_used() {
    for (place, world) in everywhere() {
        let proof = world.good().token(TOKEN).sign();
        let check = |method: Method, url: &str, token| {
            block_on(world.proofs.check(&headers([&proof]), &method, url, token).wait()).map(drop)
        };
        assert!(check(Method::POST, URL, Some(TOKEN)).is_err());
        assert!(check(Method::GET, "https://api.example/", Some(TOKEN)).is_err());
        assert!(check(Method::GET, URL, Some("another")).is_err());
        let headers = headers([&proof]);
        let read = world.proofs.read_unverified_proof(&headers, &Method::GET, URL, Some(TOKEN)).unwrap().unwrap();
        assert_eq!(read.thumbprint(), world.key.thumbprint());
        assert_eq!(read.verify().unwrap().thumbprint(), world.key.thumbprint());
        assert_eq!(check(Method::GET, URL, Some(TOKEN)), Ok(()), "{place}");
    }
}

#[test]
fn a02_one_key_fills_a_store_only_up_to_its_limit() {
    let world = World::with(|clock| DpopVerifier::in_store(Memory::new().into(), Arc::new(clock)).with_rows(3));
    let first = world.good().sign();
    assert!(world.check(&first).is_ok());
    // repeating a proof takes no room
    for _ in 0..5 {
        assert_eq!(world.check(&first), Err(USED));
    }
    for _ in 0..2 {
        assert!(world.check(&world.good().sign()).is_ok());
    }
    assert_eq!(world.check(&world.good().sign()), Err(Unavailable));
    let other = DpopKey::generate();
    assert!(
        world.check(&other.proof("GET", URL).issued_at(world.now()).sign()).is_ok(),
        "other keys are not concerned"
    );
    // the rows are gone by then
    world.clock.advance(Duration::from_secs(70));
    assert!(world.check(&world.good().sign()).is_ok());
}

/// Checks one proof on many threads at once, and returns how often it is accepted.
fn taken(world: &World, threads: usize) -> usize {
    let proof = world.good().sign();
    thread::scope(|scope| {
        let checks: Vec<_> = (0..threads).map(|_| scope.spawn(|| world.check(&proof))).collect();
        let found: Vec<_> = checks.into_iter().map(|check| check.join().unwrap()).collect();
        assert!(found.iter().all(|found| matches!(found, Ok(_) | Err(USED))), "{found:?}");
        found.iter().filter(|found| found.is_ok()).count()
    })
}

#[test]
fn c100_of_many_checks_of_one_proof_at_once_one_succeeds() {
    for (place, world) in everywhere() {
        for _ in 0..20 {
            assert_eq!(taken(&world, 64), 1, "{place}");
        }
    }
}

#[cfg(feature = "store-disk")]
#[test]
fn c100_of_many_checks_of_one_proof_at_once_one_succeeds_on_disk_and_after_a_restart() {
    let path = std::env::temp_dir().join(format!("tollgate-dpop-{}.redb", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let open = |clock| DpopVerifier::in_store(crate::store::Disk::open(&path).unwrap().into(), Arc::new(clock));
    let mut world = World::with(open);
    assert_eq!(taken(&world, 64), 1);
    let proof = world.good().sign();
    assert!(world.check(&proof).is_ok());
    world.proofs = DpopVerifier::in_memory(Arc::new(world.clock.clone()));
    world.proofs = open(world.clock.clone());
    assert_eq!(world.check(&proof), Err(USED));
    drop(world);
    std::fs::remove_file(&path).unwrap();
}

/// A store that is slow or fails.
struct Odd {
    memory: Memory,
    clock: ManualClock,
    takes: Duration,
    fails: bool,
}

impl Store for Odd {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let found: MaybeReady<BoxFuture<'static, _>> = MaybeReady::Ready(block_on(self.memory.get(key).wait()));
        found
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.clock.advance(self.takes);
        if self.fails {
            return Err(StoreErrorKind::Unavailable.into());
        }
        self.memory.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.memory.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.memory.take(key).await
    }
}

fn odd(takes: Duration, fails: bool) -> World {
    World::with(|clock| {
        let store = Odd { memory: Memory::new(), clock: clock.clone(), takes, fails };
        DpopVerifier::in_store(AnyStore::from(store), Arc::new(clock))
    })
}

#[test]
fn c100_a_proof_that_cannot_be_remembered_is_rejected() {
    let world = odd(Duration::ZERO, true);
    assert_eq!(world.check(&world.good().sign()), Err(Unavailable));
    // the store may forget the proof once it is too old, so it must be rejected then
    let world = odd(Duration::from_secs(60), false);
    let proof = world.good().sign();
    assert!(world.check(&proof).is_ok());
    let world = odd(Duration::from_secs(61), false);
    assert_eq!(world.check(&world.good().sign()), Err(TOO_OLD));
}

#[test]
fn c100_a_required_nonce_changes_with_time() {
    assert_eq!(World::new().proofs.nonce(), None);
    let key = Secret::generate();
    let world = World::with(|clock| DpopVerifier::in_memory(Arc::new(clock)).with_nonces(nonces(&key)));
    let first = world.proofs.nonce().unwrap();
    let demanded = |nonce: &str| Err(UseNonce(nonce.to_owned()));
    assert_eq!(world.check(&world.good().sign()), demanded(&first));
    for nonce in ["", "made up", Secret::generate().expose(), &format!("{first}=")] {
        assert_eq!(world.check(&world.good().nonce(nonce).sign()), demanded(&first), "{nonce}");
    }
    let proof = world.good().nonce(&first).sign();
    assert!(world.check(&proof).is_ok());
    assert_eq!(world.check(&proof), Err(USED));
    world.clock.advance(Duration::from_secs(180));
    let second = world.proofs.nonce().unwrap();
    assert_ne!(first, second);
    for nonce in [&first, &second] {
        assert!(world.check(&world.good().nonce(nonce).sign()).is_ok());
    }
    world.clock.advance(Duration::from_secs(180));
    let third = world.proofs.nonce().unwrap();
    assert_eq!(world.check(&world.good().nonce(&first).sign()), demanded(&third));
    assert!(world.check(&world.good().nonce(&second).sign()).is_ok());
    // without a valid proof, no nonce is revealed
    assert_eq!(world.check("a.b.c"), Err(MALFORMED));
    let other = World::with(|clock| DpopVerifier::in_memory(Arc::new(clock)).with_nonces(nonces(&Secret::generate())));
    assert!(matches!(other.check(&other.good().nonce(&first).sign()), Err(UseNonce(_))));
}

#[test]
fn debug_shows_no_secret_and_no_proof() {
    let world = World::with(|clock| DpopVerifier::in_memory(Arc::new(clock)).with_nonces(nonces(&Secret::generate())));
    let text = format!("{:?}", world.proofs);
    assert!(text.contains("Nonces(..)") && !text.contains(&world.proofs.nonce().unwrap()), "{text}");
}

proptest! {
    #[test]
    fn arbitrary_input_neither_panics_nor_proves_anything(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        near in "[A-Za-z0-9_.-]{0,60}",
        header in any::<String>(),
        claims in any::<String>(),
        place in any::<prop::sample::Index>(),
        byte in prop::sample::select(b"AQgw-_.".as_slice()),
    ) {
        let world = World::new();
        let mut changed = world.good().sign().into_bytes();
        let at = place.index(changed.len());
        let unchanged = changed[at] == byte;
        changed[at] = byte;
        let signed = world.key.sign(&header, &claims);
        for value in [bytes, near.into_bytes(), signed.into_bytes()] {
            let Ok(value) = HeaderValue::from_bytes(&value) else { continue };
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static("dpop"), value)]);
            prop_assert!(block_on(world.proofs.check(&headers, &Method::GET, URL, None).wait()).is_err());
        }
        prop_assert_eq!(world.check(std::str::from_utf8(&changed).unwrap()).is_ok(), unchanged);
    }
}

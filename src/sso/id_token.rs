//! The checks of an ID token (OpenID Connect Core §3.1.3.7).

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    bearer::Audience,
    jose::{
        JwsAlgorithm, KeySet, date,
        jws::{ClaimsError, Unverified},
    },
    sso::{provider::SsoError, user::ProviderUser},
    util::{clock::UnixTime, error::ConfigError},
};

/// The longest subject (OpenID Connect Core §2).
const LONGEST_SUBJECT: usize = 255;
const PLACEHOLDER: &str = "{tenantid}";
const LONGEST_DIRECTORY: usize = 64;
const UNSUPPORTED_ALGORITHM: &str =
    "the ID token is signed with an unsupported algorithm; use RS256, PS256, ES256, ES384 or EdDSA";

/// The issuer that ID tokens must name.
#[derive(Clone, Debug)]
pub(super) enum ExpectedIssuer {
    Exact(String),
    /// Each directory is an issuer of its own, whose name has the claim `tid` between these two parts.
    Template {
        before: String,
        after: String,
    },
}

/// The requirements for an ID token.
#[derive(Clone, Debug)]
pub(super) struct IdTokenRules {
    pub(super) issuer: ExpectedIssuer,
    pub(super) client_id: String,
    pub(super) skew: Duration,
    pub(super) max_age: Option<Duration>,
    /// One of these is required, if there are any.
    pub(super) acr: Vec<String>,
    /// All of these are required.
    pub(super) amr: Vec<String>,
    /// Claims that must have these values.
    pub(super) claims: Vec<(String, String)>,
}

/// The result of a check with one set of keys.
pub(super) enum IdTokenCheck {
    Good(Box<ProviderUser>),
    /// The token names a key that is not in the set.
    UnknownKey,
    Bad(SsoError),
}

#[derive(Deserialize)]
pub(super) struct IdTokenClaims {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    #[serde(deserialize_with = "date::floor")]
    exp: u64,
    #[serde(deserialize_with = "date::ceil")]
    iat: u64,
    #[serde(default, deserialize_with = "date::ceil_if_any")]
    nbf: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    auth_time: Option<Seconds>,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    acr: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    amr: Option<Vec<String>>,
    #[serde(flatten)]
    profile: ProfileClaims,
}

#[derive(Deserialize)]
struct Seconds(#[serde(deserialize_with = "date::floor")] u64);

/// Claims about the person, which can also come from the userinfo endpoint.
#[derive(Default, Deserialize)]
pub(super) struct ProfileClaims {
    #[serde(default, deserialize_with = "lenient")]
    email: Option<String>,
    #[serde(default, deserialize_with = "true_or_text")]
    email_verified: bool,
    #[serde(default, deserialize_with = "lenient")]
    name: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl ProfileClaims {
    fn has(&self, (name, value): &(String, String)) -> bool {
        self.more.get(name).and_then(Value::as_str) == Some(value)
    }

    pub(super) fn add_to_user(self, user: ProviderUser, may_vouch: bool) -> ProviderUser {
        let user = user.with_claims(self.more);
        let user = match self.email {
            Some(email) => user.with_email(email, self.email_verified && may_vouch),
            None => user,
        };
        match self.name {
            Some(name) => user.with_name(name),
            None => user,
        }
    }
}

/// Reads a claim that few need: one of another type is wrong only where it is required.
fn lenient<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(T::deserialize(Value::deserialize(deserializer)?).ok())
}

/// A claim, whether a value is readable, and what to report otherwise.
type ClaimCheck = (&'static str, fn(&Value) -> bool, &'static str);

/// Names the claim because of which signed claims can't be read.
fn malformed_claim(claims: Option<&Map<String, Value>>) -> &'static str {
    fn is<T: DeserializeOwned>(value: &Value) -> bool {
        T::deserialize(value).is_ok()
    }
    let needed: [ClaimCheck; 5] = [
        ("iss", is::<String>, "the claim iss of the ID token is missing or malformed"),
        ("sub", is::<String>, "the claim sub of the ID token is missing or malformed"),
        ("aud", is::<Audience>, "the claim aud of the ID token is missing or malformed"),
        ("exp", is::<Seconds>, "the claim exp of the ID token is missing or malformed"),
        ("iat", is::<Seconds>, "the claim iat of the ID token is missing or malformed"),
    ];
    let optional: [ClaimCheck; 3] = [
        ("azp", is::<Option<String>>, "the claim azp of the ID token is malformed"),
        ("nbf", is::<Option<Seconds>>, "the claim nbf of the ID token is malformed"),
        ("nonce", is::<Option<String>>, "the claim nonce of the ID token is malformed"),
    ];
    let get = |name: &str| claims.and_then(|claims| claims.get(name));
    let is_needed = needed.iter().find(|(name, is, _)| !get(name).is_some_and(is));
    let wrong = is_needed.or_else(|| optional.iter().find(|(name, is, _)| get(name).is_some_and(|value| !is(value))));
    wrong.map_or("the claims of the ID token are malformed", |(.., reason)| reason)
}

/// Some providers write booleans as text.
fn true_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value == Value::Bool(true) || value.as_str() == Some("true"))
}

impl ExpectedIssuer {
    pub(super) fn template(text: &str) -> Result<Self, ConfigError> {
        let parts = text.split_once(PLACEHOLDER).filter(|(before, _)| before.starts_with("https://"));
        let (before, after) = parts.ok_or_else(|| {
            ConfigError::new("issuer template", text, "must be an https URL that contains {tenantid}")
        })?;
        Ok(Self::Template { before: before.to_owned(), after: after.to_owned() })
    }

    /// Returns whether this could be the name of the issuer.
    pub(super) fn may_be(&self, name: &str) -> bool {
        match self {
            Self::Exact(own) => own == name,
            Self::Template { before, after } => {
                let directory = name.strip_prefix(before.as_str()).and_then(|rest| rest.strip_suffix(after.as_str()));
                directory.is_some_and(is_directory)
            }
        }
    }

    fn is(&self, claims: &IdTokenClaims) -> bool {
        match self {
            Self::Exact(own) => *own == claims.iss,
            Self::Template { before, after } => {
                let directory = claims.profile.more.get("tid").and_then(Value::as_str).unwrap_or_default();
                is_directory(directory) && claims.iss == format!("{before}{directory}{after}")
            }
        }
    }

    /// Returns whether the issuer can vouch for e-mail addresses. Anyone can open a directory and put any address into it.
    pub(super) fn may_vouch(&self) -> bool {
        matches!(self, Self::Exact(_))
    }
}

fn is_directory(text: &str) -> bool {
    (1..=LONGEST_DIRECTORY).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

impl IdTokenRules {
    /// Checks an ID token. `issuer` is the issuer that the callback named, if it named one.
    pub(super) fn check(
        &self,
        token: &str,
        keys: &KeySet,
        (nonce, issuer): (&str, Option<&str>),
        now: UnixTime,
    ) -> IdTokenCheck {
        // `none` and symmetric algorithms don't exist here
        let Some(unverified) = Unverified::parse_any(token) else { return bad("the ID token is malformed") };
        if unverified.has_type() && !unverified.is_type("JWT") {
            return bad("the ID token has another type");
        }
        let claims: IdTokenClaims = match unverified.claims_with(keys, &[JwsAlgorithm::Es384, JwsAlgorithm::Ps256]) {
            Ok(claims) => claims,
            Err(ClaimsError::Malformed) => return bad(malformed_claim(unverified.unverified_claims().as_ref())),
            Err(ClaimsError::Algorithm) => return bad(UNSUPPORTED_ALGORITHM),
            Err(ClaimsError::Signature) if unverified.kid().is_some_and(|kid| keys.names(kid)) => {
                return bad("the ID token has a wrong signature");
            }
            Err(ClaimsError::Signature) => return IdTokenCheck::UnknownKey,
        };
        match self.wrong(&claims, (nonce, issuer), now) {
            Some(reason) => bad(reason),
            None => {
                let IdTokenClaims { iss, sub, acr, amr, auth_time, profile, .. } = claims;
                let user = ProviderUser::new(iss, sub).with_authentication(acr, amr.unwrap_or_default());
                let user = match auth_time {
                    Some(Seconds(time)) => user.with_auth_time(UnixTime::from_secs(time), self.skew),
                    None => user,
                };
                IdTokenCheck::Good(Box::new(profile.add_to_user(user, self.issuer.may_vouch())))
            }
        }
    }

    /// Returns what is wrong with the claims, if anything is.
    fn wrong(
        &self,
        claims: &IdTokenClaims,
        (nonce, issuer): (&str, Option<&str>),
        now: UnixTime,
    ) -> Option<&'static str> {
        let has_own = claims.aud.has(&self.client_id);
        let is_own = |name: &str| name == self.client_id;
        let is_authorized = match claims.azp.as_deref() {
            Some(party) => party == self.client_id,
            None => claims.aud.iter().count() == 1,
        };
        let at = UnixTime::from_secs;
        let auth_time = claims.auth_time.as_ref();
        let is_old = |age: Duration| auth_time.is_some_and(|Seconds(time)| at(*time) + age + self.skew < now);
        let has_acr = claims.acr.as_ref().is_some_and(|acr| self.acr.contains(acr));
        let has_amr = |method| claims.amr.as_ref().is_some_and(|methods| methods.contains(method));
        let lacking = self.claims.iter().find(|claim| !claims.profile.has(claim));
        if let Some((name, _)) = lacking {
            crate::util::trace::warning!("an ID token lacks the required claim {name}, or has another value there");
        }
        [
            (
                !self.issuer.is(claims) || issuer.is_some_and(|named| named != claims.iss),
                "the ID token has another issuer",
            ),
            (!has_own || !claims.aud.iter().all(is_own), "the ID token is for another audience"),
            (!is_authorized, "the ID token was issued to another client"),
            (claims.nonce.as_deref() != Some(nonce), "the ID token has another nonce"),
            (now >= at(claims.exp) + self.skew, "the ID token has expired"),
            (at(claims.iat) > now + self.skew, "the ID token was issued in the future"),
            (claims.nbf.is_some_and(|time| at(time) > now + self.skew), "the ID token is not valid yet"),
            (!(1..=LONGEST_SUBJECT).contains(&claims.sub.len()), "the ID token has an unusable subject"),
            (
                self.max_age.is_some() && auth_time.is_none(),
                "the claim auth_time of the ID token is missing or malformed, and a maximum age is required",
            ),
            (self.max_age.is_some_and(is_old), "the user signed in at the provider too long ago"),
            (
                !self.acr.is_empty() && !has_acr,
                "the user signed in at the provider at another level: see the claim acr of the ID token",
            ),
            (
                !self.amr.iter().all(has_amr),
                "the user lacks a required method at the provider: see the claim amr of the ID token",
            ),
            (lacking.is_some(), "the ID token lacks a required claim"),
        ]
        .into_iter()
        .find_map(|(is_wrong, reason)| is_wrong.then_some(reason))
    }
}

fn bad(reason: &'static str) -> IdTokenCheck {
    IdTokenCheck::Bad(SsoError::Failed(reason))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::jose::{Algorithm, Signer, jws};

    const NOW: u64 = 1_000_000_000;

    /// A signer, and the key set that knows it.
    fn keys() -> (Signer, KeySet) {
        let pkcs8 = Signer::generate_signing_key(Algorithm::EdDsa).unwrap();
        let signer = Signer::parse_pkcs8(Algorithm::EdDsa, &pkcs8).unwrap();
        let mut jwk = signer.public.jwk();
        jwk.kid = Some(signer.kid.clone());
        let set = KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
        (signer, set)
    }

    fn rules() -> IdTokenRules {
        IdTokenRules {
            issuer: ExpectedIssuer::Exact("https://idp.example".to_owned()),
            client_id: "client".to_owned(),
            skew: Duration::from_secs(60),
            max_age: None,
            acr: Vec::new(),
            amr: Vec::new(),
            claims: Vec::new(),
        }
    }

    fn claims(more: &Value) -> Value {
        let mut claims = json!({
            "iss": "https://idp.example", "sub": "ada", "aud": "client", "nonce": "n", "iat": NOW, "exp": NOW + 300,
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    fn is_good(check: &IdTokenCheck) -> bool {
        matches!(check, IdTokenCheck::Good(_))
    }

    #[test]
    fn c083_another_audience_is_refused_and_the_party_is_named() {
        let (signer, keys) = keys();
        for (more, expected) in [
            (json!({}), true),
            (json!({ "aud": ["client"], "azp": "client" }), true),
            (json!({ "aud": ["client", "also"], "azp": "client" }), false),
            (json!({ "aud": ["client", "also"] }), false),
            (json!({ "aud": ["client", "also"], "azp": "also" }), false),
            (json!({ "aud": ["client"], "azp": "also" }), false),
            (json!({ "aud": "also", "azp": "client" }), false),
            (json!({ "aud": "also" }), false),
        ] {
            let token = jws::sign(&signer, "JWT", &claims(&more)).unwrap();
            let checked = rules().check(&token, &keys, ("n", None), UnixTime::from_secs(NOW));
            assert_eq!(is_good(&checked), expected, "{more}");
        }
    }

    #[test]
    fn b15_signed_claims_that_are_malformed_are_reported_by_name_and_need_no_other_keys() {
        let (signer, named) = keys();
        let mut jwk = signer.public.jwk();
        jwk.kid = None;
        let unnamed = KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
        for (name, value, reason) in [
            ("exp", json!("soon"), "the claim exp of the ID token is missing or malformed"),
            ("iat", json!(-1), "the claim iat of the ID token is missing or malformed"),
            ("sub", json!(7), "the claim sub of the ID token is missing or malformed"),
            ("aud", json!({}), "the claim aud of the ID token is missing or malformed"),
            ("nbf", json!("now"), "the claim nbf of the ID token is malformed"),
            ("azp", json!(["client"]), "the claim azp of the ID token is malformed"),
        ] {
            let token = jws::sign(&signer, "JWT", &claims(&json!({ name: value }))).unwrap();
            for keys in [&named, &unnamed] {
                let checked = rules().check(&token, keys, ("n", None), UnixTime::from_secs(NOW));
                let IdTokenCheck::Bad(error) = checked else { panic!("it is not bad") };
                assert_eq!(error.to_string(), reason);
            }
        }
    }

    #[test]
    fn b15_claims_of_another_type_are_wrong_only_where_they_are_required() {
        let (signer, keys) = keys();
        let odd = [
            ("acr", json!(1)),
            ("amr", json!("pwd")),
            ("auth_time", json!("today")),
            ("email", json!(["a@b.example"])),
        ];
        for (name, value) in odd.into_iter().chain([("name", json!({ "first": "Ada" })), ("amr", json!([1]))]) {
            let token = jws::sign(&signer, "JWT", &claims(&json!({ name: value }))).unwrap();
            let check = |rules: IdTokenRules| rules.check(&token, &keys, ("n", None), UnixTime::from_secs(NOW));
            let IdTokenCheck::Good(user) = check(rules()) else { panic!("{name} fails a sign-in") };
            assert_eq!((user.acr(), user.amr().count(), user.auth_time(), user.email()), (None, 0, None, None));
            let strict = match name {
                "acr" => IdTokenRules { acr: vec!["1".to_owned()], ..rules() },
                "amr" => IdTokenRules { amr: vec!["pwd".to_owned()], ..rules() },
                "auth_time" => IdTokenRules { max_age: Some(Duration::from_secs(60)), ..rules() },
                _ => continue,
            };
            let IdTokenCheck::Bad(error) = check(strict) else { panic!("{name} is not required") };
            assert!(error.to_string().contains(&format!("the claim {name} of the ID token")), "{error}");
        }
    }

    #[test]
    fn b15_an_unsupported_algorithm_is_no_wrong_key() {
        let (signer, keys) = keys();
        let token = jws::sign(&signer, "JWT", &claims(&json!({}))).unwrap();
        for alg in ["RS512", "none", "HS256"] {
            for kid in [signer.kid.as_str(), "unknown"] {
                let header = json!({ "alg": alg, "kid": kid }).to_string();
                let header = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, header);
                let token = format!("{header}.{}", token.split_once('.').unwrap().1);
                let checked = rules().check(&token, &keys, ("n", None), UnixTime::from_secs(NOW));
                let IdTokenCheck::Bad(error) = checked else { panic!("{alg} with {kid} asks for newer keys") };
                assert_eq!(error.to_string(), UNSUPPORTED_ALGORITHM);
            }
        }
    }

    proptest! {
        #[test]
        fn no_changed_token_is_good(at in 0_usize..600, with in "[A-Za-z0-9_.-]", text in ".{0,200}") {
            let (signer, keys) = keys();
            let token = jws::sign(&signer, "JWT", &claims(&json!({}))).unwrap();
            let check = |token: &str| is_good(&rules().check(token, &keys, ("n", None), UnixTime::from_secs(NOW)));
            prop_assert!(check(&token));
            let at = at % token.len();
            let changed = format!("{}{with}{}", &token[..at], &token[at + 1..]);
            prop_assert!(changed == token || !check(&changed), "{}", changed);
            let longer = token.clone() + &with;
            prop_assert!(!check(&token[..at]) && !check(&longer) && !check(&text));
        }

        #[test]
        fn issuers_of_a_template_name_their_own_directory(directory in "[a-zA-Z0-9/.{}-]{0,70}", tid in "[a-z0-9-]{0,5}") {
            let template = ExpectedIssuer::template("https://login.example/{tenantid}/v2.0").unwrap();
            let (signer, keys) = keys();
            let rules = IdTokenRules { issuer: template.clone(), ..rules() };
            let issuer = format!("https://login.example/{directory}/v2.0");
            for tid in [&directory, &tid] {
                let more = json!({ "iss": issuer, "tid": tid });
                let token = jws::sign(&signer, "JWT", &claims(&more)).unwrap();
                let checked = rules.check(&token, &keys, ("n", None), UnixTime::from_secs(NOW));
                let expected = *tid == directory && is_directory(&directory);
                prop_assert_eq!(is_good(&checked), expected);
                prop_assert_eq!(template.may_be(&issuer), is_directory(&directory));
            }
        }
    }
}

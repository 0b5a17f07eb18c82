//! The metadata of the service (RFC 8414, OpenID Connect Discovery).

use serde::Serialize;

use crate::{
    auth::{authorize::claims_parameter, core::Core},
    jose::Algorithm,
    tokens::OFFLINE_ACCESS,
};

/// Public clients do not authenticate.
const AUTH_METHODS: [&str; 4] = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"];
/// Callers of `/introspect` authenticate as clients, or show an access token (RFC 8414 §2 allows for both).
const INTROSPECTION_AUTH_METHODS: [&str; 5] =
    ["client_secret_basic", "client_secret_post", "private_key_jwt", "Bearer", "DPoP"];
const ASSERTION_ALGORITHMS: [&str; 5] = ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"];

/// The document of both specifications.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: String,
    revocation_endpoint: String,
    introspection_endpoint: String,
    end_session_endpoint: String,
    pushed_authorization_request_endpoint: String,
    scopes_supported: [&'static str; 5],
    response_types_supported: [&'static str; 1],
    response_modes_supported: [&'static str; 1],
    grant_types_supported: [&'static str; 3],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: Vec<&'static str>,
    token_endpoint_auth_methods_supported: [&'static str; 4],
    token_endpoint_auth_signing_alg_values_supported: [&'static str; 5],
    revocation_endpoint_auth_methods_supported: [&'static str; 4],
    revocation_endpoint_auth_signing_alg_values_supported: [&'static str; 5],
    introspection_endpoint_auth_methods_supported: [&'static str; 5],
    introspection_endpoint_auth_signing_alg_values_supported: [&'static str; 5],
    code_challenge_methods_supported: [&'static str; 1],
    authorization_response_iss_parameter_supported: bool,
    dpop_signing_alg_values_supported: &'static [&'static str],
    claims_supported: Vec<&'static str>,
    claims_parameter_supported: bool,
    prompt_values_supported: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    acr_values_supported: Vec<&'a str>,
    request_parameter_supported: bool,
    request_uri_parameter_supported: bool,
}

pub(crate) fn document<'a>(core: &'a Core, algorithm: Algorithm) -> Document<'a> {
    let issuer = core.issuer.as_str();
    let below = |path: &str| format!("{issuer}{path}");
    let own = ["iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "at_hash", "sid", "tenant"];
    let prompts = ["none", "login", "consent", "select_account"];
    // OpenID Connect Discovery requires RS256
    let mut signs = vec![algorithm];
    signs.extend((!signs.contains(&Algorithm::Rs256)).then_some(Algorithm::Rs256));
    Document {
        issuer: issuer.to_owned(),
        authorization_endpoint: below("/authorize"),
        token_endpoint: below("/token"),
        jwks_uri: below("/jwks"),
        userinfo_endpoint: below("/userinfo"),
        revocation_endpoint: below("/revoke"),
        introspection_endpoint: below("/introspect"),
        end_session_endpoint: below("/logout"),
        pushed_authorization_request_endpoint: below("/par"),
        scopes_supported: ["openid", "profile", "email", "phone", OFFLINE_ACCESS],
        response_types_supported: ["code"],
        response_modes_supported: ["query"],
        grant_types_supported: ["authorization_code", "refresh_token", "client_credentials"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: signs.into_iter().map(Algorithm::as_str).collect(),
        token_endpoint_auth_methods_supported: AUTH_METHODS,
        token_endpoint_auth_signing_alg_values_supported: ASSERTION_ALGORITHMS,
        revocation_endpoint_auth_methods_supported: AUTH_METHODS,
        revocation_endpoint_auth_signing_alg_values_supported: ASSERTION_ALGORITHMS,
        introspection_endpoint_auth_methods_supported: INTROSPECTION_AUTH_METHODS,
        introspection_endpoint_auth_signing_alg_values_supported: ASSERTION_ALGORITHMS,
        code_challenge_methods_supported: ["S256"],
        authorization_response_iss_parameter_supported: true,
        dpop_signing_alg_values_supported: Algorithm::ACCEPTED_NAMES,
        claims_supported: own.into_iter().chain(claims_parameter::known()).collect(),
        claims_parameter_supported: true,
        prompt_values_supported: prompts.into_iter().chain(core.offers_sign_up().then_some("create")).collect(),
        acr_values_supported: core.policies.levels().collect(),
        request_parameter_supported: false,
        request_uri_parameter_supported: false,
    }
}

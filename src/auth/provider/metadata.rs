//! The metadata of the service (RFC 8414, OpenID Connect Discovery).

use crate::{
    auth::{authorize::claims_parameter, core::Core},
    jose::Algorithm,
    tokens::OFFLINE_ACCESS,
    util::json_object::JsonObject,
};

/// Public clients do not authenticate.
const AUTH_METHODS: [&str; 4] = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"];
/// Callers of `/introspect` authenticate as clients, or show a secret of the operator (RFC 8414 §2 allows for both).
const INTROSPECTION_AUTH_METHODS: [&str; 4] =
    ["client_secret_basic", "client_secret_post", "private_key_jwt", "Bearer"];
const ASSERTION_ALGORITHMS: [&str; 5] = ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"];

/// Returns the document of both specifications.
pub(crate) fn document(core: &Core, algorithm: Algorithm) -> String {
    let issuer = core.issuer.as_str();
    let own = ["iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "at_hash", "sid", "tenant"];
    let claims: Vec<_> = own.into_iter().chain(claims_parameter::known()).collect();
    let prompts = ["none", "login", "consent", "select_account"];
    let prompts: Vec<_> = prompts.into_iter().chain(core.offers_sign_up().then_some("create")).collect();
    // OpenID Connect Discovery requires RS256
    let mut signs = vec![algorithm.as_str()];
    signs.extend((algorithm != Algorithm::Rs256).then_some(Algorithm::Rs256.as_str()));
    let document = JsonObject::new()
        .text("issuer", issuer)
        .text("authorization_endpoint", &format!("{issuer}/authorize"))
        .text("token_endpoint", &format!("{issuer}/token"))
        .text("jwks_uri", &format!("{issuer}/jwks"))
        .text("userinfo_endpoint", &format!("{issuer}/userinfo"))
        .text("revocation_endpoint", &format!("{issuer}/revoke"))
        .text("introspection_endpoint", &format!("{issuer}/introspect"))
        .text("end_session_endpoint", &format!("{issuer}/logout"))
        .text("pushed_authorization_request_endpoint", &format!("{issuer}/par"))
        .texts("scopes_supported", &["openid", "profile", "email", "phone", OFFLINE_ACCESS])
        .texts("response_types_supported", &["code"])
        .texts("response_modes_supported", &["query"])
        .texts("grant_types_supported", &["authorization_code", "refresh_token", "client_credentials"])
        .texts("subject_types_supported", &["public"])
        .texts("id_token_signing_alg_values_supported", &signs)
        .texts("token_endpoint_auth_methods_supported", &AUTH_METHODS)
        .texts("token_endpoint_auth_signing_alg_values_supported", &ASSERTION_ALGORITHMS)
        .texts("revocation_endpoint_auth_methods_supported", &AUTH_METHODS)
        .texts("revocation_endpoint_auth_signing_alg_values_supported", &ASSERTION_ALGORITHMS)
        .texts("introspection_endpoint_auth_methods_supported", &INTROSPECTION_AUTH_METHODS)
        .texts("introspection_endpoint_auth_signing_alg_values_supported", &ASSERTION_ALGORITHMS)
        .texts("code_challenge_methods_supported", &["S256"])
        .json("authorization_response_iss_parameter_supported", "true")
        .texts("dpop_signing_alg_values_supported", Algorithm::ACCEPTED_NAMES)
        .texts("claims_supported", &claims)
        .json("claims_parameter_supported", "true")
        .texts("prompt_values_supported", &prompts);
    let levels: Vec<_> = core.policies.levels().collect();
    let document = if levels.is_empty() { document } else { document.texts("acr_values_supported", &levels) };
    document.json("request_parameter_supported", "false").json("request_uri_parameter_supported", "false").end()
}

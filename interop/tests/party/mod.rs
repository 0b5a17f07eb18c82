//! A relying party built with the crate `openidconnect`.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::TokioExecutor,
};
use openidconnect::{
    AccessToken, AccessTokenHash, AdditionalProviderMetadata, AsyncHttpClient, AuthType, AuthorizationCode, ClientId,
    CsrfToken, EmptyAdditionalClaims, EndSessionUrl, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse,
    IntrospectionUrl, IssuerUrl, LogoutRequest, Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier,
    PostLogoutRedirectUrl, ProviderMetadata, RedirectUrl, RefreshToken, RequestTokenError, RevocationUrl, Scope,
    StandardErrorResponse, SubjectIdentifier, TokenResponse,
    core::{
        CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreClaimName, CoreClaimType, CoreClient,
        CoreClientAuthMethod, CoreErrorResponseType, CoreGenderClaim, CoreGrantType, CoreIdToken, CoreIdTokenClaims,
        CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreResponseMode,
        CoreResponseType, CoreRevocableToken, CoreSubjectIdentifierType, CoreTokenResponse,
    },
    url::Url,
};
use serde::{Deserialize, Serialize};

use crate::user::{User, parameter};

const MAX_AGE: Duration = Duration::from_secs(600);

/// Endpoints that the library does not read from the metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Endpoints {
    revocation_endpoint: RevocationUrl,
    introspection_endpoint: IntrospectionUrl,
    end_session_endpoint: EndSessionUrl,
}

impl AdditionalProviderMetadata for Endpoints {}

type Metadata = ProviderMetadata<
    Endpoints,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// A client with all endpoints except for device authorization.
type Configured = CoreClient<EndpointSet, EndpointNotSet, EndpointSet, EndpointSet, EndpointSet, EndpointSet>;

/// A relying party of the server.
pub(crate) struct Party {
    http: Http,
    client: Configured,
    metadata: Metadata,
}

/// A pending authorization request.
struct Asked {
    url: Url,
    verifier: PkceCodeVerifier,
    state: CsrfToken,
    nonce: Nonce,
}

impl Party {
    pub(crate) async fn discover(issuer: &str, client_id: &str, redirect_uri: &str) -> Self {
        let http = Http(Client::builder(TokioExecutor::new()).build_http());
        let issuer = IssuerUrl::new(issuer.to_owned()).unwrap();
        // also fetches the keys
        let metadata = Metadata::discover_async(issuer, &http).await.unwrap();
        let redirect_uri = RedirectUrl::new(redirect_uri.to_owned()).unwrap();
        let more = metadata.additional_metadata().clone();
        let client = CoreClient::from_provider_metadata(metadata.clone(), ClientId::new(client_id.to_owned()), None)
            .set_auth_type(AuthType::RequestBody)
            .set_redirect_uri(redirect_uri)
            .set_token_uri(metadata.token_endpoint().unwrap().clone())
            .set_user_info_url(metadata.userinfo_endpoint().unwrap().clone())
            .set_revocation_url(as_if_over_tls(&more.revocation_endpoint))
            .set_introspection_url(more.introspection_endpoint);
        Self { http, client, metadata }
    }

    /// Runs through everything from the first visit to the logout.
    pub(crate) async fn run_flow(&self, user: &mut User, after_logout: &str) {
        let asked = self.ask(None);
        let back = user.log_in(&asked.url).await;
        let (tokens, claims) = self.exchange(&back, asked).await;
        let subject = claims.subject().clone();
        assert!(claims.auth_time().unwrap() <= claims.issue_time());
        assert!(tokens.expires_in().unwrap() <= Duration::from_secs(600));

        // use the tokens
        self.user_info(tokens.access_token(), &subject).await.unwrap();
        assert_eq!(self.introspect(tokens.access_token()).await, CoreErrorResponseType::InvalidClient);

        // refresh them
        let first = tokens.refresh_token().unwrap();
        let newer = self.refresh(first).await.unwrap();
        let second = newer.refresh_token().unwrap();
        assert_ne!(first.secret(), second.secret());
        assert_ne!(tokens.access_token().secret(), newer.access_token().secret());
        self.user_info(newer.access_token(), &subject).await.unwrap();

        // revoke them
        self.revoke(second.clone()).await;
        self.revoke(RefreshToken::new("never issued".to_owned())).await;
        assert_eq!(self.refresh(second).await.unwrap_err(), CoreErrorResponseType::InvalidGrant);
        self.user_info(newer.access_token(), &subject).await.unwrap_err();

        // a code can be redeemed once, with its verifier
        let asked = self.ask(None);
        let back = user.log_in(&asked.url).await;
        let (_, another) = PkceCodeChallenge::new_random_sha256();
        assert_eq!(self.redeem(&back, another).await.unwrap_err(), CoreErrorResponseType::InvalidGrant);
        let asked = self.ask(None);
        let back = user.log_in(&asked.url).await;
        let verifier = PkceCodeVerifier::new(asked.verifier.secret().clone());
        let (last, again) = self.exchange(&back, asked).await;
        assert_eq!(again.subject(), &subject);
        assert_eq!(self.redeem(&back, verifier).await.unwrap_err(), CoreErrorResponseType::InvalidGrant);

        // log out, which also revokes the tokens
        let out = self.log_out(last.id_token().unwrap(), after_logout);
        let gone = user.visit_to(&out, after_logout).await;
        assert_eq!(parameter(&gone, "state").as_deref(), Some("a state"));
        let refreshed = self.refresh(last.refresh_token().unwrap()).await;
        assert_eq!(refreshed.unwrap_err(), CoreErrorResponseType::InvalidGrant);
        let back = user.visit(&self.ask(Some(CoreAuthPrompt::None)).url).await;
        assert_eq!(parameter(&back, "error").as_deref(), Some("login_required"));
    }

    fn ask(&self, prompt: Option<CoreAuthPrompt>) -> Asked {
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut request = self
            .client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, CsrfToken::new_random, Nonce::new_random)
            .add_scopes(["profile", "email"].map(|scope| Scope::new(scope.to_owned())))
            .set_max_age(MAX_AGE)
            .set_pkce_challenge(challenge);
        if let Some(prompt) = prompt {
            request = request.add_prompt(prompt);
        }
        let (url, state, nonce) = request.url();
        Asked { url, verifier, state, nonce }
    }

    /// Redeems the code of this response and verifies the id token.
    async fn exchange(&self, back: &Url, asked: Asked) -> (CoreTokenResponse, CoreIdTokenClaims) {
        assert_eq!(parameter(back, "state").as_deref(), Some(asked.state.secret().as_str()), "{back}");
        assert_eq!(parameter(back, "iss").as_deref(), Some(self.metadata.issuer().as_str()), "{back}");
        let tokens = self.redeem(back, asked.verifier).await.unwrap();
        let (id_token, verifier) = (tokens.id_token().unwrap(), self.client.id_token_verifier());
        let claims = id_token.claims(&verifier, &asked.nonce).unwrap().clone();
        id_token.claims(&verifier, &Nonce::new_random()).unwrap_err();
        let (algorithm, key) = (id_token.signing_alg().unwrap(), id_token.signing_key(&verifier).unwrap());
        let hash = AccessTokenHash::from_token(tokens.access_token(), algorithm, key).unwrap();
        assert_eq!(claims.access_token_hash(), Some(&hash));
        (tokens, claims)
    }

    async fn redeem(&self, back: &Url, verifier: PkceCodeVerifier) -> Result<CoreTokenResponse, CoreErrorResponseType> {
        let code = parameter(back, "code").unwrap_or_else(|| panic!("no code: {back}"));
        let request = self.client.exchange_code(AuthorizationCode::new(code)).set_pkce_verifier(verifier);
        request.request_async(&self.http).await.map_err(refused)
    }

    async fn refresh(&self, token: &RefreshToken) -> Result<CoreTokenResponse, CoreErrorResponseType> {
        self.client.exchange_refresh_token(token).request_async(&self.http).await.map_err(refused)
    }

    async fn revoke(&self, token: RefreshToken) {
        let request = self.client.revoke_token(CoreRevocableToken::RefreshToken(token)).unwrap();
        request.request_async(&self.http).await.unwrap();
    }

    /// Checks that the token is accepted and belongs to this user.
    async fn user_info(&self, token: &AccessToken, subject: &SubjectIdentifier) -> Result<(), String> {
        let request = self.client.user_info(token.clone(), Some(subject.clone()));
        let answer = request.request_async::<EmptyAdditionalClaims, _, CoreGenderClaim>(&self.http).await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    /// Returns why this client, which does not authenticate, learns nothing about a token.
    async fn introspect(&self, token: &AccessToken) -> CoreErrorResponseType {
        refused(self.client.introspect(token).request_async(&self.http).await.unwrap_err())
    }

    fn log_out(&self, id_token: &CoreIdToken, after: &str) -> Url {
        LogoutRequest::from(self.metadata.additional_metadata().end_session_endpoint.clone())
            .set_id_token_hint(id_token)
            .set_client_id(self.client.client_id().clone())
            .set_post_logout_redirect_uri(PostLogoutRedirectUrl::new(after.to_owned()).unwrap())
            .set_state(CsrfToken::new("a state".to_owned()))
            .http_get_url()
    }
}

/// The library revokes only over TLS, which the bundled server does not have. [`Http`] reverses
/// this.
fn as_if_over_tls(url: &RevocationUrl) -> RevocationUrl {
    RevocationUrl::new(url.replacen("http://", "https://", 1)).unwrap()
}

/// Returns the error code of a response.
fn refused(error: RequestTokenError<Error, StandardErrorResponse<CoreErrorResponseType>>) -> CoreErrorResponseType {
    match error {
        RequestTokenError::ServerResponse(answer) => answer.error().clone(),
        other => panic!("{other:?}"),
    }
}

/// Sends the library's requests with our own HTTP client, so that it needs no other one.
struct Http(Client<HttpConnector, Full<Bytes>>);

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, Error>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        let mut request = request.map(|body| Full::from(Bytes::from(body)));
        *request.uri_mut() = request.uri().to_string().replacen("https://", "http://", 1).parse().unwrap();
        Box::pin(async {
            let (parts, body) = self.0.request(request).await?.into_parts();
            let body = body.collect().await.unwrap().to_bytes().to_vec();
            Ok(HttpResponse::from_parts(parts, body))
        })
    }
}

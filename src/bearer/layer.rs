use std::{any::type_name, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    gate::BearerGate,
    rejections::{BearerRejections, check_single_name},
    resource::{ProtectedResource, WithDocument},
    token::AccessTokenTenant,
    verifier::Verifier,
};
use crate::{
    gate::Gated,
    limit::{AnyLimiter, RateLimitGate},
    reject::StatusOnly,
    util::error::ConfigError,
};

/// Requires a valid access token, and provides it as [`AccessToken`](super::AccessToken).
///
/// The [module documentation](super) lists the responses to rejected requests. Around an `InterceptorLayer` of tonic, it needs
/// one more line: see [`StatusOnly`](crate::reject::StatusOnly#interceptors-of-tonic).
#[derive(Clone)]
#[must_use]
pub struct BearerLayer<R = StatusOnly> {
    gate: BearerGate,
    respond: R,
}

impl BearerLayer {
    /// Creates a layer that admits requests with a token that the verifier accepts.
    pub fn new(verifier: Verifier) -> Self {
        let rejections = Arc::new(BearerRejections::new(verifier.possession().is_on()));
        let gate = BearerGate { verifier, optional: false, rejections, limit: None };
        Self { gate, respond: StatusOnly }
    }
}

impl<R> BearerLayer<R> {
    /// Requires a scope, such as `orders:read`. Can be called several times to require several
    /// scopes. By default any valid token is sufficient.
    ///
    /// # Errors
    ///
    /// Returns an error unless `scope` is a valid scope name.
    pub fn require_scope(mut self, scope: &str) -> Result<Self, ConfigError> {
        Arc::make_mut(&mut self.gate.rejections).require(scope)?;
        Ok(self)
    }

    /// Requires that the user authenticated at this level: the claim `acr` of the token. Can be called several times to
    /// accept several levels, the preferred one first. By default any level is sufficient.
    ///
    /// Other tokens get a 401 with the error `insufficient_user_authentication` and the levels in `acr_values` (RFC 9470).
    /// The client then sends the user to the issuer with these `acr_values`.
    ///
    /// # Errors
    ///
    /// Returns an error unless `acr` is visible ASCII without quotes and spaces.
    pub fn require_acr(mut self, acr: &str) -> Result<Self, ConfigError> {
        Arc::make_mut(&mut self.gate.rejections).accept_level(acr)?;
        Ok(self)
    }

    /// Requires that the user authenticated at most this long ago, in whole seconds: the claim `auth_time` of the token.
    ///
    /// Other tokens get a 401 with the error `insufficient_user_authentication` and this `max_age` (RFC 9470). The client
    /// then sends the user to the issuer with this `max_age`. Tokens of machine clients have no `auth_time` and are refused.
    ///
    /// ```
    /// # use tollgate::{BearerLayer, testing::TestIssuer};
    /// # use std::time::Duration;
    /// # let issuer = TestIssuer::new("https://auth.example", "https://api.example");
    /// let layer = BearerLayer::new(issuer.verifier());
    /// // on the routes that move money
    /// let fresh = layer.clone().require_acr("mfa")?.require_max_age(Duration::from_secs(300));
    /// # Ok::<_, tollgate::ConfigError>(())
    /// ```
    pub fn require_max_age(mut self, age: Duration) -> Self {
        Arc::make_mut(&mut self.gate.rejections).max_age = Some(Duration::from_secs(age.as_secs()));
        self
    }

    /// Names the API that this layer protects, so that clients that know only its URL can find its issuer (RFC 9728), as
    /// MCP clients do. Works with the tokens of any issuer.
    ///
    /// - Tokens must have `url` as their audience. The other audiences of the verifier no longer count.
    /// - The layer answers `/.well-known/oauth-protected-resource`, followed by the path of `url`, with a document that names
    ///   the issuer and the scopes. If a router is in front of the layer, it must send [this path](BearerLayer::document_path)
    ///   to the layer, too.
    /// - Every 401 and 403 names this document and the required scopes in `WWW-Authenticate`.
    ///
    /// With [`AuthService`](crate::AuthService), allow the resource for each client that may use it: see
    /// [`Client::resource`](crate::Client::resource). For routes that need another scope, clone this layer and add the scope.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full};
    /// use tollgate::{BearerLayer, testing::TestIssuer};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let verifier = TestIssuer::new("https://auth.example", "any").verifier();
    /// let layer = BearerLayer::new(verifier)
    ///     .require_scope("notes:read")?
    ///     .resource("https://notes.example/mcp")?
    ///     .resource_name("Notes")?;
    /// let service = ServiceBuilder::new()
    ///     .layer(layer)
    ///     .service(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))));
    ///
    /// let response = service.clone().oneshot(Request::post("/mcp").body(String::new())?).await?;
    /// assert_eq!(response.status(), 401);
    /// assert_eq!(
    ///     response.headers()["www-authenticate"],
    ///     "Bearer realm=\"api\", scope=\"notes:read\", \
    ///      resource_metadata=\"https://notes.example/.well-known/oauth-protected-resource/mcp\"",
    /// );
    /// let document = Request::get("/.well-known/oauth-protected-resource/mcp").body(String::new())?;
    /// let document = service.oneshot(document).await?.into_body().collect().await?.to_bytes();
    /// assert_eq!(
    ///     document,
    ///     r#"{"resource":"https://notes.example/mcp","authorization_servers":["https://auth.example"],"scopes_supported":["notes:read"],"bearer_methods_supported":["header"],"resource_name":"Notes"}"#,
    /// );
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error unless `url` is an `https` URL, or an `http` URL on a loopback address, without a query, a fragment or
    /// a slash at the end.
    pub fn resource(mut self, url: &str) -> Result<BearerLayer<WithDocument<R>>, ConfigError> {
        let resource = ProtectedResource::parse(url)?;
        self.gate.verifier = self.gate.verifier.to_builder().only_audience(resource.url())?.build();
        Arc::make_mut(&mut self.gate.rejections).set_resource(resource);
        Ok(BearerLayer { gate: self.gate, respond: WithDocument(self.respond) })
    }

    /// Admits requests without a token. Requests with an invalid token are still rejected, because
    /// the caller did not intend to be anonymous.
    pub fn optional(mut self) -> Self {
        self.gate.optional = true;
        self
    }

    /// Charges each request with a verified token to the token's tenant. Requests beyond the budget get a 429.
    ///
    /// Callers can't forge this tenant. The charge comes before a DPoP proof is remembered, so the budget also bounds the
    /// memory for proofs, which an inner [`RateLimitLayer`](crate::RateLimitLayer) can't. Tokens without a tenant share
    /// the budget of [`LimitKey::anonymous`](crate::LimitKey::anonymous). Requests without a valid token are not charged:
    /// limit them by address in an outer layer.
    ///
    /// ```
    /// # use tollgate::{BearerLayer, Limiter, Quota, Plans, testing::TestIssuer};
    /// # let issuer = TestIssuer::new("https://auth.example", "https://api.example");
    /// let limiter = Limiter::memory(Plans::new(Quota::per_minute(600)?));
    /// let layer = BearerLayer::new(issuer.verifier()).limit(limiter);
    /// # Ok::<_, tollgate::ConfigError>(())
    /// ```
    pub fn limit(mut self, limiter: impl Into<AnyLimiter>) -> Self {
        self.gate.limit = Some(RateLimitGate::new(AccessTokenTenant, limiter));
        self
    }

    /// Sets the realm in `WWW-Authenticate`. Defaults to `api`.
    ///
    /// # Errors
    ///
    /// Returns an error unless `realm` is printable ASCII without quotes.
    pub fn realm(mut self, realm: &str) -> Result<Self, ConfigError> {
        Arc::make_mut(&mut self.gate.rejections).set_realm(realm)?;
        Ok(self)
    }
}

impl BearerLayer {
    /// Sets how rejections are answered; see [`Respond`](crate::reject::Respond).
    pub fn respond_with<R2>(self, respond: R2) -> BearerLayer<R2> {
        BearerLayer { gate: self.gate, respond }
    }
}

/// Settings of a layer with a [resource](Self::resource).
impl<R> BearerLayer<WithDocument<R>> {
    /// Returns the path of the document that the layer serves.
    pub fn document_path(&self) -> String {
        self.gate.rejections.resource.as_ref().map(ProtectedResource::document_path).unwrap_or_default()
    }

    /// Sets the name of the API that clients can show to people.
    ///
    /// # Errors
    ///
    /// Returns an error unless `name` consists of visible characters.
    pub fn resource_name(mut self, name: &str) -> Result<Self, ConfigError> {
        if let Some(resource) = &mut Arc::make_mut(&mut self.gate.rejections).resource {
            resource.set_name(name)?;
        }
        Ok(self)
    }

    /// Adds a scope of the API to its document, such as one that only some routes require. Can be called several times. By
    /// default, the document has the scopes that this layer [requires](Self::require_scope).
    ///
    /// # Errors
    ///
    /// Returns an error unless `scope` is a valid scope name.
    pub fn resource_scope(mut self, scope: &str) -> Result<Self, ConfigError> {
        check_single_name("scope of the resource", scope)?;
        if let Some(resource) = &mut Arc::make_mut(&mut self.gate.rejections).resource {
            resource.add_scope(scope);
        }
        Ok(self)
    }

    /// Sets how rejections are answered; see [`Respond`](crate::reject::Respond).
    pub fn respond_with<R2>(self, respond: R2) -> BearerLayer<WithDocument<R2>> {
        BearerLayer { gate: self.gate, respond: WithDocument(respond) }
    }
}

impl<S, R: Clone> Layer<S> for BearerLayer<R> {
    type Service = Gated<S, BearerGate, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, Arc::new(self.gate.clone()), self.respond.clone())
    }
}

crate::util::fmt::debug_fields!(BearerLayer<R>, |own| gate: own.gate, respond: type_name::<R>());

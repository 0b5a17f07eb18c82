use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, request::Parts};
use tower_service::Service;

use crate::auth::endpoints;
#[cfg(feature = "external-providers")]
use crate::auth::{account::linking, steps::sso_callback};
use crate::{
    auth::{
        account,
        authorize::{endpoint, par},
        context::RequestContext,
        core::Core,
        first_party::{sign_in, sign_out},
        http::{
            bodies::RequestBody,
            fields::Fields,
            problem::{Code, Problem},
            route::{Path, Route},
        },
        in_box::in_box,
        pages::page,
        steps::{authenticate, choices, complete, enrol, login_page, start, status},
    },
    client::Client,
    http::{body::Body, connection::announce_close, drain::is_worth_reading, head::Head},
    policy::Explanation,
    session::{SessionLayer, Sessions},
    store::StoreError,
    tenant::Tenant,
    user::Identifier,
};

/// A login service: its endpoints, and the operations of the operator and of the application that mounts it.
///
/// It has no type parameters, answers any request whose body comes in [`Bytes`], and never fails, so it mounts unchanged
/// in axum (`nest_service`, `route_service`), hyper and tonic. It needs a tokio runtime with time enabled. Clones share
/// everything. The [module docs](super) show it whole.
#[derive(Clone)]
#[must_use]
pub struct AuthService(pub(crate) Arc<Core>);

impl AuthService {
    /// Returns the signed-in sessions, to list, rotate and revoke them.
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Returns the layer that protects routes with the sessions of this service.
    ///
    /// It attaches a [`Session`](crate::Session) to each request of a signed-in user, and
    /// [`Session::claim`](crate::Session::claim) reads the claims of your [`Users`](crate::Users). After
    /// [`first_party`](crate::AuthServiceBuilder::first_party) it accepts only sessions of the request's tenant, and
    /// [`required`](SessionLayer::required) sends a person who is not signed in to the sign-in page and back.
    pub fn session_layer(&self) -> SessionLayer {
        self.0.session_layer.clone()
    }

    /// Lifts the locks that failed attempts have caused for a user: for operators, and for a page that resets passwords.
    ///
    /// The counts of this identifier, of the account's contacts, and of the account itself start from zero again. An
    /// account with more identifiers needs a call for each.
    pub async fn unlock(&self, tenant: &Tenant, identifier: &Identifier) -> Result<(), StoreError> {
        let account = self.0.users.find(tenant, identifier).await?;
        let keyed = self.0.keyed().await?;
        self.0.guard.unlock(tenant, identifier, account.as_ref(), keyed).await
    }

    /// Checks that the store can be read and written, for a readiness probe: it reads and writes one small row.
    ///
    /// A store on Redis answers within its deadline. Limit the time for others, and keep the answer for a second, so that a
    /// flood of probes costs nothing.
    pub async fn check_store(&self) -> Result<(), StoreError> {
        self.0.store.check(Arc::clone(&self.0.clock)).await
    }

    /// Explains to an operator which steps a login of this client would need, and why.
    pub fn explain(&self, client: &Client, acr_values: Option<&str>) -> Explanation {
        self.0.policies.explain(client.tenant(), client.demands(), acr_values, self.0.enabled(client.tenant()))
    }

    /// Returns the OpenAPI description of all endpoints, as served at `GET /openapi.json`.
    pub fn openapi() -> &'static str {
        page::OPENAPI
    }
}

impl<B> Service<Request<B>> for AuthService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = AuthFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> AuthFuture {
        let (parts, body) = request.into_parts();
        AuthFuture::new(Arc::clone(&self.0), parts, RequestBody::new(body))
    }
}

/// Answers a request. Not generic, so that the service is compiled once, and not again in each crate that mounts it.
async fn answer(core: Arc<Core>, parts: Parts, mut body: RequestBody) -> Response<Body> {
    let mut cx = RequestContext::new(&core, &parts);
    let outcome = match cx.count(&mut body).await {
        Ok(()) => serve(&mut cx, &mut body).await,
        Err(problem) => Err(problem),
    };
    let address = cx.known_address();
    let mut response = cx.finish(outcome);
    // nothing but the place of the body is held while the rest of it arrives
    if !is_read(&core, &parts, &mut body, address).await {
        announce_close(parts.version, response.headers_mut());
    }
    response
}

/// Reads what an endpoint has left of a small body, because the connection can't be used again before it was read. Returns
/// whether the body has ended.
async fn is_read(core: &Core, parts: &Parts, body: &mut RequestBody, address: Option<Tenant>) -> bool {
    if parts.method != Method::POST {
        // without a place it is not read
        let _full = body.enter(&core.bodies, address);
    }
    match is_worth_reading(Head::from(parts)) {
        true => body.drain().await,
        false => http_body::Body::is_end_stream(body),
    }
}

/// From the path to the endpoint.
async fn serve(cx: &mut RequestContext<'_>, body: &mut RequestBody) -> Result<Response<Body>, Problem> {
    let path = Path::of(cx.parts.uri.path(), cx.core.issuer.path()).filter(|path| cx.serves(path));
    let method = &cx.parts.method;
    let route = path.and_then(|path| path.route(method));
    let Some(route) = route else {
        if let Some(path) = path.filter(|_| *method == Method::OPTIONS) {
            // without addresses, a budget of all callers would let a stranger stop the preflights of everybody
            cx.charge_asset().await?;
            return in_box(|| cx.options(path)).await;
        }
        cx.charge(None).await?;
        return Err(match path {
            None => Problem::new(Code::NotFound, "there is no such endpoint"),
            Some(path) => Problem::new(Code::MethodNotAllowedHere, "this endpoint does not support the method")
                .header(http::header::ALLOW, HeaderValue::from_static(path.allow())),
        });
    };
    if let Some(path) = path {
        cx.let_any_client_read(path).await;
    }
    // boxed, so that this future is small
    match route {
        Route::Authorize => in_box(|| endpoint::authorize(cx)).await,
        Route::AuthorizeForm => in_box(|| endpoint::by_form(cx, body)).await,
        Route::StartPage => in_box(|| login_page::login_page(cx)).await,
        Route::Script | Route::Style | Route::OpenApi | Route::AccountScript => {
            cx.charge_asset().await?;
            Ok(page::asset(route))
        }
        Route::Token(route) => in_box(|| endpoints::serve(cx, route, body)).await,
        Route::Status => in_box(|| status::status(cx)).await,
        Route::Choices => in_box(|| choices::choices(cx)).await,
        Route::Par => in_box(|| par::push(cx, body)).await,
        #[cfg(feature = "external-providers")]
        Route::SsoCallback if linking::is_awaited(cx) => in_box(|| linking::finish(cx)).await,
        #[cfg(feature = "external-providers")]
        Route::SsoCallback => in_box(|| sso_callback::sso_callback(cx)).await,
        #[cfg(not(feature = "external-providers"))]
        Route::SsoCallback => Err(Problem::new(Code::NotFound, "there is no such endpoint")),
        Route::SignIn => in_box(|| sign_in::sign_in(cx)).await,
        Route::FinishSignIn => in_box(|| sign_in::finish(cx)).await,
        Route::SignOut => in_box(|| sign_out::sign_out(cx, body)).await,
        Route::AccountPage => in_box(|| account::page(cx)).await,
        Route::Account(route) => in_box(|| account::serve(cx, route, body)).await,
        Route::Start | Route::Authenticate | Route::VerifyOtp | Route::Enrol | Route::Complete => {
            in_box(|| log_in(cx, route, body)).await
        }
    }
}

/// Serves the calls of a login.
async fn log_in(cx: &mut RequestContext<'_>, route: Route, body: &mut RequestBody) -> Result<Response<Body>, Problem> {
    let fields = Fields::of(&cx.parts.headers, body).await;
    let fields = cx.or_charge(fields).await?;
    match route {
        Route::Start => start::start(cx, fields).await,
        Route::Authenticate => authenticate::authenticate(cx, fields).await,
        Route::VerifyOtp => authenticate::verify_otp(cx, fields).await,
        Route::Enrol => enrol::enrol(cx, fields).await,
        _ => complete::complete(cx, fields).await,
    }
}

/// The answer of an [`AuthService`], on its way.
pub struct AuthFuture(Pin<Box<dyn Future<Output = Response<Body>> + Send>>);

impl AuthFuture {
    /// Begins to answer a request. Neither generic nor inlined into other crates, because the compiler then moves the future
    /// less often on its way into the box.
    #[inline(never)]
    fn new(core: Arc<Core>, parts: Parts, body: RequestBody) -> Self {
        Self(Box::pin(answer(core, parts, body)))
    }
}

impl Future for AuthFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

impl fmt::Debug for AuthFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthFuture").finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::{delivery::Outbox, store::Memory, tenant::ClientIp, tokens::Tokens, user::StoredUsers};

    /// It is moved for each request, so it must not grow with what the calls need.
    #[test]
    fn the_future_of_a_call_is_small() {
        let store = crate::store::AnyStore::from(Memory::new());
        let service = AuthService::builder("https://auth.example", store.clone()).users(StoredUsers::new(store));
        let service = service.client_ip(ClientIp::peer()).email(Outbox::new()).tokens(Tokens::new()).build().unwrap();
        let (parts, body) = Request::post("/token").body(Body::empty()).unwrap().into_parts();
        let mut cx = RequestContext::new(&service.0, &parts);
        let mut body = RequestBody::new(body);
        let size = size_of_val(&serve(&mut cx, &mut body));
        assert!(size <= 1024, "{size} bytes");
    }
}

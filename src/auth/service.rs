use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, request::Parts};
use tower_service::Service;

use crate::{
    auth::{
        account::{self, well_known},
        authorize::{endpoint, par},
        context::{incoming::IncomingRequest, stages::ClientReach},
        core::Core,
        factors,
        first_party::{entry_pages, route_proofs::RouteProofs, sign_in, sign_out},
        http::{
            answer::{self, in_box},
            bodies::RequestBody,
            fields::{self, Fields},
            problem::{Code, EndpointResult, Problem},
            route::{Path, ResetRoute, Route, SignUpRoute},
        },
        pages::page,
        provider,
        query::Query,
        steps::{choices, complete, login_page, reset, sign_up, start},
    },
    http::{body::Body, connection::announce_close, drain::is_worth_reading, head::Head},
    session::{SessionLayer, Sessions},
    store::StoreError,
    support::run_to_completion::{PointOfNoReturn, RunToCompletion},
    tenant::{LimitKey, Tenant},
    user::Identifier,
};

/// A login service: its endpoints, and the operations of the operator and of the application that mounts it.
///
/// It has no type parameters, answers any request whose body comes in [`Bytes`], and never fails, so it mounts unchanged
/// in axum (`nest_service`, `route_service`), hyper and tonic. It needs a tokio runtime with time enabled. Clones share
/// everything. The [module docs](super) have a complete example.
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
    /// [`Session::claim`](crate::Session::claim) reads the claims of your [`Users`](crate::Users). With
    /// [`first_party`](crate::auth::AuthServiceBuilder::first_party), it accepts only sessions of the request's tenant,
    /// and [`required`](SessionLayer::required) sends people who are not signed in to the sign-in page, and back
    /// afterwards.
    ///
    /// A route can ask for more: [`steps`](SessionLayer::steps) and [`max_age`](SessionLayer::max_age) send users to
    /// the sign-in page as well, which asks only for what is missing. Both are checked as at a sign-in, against the
    /// policy of the tenant and the credentials of the account, which are read for each such request.
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, routing::{get, post}};
    /// use tollgate::{AuthService, ConfigError};
    ///
    /// fn app(auth: AuthService) -> Result<Router, ConfigError> {
    ///     let recent = auth.session_layer().steps(2)?.max_age(Duration::from_secs(600))?;
    ///     let editors = auth.session_layer().claim("roles", "editor")?;
    ///     Ok(Router::new()
    ///         .route("/payments", get("two factors, proved in the last ten minutes").layer(recent))
    ///         .route("/articles", post("only for editors").layer(editors))
    ///         .route("/account", get("any session").layer(auth.session_layer().required()))
    ///         .fallback_service(auth))
    /// }
    /// ```
    pub fn session_layer(&self) -> SessionLayer {
        self.0.session_layer.clone().proof_check(Arc::new(RouteProofs(Arc::clone(&self.0))))
    }

    /// Lifts the locks that failed attempts have caused for a user: for operators, and for a page that resets passwords.
    ///
    /// The counts of this identifier, of the account's contacts, and of the account itself start from zero again. An
    /// account with several identifiers needs a call for each.
    pub async fn unlock(&self, tenant: &Tenant, identifier: &Identifier) -> Result<(), StoreError> {
        let account = self.0.users.find(tenant, identifier).await?;
        let keyed = self.0.keyed().await?;
        self.0.guard.unlock(tenant, Some(identifier), account.as_ref(), keyed).await
    }

    /// Checks that the store can be read and written, for a readiness probe: it reads and writes one small row.
    ///
    /// A store on Redis answers within its deadline. Set a timeout for others, and cache the answer for a second, so
    /// that a flood of probes costs nothing.
    pub async fn check_store(&self) -> Result<(), StoreError> {
        self.0.store.check(Arc::clone(&self.0.clock)).await
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
async fn answer_request(
    core: Arc<Core>,
    path: Option<&'static Path>,
    parts: Parts,
    mut body: RequestBody,
) -> Response<Body> {
    let mut request = IncomingRequest::new(&core, &parts);
    let outcome = match request.admit_body(&mut body).await {
        Ok(()) => serve_path(&mut request, path, &mut body).await,
        Err(problem) => Err(problem),
    };
    let address = request.address.clone();
    let mut response = request.finish(outcome);
    // nothing but the place of the body is held while the rest of it arrives
    if !drain_rest(&core, &parts, &mut body, address).await {
        announce_close(parts.version, response.headers_mut());
    }
    response
}

/// Reads what an endpoint has left of a small body, because the connection can't be used again before that. Returns whether the
/// body has ended.
async fn drain_rest(core: &Core, parts: &Parts, body: &mut RequestBody, address: Option<LimitKey>) -> bool {
    if parts.method != Method::POST {
        // without a place it is not read
        let _full = body.ensure_body_place(&core.bodies, address);
    }
    match is_worth_reading(Head::from(parts)) {
        true => body.drain().await,
        false => http_body::Body::is_end_stream(body),
    }
}

/// Leads from the path to the endpoint.
async fn serve_path(
    request: &mut IncomingRequest<'_>,
    path: Option<&'static Path>,
    body: &mut RequestBody,
) -> EndpointResult {
    let path = path.filter(|path| request.serves(path));
    let method = &request.parts.method;
    let Some((path, route)) = path.and_then(|path| Some((path, path.route(method)?))) else {
        if let Some(path) = path.filter(|_| *method == Method::OPTIONS) {
            return in_box(|| request.options(path)).await;
        }
        let limited = request.charge(None).await.err();
        return Err(match path {
            None => limited.unwrap_or_else(no_such_endpoint).into_error_page(),
            Some(path) => limited.unwrap_or_else(|| method_not_allowed(path)).into_error_page(),
        });
    };
    request.let_any_client_read(path).await;
    // boxed, so that this future is small
    match route {
        Route::Authorize => in_box(|| endpoint::authorize(request)).await,
        Route::AuthorizeForm => in_box(|| endpoint::by_form(request, body)).await,
        Route::Consent => in_box(|| endpoint::decide_about_client(request, body)).await,
        Route::StartPage => in_box(|| login_page::login_page(request)).await,
        Route::Script | Route::Style | Route::Logo | Route::AccountScript => {
            let cx = request.charge_page_part().await?;
            Ok(page::asset(&cx.core.pages, route))
        }
        Route::OpenApi => {
            let cx = request.charge_asset().await?;
            Ok(page::asset(&cx.core.pages, route))
        }
        Route::Token(route) => in_box(|| provider::serve_token_route(request, route, body)).await,
        Route::Status | Route::Choices => in_box(|| read_login(request, route)).await,
        Route::Par => in_box(|| par::push_request(request, body)).await,
        Route::SsoCallback => in_box(|| factors::serve_sso_callback(request)).await,
        Route::SignIn
        | Route::FinishSignIn
        | Route::SignOut
        | Route::SignOutPage
        | Route::AccountPage
        | Route::ChangePassword
        | Route::PasskeyEndpoints => in_box(|| on_site(request, route, body)).await.map_err(Problem::into_error_page),
        Route::SignUpPage | Route::ResetPage => {
            in_box(|| entry_pages::serve_entry_page(request, route)).await.map_err(Problem::into_error_page)
        }
        Route::Account(route) => in_box(|| account::serve_account_route(request, route, body)).await,
        Route::Start
        | Route::Authenticate
        | Route::VerifyOtp
        | Route::Enrol
        | Route::Complete
        | Route::SignUp(_)
        | Route::Reset(_) => in_box(|| log_in(request, route, body)).await,
    }
}

/// Serves the calls of a login that change it.
async fn log_in(request: &mut IncomingRequest<'_>, route: Route, body: &mut RequestBody) -> EndpointResult {
    let fields = Fields::from_json_body(&request.parts.headers, body).await;
    let fields = request.or_charge(fields).await?;
    let is_reset = route == Route::Reset(ResetRoute::Start);
    if route == Route::Start || is_reset {
        let (cx, client) = request.charged_caller(fields.client_id(), ClientReach::Login).await?;
        return start::start_login(&cx, client?, fields, is_reset).await;
    }
    let own = request.own_login(fields.client_id(), fields.session_id.as_deref()).await?;
    match route {
        Route::Authenticate => factors::perform_login_step(&own, fields).await,
        Route::VerifyOtp => factors::verify_login_code(&own, fields).await,
        Route::Enrol => factors::set_up_factor(&own, fields).await,
        Route::SignUp(SignUpRoute::SendCode) => sign_up::send_sign_up_code(&own, fields).await,
        Route::SignUp(SignUpRoute::Verify) => sign_up::verify_sign_up_code(&own, fields).await,
        Route::SignUp(SignUpRoute::Invitation) => sign_up::accept_invitation(&own, fields).await,
        Route::SignUp(SignUpRoute::Create) => sign_up::create_account(&own, fields).await,
        Route::Reset(ResetRoute::Link) => reset::accept_reset_link(&own, fields).await,
        Route::Reset(_) => reset::set_new_password(&own, fields).await,
        _ => complete::complete_login(&own, fields).await,
    }
}

/// Serves the calls that show a login.
async fn read_login(request: &mut IncomingRequest<'_>, route: Route) -> EndpointResult {
    let id = Query::from_request_uri(request.parts).and_then(|query| match query.is_twice("session_id") {
        true => Err(Problem::invalid("session_id appears more than once")),
        false => Ok(query.value("session_id").map(str::to_owned)),
    });
    let id = request.or_charge(id).await?;
    let own = request.own_login(None, id.as_deref()).await?;
    match route {
        Route::Status => Ok(answer::login_progress(own.stored.value.to_login_view(own.cx.core.logins.now()), ())),
        _ => choices::list_choices(&own).await,
    }
}

/// Serves the pages of the site itself.
async fn on_site(request: &mut IncomingRequest<'_>, route: Route, body: &mut RequestBody) -> EndpointResult {
    match route {
        Route::SignIn => sign_in::sign_in(&request.of_this_site().await?).await,
        Route::FinishSignIn => sign_in::finish_sign_in(&request.of_this_site().await?).await,
        Route::ChangePassword => well_known::redirect_to_password(&request.of_this_site().await?.cx),
        Route::PasskeyEndpoints => Ok(well_known::list_passkey_endpoints(&request.of_this_site().await?.cx)),
        Route::SignOutPage => sign_out::show_question(&request.of_this_site().await?),
        Route::AccountPage => account::serve_account_page(&request.of_this_site().await?).await,
        _ => {
            let body = fields::form(request.parts, body).await;
            sign_out::sign_out(&request.of_own_page().await?, &body?).await
        }
    }
}

fn no_such_endpoint() -> Problem {
    Problem::new(Code::NotFound, "there is no such endpoint")
}

fn method_not_allowed(path: &Path) -> Problem {
    Problem::new(Code::MethodNotAllowedHere, "this endpoint does not support the method")
        .header(http::header::ALLOW, HeaderValue::from_static(path.allow()))
}

/// The response future of [`AuthService`].
pub struct AuthFuture(Pin<Box<dyn Future<Output = Response<Body>> + Send>>);

impl AuthFuture {
    /// Begins to answer a request. Neither generic nor inlined into other crates, because the compiler then moves the future
    /// less often on its way into the box.
    #[inline(never)]
    fn new(core: Arc<Core>, mut parts: Parts, body: RequestBody) -> Self {
        let path = Path::match_request_path(parts.uri.path(), core.issuer.path());
        match path.and_then(|path| path.route(&parts.method)) {
            // a change of how a user signs in is announced even if the caller disconnects
            Some(Route::Account(_) | Route::Enrol | Route::SignUp(_) | Route::Reset(_)) => {
                Self(Box::pin(RunToCompletion::new(answer_request(core, path, parts, body))))
            }
            // so is a new link, but a caller may stop waiting for a slow provider
            Some(Route::SsoCallback) => {
                let point = PointOfNoReturn::default();
                parts.extensions.insert(point.clone());
                Self(Box::pin(RunToCompletion::from_point(point, answer_request(core, path, parts, body))))
            }
            _ => Self(Box::pin(answer_request(core, path, parts, body))),
        }
    }
}

impl Future for AuthFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

crate::util::fmt::opaque_debug!(AuthFuture);

crate::util::fmt::debug_fields!(AuthService, |own|
    issuer: own.0.issuer.as_str(),
    clients: own.0.clients,
    users: own.0.users,
    store: own.0.store
);

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
        let mut request = IncomingRequest::new(&service.0, &parts);
        let mut body = RequestBody::new(body);
        let size = size_of_val(&serve_path(&mut request, Path::match_request_path("/token", ""), &mut body));
        assert!(size <= 1024, "{size} bytes");
    }
}

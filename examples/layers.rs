//! Three layers and their order: a rate limit outside, then sessions, then PKCE.
//!
//!     cargo run --example layers
//!
//! It prints what to try.

#![expect(clippy::print_stdout, reason = "prints where it listens and what to try")]

use std::{convert::Infallible, error::Error, net::SocketAddr};

use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tollgate::{
    ClientIp, Limiter, PeerAddr, PkceLayer, Plans, ProblemJson, Quota, RateLimit, RateLimitLayer, Session,
    SessionLayer, Sessions, Tenant, UserId,
    pkce::CodeChallenge,
    session::{NewSession, SessionTenant},
    store::Memory,
};
use tower::{ServiceBuilder, ServiceExt};

type Answer = Response<Full<bytes::Bytes>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into())).await?;
    let here = listener.local_addr()?;
    print_what_to_try(here);

    // for plain HTTP on loopback; without it the cookie is `__Host-session_…` and Secure
    let sessions = Sessions::builder(Memory::new()).insecure_loopback().build()?;

    // The first limit allows 30 requests a minute per address. It runs before the session is read, so floods are refused
    // without a call to the store.
    let by_address =
        RateLimitLayer::new(ClientIp::peer(), Limiter::memory(Plans::new(Quota::const_per_minute::<30>())));
    // Sees only requests within that limit, and finds their user.
    let session = SessionLayer::new(sessions.clone()).required().login_url("/login")?.return_parameter("return_to")?;
    // The second limit needs the session: 5 requests a minute per tenant.
    let by_tenant = RateLimitLayer::new(SessionTenant, Limiter::memory(Plans::new(Quota::const_per_minute::<5>())));
    // Sees only requests that passed all layers before.
    let pkce = PkceLayer::new("/authorize")?;

    let app = ServiceBuilder::new()
        .layer(by_address.clone().respond_with(ProblemJson))
        .layer(session.respond_with(ProblemJson))
        .layer(by_tenant.respond_with(ProblemJson))
        .layer(pkce.respond_with(ProblemJson))
        .service(tower::service_fn(app));
    // the login page is behind the rate limit only
    let login = ServiceBuilder::new()
        .layer(by_address.respond_with(ProblemJson))
        .service(tower::service_fn(move |_: Request<Incoming>| login(sessions.clone())));

    loop {
        let (stream, peer) = listener.accept().await?;
        let (app, login) = (app.clone(), login.clone());
        let route = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddr(peer));
            let (app, login) = (app.clone(), login.clone());
            async move {
                match request.uri().path() {
                    "/login" => login.oneshot(request).await,
                    _ => app.oneshot(request).await,
                }
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), route));
    }
}

/// Prints what each layer has put into the request.
async fn app(request: Request<Incoming>) -> Result<Answer, Infallible> {
    let session = Session::from_extensions(request.extensions());
    let limit = request.extensions().get::<RateLimit>();
    let challenge = CodeChallenge::from_extensions(request.extensions());
    Ok(answer(format!(
        "session: {:?}\nleft for this tenant: {:?}\nchallenge: {challenge:?}\n",
        session.map(Session::user),
        limit.map(RateLimit::remaining),
    )))
}

/// Signs everyone in as Ada. A real login asks for a password.
async fn login(sessions: Sessions) -> Result<Answer, Infallible> {
    let created = match (Tenant::parse("acme"), UserId::parse("ada")) {
        (Ok(tenant), Ok(user)) => sessions.create(NewSession::new(tenant, user)).await.ok(),
        _ => None,
    };
    let mut response = answer(String::from("signed in as ada of acme\n"));
    match created {
        Some((cookie, _)) => cookie.append_to(response.headers_mut()),
        None => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
    }
    Ok(response)
}

fn answer(text: String) -> Answer {
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    response
}

fn print_what_to_try(here: SocketAddr) {
    println!("listening on http://{here}");
    println!("open it in a browser, or try");
    println!("  curl -i http://{here}/                                          # 401: no session");
    println!("  curl -i http://{here}/ -H 'accept: text/html'                   # 303: to the login page");
    println!("  curl -c jar http://{here}/login                                 # signs in");
    println!("  curl -b jar -i http://{here}/                                   # 200: as ada");
    println!("  curl -b jar -i http://{here}/authorize                          # 400: no challenge");
    println!("  curl -b jar -i -X POST http://{here}/                           # 403: from which site?");
    println!("  for i in 1 2 3 4 5 6; do curl -b jar http://{here}/; done       # then 429: 5 a minute");
}

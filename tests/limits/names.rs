//! Names that callers invent, through every source: none of them spends the budget of an address or of anonymous requests.
//! Rows of those are in the same table as rows of names.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use http::{HeaderValue, Request, Response, StatusCode, Uri};
use tollgate::{
    ApiKeys, ClientIp, Head, LimitKey, Limiter, PeerAddr, Plans, Quota, RateLimitLayer, Tenant, TenantSource,
    tenant::{ExtensionTenant, HeaderTenant, HostTenant, PathTenant, ProvedTenant, TenantError, TenantName},
};
use tower::{Layer, ServiceExt, service_fn};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7));

/// An unchecked text that an outer layer has found.
#[derive(Clone)]
struct Claim(Vec<u8>);

/// A custom source that checks the name.
struct Checks;

impl TenantSource for Checks {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        Ok(head.headers().get("x-tenant").map(LimitKey::parse).transpose()?.map(TenantName::from))
    }
}

/// A custom source that borrows the name from the request.
struct Borrows;

impl TenantSource for Borrows {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        head.headers().get("x-tenant").map(|value| TenantName::borrowed(value.as_bytes())).transpose()
    }
}

fn sources() -> Vec<(&'static str, Arc<dyn TenantSource>)> {
    let header = || HeaderTenant::new("x-tenant").unwrap();
    let keys = || ApiKeys::new("x-tenant").unwrap().key("key-of-acme", "acme").unwrap();
    let closure = |head: Head<'_>| head.headers().get("x-tenant").map(Tenant::parse).transpose();
    let claim = |head: Head<'_>| -> Result<Option<Tenant>, TenantError> {
        Ok(head.extensions().get::<Claim>().and_then(|claim| Tenant::parse(&claim.0).ok()))
    };
    let behind = ClientIp::behind(["198.51.100.0/24"]).unwrap();
    vec![
        ("header", Arc::new(header())),
        ("path", Arc::new(PathTenant::segment(1))),
        ("host", Arc::new(HostTenant::whole_host())),
        ("subdomain", Arc::new(HostTenant::subdomain_of("example.com").unwrap())),
        ("API key", Arc::new(keys())),
        ("own extension", Arc::new(ProvedTenant::new(claim))),
        ("extension", Arc::new(ExtensionTenant)),
        ("X-Forwarded-For", Arc::new(behind)),
        ("closure", Arc::new(closure)),
        ("checks", Arc::new(Checks)),
        ("borrows", Arc::new(Borrows)),
        ("shared", Arc::new(Arc::new(header()))),
        ("chain", Arc::new(ExtensionTenant.or(PathTenant::segment(9)).or(header()))),
        ("second chain", Arc::new(header().or(keys()))),
    ]
}

/// Returns the names as bytes of a header, and whether they are reserved if they are taken as they are.
fn names() -> Vec<(Vec<u8>, bool)> {
    let long = |start: &str| format!("{start}{}", "1".repeat(200));
    let reserved = [
        "~anonymous",
        "ip:192.0.2.1",
        "ip:2001:db8::/64",
        "~",
        "ip:",
        "~~",
        "~ANONYMOUS",
        "~anonymous ",
        "ip: 192.0.2.1",
        "ip:192.0.2.1, ip:192.0.2.1",
        &long("~"),
        &long("ip:"),
        "~anonym\u{f6}us",
        "ip:\u{661}",
    ];
    let others = [
        "",
        " ",
        " ~anonymous",
        "\tip:192.0.2.1",
        "%7Eanonymous",
        "%7eanonymous",
        "%69p%3A192.0.2.1",
        "ip%3a192.0.2.1",
        "%257Eanonymous",
        "IP:192.0.2.1",
        "Ip:192.0.2.1",
        "anonymous",
        "192.0.2.1",
        "\u{ff5e}anonymous",
        "\u{456}p:192.0.2.1",
        &long(""),
    ];
    let bytes = |name: &&str| name.as_bytes().to_vec();
    let reserved = reserved.iter().map(|name| (bytes(name), true));
    let others = others.iter().map(|name| (bytes(name), false));
    // not UTF-8 either
    reserved.chain(others).chain([(b"~\xff".to_vec(), true), (b"\xff\xfe".to_vec(), false)]).collect()
}

/// Writes the name wherever a source reads it: as it is, or with all bytes escaped in the path.
fn request(name: &[u8], escapes_all: bool) -> Option<Request<()>> {
    let escaped: String = match escapes_all {
        true => name.iter().map(|byte| format!("%{byte:02x}")).collect(),
        false => String::from_utf8(name.to_vec()).ok()?,
    };
    let uri: Uri = format!("/tenants/{escaped}/orders").parse().ok()?;
    let value = HeaderValue::from_bytes(name).ok()?;
    let mut request = Request::get(uri).extension(PeerAddr((PEER, 49152).into())).extension(Claim(name.to_vec()));
    for header in ["x-tenant", "host", "x-forwarded-for"] {
        request = request.header(header, &value);
    }
    request.body(()).ok()
}

#[tokio::test]
async fn no_name_reaches_a_reserved_budget_through_any_source() {
    let reserved = [
        LimitKey::anonymous(),
        LimitKey::address([192, 0, 2, 1].into()),
        LimitKey::address("2001:db8::".parse().unwrap()),
    ];
    let served = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let mut refused = 0;
    for (source_name, source) in sources() {
        let limiter = Limiter::memory(Plans::new(Quota::per_hour(1_000).unwrap()));
        assert!(reserved.iter().all(|tenant| limiter.check(tenant, 1).is_admitted()));
        let layer = RateLimitLayer::new(Arc::clone(&source), limiter.clone());
        for (name, is_reserved) in names() {
            for request in [request(&name, false), request(&name, true)].into_iter().flatten() {
                let shown = format!("{source_name}: {}", name.escape_ascii());
                let head = Head::of_request(&request);
                let found = source.find(head).and_then(|name| name.map(|name| name.to_key()).transpose());
                let is_usable = matches!(&found, Ok(Some(_)));
                let by_address = matches!(source_name, "X-Forwarded-For" | "Forwarded");
                if by_address {
                    let addresses = [PEER, [192, 0, 2, 1].into()].map(LimitKey::address);
                    assert!(found.is_ok_and(|found| addresses.contains(&found.unwrap())), "{shown}");
                    continue;
                }
                // `ip:` is the host `ip`, which is not reserved
                let reads_all = !matches!(source_name, "host" | "subdomain");
                assert!(!(is_reserved && reads_all && is_usable), "{shown} is {found:?}");
                assert!(!found.is_ok_and(|found| found.is_some_and(|found| reserved.contains(&found))), "{shown}");
                let status = layer.layer(served).oneshot(request).await.unwrap().status();
                assert_eq!(status == StatusCode::OK, is_usable, "{shown}");
                refused += usize::from(!is_usable);
            }
        }
        for tenant in &reserved {
            assert_eq!(limiter.peek(tenant).unwrap().remaining(), 999, "{source_name}: {tenant}");
        }
    }
    assert!(refused > 300, "{refused}");
}

/// A name can't choose the budget of requests without a tenant either.
#[tokio::test]
async fn a_reserved_name_is_refused_and_not_treated_as_missing() {
    let served = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let anonymous = |_: Head<'_>| Ok(Some(LimitKey::anonymous()));
    for missing in [Arc::new(anonymous) as Arc<dyn TenantSource>, Arc::new(ClientIp::peer())] {
        let limiter = Limiter::memory(Plans::new(Quota::per_hour(1_000).unwrap()));
        let layer = RateLimitLayer::new(HeaderTenant::new("x-tenant").unwrap().or(missing), limiter.clone());
        for (name, _) in names().into_iter().filter(|(_, is_reserved)| *is_reserved) {
            let Some(request) = request(&name, true) else { continue };
            let status = layer.layer(served).oneshot(request).await.unwrap().status();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{}", name.escape_ascii());
        }
        assert_eq!(limiter.tenants(), 0);
    }
}

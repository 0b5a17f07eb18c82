//! Complete requests, and the tenants that sources find in them.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::net::SocketAddr;

use http::{Request, request::Builder};
use tollgate::{
    ApiKeys, ClientIp, ConfigError, Head, PeerAddr, SecretDigest, Tenant, TenantSource,
    tenant::{ExtensionTenant, HeaderTenant, HostTenant, PathTenant, TenantError},
};

/// Returns the name as text, or the status of the error.
fn find(source: &impl TenantSource, request: Builder) -> String {
    let request = request.body("any body").unwrap();
    let found = source.find(Head::of_request(&request)).and_then(|name| name.map(|name| name.to_key()).transpose());
    match found {
        Ok(Some(key)) => key.to_string(),
        Ok(None) => String::from("nobody"),
        Err(error) if error.is_unknown() => String::from("401"),
        Err(_) => String::from("400"),
    }
}

fn from(peer: &str) -> Builder {
    Request::get("/").extension(PeerAddr(peer.parse::<SocketAddr>().unwrap()))
}

#[test]
fn an_api_key_takes_precedence_over_an_address() -> Result<(), ConfigError> {
    let keys = ApiKeys::new("x-api-key")?.key("demo-acme-key", "acme")?.key("demo-globex-key", "globex")?;
    let source = keys.clone().or(ClientIp::behind(["10.0.0.0/8"])?);
    let request = || from("10.0.0.1:49152").header("x-forwarded-for", "198.51.100.7:4711");

    assert_eq!(find(&source, request().header("x-api-key", "demo-acme-key")), "acme");
    assert_eq!(find(&source, request().header("x-api-key", "demo-globex-key")), "globex");
    assert_eq!(find(&source, request()), "ip:198.51.100.7");
    assert_eq!(find(&source, Request::get("/")), "nobody");

    // a wrong or ambiguous key never falls back to the address
    assert_eq!(find(&source, request().header("x-api-key", "guessed")), "401");
    assert_eq!(find(&source, request().header("x-api-key", "")), "400");
    assert_eq!(find(&source, request().header("x-api-key", "demo-acme-key").header("x-api-key", "guessed")), "400");

    // changes to the table apply, although the source has moved into the chain
    keys.remove("demo-acme-key");
    assert_eq!(find(&source, request().header("x-api-key", "demo-acme-key")), "401");
    keys.insert("rotated", Tenant::parse("acme").unwrap())?;
    assert_eq!(find(&source, request().header("x-api-key", "rotated")), "acme");
    let before = keys.insert_digest(SecretDigest::of_secret("rotated"), Tenant::parse("globex").unwrap());
    assert_eq!(before.unwrap().as_str(), "acme", "it is the same key");
    assert_eq!(find(&source, request().header("x-api-key", "rotated")), "globex");
    keys.insert_digest(SecretDigest::of_secret("stored"), Tenant::parse("acme").unwrap());
    assert_eq!(find(&source, request().header("x-api-key", "stored")), "acme");
    assert_eq!(find(&source, request().header("x-api-key", "unknown")), "401");
    Ok(())
}

#[test]
fn no_source_lets_a_caller_impersonate_an_address_or_the_anonymous_tenant() -> Result<(), ConfigError> {
    let header = HeaderTenant::new("x-tenant")?;
    for (name, escaped) in [("ip:192.0.2.1", "ip%3a192.0.2.1"), ("~anonymous", "%7Eanonymous")] {
        assert_eq!(find(&header, Request::get("/").header("x-tenant", name)), "400");
        assert_eq!(find(&PathTenant::segment(0), Request::get(format!("/{escaped}/orders"))), "400");
        assert_eq!(find(&HostTenant::whole_host(), Request::get("/").header("host", name)), "400");
        assert!(ApiKeys::new("x-api-key")?.key("k", name).is_err());
    }
    Ok(())
}

#[test]
fn addresses_invented_by_a_caller_never_change_its_tenant() -> Result<(), ConfigError> {
    let source = ClientIp::behind(["10.0.0.0/8", "fd00::/8"])?;
    for invented in ["203.0.113.1", "10.0.0.9", "unknown", "", "\"", "for=\"203.0.113.1", "[::1", ",,,,"] {
        let request =
            from("10.0.0.1:49152").header("x-forwarded-for", format!("{invented}, 198.51.100.7, [fd00::2]:80"));
        assert_eq!(find(&source, request), "ip:198.51.100.7", "{invented}");

        let request = from("[::ffff:10.0.0.1]:49152")
            .header("x-forwarded-for", invented)
            .header("x-forwarded-for", format!("{invented},198.51.100.7"))
            .header("x-forwarded-for", "[fd00::2]:80")
            .header("forwarded", "for=203.0.113.1");
        assert_eq!(find(&source, request), "ip:198.51.100.7", "{invented}");

        let request = from("198.51.100.7:49152").header("x-forwarded-for", invented).header("forwarded", invented);
        assert_eq!(find(&source, request), "ip:198.51.100.7", "{invented}");
    }
    Ok(())
}

#[test]
fn all_addresses_of_an_ipv6_customer_are_one_tenant() -> Result<(), ConfigError> {
    let source = ClientIp::peer();
    assert_eq!(find(&source, from("[2001:db8:1:2::1]:80")), "ip:2001:db8:1:2::/64");
    assert_eq!(find(&source, from("[2001:db8:1:2:ffff::]:443")), "ip:2001:db8:1:2::/64");
    assert_eq!(find(&source, from("[2001:db8:1:3::1]:80")), "ip:2001:db8:1:3::/64");
    assert_eq!(find(&source.ipv6_prefix(48)?, from("[2001:db8:1:3::1]:80")), "ip:2001:db8:1::/48");
    Ok(())
}

#[test]
fn a_name_is_the_same_tenant_regardless_of_its_source() -> Result<(), ConfigError> {
    let source = ExtensionTenant
        .or(HeaderTenant::new("x-tenant")?)
        .or(HostTenant::subdomain_of("example.com")?)
        .or(PathTenant::segment(1));
    for request in [
        Request::get("/").extension(Tenant::parse("acme").unwrap()),
        Request::get("/").header("X-Tenant", "acme"),
        Request::get("/").header("host", "ACME.example.com.:8080"),
        Request::get("https://acme.example.com/"),
        Request::get("/tenants/acme/orders"),
    ] {
        assert_eq!(find(&source, request), "acme");
    }
    assert_eq!(find(&source, Request::get("/").header("host", "example.com")), "nobody");
    assert_eq!(find(&source, Request::get("/tenants/a%20b").header("x-tenant", "acme")), "acme");
    assert_eq!(find(&source, Request::get("/tenants/acme").header("x-tenant", "a b")), "400");
    Ok(())
}

#[test]
fn a_closure_can_be_a_source_in_a_chain() {
    let by_version = |head: Head<'_>| -> Result<Option<Tenant>, TenantError> {
        head.headers().get("api-version").map(Tenant::parse).transpose()
    };
    let by_extension = |head: Head<'_>| -> Result<Option<Tenant>, TenantError> {
        Ok(head.extensions().get::<&str>().and_then(|name| Tenant::parse(name).ok()))
    };
    let source = by_version.or(by_extension);
    assert_eq!(find(&source, Request::get("/").header("api-version", "v1")), "v1");
    assert_eq!(find(&source, Request::get("/").extension("acme")), "acme");
    assert_eq!(find(&source, Request::get("/").extension("no tenant")), "nobody");
}

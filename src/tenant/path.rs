use super::{error::TenantError, id::LimitKey, source::TenantName, source::TenantSource};
use crate::{http::head::Head, util::form::decode_path};

/// Reads the tenant from a segment of the path, percent-decoded.
///
/// The path is the one that this layer sees. An outer router may have stripped a prefix.
///
/// A path is rejected if a service behind this layer might split it into other segments, and so serve a tenant that is
/// not charged: if it has a segment `.` or `..`, a backslash, an escaped slash, or an empty segment before the tenant.
/// The name of a tenant found here therefore never contains a slash.
///
/// # Security
///
/// Callers control the path, so they can spend any tenant's budget.
///
/// ```
/// use tollgate::{Head, TenantSource, tenant::PathTenant};
///
/// let request = http::Request::get("/tenants/acme/orders").body(())?;
/// let tenant = PathTenant::segment(1).find(Head::of_request(&request)).unwrap();
/// assert_eq!(tenant.unwrap().as_bytes(), b"acme");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PathTenant {
    segment: usize,
}

impl PathTenant {
    /// Creates a source that reads the segment with this index. The first is 0.
    pub fn segment(segment: usize) -> Self {
        Self { segment }
    }
}

impl TenantSource for PathTenant {
    fn find<'a>(&self, head: Head<'a>) -> Result<Option<TenantName<'a>>, TenantError> {
        let Some(path) = head.uri().path().strip_prefix('/') else { return Ok(None) };
        if path.split('/').any(is_dots) {
            return Err(TenantError::invalid("the path has a dot segment"));
        }
        if has_hidden_slash(path) {
            return Err(TenantError::invalid("the path has a backslash or an escaped slash"));
        }
        let mut segments = path.split('/').peekable();
        for _ in 0..self.segment {
            match segments.next() {
                None => return Ok(None),
                // a service that merges slashes sees other segments
                Some("") if segments.peek().is_some() => {
                    return Err(TenantError::invalid("the path has an empty segment"));
                }
                Some(_) => {}
            }
        }
        match segments.next() {
            None => Ok(None),
            // a path that ends in a slash ends there
            Some("") if segments.next().is_none() => Ok(None),
            Some(name) => Ok(Some(LimitKey::parse(decode_path(name)?.as_bytes())?.into())),
        }
    }
}

fn is_dots(segment: &str) -> bool {
    [".", "..", "%2e", ".%2e", "%2e.", "%2e%2e"].iter().any(|dots| segment.eq_ignore_ascii_case(dots))
}

/// Returns whether the path has a character that browsers or proxies may treat as a slash: `\`, or an escaped slash.
fn has_hidden_slash(path: &str) -> bool {
    let escaped = |bytes: &[u8]| matches!(bytes, [b'%', b'2', b'f' | b'F'] | [b'%', b'5', b'c' | b'C']);
    path.contains('\\') || path.as_bytes().windows(3).any(escaped)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn find(segment: usize, uri: &str) -> Result<Option<LimitKey>, TenantError> {
        let request = Request::get(uri).body(()).unwrap();
        PathTenant::segment(segment).find(Head::of_request(&request))?.map(|name| name.to_key()).transpose()
    }

    #[test]
    fn the_segment_names_the_tenant() {
        for (segment, uri) in [
            (0, "/acme"),
            (0, "/acme/"),
            (0, "/ac%6De/orders?x=/y"),
            (1, "/tenants/acme"),
            (2, "https://example.com/a/b/acme/c"),
        ] {
            assert_eq!(find(segment, uri).unwrap().unwrap().as_str(), "acme", "{uri}");
        }
        assert_eq!(find(0, "/a+b%252Fc").unwrap().unwrap().as_str(), "a+b%2Fc");
    }

    #[test]
    fn a_path_without_the_segment_has_no_tenant() {
        for (segment, uri) in [(0, "/"), (1, "/acme"), (1, "/acme/"), (9, "/acme"), (0, "*"), (0, "example.com:80")] {
            assert_eq!(find(segment, uri), Ok(None), "{uri}");
        }
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
        for uri in ["//acme", "/acme/../globex", "/./acme", "/acme/%2E%2e/globex", "/acme/.%2e", "/..", "/%zz"] {
            assert!(find(0, uri).is_err(), "{uri}");
        }
        for uri in [
            r"/tenants/acme/..\..\tenants\globex/orders",
            "/tenants/acme/..%5c..%5Ctenants%5cglobex/orders",
            "/tenants/..%2fglobex",
            "/tenants/acme/..%2F..%2Ftenants%2Fglobex/orders",
            "/tenants/acme%2F..%2Fglobex",
            "/tenants/acme%2fglobex",
            r"/tenants/acme\globex",
            r"/\/tenants/acme",
            "/tenants/acme/%%2f",
            "//tenants/acme",
            "//acme/orders",
        ] {
            assert!(find(1, uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_slash_in_the_query_does_not_belong_to_the_path() {
        assert_eq!(find(0, r"/acme?back=%2F..%5c\").unwrap().unwrap().as_str(), "acme");
    }
}

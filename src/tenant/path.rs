use super::{Tenant, TenantError, TenantSource};
use crate::{form::decode_path, head::Head};

/// The tenant that a segment of the path names, percent-decoded.
///
/// It proves nothing: a caller asks for the path that it likes. The path is
/// the one that this layer sees; a router outside may have stripped a prefix.
///
/// A path with `.` or `..` for a segment is refused: where something behind
/// resolves them, another tenant would be served than the one that pays.
///
/// ```
/// use tollgate::{Head, TenantSource, tenant::PathTenant};
///
/// let request = http::Request::get("/tenants/acme/orders").body(())?;
/// let tenant = PathTenant::segment(1).find(Head::of(&request)).unwrap();
/// assert_eq!(tenant.unwrap().as_str(), "acme");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PathTenant {
    segment: usize,
}

impl PathTenant {
    /// The segment of this number; the first is 0.
    pub fn segment(segment: usize) -> Self {
        Self { segment }
    }
}

impl TenantSource for PathTenant {
    fn find(&self, head: Head<'_>) -> Result<Option<Tenant>, TenantError> {
        let Some(path) = head.uri().path().strip_prefix('/') else { return Ok(None) };
        if path.split('/').any(is_dots) {
            return Err(TenantError::invalid("the path has a dot segment"));
        }
        let mut segments = path.split('/').skip(self.segment);
        match segments.next() {
            None => Ok(None),
            // a path that ends in a slash ends there
            Some("") if segments.next().is_none() => Ok(None),
            Some(name) => Tenant::parse(decode_path(name)?.as_bytes()).map(Some),
        }
    }
}

fn is_dots(segment: &str) -> bool {
    [".", "..", "%2e", ".%2e", "%2e.", "%2e%2e"].iter().any(|dots| segment.eq_ignore_ascii_case(dots))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn find(segment: usize, uri: &str) -> Result<Option<Tenant>, TenantError> {
        let request = Request::get(uri).body(()).unwrap();
        PathTenant::segment(segment).find(Head::of(&request))
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
        assert_eq!(find(0, "/a+b%2Fc").unwrap().unwrap().as_str(), "a+b/c");
    }

    #[test]
    fn a_path_that_ends_before_it_names_none() {
        for (segment, uri) in [(0, "/"), (1, "/acme"), (1, "/acme/"), (9, "/acme"), (0, "*"), (0, "example.com:80")] {
            assert_eq!(find(segment, uri), Ok(None), "{uri}");
        }
    }

    #[test]
    fn a_path_that_others_may_read_otherwise_is_refused() {
        for uri in ["//acme", "/acme/../globex", "/./acme", "/acme/%2E%2e/globex", "/acme/.%2e", "/..", "/%zz"] {
            assert!(find(0, uri).is_err(), "{uri}");
        }
    }
}

//! A borrowed view of a request without its body.

use http::{Extensions, HeaderMap, Method, Request, Uri, Version, header, request::Parts};

/// A request without its body, as [`Gate`](crate::gate::Gate)s see it.
///
/// It borrows from the request, because taking a request apart and reassembling it moves about 450
/// bytes each way.
///
/// ```
/// use tollgate::Head;
///
/// let request = http::Request::get("/orders?page=2").body("any body")?;
/// assert_eq!(Head::of_request(&request).uri().path(), "/orders");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Borrows the head of a request.
    pub fn of_request<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Returns the method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the URI as this service sees it. A router may have stripped a prefix.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the HTTP version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, which the server and outer layers have set.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns whether this is a gRPC request, judging by its content type.
    pub fn is_grpc(&self) -> bool {
        const GRPC: &[u8] = b"application/grpc";
        self.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
            value.as_bytes().split_at_checked(GRPC.len()).is_some_and(|(start, rest)| {
                start.eq_ignore_ascii_case(GRPC) && matches!(rest, [] | [b'+' | b';' | b' ', ..])
            })
        })
    }

    /// Returns whether this is a CORS preflight: an OPTIONS request with `Origin` and
    /// `Access-Control-Request-Method`.
    pub fn is_preflight(&self) -> bool {
        self.method == Method::OPTIONS
            && self.headers.contains_key(header::ORIGIN)
            && self.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_detected_by_content_type_alone() {
        let is_grpc = |content_type: &str| {
            let request = Request::builder().header("content-type", content_type).body(()).unwrap();
            Head::of_request(&request).is_grpc()
        };
        assert!(is_grpc("application/grpc"));
        assert!(is_grpc("application/grpc+proto"));
        assert!(is_grpc("application/grpc; charset=utf-8"));
        assert!(is_grpc("Application/gRPC"));
        assert!(is_grpc("APPLICATION/GRPC+proto"));
        assert!(!is_grpc("application/grpc-web"));
        assert!(!is_grpc("Application/gRPC-Web"));
        assert!(!is_grpc("application/json"));
        assert!(!Head::of_request(&Request::new(())).is_grpc());
    }
}

//! The status of a gRPC call as a status of HTTP.

use http::{HeaderMap, HeaderName, StatusCode};

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Returns the status of a response, or that of HTTP for a gRPC call that failed at once: its response has 200, and the gRPC
/// status among its headers. Callers choose gRPC by their content type, so they must not choose how a response counts.
pub(crate) fn http_status(status: StatusCode, headers: &HeaderMap) -> StatusCode {
    match headers.get(GRPC_STATUS) {
        Some(code) if status == StatusCode::OK => match code.as_bytes() {
            b"0" => status,
            // as in google.rpc.Code
            b"3" | b"9" | b"11" => StatusCode::BAD_REQUEST,
            b"16" => StatusCode::UNAUTHORIZED,
            b"7" => StatusCode::FORBIDDEN,
            b"5" => StatusCode::NOT_FOUND,
            b"6" | b"10" => StatusCode::CONFLICT,
            b"8" => StatusCode::TOO_MANY_REQUESTS,
            b"1" => StatusCode::REQUEST_TIMEOUT,
            b"12" => StatusCode::NOT_IMPLEMENTED,
            b"14" => StatusCode::SERVICE_UNAVAILABLE,
            b"4" => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
        _ => status,
    }
}

//! HTTP/1 connections after a request whose body was not read.

use http::{HeaderMap, HeaderValue, Version, header};

use super::head::Head;

/// Announces that the connection closes after this response, because a part of the request is not read. HTTP/2 has no such
/// header, and its connections go on.
pub(crate) fn announce_close(version: Version, headers: &mut HeaderMap) {
    if version < Version::HTTP_2 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Returns whether a request says that it has a body.
pub(crate) fn declares_body(head: Head<'_>) -> bool {
    let headers = head.headers();
    headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0")
}

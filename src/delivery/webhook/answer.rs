//! Interprets responses of gateways.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

use crate::delivery::error::SendError;

pub(super) fn meaning(status: StatusCode, headers: &HeaderMap) -> Result<(), SendError> {
    if status.is_success() {
        return Ok(());
    }
    let source = format!("the gateway responded with {}", status.as_u16());
    if !(status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)) {
        return Err(SendError::permanent(source));
    }
    let error = SendError::transient(source);
    Err(match retry_after(headers) {
        Some(wait) => error.not_before(wait),
        None => error,
    })
}

/// Reads `Retry-After` in seconds. Dates are ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::error::SendErrorKind::{self, Permanent, Transient};

    fn kind(status: u16) -> Option<SendErrorKind> {
        let status = StatusCode::from_u16(status).unwrap();
        meaning(status, &HeaderMap::new()).err().map(|error| error.kind())
    }

    #[test]
    fn each_status_means_success_retry_or_failure() {
        for status in 100..1000 {
            let expected = match status {
                200..=299 => None,
                408 | 425 | 429 | 500..=599 => Some(Transient),
                _ => Some(Permanent),
            };
            assert_eq!(kind(status), expected, "{status}");
        }
    }

    #[test]
    fn only_seconds_are_understood() {
        for (value, wait) in
            [("7", Some(7)), (" 7 ", Some(7)), ("-1", None), ("1.5", None), ("Sun, 09 Sep 2001 01:46:40 GMT", None)]
        {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            let error = meaning(StatusCode::TOO_MANY_REQUESTS, &headers).unwrap_err();
            assert_eq!(error.retry_after(), wait.map(Duration::from_secs), "{value}");
        }
    }
}

//! What the answer of a gateway means.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

use crate::delivery::error::SendError;

pub(super) fn meaning(status: StatusCode, headers: &HeaderMap) -> Result<(), SendError> {
    if status.is_success() {
        return Ok(());
    }
    let source = format!("the gateway answered {}", status.as_u16());
    if !(status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)) {
        return Err(SendError::permanent(source));
    }
    let error = SendError::transient(source);
    Err(match retry_after(headers) {
        Some(wait) => error.not_before(wait),
        None => error,
    })
}

/// In seconds; a date is taken for none.
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
    fn each_status_is_sent_tried_again_or_given_up() {
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
    fn seconds_to_wait_are_heeded_and_all_else_is_not() {
        for (value, wait) in
            [("7", Some(7)), (" 7 ", Some(7)), ("-1", None), ("1.5", None), ("Sun, 09 Sep 2001 01:46:40 GMT", None)]
        {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            let error = meaning(StatusCode::TOO_MANY_REQUESTS, &headers).unwrap_err();
            assert_eq!(error.retry_after(), wait.map(Duration::from_secs), "{value}");
        }
    }
}

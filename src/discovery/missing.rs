//! Why the metadata or the keys of an issuer can't be fetched.

use std::fmt;

use http::StatusCode;

use crate::support::outgoing::Failure;

/// Why the keys can't be fetched.
#[derive(Debug)]
pub(super) enum Missing {
    Outgoing(Failure),
    Status(StatusCode),
    /// The document is malformed.
    Malformed,
    /// The document belongs to another issuer.
    OtherIssuer,
    /// The document names a URL that is not safe to use.
    Unsafe,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outgoing(failure) => write!(f, "{failure}"),
            Self::Status(status) => write!(f, "the issuer responded with {}", status.as_u16()),
            Self::Malformed => f.write_str("the issuer returned an unexpected document"),
            Self::OtherIssuer => f.write_str("the metadata belongs to another issuer"),
            Self::Unsafe => f.write_str("the key URL in the metadata is not https"),
        }
    }
}

use crate::{
    reject::{Rejection, RejectionKind},
    util::form::FormError,
};

/// The error of a rejected verifier or challenge. It contains neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PkceError {
    kind: PkceErrorKind,
}

impl PkceError {
    pub(crate) const fn new(kind: PkceErrorKind) -> Self {
        Self { kind }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> PkceErrorKind {
        self.kind
    }

    /// Returns a message that can be shown to the caller.
    pub fn detail(&self) -> &'static str {
        match self.kind {
            // the texts of RFC 7636 §4.4.1
            PkceErrorKind::ChallengeRequired => "code challenge required",
            PkceErrorKind::UnsupportedMethod => "transform algorithm not supported",
            PkceErrorKind::InvalidChallenge => "the code challenge is malformed",
            PkceErrorKind::InvalidVerifier => "the code verifier is malformed",
            PkceErrorKind::Duplicate => "a parameter appears more than once",
            PkceErrorKind::Malformed => "the parameters are malformed",
        }
    }
}

/// The kind of a [`PkceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PkceErrorKind {
    /// The challenge is missing.
    ChallengeRequired,
    /// The method is not `S256`. A missing method means `plain`.
    UnsupportedMethod,
    /// The challenge is not the base64url of 32 bytes.
    InvalidChallenge,
    /// The verifier is not 43 to 128 unreserved characters.
    InvalidVerifier,
    /// A parameter appears more than once.
    Duplicate,
    /// The query is malformed.
    Malformed,
}

crate::util::fmt::text_error!(PkceError, |own| own.detail());

impl From<PkceError> for Rejection {
    fn from(error: PkceError) -> Self {
        Self::new(RejectionKind::InvalidRequest, error.detail())
    }
}

impl From<FormError> for PkceError {
    fn from(_: FormError) -> Self {
        Self::new(PkceErrorKind::Malformed)
    }
}

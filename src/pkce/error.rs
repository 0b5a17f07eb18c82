use std::fmt;

use crate::{
    reject::{Rejection, RejectionKind},
    util::{form::FormError, json::JsonError},
};

/// Why a verifier or a challenge can't be used. Nothing of either is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PkceError {
    kind: PkceErrorKind,
}

impl PkceError {
    pub(crate) const fn new(kind: PkceErrorKind) -> Self {
        Self { kind }
    }

    /// What is wrong.
    pub fn kind(&self) -> PkceErrorKind {
        self.kind
    }

    /// The reason in words, fit for the caller.
    pub fn detail(&self) -> &'static str {
        match self.kind {
            // the words of RFC 7636 §4.4.1
            PkceErrorKind::ChallengeRequired => "code challenge required",
            PkceErrorKind::UnsupportedMethod => "transform algorithm not supported",
            PkceErrorKind::InvalidChallenge => "the code challenge is malformed",
            PkceErrorKind::InvalidVerifier => "the code verifier is malformed",
            PkceErrorKind::Duplicate => "a parameter is given twice",
            PkceErrorKind::Malformed => "the parameters are malformed",
        }
    }
}

/// What is wrong with a verifier or a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PkceErrorKind {
    /// There is no challenge.
    ChallengeRequired,
    /// The method is not `S256`. None at all means `plain`.
    UnsupportedMethod,
    /// The challenge is not the base64url of 32 bytes.
    InvalidChallenge,
    /// The verifier is not 43 to 128 unreserved characters.
    InvalidVerifier,
    /// A parameter is given twice.
    Duplicate,
    /// The query or the body can't be read.
    Malformed,
}

impl fmt::Display for PkceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail())
    }
}

impl std::error::Error for PkceError {}

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

impl From<JsonError> for PkceError {
    fn from(error: JsonError) -> Self {
        Self::new(match error {
            JsonError::Duplicate => PkceErrorKind::Duplicate,
            JsonError::Malformed => PkceErrorKind::Malformed,
        })
    }
}

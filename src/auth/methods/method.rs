use http::Response;

use super::step::LoginStep;
use crate::{auth::http::problem::Problem, http::body::Body, login::LoginError};

/// One way to prove a login step.
///
/// `Core::enabled` decides whether a service offers it, and `state::proofs` what its proofs are marked with.
pub(super) trait LoginMethod {
    /// Handles `authenticate`: checks the secret in the request, or opens a challenge.
    async fn begin(&self, step: LoginStep<'_>) -> Result<Response<Body>, Problem>;

    /// Checks the answer to the open challenge. Methods that need no challenge refuse it.
    async fn verify(&self, step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
        Err(step.problem(Problem::denied(LoginError::NoPendingChallenge)))
    }
}

use http::Response;

use super::step::LoginStep;
use crate::{auth::http::problem::Problem, http::body::Body};

/// One way to prove a login step.
///
/// `Core::enabled` decides whether a service offers it, and `state::proofs` what its proofs are marked with.
pub(super) trait LoginMethod {
    /// Handles `authenticate`: checks the secret in the request, or opens a challenge.
    async fn begin(&self, step: LoginStep<'_>) -> Result<Response<Body>, Problem>;
}

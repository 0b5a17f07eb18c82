//! One request on its way through the service, in stages. An [`IncomingRequest`](incoming::IncomingRequest) is charged to
//! its tenant first, and only that makes the [`RequestContext`] with which endpoints work.

mod client_assertion;
pub(crate) mod client_authentication;
pub(crate) mod incoming;
pub(crate) mod stages;

use http::{HeaderName, HeaderValue, request::Parts};

use crate::dpop::{self, DpopError, DpopProof, UnverifiedProof};
use crate::support::run_to_completion::PointOfNoReturn;
use crate::{
    auth::{
        core::Core,
        http::{
            cors::Caller,
            problem::{Code, Problem},
        },
    },
    http::head::Head,
    login::Login,
    store::StoreError,
    tenant::{LimitKey, Tenant},
    words::Language,
};

/// Browsers mark a prefetch with one of these; the last two are used by older ones.
const PREFETCH: [HeaderName; 3] =
    [HeaderName::from_static("sec-purpose"), HeaderName::from_static("purpose"), HeaderName::from_static("x-moz")];

/// A request that was charged to its tenant, or to the address of the caller. A request for a fixed file from an unknown
/// address costs nothing.
pub(crate) struct RequestContext<'a> {
    pub(crate) core: &'a Core,
    pub(crate) parts: &'a Parts,
    /// The caller's address as the key of a limit. Where addresses are unknown, per-address limits are off: a limit that all
    /// clients share would let anyone lock out everyone.
    pub(crate) address: Option<LimitKey>,
    /// Whether scripts of another origin may read the answer.
    pub(crate) is_read_elsewhere: bool,
}

impl<'a> RequestContext<'a> {
    /// Refuses a prefetch of something that changes state. The browser drops the failed answer and asks again when the
    /// user really goes there.
    pub(crate) fn refuse_prefetch(&self) -> Result<(), Problem> {
        if PREFETCH.iter().any(|name| self.parts.headers.contains_key(name)) {
            return Err(Problem::new(Code::TemporarilyUnavailable, "prefetching this page is not allowed"));
        }
        Ok(())
    }

    pub(crate) fn head(&self) -> Head<'a> {
        Head::from(self.parts)
    }

    /// Returns whether users of this tenant sign in to the site that is called.
    pub(crate) fn is_site_of(&self, tenant: &Tenant) -> bool {
        let site = self.core.first_party.as_ref().and_then(|site| site.client(self.head()));
        site.is_some_and(|site| site.tenant() == tenant)
    }

    /// Returns the language of messages of a login: the one that its page has sent, or what the browser prefers.
    pub(crate) fn language(&self, login: &Login) -> Language {
        login.wanted.language.unwrap_or_else(|| Language::accepted(&self.parts.headers))
    }

    /// Runs the rest of a return from another identity provider to completion, even if the caller disconnects.
    pub(crate) fn continue_without_caller(&self) {
        if let Some(point) = self.parts.extensions.get::<PointOfNoReturn>() {
            point.pass();
        }
    }

    /// Checks whether one of our own pages sent this request.
    pub(crate) fn is_of_own_page(&self) -> bool {
        Caller::from_cors_headers(&self.parts.headers).is_own_page(self.core.issuer.origin())
    }

    /// Returns the thumbprint of the key that the caller of this path proves to hold (DPoP), or `None` without a proof. Each
    /// proof counts once.
    pub(crate) async fn spend_request_proof(&self, path: &str) -> Result<Option<String>, Problem> {
        match read_proof(self.core, self.parts, path, None)? {
            Some(proof) => Ok(Some(Box::pin(self.spend_proof(proof.verify()?)).await?)),
            None => Ok(None),
        }
    }

    /// Marks a proof as used, and returns the thumbprint of its key.
    pub(crate) async fn spend_proof(&self, proof: DpopProof) -> Result<String, Problem> {
        let endpoints = self.core.tokens.as_ref().ok_or_else(Problem::unavailable)?;
        Ok(endpoints.proofs.spend(proof).wait().await?)
    }

    /// Records failures that don't make the call fail.
    pub(crate) fn log_failures<const N: usize>(&self, failures: [Option<StoreError>; N]) {
        failures.into_iter().flatten().for_each(|error| self.log(&Problem::from(error)));
    }

    /// Records the failure behind a problem, if there is one.
    pub(crate) fn log(&self, problem: &Problem) {
        if problem.log() {
            self.core.journal.store_failed();
        }
    }
}

/// Reads the proof of a key (DPoP) that came with a call of this path, without checking its signature.
pub(crate) fn read_proof<'a>(
    core: &Core,
    parts: &'a Parts,
    path: &str,
    access_token: Option<&str>,
) -> Result<Option<UnverifiedProof<'a>>, Problem> {
    let url = format!("{}{path}", core.issuer.as_str());
    let Some(endpoints) = &core.tokens else { return Ok(None) };
    Ok(endpoints.proofs.read_unverified_proof(&parts.headers, &parts.method, &url, access_token)?)
}

impl From<DpopError> for Problem {
    fn from(error: DpopError) -> Self {
        match error {
            DpopError::Invalid(detail) => Self::new(Code::InvalidDpopProof, detail),
            DpopError::UseNonce(nonce) => {
                let problem = Self::new(Code::UseDpopNonce, "the proof needs the nonce of this answer");
                match HeaderValue::try_from(nonce) {
                    Ok(nonce) => problem.header(dpop::NONCE, nonce),
                    Err(_) => problem,
                }
            }
            DpopError::Unavailable => Self::unavailable(),
        }
    }
}

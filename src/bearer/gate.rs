use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderValue, StatusCode};

use super::{
    authorization::{Authorization, Scheme},
    possession::{PresentedProof, ProofError},
    rejections::BearerRejections,
    token::{AccessToken, TokenSlot},
    verifier::{TokenError, Verifier},
};
use crate::{
    dpop,
    gate::{Gate, MaybeReady, Pass},
    http::head::Head,
    limit::{RateLimitGate, RateLimitPass},
    reject::Rejection,
    store::BoxFuture,
    tenant::{LimitKey, RateLimit, TenantName},
};

/// Checks the access token of a request. Used by [`BearerLayer`](super::BearerLayer).
#[derive(Clone)]
pub struct BearerGate {
    pub(super) verifier: Verifier,
    pub(super) optional: bool,
    pub(super) rejections: Arc<BearerRejections>,
    /// The budgets of the tenants of verified tokens.
    pub(super) limit: Option<RateLimitGate>,
}

/// The part of a request that is kept while its token is verified.
struct Request {
    proof: Option<PresentedProof>,
    /// The charge of an outer layer.
    charged: Option<RateLimit>,
}

type BearerDecision = Result<BearerPass, Rejection>;
type Decided = MaybeReady<BoxFuture<'static, BearerDecision>>;

impl Gate for BearerGate {
    type Pass = BearerPass;
    type Future = BoxFuture<'static, BearerDecision>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        // clients fetch the document before they have a token
        if let Some(document) = self.rejections.document(head, self.verifier.issuer()) {
            return MaybeReady::Ready(Err(document));
        }
        // an outer layer with the same verifier has checked the token already, and a proof can be
        // checked only once
        if let Some(TokenSlot::Taken { token, scheme, verifier }) = head.extensions().get()
            && *verifier == self.verifier.number()
        {
            let (known, scheme) = (token.clone(), *scheme);
            return self.charge(token, head.extensions().get(), move |gate, limit| {
                let permitted = gate.permit(&known, scheme);
                MaybeReady::Ready(permitted.map(|()| BearerPass { limit, ..BearerPass::default() }))
            });
        }
        let (scheme, token) = match Authorization::from_auth_headers(head.headers()) {
            Authorization::Nothing => return MaybeReady::Ready(self.no_token()),
            Authorization::Malformed => return MaybeReady::Ready(Err(self.rejections.malformed())),
            Authorization::Token { scheme, token } => (scheme, token),
        };
        // the request is gone by the time the token is verified
        let proof = match scheme {
            Scheme::Bearer => None,
            Scheme::DPoP => match self.verifier.possession().copy_request_proof(head, token) {
                None => return MaybeReady::Ready(Err(self.rejections.invalid(scheme))),
                proof => proof,
            },
        };
        let charged = self.limit.as_ref().and_then(|_| head.extensions().get().cloned());
        let request = Request { proof, charged };
        match self.verifier.verify(token) {
            MaybeReady::Ready(verified) => self.settle(verified, request),
            MaybeReady::Pending(verified) => {
                let gate = self.clone();
                MaybeReady::Pending(Box::pin(async move { gate.settle(verified.await, request).wait().await }))
            }
        }
    }
}

impl BearerGate {
    /// Charges a request with a verified token to the tenant of that token, and goes on then.
    fn charge(
        &self,
        token: &AccessToken,
        charged: Option<&RateLimit>,
        then: impl FnOnce(&Self, Option<RateLimitPass>) -> Decided + Send + 'static,
    ) -> Decided {
        let Some(limit) = &self.limit else { return then(self, None) };
        let name = match token.tenant() {
            Some(tenant) => TenantName::from(tenant.clone()),
            // the request is authenticated all the same
            None => TenantName::from(LimitKey::anonymous()).proved(),
        };
        match limit.charge_once(&name, charged) {
            MaybeReady::Ready(Ok(pass)) => then(self, Some(pass)),
            MaybeReady::Ready(Err(rejection)) => MaybeReady::Ready(Err(rejection)),
            MaybeReady::Pending(pass) => {
                let gate = self.clone();
                MaybeReady::Pending(Box::pin(async move { then(&gate, Some(pass.await?)).wait().await }))
            }
        }
    }

    /// Decides about a request without a token.
    fn no_token(&self) -> BearerDecision {
        if self.optional {
            let slot = TokenSlot::Empty(self.rejections.challenge.clone());
            return Ok(BearerPass { slot: Some(slot), ..BearerPass::default() });
        }
        Err(self.rejections.no_token())
    }

    fn settle(&self, verified: Result<AccessToken, TokenError>, request: Request) -> Decided {
        let scheme = if request.proof.is_some() { Scheme::DPoP } else { Scheme::Bearer };
        let token = match verified {
            Ok(token) => token,
            Err(TokenError::Invalid) => return MaybeReady::Ready(Err(self.rejections.invalid(scheme))),
            Err(TokenError::Unavailable) => {
                crate::util::trace::warning!("failed to load the keys or the revocations of access tokens");
                return MaybeReady::Ready(Err(BearerRejections::unavailable()));
            }
        };
        let Some(shown) = request.proof else {
            // a bound token without a proof may be stolen
            if token.bound_to().is_some() {
                return MaybeReady::Ready(Err(self.rejections.invalid(scheme)));
            }
            let known = token.clone();
            return self.charge(&token, request.charged.as_ref(), move |gate, limit| {
                MaybeReady::Ready(gate.pass(known, scheme, limit))
            });
        };
        let proof = match self.verifier.possession().prove(&shown, &token) {
            Ok(proof) => proof,
            Err(error) => return MaybeReady::Ready(Err(self.unproved(error))),
        };
        let known = token.clone();
        // charged before the proof takes up memory
        self.charge(&token, request.charged.as_ref(), move |gate, limit| {
            let own = gate.clone();
            gate.verifier.possession().spend(proof).map(move |spent| match spent {
                Ok(()) => own.pass(known, Scheme::DPoP, limit),
                Err(error) => Err(own.unproved(error)),
            })
        })
    }

    fn unproved(&self, error: ProofError) -> Rejection {
        match error {
            ProofError::Token => self.rejections.invalid(Scheme::DPoP),
            ProofError::Proof(error) => self.rejections.unproved(error),
        }
    }

    /// Checks whether the user of a valid token has authenticated as required, and whether the token has the required scopes.
    fn permit(&self, token: &AccessToken, scheme: Scheme) -> Result<(), Rejection> {
        let is_recent = |age| token.auth_time().is_some_and(|at| self.verifier.is_recent(at, age));
        if !self.rejections.accepts_level(token.acr()) || !self.rejections.max_age.is_none_or(is_recent) {
            return Err(self.rejections.step_up(scheme));
        }
        if !self.rejections.scopes.iter().all(|scope| token.has_scope(scope)) {
            return Err(self.rejections.narrow(scheme));
        }
        Ok(())
    }

    /// Admits a request with a valid token, if the token is [sufficient](Self::permit).
    fn pass(&self, token: AccessToken, scheme: Scheme, limit: Option<RateLimitPass>) -> BearerDecision {
        self.permit(&token, scheme)?;
        let nonce = if scheme == Scheme::DPoP { self.verifier.possession().nonce() } else { None };
        let slot = TokenSlot::Taken { token, scheme, verifier: self.verifier.number() };
        Ok(BearerPass { slot: Some(slot), nonce, limit })
    }
}

crate::util::fmt::debug_fields!(BearerGate, |own| verifier: own.verifier, optional: own.optional, scopes: own.rejections.scopes);

/// The token of an admitted request, if it has one.
#[derive(Debug, Default)]
pub struct BearerPass {
    /// `None` if an outer layer has already inserted it.
    slot: Option<TokenSlot>,
    /// The nonce for the next proof.
    nonce: Option<HeaderValue>,
    limit: Option<RateLimitPass>,
}

impl Pass for BearerPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        if let Some(slot) = self.slot.take() {
            extensions.insert(slot);
        }
        if let Some(limit) = &mut self.limit {
            limit.admit(extensions);
        }
    }

    fn finish(self, status: StatusCode, headers: &mut HeaderMap) {
        if let Some(limit) = self.limit {
            limit.finish(status, headers);
        }
        if let Some(nonce) = self.nonce {
            headers.insert(dpop::NONCE, nonce);
        }
    }
}

use std::{fmt, sync::Arc};

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
    reject::Rejection,
    store::BoxFuture,
};

/// Checks the access token of a request. Used by [`BearerLayer`](super::BearerLayer).
#[derive(Clone)]
pub struct BearerGate {
    pub(super) verifier: Verifier,
    pub(super) optional: bool,
    pub(super) rejections: Arc<BearerRejections>,
}

type BearerDecision = Result<BearerPass, Rejection>;

impl Gate for BearerGate {
    type Pass = BearerPass;
    type Future = BoxFuture<'static, BearerDecision>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        // an outer layer with the same verifier has checked the token already, and a proof can be
        // checked only once
        if let Some(TokenSlot::Taken { token, scheme, verifier }) = head.extensions().get()
            && *verifier == self.verifier.number()
        {
            return MaybeReady::Ready(self.permit(token, *scheme).map(|()| BearerPass::default()));
        }
        let (scheme, token) = match Authorization::read(head.headers()) {
            Authorization::Nothing => return MaybeReady::Ready(self.no_token()),
            Authorization::Malformed => return MaybeReady::Ready(Err(self.rejections.malformed())),
            Authorization::Token { scheme, token } => (scheme, token),
        };
        // the request is gone by the time the token is verified
        let shown = match scheme {
            Scheme::Bearer => None,
            Scheme::DPoP => match self.verifier.possession().take(head, token) {
                None => return MaybeReady::Ready(Err(self.rejections.invalid(scheme))),
                shown => shown,
            },
        };
        match self.verifier.verify(token) {
            MaybeReady::Ready(verified) => self.settle(verified, shown),
            MaybeReady::Pending(verified) => {
                let gate = self.clone();
                MaybeReady::Pending(Box::pin(async move { gate.settle(verified.await, shown).wait().await }))
            }
        }
    }
}

impl BearerGate {
    /// Decides about a request without a token.
    fn no_token(&self) -> BearerDecision {
        if self.optional {
            let slot = TokenSlot::Empty(self.rejections.challenge().clone());
            return Ok(BearerPass { slot: Some(slot), nonce: None });
        }
        Err(self.rejections.no_token())
    }

    fn settle(
        &self,
        verified: Result<AccessToken, TokenError>,
        shown: Option<PresentedProof>,
    ) -> MaybeReady<BoxFuture<'static, BearerDecision>> {
        let scheme = if shown.is_some() { Scheme::DPoP } else { Scheme::Bearer };
        let token = match verified {
            Ok(token) => token,
            Err(TokenError::Invalid) => return MaybeReady::Ready(Err(self.rejections.invalid(scheme))),
            Err(TokenError::Unavailable) => {
                crate::util::trace::warning!("failed to load the keys or the revocations of access tokens");
                return MaybeReady::Ready(Err(BearerRejections::unavailable()));
            }
        };
        let Some(shown) = shown else {
            // a bound token without a proof may be stolen
            let is_free = token.bound_to().is_none();
            let permitted = if is_free { self.permit(&token, scheme) } else { Err(self.rejections.invalid(scheme)) };
            return MaybeReady::Ready(permitted.map(|()| self.pass(token, scheme, None)));
        };
        match self.verifier.possession().settle(&shown, &token) {
            MaybeReady::Ready(proved) => MaybeReady::Ready(self.proved(proved, token)),
            MaybeReady::Pending(proved) => {
                let gate = self.clone();
                MaybeReady::Pending(Box::pin(async move { gate.proved(proved.await, token) }))
            }
        }
    }

    fn proved(&self, proved: Result<(), ProofError>, token: AccessToken) -> BearerDecision {
        match proved {
            Ok(()) => {
                self.permit(&token, Scheme::DPoP)?;
                Ok(self.pass(token, Scheme::DPoP, self.verifier.possession().nonce()))
            }
            Err(ProofError::Token) => Err(self.rejections.invalid(Scheme::DPoP)),
            Err(ProofError::Proof(error)) => Err(self.rejections.unproved(error)),
        }
    }

    /// Checks whether a valid token has the required scopes.
    fn permit(&self, token: &AccessToken, scheme: Scheme) -> Result<(), Rejection> {
        if !self.rejections.scopes().iter().all(|scope| token.has_scope(scope)) {
            return Err(self.rejections.narrow(scheme));
        }
        Ok(())
    }

    fn pass(&self, token: AccessToken, scheme: Scheme, nonce: Option<HeaderValue>) -> BearerPass {
        BearerPass { slot: Some(TokenSlot::Taken { token, scheme, verifier: self.verifier.number() }), nonce }
    }
}

impl fmt::Debug for BearerGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerGate")
            .field("verifier", &self.verifier)
            .field("optional", &self.optional)
            .field("scopes", &self.rejections.scopes())
            .finish_non_exhaustive()
    }
}

/// The token of an admitted request, if it has one.
#[derive(Debug, Default)]
pub struct BearerPass {
    /// `None` if an outer layer has already inserted it.
    slot: Option<TokenSlot>,
    /// The nonce for the next proof.
    nonce: Option<HeaderValue>,
}

impl Pass for BearerPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        if let Some(slot) = self.slot.take() {
            extensions.insert(slot);
        }
    }

    fn finish(self, _: StatusCode, headers: &mut HeaderMap) {
        if let Some(nonce) = self.nonce {
            headers.insert(dpop::NONCE, nonce);
        }
    }
}

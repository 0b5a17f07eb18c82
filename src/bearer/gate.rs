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

/// Checks the access token of a request; what a [`BearerLayer`](super::BearerLayer) puts before a service.
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
        // a layer outside with the same verifier has looked already, and a proof is good for one look
        if let Some(TokenSlot::Taken { token, scheme, verifier }) = head.extensions().get()
            && *verifier == self.verifier.number()
        {
            return MaybeReady::Ready(self.permit(token, *scheme).map(|()| BearerPass::default()));
        }
        let (scheme, token) = match Authorization::read(head.headers()) {
            Authorization::Nothing => return MaybeReady::Ready(self.nobody()),
            Authorization::Malformed => return MaybeReady::Ready(Err(self.rejections.malformed())),
            Authorization::Token { scheme, token } => (scheme, token),
        };
        // the request can't be looked at again when the token is known
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
    /// What a request without a token gets.
    fn nobody(&self) -> BearerDecision {
        if self.optional {
            let slot = TokenSlot::Empty(self.rejections.challenge().clone());
            return Ok(BearerPass { slot: Some(slot), nonce: None });
        }
        Err(self.rejections.nobody())
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
                crate::util::trace::warning!("the keys of access tokens, or what is revoked, can't be read");
                return MaybeReady::Ready(Err(BearerRejections::unavailable()));
            }
        };
        let Some(shown) = shown else {
            // without a proof, whoever brings a bound token may have stolen it
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

    /// Whether a token that counts is enough.
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

/// What a request that may come through carries: its token, if it has one.
#[derive(Debug, Default)]
pub struct BearerPass {
    /// None where a layer outside has left it already.
    slot: Option<TokenSlot>,
    /// For the next proof.
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

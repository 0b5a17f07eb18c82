use std::{fmt, sync::Arc};

use http::Extensions;

use super::{
    AccessToken, Verifier,
    presented::{Presented, Scheme},
    refusal::Refusal,
    token::Slot,
    verifier::Refused,
};
use crate::{
    gate::{Gate, MaybeReady, Pass},
    head::Head,
    reject::Rejection,
    store::BoxFuture,
};

/// Checks the access token of a request; what a [`BearerLayer`](super::BearerLayer) puts before a service.
#[derive(Clone)]
pub struct BearerGate {
    pub(super) verifier: Verifier,
    pub(super) optional: bool,
    pub(super) refusal: Arc<Refusal>,
}

impl BearerGate {
    /// What a request without a token gets.
    fn nobody(&self) -> Result<BearerPass, Rejection> {
        if self.optional {
            return Ok(BearerPass(Some(Slot::Empty(self.refusal.challenge().clone()))));
        }
        Err(self.refusal.nobody())
    }
}

impl Gate for BearerGate {
    type Pass = BearerPass;
    type Future = BoxFuture<'static, Result<BearerPass, Rejection>>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        // a layer outside with the same verifier has looked already, and a proof is good for one look
        if let Some(Slot::Taken { token, verifier }) = head.extensions().get()
            && *verifier == self.verifier.number()
        {
            return MaybeReady::Ready(permit(&self.refusal, token.clone(), *verifier));
        }
        let (scheme, token) = match Presented::read(head.headers()) {
            Presented::Nothing => return MaybeReady::Ready(self.nobody()),
            Presented::Malformed => return MaybeReady::Ready(Err(self.refusal.malformed())),
            Presented::Token { scheme, token } => (scheme, token),
        };
        let number = self.verifier.number();
        match self.verifier.verify(token) {
            MaybeReady::Ready(verified) => MaybeReady::Ready(settle(&self.refusal, verified, scheme, number)),
            MaybeReady::Pending(verified) => {
                let refusal = Arc::clone(&self.refusal);
                MaybeReady::Pending(Box::pin(async move { settle(&refusal, verified.await, scheme, number) }))
            }
        }
    }
}

fn settle(
    refusal: &Refusal,
    verified: Result<AccessToken, Refused>,
    scheme: Scheme,
    verifier: u64,
) -> Result<BearerPass, Rejection> {
    match verified {
        // a bound token without a proof may be stolen, and one that is not bound proves nothing with a proof
        Ok(token) if token.bound_to().is_none() && scheme == Scheme::Bearer => permit(refusal, token, verifier),
        Ok(_) | Err(Refused::Invalid) => Err(refusal.invalid()),
        Err(Refused::Unavailable) => {
            crate::trace::warning!("the keys of access tokens, or what is revoked, can't be read");
            Err(Refusal::unavailable())
        }
    }
}

fn permit(refusal: &Refusal, token: AccessToken, verifier: u64) -> Result<BearerPass, Rejection> {
    if !refusal.scopes().iter().all(|scope| token.has_scope(scope)) {
        return Err(refusal.narrow());
    }
    Ok(BearerPass(Some(Slot::Taken { token, verifier })))
}

impl fmt::Debug for BearerGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerGate")
            .field("verifier", &self.verifier)
            .field("optional", &self.optional)
            .field("scopes", &self.refusal.scopes())
            .finish_non_exhaustive()
    }
}

/// What a request that may come through carries: its token, if it has one.
#[derive(Debug)]
pub struct BearerPass(Option<Slot>);

impl Pass for BearerPass {
    fn admit(&mut self, extensions: &mut Extensions) {
        if let Some(slot) = self.0.take() {
            extensions.insert(slot);
        }
    }
}

use std::future::Ready;

use http::Extensions;

use super::{challenge::CodeChallenge, scope::Scope};
use crate::{
    event::{EventKind, EventLog, event_kinds},
    gate::{Gate, MaybeReady, Pass},
    http::head::Head,
    reject::Rejection,
};

event_kinds! {
    /// a request was rejected because of its PKCE challenge.
    PkceRefused = "pkce_refused",
}

/// Requires a code challenge in the query. Used by [`PkceLayer`](super::PkceLayer).
#[derive(Clone, Debug)]
pub struct PkceGate {
    pub(super) scope: Scope,
    pub(super) log: Option<EventLog>,
}

impl Gate for PkceGate {
    type Pass = PkcePass;
    type Future = Ready<Result<PkcePass, Rejection>>;

    fn inspect(&self, head: Head<'_>) -> MaybeReady<Self::Future> {
        if !self.scope.covers(head) {
            return MaybeReady::Ready(Ok(PkcePass(None)));
        }
        let challenge = CodeChallenge::from_form(head.uri().query().unwrap_or_default());
        if let (Err(_), Some(log)) = (&challenge, &self.log) {
            log.tally_now(EventKind::PkceRefused, None);
        }
        MaybeReady::Ready(challenge.map(|challenge| PkcePass(Some(challenge))).map_err(Rejection::from))
    }
}

/// The challenge of an admitted request, if one was required.
#[derive(Debug)]
pub struct PkcePass(Option<CodeChallenge>);

impl Pass for PkcePass {
    fn admit(&mut self, extensions: &mut Extensions) {
        if let Some(challenge) = self.0 {
            extensions.insert(challenge);
        }
    }
}

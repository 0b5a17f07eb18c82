//! id_tokens that clients send back (`id_token_hint`).

use super::{
    issued_claims::{ID_TOKEN, IdClaims},
    service::TokenService,
};
use crate::{jose::jws::Unverified, store::StoreError};

impl TokenService {
    /// Reads an id_token that was issued here. It is a hint and proves nothing, so it may have expired. Its key counts after
    /// a rotation as long as a session from before it can live, and never after it was withdrawn.
    pub(crate) async fn hint(&self, token: &str) -> Result<Option<IdClaims>, StoreError> {
        let Some(parsed) = Unverified::parse(token, ID_TOKEN) else { return Ok(None) };
        let (keys, lives, now) = (self.0.keys.current().await?, self.0.lifetimes.session, self.now());
        let claims = match parsed.kid().and_then(|kid| keys.for_hint(kid, lives, now)) {
            Some(key) => parsed.claims(&key),
            None => self.claims(token, ID_TOKEN).await?,
        };
        Ok(claims.filter(|claims: &IdClaims| claims.iss == self.issuer()))
    }
}

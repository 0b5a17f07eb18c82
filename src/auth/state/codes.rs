//! [`Codes`]: authorization codes that wait to be redeemed.

use std::{sync::Arc, time::Duration};

use crate::{
    login::{Binding, Wanted},
    session::Authentication,
    store::{
        AnyStore, StoreError,
        compact::{row_struct, stored_row},
        table::{ReadRow, RowOperation, Table},
    },
    util::{clock::Clock, public_id::PublicId, secret::SecretDigest},
};

/// How long a code can be redeemed.
const CODE_LIVES: Duration = Duration::from_secs(60);

/// The grant behind an authorization code, stored under the digest of the code.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizationCode {
    pub(crate) who: Authentication,
    /// The `sid` of the session that the code was issued in.
    pub(crate) session: PublicId,
    /// The request that the code answers.
    pub(crate) binding: Binding,
    pub(crate) wanted: Wanted,
}

stored_row!(AuthorizationCode, 2, "not the row of a code");
row_struct!(AuthorizationCode { who, session, binding, wanted });

/// All codes that wait to be redeemed.
#[derive(Clone, Debug)]
pub(crate) struct Codes(Table<AuthorizationCode>);

impl Codes {
    pub(crate) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "codes", clock))
    }

    /// Returns the operation that issues a code. The code is new, so nothing is in its place.
    pub(crate) fn prepare_code_insert(
        &self,
        code: &SecretDigest,
        row: &AuthorizationCode,
    ) -> Result<RowOperation<'_, AuthorizationCode>, StoreError> {
        self.0.prepare_row_write(None, code.as_bytes(), &ReadRow::ABSENT, row, self.0.now() + CODE_LIVES)
    }

    pub(crate) async fn find(&self, code: &SecretDigest) -> Result<Option<AuthorizationCode>, StoreError> {
        let Some(stored) = self.0.get(None, code.as_bytes()).wait().await? else { return Ok(None) };
        let has_ended = stored.expires_at < self.0.cutoff().wait().await? + CODE_LIVES;
        Ok((!has_ended).then_some(stored.value))
    }

    /// Removes a code that was redeemed.
    pub(crate) async fn remove(&self, code: &SecretDigest) -> Result<(), StoreError> {
        self.0.remove(None, code.as_bytes()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::Scopes,
        pkce::CodeChallenge,
        session::{Proof, UserId},
        store::{Memory, batch::Batch},
        testing::ManualClock,
        util::secret::Secret,
    };

    fn row() -> AuthorizationCode {
        AuthorizationCode {
            who: Authentication {
                tenant: "acme".parse().unwrap(),
                user: UserId::parse("u-ada").unwrap(),
                generation: 0,
                proofs: vec![Proof { method: "password".into(), at: 1, mark: Some([7; 32]), elsewhere: None }],
                acr: None,
            },
            session: PublicId::of_digest(&Secret::generate().digest()),
            binding: Binding {
                client_id: "web".to_owned(),
                redirect_uri: "https://app.example/callback".to_owned(),
                scope: Scopes::parse("openid").unwrap(),
                code_challenge: CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap(),
            },
            wanted: Wanted::default(),
        }
    }

    #[tokio::test]
    async fn c022_a_code_is_stored_under_its_digest_for_a_minute() {
        let clock = ManualClock::new();
        let store = AnyStore::from(Memory::new());
        let codes = Codes::new(store.clone(), Arc::new(clock.clone()));
        let code = Secret::generate();
        assert_eq!(code.expose().len(), 43, "256 bits");
        let issue = async || {
            let mut batch = Batch::without_user(&store);
            let issued = batch.add(codes.prepare_code_insert(&code.digest(), &row()).unwrap());
            batch.run().await.unwrap().version(&issued).is_some()
        };
        // a code is issued once
        assert!(issue().await && !issue().await);
        let is_there = async |id: &[u8]| codes.0.get(None, id).wait().await.unwrap().is_some();
        assert!(!is_there(code.expose().as_bytes()).await);
        clock.advance(CODE_LIVES - Duration::from_nanos(1));
        assert!(is_there(code.digest().as_bytes()).await);
        assert!(codes.find(&code.digest()).await.unwrap().is_some());
        clock.advance(Duration::from_nanos(1));
        assert!(!is_there(code.digest().as_bytes()).await);
        codes.remove(&code.digest()).await.unwrap();
        assert!(issue().await && codes.find(&code.digest()).await.unwrap().is_some());
        codes.remove(&code.digest()).await.unwrap();
        assert!(codes.find(&code.digest()).await.unwrap().is_none());
        assert!(CODE_LIVES <= Duration::from_secs(60));
    }
}

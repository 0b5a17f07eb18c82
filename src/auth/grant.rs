//! [`Grant`]: what an authorization code stands for.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
#[cfg(feature = "tokens")]
use crate::store::table::Change;
use crate::{
    login::{Binding, Wanted},
    policy::{Method, MethodSet},
    session::UserId,
    store::{AnyStore, StoreError, StoreErrorKind, WriteOutcome, table::Table},
    tenant::Tenant,
    user::Identifier,
    util::{
        clock::{Clock, UnixTime},
        handle::Handle,
        secret::Digest,
    },
};

/// How long a code can be exchanged.
const CODE_LIVES: Duration = Duration::from_secs(60);

/// What was proved, by whom, and for which request: kept under the digest of the code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Grant {
    pub(super) binding: Binding,
    #[serde(with = "crate::util::text")]
    pub(super) tenant: Tenant,
    #[serde(with = "crate::util::text")]
    pub(super) user: UserId,
    #[serde(with = "crate::util::text")]
    pub(super) login: crate::login::LoginId,
    /// In Unix seconds.
    pub(super) auth_time: u64,
    pub(super) acr: Option<String>,
    pub(super) methods: MethodSet,
    /// The name that the user logged in by, to find the account again.
    pub(super) identifier: Identifier,
    /// The signed-in session that began with it, or that it was given for.
    #[serde(with = "crate::util::text::option")]
    pub(super) session: Option<Handle>,
    pub(super) wanted: Wanted,
}

impl Grant {
    /// What a request gets for these proofs, beside the session that they belong to; `None` if there are none.
    pub(super) fn of(
        binding: Binding,
        evidence: &Evidence,
        acr: Option<&str>,
        session: Handle,
        wanted: Wanted,
    ) -> Option<Self> {
        let (_, last) = evidence.proved.last()?;
        Some(Self {
            binding,
            tenant: evidence.tenant.clone(),
            user: evidence.user.clone(),
            login: evidence.login,
            auth_time: UnixTime::from_nanos(*last).as_secs(),
            acr: acr.map(str::to_owned),
            methods: evidence.methods(),
            identifier: evidence.identifier.clone(),
            session: Some(session),
            wanted,
        })
    }
}

/// The names of RFC 8176 for what was proved, with `mfa` where it was more than one kind of thing.
pub(super) fn amr(methods: MethodSet) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    let several = (methods.len() > 1).then_some("mfa");
    for name in methods.iter().flat_map(|method| Method::amr(method).iter().copied()).chain(several) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A code as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Code {
    pub(super) grant: Grant,
    pub(super) spent: Option<Spent>,
}

/// That a code was exchanged: it is remembered as long as anything that came of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Spent {
    at: u64,
    /// The tokens that it gave.
    #[serde(with = "crate::util::text")]
    pub(super) family: Handle,
}

/// A client that sends a request twice, or a network that does, is no thief.
#[cfg(feature = "tokens")]
const TWICE: Duration = Duration::from_secs(2);

impl Spent {
    /// Whether another exchange now tells that two have the code.
    #[cfg(feature = "tokens")]
    pub(super) fn is_long_ago(&self, now: UnixTime) -> bool {
        now > UnixTime::from_nanos(self.at) + TWICE
    }
}

/// All codes that were issued.
#[derive(Clone, Debug)]
pub(super) struct Codes(Table<Code>);

impl Codes {
    pub(super) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "codes", clock))
    }

    /// Keeps what a code stands for, by its digest alone.
    pub(super) async fn issue(&self, code: &Digest, grant: &Grant) -> Result<(), StoreError> {
        let row = Code { grant: grant.clone(), spent: None };
        match self.0.insert(None, code.as_bytes(), &row, self.0.now() + CODE_LIVES).await? {
            WriteOutcome::Done(_) => Ok(()),
            WriteOutcome::Lost(_) => Err(StoreErrorKind::Busy.into()),
        }
    }

    #[cfg(feature = "tokens")]
    pub(super) async fn find(&self, code: &Digest) -> Result<Option<Code>, StoreError> {
        Ok(self.0.get(None, code.as_bytes()).wait().await?.map(|stored| stored.value))
    }

    /// Spends a code for this family, which lives until then. `false` if it was spent before, or is gone.
    #[cfg(feature = "tokens")]
    pub(super) async fn spend(&self, code: &Digest, family: Handle, ends: UnixTime) -> Result<bool, StoreError> {
        let spend = |row: Option<&Code>, now: UnixTime| match row {
            Some(Code { grant, spent: None }) => {
                let spent = Some(Spent { at: now.as_nanos(), family });
                Change::Put(Code { grant: grant.clone(), spent }, ends, true)
            }
            _ => Change::Keep(false),
        };
        self.0.update(None, code.as_bytes(), spend).await
    }

    /// Forgets a code, for nothing that came of it lives.
    #[cfg(feature = "tokens")]
    pub(super) async fn forget(&self, code: &Digest) -> Result<(), StoreError> {
        self.0.remove(None, code.as_bytes()).await
    }

    #[cfg(feature = "tokens")]
    pub(super) fn now(&self) -> UnixTime {
        self.0.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::Scopes, gate::MaybeReady, pkce::CodeChallenge, store::Memory, testing::ManualClock,
        util::secret::Secret,
    };

    fn grant() -> Grant {
        Grant {
            binding: Binding {
                client_id: "web".to_owned(),
                redirect_uri: "https://app.example/callback".to_owned(),
                scope: Scopes::parse("openid").unwrap(),
                code_challenge: CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap(),
            },
            tenant: "acme".parse().unwrap(),
            user: UserId::parse("u-ada").unwrap(),
            login: Handle::of(&Secret::generate().digest()),
            auth_time: 1_000_000_000,
            acr: None,
            methods: MethodSet::from(Method::Password),
            identifier: Identifier::parse("ada").unwrap(),
            session: None,
            wanted: Wanted::default(),
        }
    }

    #[tokio::test]
    async fn c022_a_code_is_kept_by_its_digest_alone_and_for_a_minute() {
        let clock = ManualClock::new();
        let codes = Codes::new(Memory::new().into(), Arc::new(clock.clone()));
        let code = Secret::generate();
        assert_eq!(code.expose().len(), 43, "256 bits");
        codes.issue(&code.digest(), &grant()).await.unwrap();
        let is_there = async |id: &[u8]| match codes.0.get(None, id) {
            MaybeReady::Ready(found) => found.unwrap().is_some(),
            MaybeReady::Pending(future) => future.await.unwrap().is_some(),
        };
        assert!(!is_there(code.expose().as_bytes()).await);
        clock.advance(CODE_LIVES - Duration::from_nanos(1));
        assert!(is_there(code.digest().as_bytes()).await);
        clock.advance(Duration::from_nanos(1));
        assert!(!is_there(code.digest().as_bytes()).await);
        assert!(CODE_LIVES <= Duration::from_secs(60));
        // and one code is issued once
        codes.issue(&code.digest(), &grant()).await.unwrap();
        assert!(codes.issue(&code.digest(), &grant()).await.is_err());
    }
}

//! The method `recovery_code`: codes for users who have lost their other authenticators.

pub(crate) mod code;

use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use self::code::{RECOVERY_CODES, RecoveryCode, RecoveryCodes};
use crate::{
    auth::{
        factors::{
            credentials::{
                credential::{Credential, Strength},
                row::Credentials,
                table::CredentialTable,
            },
            enrolment::call::AccountCall,
            step::LoginStep,
            typed_code::{prove_by_code, typed_code},
        },
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
    },
    delivery::NoticeKind,
    login::Keyed,
    policy::Method,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// The recovery codes, as the account page shows them.
#[derive(Serialize)]
pub(crate) struct CodesShown {
    remaining: usize,
    created_at: u64,
}

impl CodesShown {
    pub(crate) fn from_recovery_row(row: &Credentials) -> Option<Self> {
        row.recovery.as_ref().map(|codes| Self { remaining: codes.unused.len(), created_at: codes.created_at })
    }
}

/// Checks the code in the request.
pub(crate) async fn prove_by_recovery_code(mut step: LoginStep<'_>) -> EndpointResult {
    let typed = typed_code(&mut step)?;
    let step = &step;
    prove_by_code(step, Method::RecoveryCode, async |owner| {
        let counts = |strength: &Strength| strength.counts_as_factor(&step.login.plan);
        use_code(&step.cx.core.credentials, owner, &typed, counts, step.keyed).await
    })
    .await
}

/// Uses up a recovery code with one compare-and-swap: of requests with the same code, one succeeds. Returns the mark of the
/// proof, or `None` if the code is wrong or used, or if the strength of the codes does not count.
pub(crate) async fn use_code(
    credentials: &CredentialTable,
    (tenant, user): (&Tenant, &UserId),
    typed: &str,
    counts: impl Fn(&Strength) -> bool + Send + Sync,
    keyed: &Keyed,
) -> Result<Option<[u8; 32]>, StoreError> {
    let Some(code) = RecoveryCode::parse(typed) else { return Ok(None) };
    let take = |row: &mut Credentials| {
        let codes = row.recovery.as_mut().filter(|codes| counts(&codes.strength))?;
        let digest = SecretDigest::from_bytes(code.digest(&codes.enrolment, keyed).0);
        let before = codes.unused.len();
        codes.unused.retain(|unused| !SecretDigest::from_bytes(unused.0).matches(&digest));
        (codes.unused.len() < before).then(|| codes.mark(keyed))
    };
    credentials.update(tenant, user, take).await
}

/// Creates recovery codes, which replace the old ones, and shows them once.
pub(crate) async fn replace_recovery_codes(call: &AccountCall<'_>) -> EndpointResult {
    if !call.cx.core.enabled(call.tenant()).contains(Method::RecoveryCode) {
        return Err(Problem::new(Code::NotFound, "authenticator apps are not enabled here"));
    }
    call.require_second_factor()?;
    let keyed = call.cx.core.keyed().await?;
    let (credentials, vouched) = (&call.cx.core.credentials, (call.strength(), call.cx.core.logins.now()));
    let renewed = credentials.renew_recovery_codes(call.owner(), vouched, keyed).await;
    call.announce_if_stored(renewed.is_ok().then_some(true), NoticeKind::RecoveryCodesRenewed).await;
    let (enrolment, codes) = renewed?;
    call.keep(credentials.discard_recovery_codes(call.owner(), &enrolment)).await?;
    Ok(answer::json(StatusCode::CREATED, &json!({ "codes": codes })))
}

impl CredentialTable {
    /// Replaces the recovery codes of the user. They are shown once and stored as keyed digests. Returns the id of their
    /// enrolment, too.
    pub(crate) async fn renew_recovery_codes(
        &self,
        (tenant, user): (&Tenant, &UserId),
        (strength, now): (Strength, UnixTime),
        keyed: &Keyed,
    ) -> Result<(PublicId, Vec<String>), StoreError> {
        let enrolment = PublicId::random();
        let codes: Vec<RecoveryCode> = (0..RECOVERY_CODES).map(|_| RecoveryCode::generate()).collect();
        let unused = codes.iter().map(|code| code.digest(&enrolment, keyed)).collect();
        let new = RecoveryCodes { enrolment, unused, created_at: now.as_secs(), strength };
        self.update(tenant, user, |row| row.recovery = Some(new.clone())).await?;
        Ok((enrolment, codes.iter().map(RecoveryCode::to_grouped_text).collect()))
    }

    /// Removes the recovery codes of this enrolment.
    async fn discard_recovery_codes(
        &self,
        (tenant, user): (&Tenant, &UserId),
        enrolment: &PublicId,
    ) -> Result<(), StoreError> {
        let discard = |row: &mut Credentials| {
            row.recovery.take_if(|codes| codes.enrolment == *enrolment);
        };
        self.update(tenant, user, discard).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        store::{AnyStore, Memory},
        testing::{ManualClock, block_on},
        util::secret::Secret,
    };

    struct World {
        credentials: CredentialTable,
        keyed: Keyed,
        tenant: Tenant,
        user: UserId,
    }

    impl World {
        fn new() -> Self {
            let credentials =
                CredentialTable::new(&AnyStore::from(Memory::new()), &(Arc::new(ManualClock::new()) as _));
            let (tenant, user) = (Tenant::parse("acme").unwrap(), UserId::parse("u-ada").unwrap());
            Self { credentials, keyed: Keyed::new(&Secret::generate()), tenant, user }
        }

        fn renew(&self, steps: usize) -> Vec<String> {
            let strength = Strength::of_proofs(steps, Method::Password.into(), []);
            let (owner, now) = ((&self.tenant, &self.user), UnixTime::from_secs(1_000_000_005));
            block_on(self.credentials.renew_recovery_codes(owner, (strength, now), &self.keyed)).unwrap().1
        }

        fn use_recovery_code(&self, typed: &str, steps: usize) -> Option<[u8; 32]> {
            let counts = |strength: &Strength| strength.suffices_for(steps);
            block_on(use_code(&self.credentials, (&self.tenant, &self.user), typed, counts, &self.keyed)).unwrap()
        }

        fn row(&self) -> Credentials {
            block_on(self.credentials.get(&self.tenant, &self.user)).unwrap().unwrap()
        }
    }

    #[test]
    fn c124_recovery_codes_are_used_once_and_stored_as_digests() {
        let world = World::new();
        let old = world.renew(2);
        let codes = world.renew(2);
        assert_eq!(codes.len(), 10);
        let stored = serde_json::to_string(&world.row()).unwrap();
        assert!(!codes.iter().any(|code| stored.contains(code) || stored.contains(&code.replace('-', ""))));
        assert_eq!(world.use_recovery_code(&old[0], 1), None, "replaced");
        assert_eq!(world.use_recovery_code(&codes[0], 3), None, "too weak");
        let marks: Vec<_> = codes.iter().map(|code| world.use_recovery_code(&code.to_uppercase(), 2)).collect();
        assert!(marks.iter().all(|mark| mark.is_some() && *mark == marks[0]));
        assert!(codes.iter().all(|code| world.use_recovery_code(code, 1).is_none()), "each works once");
        assert!(world.row().recovery.unwrap().unused.is_empty());
    }

    #[test]
    fn c124_of_many_requests_with_the_same_recovery_code_one_succeeds() {
        let world = World::new();
        for code in world.renew(1) {
            let barrier = std::sync::Barrier::new(8);
            let used = std::thread::scope(|scope| {
                let attempt = || {
                    barrier.wait();
                    world.use_recovery_code(&code, 1).is_some()
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(attempt)).collect();
                all.into_iter().map(|one| one.join().unwrap()).filter(|used| *used).count()
            });
            assert_eq!(used, 1);
        }
    }
}

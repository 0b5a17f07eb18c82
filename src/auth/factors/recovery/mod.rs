//! The method `recovery_code`: codes for users who have lost their other authenticators.

pub(crate) mod code;

use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use self::code::{RECOVERY_CODES, RecoveryCode, RecoveryCodes};
use crate::{
    auth::{
        factors::{
            credentials::{credential::Credential, row::Credentials},
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
    policy::Method,
    util::{public_id::PublicId, secret::SecretDigest},
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

/// Checks the code in the request, and uses it up with one compare-and-swap: of requests with the same code, one succeeds.
/// Codes whose strength does not count in this login are wrong.
pub(crate) async fn prove_by_recovery_code(mut step: LoginStep<'_>) -> EndpointResult {
    let typed = typed_code(&mut step)?;
    let step = &step;
    prove_by_code(step, Method::RecoveryCode, async |(tenant, user)| {
        let Some(code) = RecoveryCode::parse(&typed) else { return Ok(None) };
        let take = |row: &mut Credentials| {
            let codes = row.recovery.as_mut().filter(|codes| codes.strength.counts_as_factor(&step.login.plan))?;
            let digest = SecretDigest::from_bytes(code.digest(&codes.enrolment, step.keyed).0);
            let before = codes.unused.len();
            codes.unused.retain(|unused| !SecretDigest::from_bytes(unused.0).matches(&digest));
            (codes.unused.len() < before).then(|| codes.mark(step.keyed))
        };
        step.cx.core.credentials.update(tenant, user, take).await
    })
    .await
}

/// Creates recovery codes, which replace the old ones. They are shown once and stored as keyed digests.
pub(crate) async fn replace_recovery_codes(call: &AccountCall<'_>) -> EndpointResult {
    let (core, (tenant, user)) = (call.cx.core, call.owner());
    if !core.enabled(tenant).contains(Method::RecoveryCode) {
        return Err(Problem::new(Code::NotFound, "authenticator apps are not enabled here"));
    }
    call.require_second_factor()?;
    let (keyed, enrolment) = (core.keyed().await?, PublicId::random());
    let codes: Vec<RecoveryCode> = (0..RECOVERY_CODES).map(|_| RecoveryCode::generate()).collect();
    let unused = codes.iter().map(|code| code.digest(&enrolment, keyed)).collect();
    let new = RecoveryCodes { enrolment, unused, created_at: core.logins.now().as_secs(), strength: call.strength() };
    let stored = core.credentials.update(tenant, user, |row| row.recovery = Some(new.clone())).await;
    call.announce_if_stored(stored.is_ok().then_some(true), NoticeKind::RecoveryCodesRenewed).await;
    stored?;
    let discard = |row: &mut Credentials| {
        row.recovery.take_if(|codes| codes.enrolment == enrolment);
    };
    call.keep(core.credentials.update(tenant, user, discard)).await?;
    let codes: Vec<String> = codes.iter().map(RecoveryCode::to_grouped_text).collect();
    Ok(answer::json(StatusCode::CREATED, &json!({ "codes": codes })))
}

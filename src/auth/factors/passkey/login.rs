//! The login step: a challenge for the browser, and its answer by a passkey.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use serde_json::Value;

use super::{row::Passkey, settings::PasskeyRules};
use crate::{
    auth::{
        core::Core,
        factors::{
            attempt::{Attempt, RightSecret},
            credentials::{
                credential::{Credential, CredentialId},
                row::Credentials,
            },
            step::LoginStep,
        },
        http::{
            answer,
            problem::{Code, EndpointResult, Problem},
        },
        state::guard::submitted,
    },
    event::EventKind,
    login::{Keyed, Login, LoginCall, LoginError, OpenChallenge, Subject},
    policy::{EnrolledFactors, LoginPlan, Method},
    util::{
        clock::UnixTime,
        secret::{Secret, SecretDigest},
    },
    webauthn::{
        self, AssertionRequest, AssertionResponse, AssertionVerdict, RelyingParty, RequestOptions, StoredCredential,
        UserVerification, WebauthnError,
    },
};

const METHOD: Method = Method::Passkey;

/// How long a challenge can be answered.
pub(crate) const CHALLENGE_LIFETIME: Duration = Duration::from_secs(300);

/// The request that a browser passes on to a passkey.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PasskeyOptions {
    passkey: RequestOptions,
}

/// The answer of a browser to the open challenge.
struct Answered {
    open: OpenChallenge,
    /// The challenge that was signed, according to the browser.
    challenge: Vec<u8>,
    response: AssertionResponse,
}

/// Verifies the response, or opens a new challenge if the request has no response.
pub(crate) async fn prove_by_passkey(mut step: LoginStep<'_>) -> EndpointResult {
    let Some(passkeys) = &step.cx.core.factors.passkey else {
        return Err(step.unsupported("this method is not supported"));
    };
    match step.fields.response.take() {
        None => passkeys.open_passkey_challenge(&step).await,
        Some(response) => passkeys.answer_challenge(&step, response).await,
    }
}

/// Opens a challenge at the start of a login, if the next step can use one. It does not depend on the user.
pub(crate) fn with_challenge(core: &Core, mut login: Login) -> (Login, Option<PasskeyOptions>) {
    let can_use_one = login.plan.allows(login.proved(), Method::Passkey);
    let Some(passkeys) = core.factors.passkey.as_ref().filter(|_| can_use_one) else { return (login, None) };
    let (open, bytes) = new_challenge(core.logins.now());
    let challenges = passkeys.login_options(&login, &bytes);
    login.passkey = Some(open);
    (login, Some(challenges))
}

/// Generates a challenge of 32 random bytes, and returns it with its bytes for the browser.
pub(crate) fn new_challenge(now: UnixTime) -> (OpenChallenge, [u8; 32]) {
    let bytes = *Secret::generate().digest().as_bytes();
    (OpenChallenge::new(SecretDigest::of_secret(bytes), now + CHALLENGE_LIFETIME), bytes)
}

impl PasskeyRules {
    /// Returns the relying party for a login. A passkey that is the only step must verify its user.
    fn party_for_login(&self, login: &Login) -> RelyingParty {
        let party = self.party_for_tenant(&login.tenant).clone();
        if login.required() > 1 { party } else { party.user_verification(UserVerification::Required) }
    }

    /// Returns the options for a challenge. They are the same for every user.
    fn login_options(&self, login: &Login, challenge: &[u8]) -> PasskeyOptions {
        PasskeyOptions { passkey: self.party_for_login(login).request_options(challenge, &[], CHALLENGE_LIFETIME) }
    }

    async fn open_passkey_challenge(&self, step: &LoginStep<'_>) -> EndpointResult {
        let now = step.now();
        let (challenge, bytes) = new_challenge(now);
        let update = step.apply(&LoginCall::OpenPasskey(&challenge)).await?;
        let challenges = self.login_options(&step.login, &bytes);
        Ok(answer::login_progress(update.response_view(now)?, BTreeMap::from([("challenges", challenges)])))
    }

    async fn answer_challenge(&self, step: &LoginStep<'_>, response: Value) -> EndpointResult {
        let challenge = step.fields.challenge.as_deref().ok_or(Problem::invalid("challenge is missing"))?;
        let challenge = webauthn::decode_base64(challenge).ok_or(Problem::invalid("challenge is malformed"))?;
        let response = serde_json::from_value(response).map_err(|_| Problem::invalid("response is malformed"))?;
        let open = step.login.passkey.clone().filter(|open| !open.has_expired(step.now()));
        let open = open.ok_or_else(|| step.problem(no_challenge()))?;
        let answered = Answered { open, challenge, response };

        let submitted = submitted::passkey(answered.response.credential_id(), step.keyed);
        let mut attempt = Attempt::start_attempt(step, METHOD, submitted).await?;
        let checked = self.check_passkey(step, &mut attempt, &answered).await;
        // this depends on the response alone
        let is_malformed = matches!(checked, Ok(Err(WebauthnError::Malformed(_))));
        let update = attempt.settle(checked.map(Result::ok)).await?;
        let answer = step.conclude(&update, METHOD);
        match update.answer {
            Err(LoginError::WrongSecret(_)) if is_malformed => Err(Problem::invalid("response is malformed")
                .with_login_view(update.stored.value.to_login_view(step.now()))),
            _ => answer,
        }
    }

    /// Verifies the response and updates the passkey in one compare-and-swap. Unknown passkeys cost about the same.
    async fn check_passkey(
        &self,
        step: &LoginStep<'_>,
        attempt: &mut Attempt<'_>,
        answered: &Answered,
    ) -> Result<Result<RightSecret, WebauthnError>, Problem> {
        let (core, login, id) = (step.cx.core, &*step.login, answered.response.credential_id());
        let owner = core.credentials.by_id(&login.tenant, CredentialId::Passkey(id)).await?.map(|(user, _)| user);
        let found = match login.subject {
            Subject::Unbound => {
                let account = core.accounts.of_user(&login.tenant, owner.as_ref()).await?;
                core.accounts.with_generation(&login.tenant, account).await?
            }
            _ => step.account(None).await?,
        };
        let account = found.active().filter(|account| owner.as_ref() == Some(account.id()));
        let below_ceiling = attempt.count_for(step.device_owner(&found, account)).await?;
        attempt.take_challenge(&answered.open).await?;

        let known = account.and(found.user()).filter(|_| below_ceiling);
        let verify = |stored: Option<&StoredCredential>| self.verify(login, answered, stored);
        let now = step.now().as_secs();
        let verified = match &known {
            // always an error, which takes as long as with a passkey
            None => verify(None).map(|verdict| (verdict, [0; 32])),
            Some(user) => {
                let update = |row: &mut Credentials| use_passkey(row, id, (&login.plan, step.keyed), now, verify);
                core.credentials.update(&login.tenant, &user.id, update).await?
            }
        };
        let may_be_cloned = match &verified {
            Ok((verdict, _)) => verdict.counter_stalled,
            Err(error) => *error == WebauthnError::Counter,
        };
        if may_be_cloned {
            core.journal.tally_login(EventKind::PasskeyCloned, login, (Some(METHOD), None), step.keyed);
        }
        let (mark, user) = match (verified, known) {
            (Ok((_, mark)), Some(user)) => (Some(mark), user),
            (Ok(_), None) => return Ok(Err(WebauthnError::UnknownCredential)),
            (Err(error), _) => return Ok(Err(error)),
        };
        let factors = match login.wanted.is_reset {
            true => step.enrolled_factors(&user).await?,
            // a passkey is a second factor itself
            false => EnrolledFactors::default(),
        };
        Ok(Ok(RightSecret { user, mark, factors }))
    }

    fn verify(
        &self,
        login: &Login,
        answered: &Answered,
        stored: Option<&StoredCredential>,
    ) -> Result<AssertionVerdict, WebauthnError> {
        // the login keeps only a digest, so the caller repeats the challenge, which is compared below
        let request = AssertionRequest::new(&answered.challenge);
        // the owner is compared already; a login that knows its user also accepts a response without a user handle
        let request = match (login.subject.user(), stored) {
            (Some(_), Some(stored)) => request.user_handle(&stored.user_handle),
            _ => request,
        };
        let verdict = self.party_for_login(login).verify_assertion(&request, stored, &answered.response)?;
        // compared last, so that an unknown passkey costs the same
        if answered.open.is(&SecretDigest::of_secret(&answered.challenge)) {
            Ok(verdict)
        } else {
            Err(WebauthnError::Challenge)
        }
    }
}

/// Verifies a response with the passkey as it is now, and changes the passkey only if that succeeds. Also returns the mark of
/// the proof.
fn use_passkey(
    row: &mut Credentials,
    id: &[u8],
    (plan, keyed): (&LoginPlan, &Keyed),
    now: u64,
    verify: impl Fn(Option<&StoredCredential>) -> Result<AssertionVerdict, WebauthnError>,
) -> Result<(AssertionVerdict, [u8; 32]), WebauthnError> {
    let handle = row.handle;
    let strong_enough = |passkey: &&mut Passkey| passkey.id == id && passkey.strength.counts_as_factor(plan);
    let Some(passkey) = row.passkeys.iter_mut().find(strong_enough) else {
        // always an error, which takes as long as with a passkey
        return verify(None).map(|verdict| (verdict, [0; 32]));
    };
    let verdict = verify(Some(&passkey.stored(&handle)))?;
    passkey.apply(&verdict, now);
    Ok((verdict, passkey.mark(keyed)))
}

fn no_challenge() -> Problem {
    Problem::new(Code::NoPendingChallenge, "there is no open challenge; ask for a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c067_a_challenge_has_32_random_bytes_and_lives_five_minutes() {
        let now = UnixTime::from_secs(1_000_000);
        let (challenge, bytes) = new_challenge(now);
        let (other, other_bytes) = new_challenge(now);
        assert_ne!(bytes, other_bytes);
        let is = |bytes: &[u8]| challenge.is(&SecretDigest::of_secret(bytes));
        assert!(is(&bytes) && !is(&other_bytes) && !is(&bytes[..31]));
        assert!(challenge.is_same(&challenge.clone()) && !challenge.is_same(&other));
        assert!(!challenge.has_expired(UnixTime::from_secs(1_000_299)));
        assert!(challenge.has_expired(UnixTime::from_secs(1_000_300)));
    }
}

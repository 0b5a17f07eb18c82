//! The factors by which users sign in, and the calls that prove a step: `POST /authentication/authenticate`, `verify-otp` and
//! `enrol`.
//!
//! The folder of a factor has what that factor needs: settings, login step (`login.rs`, or `mod.rs`), enrolment and stored row.
//! A factor knows nothing of the others. This file leads from a method to its factor. [`settings`] lists the settings of all
//! factors, and [`credentials::row`] what a user has enrolled.
//!
//! A proof no longer counts once the password, the contact or the credential behind it changes. Each proof has a *mark*
//! ([`Proof::mark`]), the version of what was proved.

pub(crate) mod attempt;
pub(crate) mod credentials;
pub(crate) mod enrolment;
pub(crate) mod reset_demand;
pub(crate) mod settings;
pub(crate) mod signed_in;
pub(crate) mod step;
pub(crate) mod ticket_codes;
pub(crate) mod typed_code;

mod otp;
pub(crate) mod passkey;
mod password;
#[cfg(test)]
mod proof_tests;
mod recovery;
mod sso;
pub(crate) mod totp;

use serde::{Serialize, Serializer, ser::SerializeMap};

pub(crate) use self::otp::contacts::{choices as contact_choices, contact_mark, masked as masked_contact};
pub(crate) use self::otp::verify_login_code;
pub(crate) use self::passkey::login::with_challenge;
pub(crate) use self::sso::callback::serve_sso_callback;
pub(crate) use self::sso::providers::{unlinked as unlinked_providers, usable as usable_providers};
use self::{
    credentials::{
        credential::{CurrentProofs, Strength},
        row::{Credentials, is_of_credential, strength},
    },
    enrolment::call::AccountCall,
    step::prepare_login_step,
};
use crate::{
    auth::{
        context::stages::OwnLogin,
        core::Core,
        http::{
            answer::OfferedProvider,
            fields::Fields,
            problem::{Code, EndpointResult, Problem},
            route::FactorChange,
        },
        state::accounts::{FoundAccount, GenerationOf},
    },
    delivery::Channel,
    login::{Keyed, LoginCall, LoginError},
    policy::{EnrolledFactors, LoginPlan, Method, MethodSet},
    session::{Authentication, Proof, UserId},
    store::StoreError,
    tenant::Tenant,
    user::Account,
};

const UNSUPPORTED: &str = "this method is not supported";

/// Performs a step of a login by the method in the request: checks a secret, or opens a challenge.
pub(crate) async fn perform_login_step(own: &OwnLogin<'_>, fields: Fields) -> EndpointResult {
    let step = prepare_login_step(own, fields).await?;
    let name = step.fields.method.as_deref().ok_or(Problem::invalid("method is missing"))?;
    let method = Method::from_name(name).ok_or_else(|| step.unsupported("unknown method"))?;
    let expected = step.preview(&LoginCall::Attempt(method));
    // other problems of the login come before the method
    if let Err(problem) = &expected
        && problem.code != Code::MethodNotAllowed
    {
        return Err(problem.clone());
    }
    let is_enabled = step.cx.core.enabled(&step.login.tenant).contains(method);
    if matches!(method, Method::Sso | Method::Passkey) && !is_enabled {
        return Err(step.unsupported(UNSUPPORTED));
    }
    expected?;
    if !is_enabled {
        // it was available when the login began
        return Err(step.problem(Problem::denied(LoginError::MethodNotAllowed)));
    }
    match method {
        Method::Password => password::prove_by_password(step).await,
        Method::Sms => otp::send_login_code(step, method, Channel::Sms).await,
        Method::Email => otp::send_login_code(step, method, Channel::Email).await,
        Method::Whatsapp => otp::send_login_code(step, method, Channel::Whatsapp).await,
        Method::Passkey => passkey::login::prove_by_passkey(step).await,
        Method::Totp => totp::login::prove_by_totp(step).await,
        Method::RecoveryCode => recovery::prove_by_recovery_code(step).await,
        Method::Sso => sso::login::start_provider_login(step).await,
    }
}

/// Sets up a second factor within a login, which proves the second step.
pub(crate) async fn set_up_factor(own: &OwnLogin<'_>, fields: Fields) -> EndpointResult {
    let step = prepare_login_step(own, fields).await?;
    let name = step.fields.method.as_deref().ok_or(Problem::invalid("method is missing"))?;
    match Method::from_name(name) {
        Some(Method::Passkey) => passkey::enrol::set_up_passkey_in_login(step).await,
        Some(Method::Totp) => totp::enrol::set_up_totp_in_login(step).await,
        _ => Err(step.unsupported("this method cannot be set up here")),
    }
}

/// Changes what the user who calls has enrolled.
pub(crate) async fn change_factor(change: FactorChange, call: &AccountCall<'_>) -> EndpointResult {
    match change {
        FactorChange::Passkey(change) => passkey::enrol::serve_passkey_change(change, call).await,
        FactorChange::Totp(change) => totp::enrol::serve_totp_change(change, call).await,
        FactorChange::RenewRecoveryCodes => recovery::replace_recovery_codes(call).await,
        FactorChange::Link(change) => sso::links::serve_link_change(change, call).await,
    }
}

/// The credentials of the user who calls, as the account page shows them.
pub(crate) struct Enrolled<'a> {
    pub(crate) call: &'a AccountCall<'a>,
    pub(crate) keyed: &'a Keyed,
}

impl Serialize for Enrolled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (mut map, row) = (serializer.serialize_map(None)?, self.call.credentials.as_ref());
        map.serialize_entry("passkeys", &passkey::enrol::list_passkeys(row))?;
        map.serialize_entry("totp", &row.and_then(totp::enrol::TotpShown::from_totp_row))?;
        map.serialize_entry("recovery_codes", &row.and_then(recovery::CodesShown::from_recovery_row))?;
        map.serialize_entry("links", &sso::links::list_sso_links(self.call, self.keyed))?;
        map.end()
    }
}

/// Returns the providers of a tenant if `sso` is among these methods.
pub(crate) fn providers(core: &Core, tenant: &Tenant, methods: MethodSet) -> Vec<OfferedProvider> {
    if methods.contains(Method::Sso) { sso::providers::offered(core, tenant) } else { Vec::new() }
}

impl Core {
    /// Returns whether an account can prove a step by this method, with a credential whose strength `counts`.
    pub(crate) fn can_prove(
        &self,
        tenant: &Tenant,
        method: Method,
        (account, credentials): (&Account, Option<&Credentials>),
        counts: impl Fn(&Strength) -> bool,
    ) -> bool {
        match method {
            Method::Password => account.has_password(),
            Method::Sms | Method::Email | Method::Whatsapp => {
                otp::contacts::reachable(account, method).next().is_some()
            }
            Method::Passkey | Method::Totp | Method::RecoveryCode => {
                credentials.is_some_and(|row| row.can_prove(method, &counts))
            }
            Method::Sso => credentials.is_some_and(|row| sso::providers::has_link(self, tenant, row, counts)),
        }
    }

    /// Returns the mark that a proof by this method has now, if an account can have only one thing that is proved by it.
    pub(crate) fn current_mark(
        account: &Account,
        credentials: Option<&Credentials>,
        method: Method,
        keyed: &Keyed,
    ) -> Option<[u8; 32]> {
        match method {
            Method::Password => password::current_mark(account, keyed),
            Method::Totp | Method::RecoveryCode => {
                credentials?.all().find(|(it, _)| it.method() == method).map(|(it, _)| it.mark(keyed))
            }
            Method::Sms | Method::Email | Method::Whatsapp | Method::Passkey | Method::Sso => None,
        }
    }

    /// Returns the second factors that a user has enrolled, if a login with this plan in which these methods were proved depends
    /// on them. Call it only after a proved step: before that, nothing may depend on what an account has, not even the time of
    /// an answer.
    pub(crate) async fn enrolled_factors(
        &self,
        (tenant, user): (&Tenant, &UserId),
        plan: &LoginPlan,
        proved: MethodSet,
    ) -> Result<EnrolledFactors, StoreError> {
        let enabled = self.enabled(tenant);
        let can_have_any = !enabled.intersection(MethodSet::ENROLLED).is_empty();
        if !can_have_any || !plan.depends_on_factors(proved) {
            return Ok(EnrolledFactors::default());
        }
        let row = self.credentials.get(tenant, user).await?;
        Ok(row.map(|row| row.factors(enabled, plan)).unwrap_or_default())
    }

    /// Checks a login, session, code or family against the account as it is now. Returns `None` if the account is gone or
    /// disabled, or if the generation of the user was raised since.
    pub(crate) async fn current_proofs(
        &self,
        who: &Authentication,
        keyed: &Keyed,
    ) -> Result<Option<CurrentProofs>, StoreError> {
        self.proofs_in(who, GenerationOf::Account, keyed).await
    }

    async fn proofs_in(
        &self,
        who: &Authentication,
        generation: GenerationOf,
        keyed: &Keyed,
    ) -> Result<Option<CurrentProofs>, StoreError> {
        let account = self.accounts.of_user(&who.tenant, Some(&who.user)).await?;
        let found = match generation {
            GenerationOf::Account => self.accounts.with_generation(&who.tenant, account).await?,
            GenerationOf::Batch => FoundAccount::without_generation(account),
        };
        let is_current = found.generation() <= who.generation;
        let Some(account) = found.into_active().filter(|_| is_current) else { return Ok(None) };
        let credentials = match who.proofs.iter().any(is_of_credential) {
            true => self.credentials.get(&who.tenant, &who.user).await?,
            false => None,
        };
        let proofs = counting_proofs(&account, credentials.as_ref(), &who.proofs, keyed);
        let of = |proof| strength(credentials.as_ref(), proof, keyed).cloned().unwrap_or_default();
        let strengths = proofs.iter().map(of).collect();
        Ok(Some(CurrentProofs { account, proofs, strengths }))
    }

    /// Returns the account if it may still log in and each proof still counts for it.
    pub(crate) async fn counting(
        &self,
        who: &Authentication,
        generation: GenerationOf,
        keyed: &Keyed,
    ) -> Result<Option<Account>, StoreError> {
        let current = self.proofs_in(who, generation, keyed).await?;
        Ok(current.filter(|current| current.proofs.len() == who.proofs.len()).map(|current| current.account))
    }
}

/// Returns the proofs that still count for this account, in their order. Proofs without a mark always count.
///
/// Codes of an authenticator can't be the first step of a login, so they count only together with another proof.
fn counting_proofs(
    account: &Account,
    credentials: Option<&Credentials>,
    proofs: &[Proof],
    keyed: &Keyed,
) -> Vec<Proof> {
    let counts = |proof: &&Proof| {
        let Some(mark) = proof.mark else { return true };
        match Method::from_name(&proof.method) {
            Some(Method::Password) => password::current_mark(account, keyed) == Some(mark),
            Some(method @ (Method::Sms | Method::Email | Method::Whatsapp)) => {
                otp::contacts::counts(account, method, mark, keyed)
            }
            Some(Method::Passkey | Method::Totp | Method::RecoveryCode | Method::Sso) => {
                strength(credentials, proof, keyed).is_some()
            }
            None => false,
        }
    };
    let can_be_first = |proof: &Proof| Method::from_name(&proof.method).is_none_or(Method::can_be_first);
    let counting: Vec<Proof> = proofs.iter().filter(counts).cloned().collect();
    if counting.iter().any(can_be_first) { counting } else { Vec::new() }
}

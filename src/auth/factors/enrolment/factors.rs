//! The methods that an account can use, and whether they are more than one factor.

use crate::{
    auth::{
        core::Core,
        factors::{
            credentials::{
                row::{Credentials, SsoLink},
                strength::Strength,
            },
            otp::contacts::reachable,
            provider_label,
        },
    },
    policy::{LoginPlan, Method, MethodSet},
    tenant::Tenant,
    user::Account,
};

/// The account of a user, and the credentials that it has.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'a> {
    pub(crate) core: &'a Core,
    pub(crate) tenant: &'a Tenant,
    pub(crate) account: &'a Account,
    pub(crate) credentials: Option<&'a Credentials>,
    /// The methods that the user has proved. They include the password of an account that is not marked as having one.
    pub(crate) proved: MethodSet,
}

impl<'a> Factors<'a> {
    /// Returns the methods that the account can use in a login of this many steps, if no policy names methods.
    pub(crate) fn usable(&self, steps: usize) -> MethodSet {
        self.usable_if(|strength| strength.suffices_for(steps))
    }

    /// Returns the methods that the account can use in a login of this plan.
    pub(crate) fn usable_in(&self, plan: &LoginPlan) -> MethodSet {
        self.usable_if(|strength| strength.counts_for(plan))
    }

    fn usable_if(&self, counts: impl Fn(&Strength) -> bool) -> MethodSet {
        let credentials = self.credentials;
        let can_use = |method: &Method| match method {
            Method::Password => self.account.has_password() || self.proved.contains(Method::Password),
            Method::Sms | Method::Email | Method::Whatsapp => reachable(self.account, *method).next().is_some(),
            Method::Passkey | Method::Totp | Method::RecoveryCode => {
                credentials.is_some_and(|row| row.can_prove(*method, &counts))
            }
            Method::Sso => credentials.is_some_and(|row| {
                let is_offered = |link: &SsoLink| provider_label(self.core, self.tenant, &link.provider).is_some();
                row.links.iter().any(|link| counts(&link.strength) && is_offered(link))
            }),
        };
        self.core.enabled(self.tenant).iter().filter(can_use).collect()
    }

    /// Returns whether the account has a second factor, which changes then need.
    pub(crate) fn has_second(&self) -> bool {
        self.usable(2).classes() > 1
    }

    /// Returns a check that allows the first second factor of an account. It is asked again when that is stored, so that of two
    /// enrolments at the same time one wins.
    pub(crate) fn may_add_first(self) -> impl Fn(&Credentials) -> bool + Send + Sync + use<'a> {
        move |row| !Factors { credentials: Some(row), ..self }.has_second()
    }
}

//! New passwords: the rules of the site, and the hash.

use crate::{
    auth::{
        core::Core,
        http::problem::{Code, Problem},
    },
    password::{Password, PasswordErrorKind, PasswordFault, PasswordHash},
    policy::{Method, MethodSet},
    tenant::Tenant,
    user::Account,
};

impl Core {
    /// Returns the minimum number of characters of a new password at this tenant.
    pub(crate) fn least_password(&self, tenant: &Tenant) -> usize {
        self.password_rules.least(self.is_password_enough(tenant))
    }

    /// Returns whether a password alone is enough to sign in. Clients and requests can only ask for more.
    fn is_password_enough(&self, tenant: &Tenant) -> bool {
        let plan = self.policies.plan(tenant, None, None, self.enabled(tenant));
        plan.is_ok_and(|plan| plan.is_met_by(MethodSet::EMPTY.with(Method::Password)))
    }

    /// Checks a new password of an account by the rules, and hashes it. All new passwords come through here.
    ///
    /// # Errors
    ///
    /// Returns a problem that names the rule that it breaks.
    pub(crate) async fn hash_new_password(
        &self,
        tenant: &Tenant,
        account: &Account,
        password: Password,
    ) -> Result<PasswordHash, Problem> {
        let site = self.issuer.origin().split_once("://").map_or("", |(_, host)| host);
        let names: Vec<&str> = names_of(account).chain([site, tenant.as_str()]).collect();
        self.password_rules.check(&password, self.is_password_enough(tenant), &names).await.map_err(refused)?;
        self.passwords.of_tenant(tenant).hash(password).await.map_err(|error| match error.kind() {
            PasswordErrorKind::Unusable => refused(PasswordFault::TooLong),
            _ => Problem::unavailable(),
        })
    }
}

/// Returns the names of an account that its password must not consist of.
fn names_of(account: &Account) -> impl Iterator<Item = &str> {
    let contacts = account.contacts().map(|(contact, _)| contact.as_str());
    contacts.chain(account.display_name()).chain(account.preferred_username())
}

fn refused(fault: PasswordFault) -> Problem {
    match fault {
        PasswordFault::TooShort(_) => Problem::new(Code::PasswordTooShort, "the password has too few characters"),
        PasswordFault::TooLong => Problem::new(Code::PasswordTooLong, "the password has more than 256 bytes"),
        PasswordFault::Common => Problem::new(Code::PasswordCommon, "the password is easy to guess"),
        PasswordFault::OwnName => Problem::new(Code::PasswordOwnName, "the password consists mostly of names"),
        PasswordFault::Breached => Problem::new(Code::PasswordBreached, "the password was published in a data breach"),
    }
}

//! The providers of a tenant, as users see them.

use super::account::{has_link_for, may_link};
use crate::sso::SsoConnection;
use crate::{
    auth::{
        core::Core,
        factors::{
            credentials::{credential::Strength, row::Credentials},
            sso::row::SsoLink,
        },
        http::answer::OfferedProvider,
    },
    login::Login,
    tenant::Tenant,
    user::Account,
};

impl From<(&str, &SsoConnection)> for OfferedProvider {
    fn from((name, connection): (&str, &SsoConnection)) -> Self {
        Self { name: name.to_owned(), label: connection.shown_label(name).to_owned() }
    }
}

/// Returns the providers of a tenant.
pub(crate) fn offered(core: &Core, tenant: &Tenant) -> Vec<OfferedProvider> {
    core.factors.sso.iter_for_tenant(tenant).map(OfferedProvider::from).collect()
}

/// Returns the providers of a tenant to which a user has no link.
pub(crate) fn unlinked(core: &Core, tenant: &Tenant, row: Option<&Credentials>) -> Vec<OfferedProvider> {
    let is_linked = |name: &str| row.is_some_and(|row| row.links.iter().any(|link| link.provider == name));
    let all = offered(core, tenant).into_iter();
    all.filter(|provider| !is_linked(&provider.name)).collect()
}

/// Returns the providers at which a user can prove the next step of their login.
pub(crate) fn usable(core: &Core, login: &Login, account: &Account, row: Option<&Credentials>) -> Vec<OfferedProvider> {
    let is_usable = |(name, connection): &(&str, &SsoConnection)| {
        row.is_some_and(|row| has_link_for(login, row, name)) || may_link(login, connection, account)
    };
    core.factors.sso.iter_for_tenant(&login.tenant).filter(is_usable).map(OfferedProvider::from).collect()
}

/// Returns whether a user has a link to a provider of this tenant whose strength `counts`.
pub(crate) fn has_link(core: &Core, tenant: &Tenant, row: &Credentials, counts: impl Fn(&Strength) -> bool) -> bool {
    let is_offered = |link: &SsoLink| provider_label(core, tenant, &link.provider).is_some();
    row.links.iter().any(|link| counts(&link.strength) && is_offered(link))
}

/// Returns what users see of a provider, or `None` if this tenant has no such provider.
pub(crate) fn provider_label<'c>(core: &'c Core, tenant: &Tenant, name: &str) -> Option<&'c str> {
    core.factors.sso.find(tenant, name).map(|(name, connection)| connection.shown_label(name))
}

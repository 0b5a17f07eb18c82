//! A provider as the login service uses it: its label, and how its users become accounts.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::{
    session::UserId,
    sso::{
        provider::{DynSsoProvider, SsoCallback, SsoError, SsoProvider, SsoRequest},
        user::ProviderUser,
    },
    store::{BoxFuture, StoreError},
    tenant::Tenant,
    user::{Account, Contact, EmailAddress},
    util::{clock::UnixTime, error::ConfigError},
};

/// The time for everything that a provider does at once.
const DEADLINE: Duration = Duration::from_secs(15);
const LONGEST_LABEL: usize = 64;
/// The name of the hook in the log.
const CREATE_ACCOUNT: &str = "CreateAccount";

/// Calls [`CreateAccount::account`].
type Creator =
    dyn for<'a> Fn(&'a Tenant, &'a ProviderUser) -> BoxFuture<'a, Result<Option<UserId>, StoreError>> + Send + Sync;

/// A provider with the operator's settings for it.
///
/// Pass it to [`AuthServiceBuilder::sso`](crate::auth::AuthServiceBuilder::sso). You can also pass a bare provider
/// there: its users then sign in only to accounts that are already linked.
#[must_use]
pub struct SsoConnection {
    provider: Box<dyn DynSsoProvider>,
    label: Option<String>,
    domains: Vec<String>,
    creator: Option<Box<Creator>>,
    assumes_fresh: bool,
    /// All tenants if empty.
    tenants: Vec<Tenant>,
}

/// Chooses the account for a provider's user who has none yet.
///
/// This example creates an account for everyone with a verified address. Its id is made from the subject, which never
/// changes:
///
/// ```
/// use tollgate::{
///     Identifier, NewUser, StoredUsers, Tenant, UserId, Users,
///     sso::{CreateAccount, ProviderUser},
///     user::EmailAddress,
/// };
///
/// struct NewAccounts(StoredUsers);
///
/// impl CreateAccount for NewAccounts {
///     type Error = Box<dyn std::error::Error + Send + Sync>;
///
///     async fn account(&self, tenant: &Tenant, user: &ProviderUser) -> Result<Option<UserId>, Self::Error> {
///         let id = UserId::parse(format!("google-{}", user.subject()))?;
///         if self.0.by_id(tenant, &id).await?.is_some() {
///             return Ok(Some(id));
///         }
///         let Some(email) = user.email().filter(|_| user.email_verified()) else { return Ok(None) };
///         let identifier = Identifier::parse(email)?;
///         // an address is no proof: the owner of that account signs in to it by another method
///         if self.0.find(tenant, &identifier).await?.is_some() {
///             return Ok(None);
///         }
///         self.0.create(tenant, NewUser::new(id.clone(), identifier).contact(EmailAddress::parse(email)?)).await?;
///         Ok(Some(id))
///     }
/// }
/// ```
pub trait CreateAccount: Send + Sync + 'static {
    /// The error of a failed call, which is logged with its sources. The login stays open, and the user can try again.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>>;

    /// Returns the account of a user whom the provider has signed in, after creating it if necessary, or `None` to refuse
    /// the user. From then on the user is linked to this account.
    ///
    /// Must return the same account if it is called twice for the same user, because a login can fail after this call.
    /// The sign-in fails if this user of the provider was unlinked from the account before.
    ///
    /// Do not pick an existing account by its e-mail address alone: anyone who can set that address at the provider
    /// would get into it.
    ///
    /// The call may take 15 seconds. Then it is dropped, and counts as failed.
    fn account(
        &self,
        tenant: &Tenant,
        user: &ProviderUser,
    ) -> impl Future<Output = Result<Option<UserId>, Self::Error>> + Send;
}

impl SsoConnection {
    /// Creates a connection without a label that trusts no e-mail domain and creates no accounts.
    pub fn new(provider: impl SsoProvider) -> Self {
        Self {
            provider: Box::new(provider),
            label: None,
            domains: Vec::new(),
            creator: None,
            assumes_fresh: false,
            tenants: Vec::new(),
        }
    }

    /// Sets the name that users see. Defaults to the name given to
    /// [`AuthServiceBuilder::sso`](crate::auth::AuthServiceBuilder::sso).
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.chars().filter(|char| !char.is_control()).take(LONGEST_LABEL).collect());
        self
    }

    /// Trusts the provider for e-mail addresses of this domain, without its subdomains. A user who has already proved a
    /// step of the same login is then linked to their account if the provider vouches for an address that is a verified
    /// contact of the account.
    ///
    /// This happens only in a login of two steps or more: set a policy, or link to `/sign-in?steps=2`. With one-step logins,
    /// use [`create_account`](Self::create_account).
    ///
    /// Use it only for a domain whose mailboxes the provider manages itself, such as your company's.
    ///
    /// # Errors
    ///
    /// Returns an error if `domain` is not a domain name.
    pub fn trust_email_domain(mut self, domain: &str) -> Result<Self, ConfigError> {
        let address = EmailAddress::parse(format!("user@{domain}"));
        let address = address.map_err(|_| ConfigError::new("trusted e-mail domain", domain, "is not a domain name"))?;
        self.domains.extend(address.as_str().split_once('@').map(|(_, domain)| domain.to_owned()));
        Ok(self)
    }

    /// Asks this hook for the account of a user who has no link, if the login was started without an identifier. Defaults to
    /// refusing such users.
    ///
    /// The hook decides on behalf of the operator, so its links count in logins of any number of steps.
    pub fn create_account(mut self, creator: impl CreateAccount) -> Self {
        let creator = Arc::new(creator);
        let creator: Box<Creator> = Box::new(move |tenant, user| {
            let creator = Arc::clone(&creator);
            Box::pin(async move {
                let created = creator.account(tenant, user).await;
                created.map_err(|error| StoreError::of_hook(CREATE_ACCOUNT, error))
            })
        });
        self.creator = Some(creator);
        self
    }

    /// Counts sign-ins of unknown age as fresh: those at [`GitHub`](super::GitHub), and those at providers that leave
    /// `auth_time` out of their ID tokens. Defaults to [not fresh](super#fresh-sign-ins).
    ///
    /// # Security
    ///
    /// A provider that remembers its users signs them in without asking for anything. With this setting, anyone who
    /// uses the browser of such a user can change how the user signs in here, and `prompt=login` and `max_age` of clients
    /// prove nothing.
    pub fn insecure_assume_fresh(mut self) -> Self {
        self.assumes_fresh = true;
        self
    }

    /// Offers the provider to users of this tenant only. Can be called several times. Defaults to all tenants.
    ///
    /// Providers of different tenants need different names.
    pub fn only_tenant(mut self, tenant: &Tenant) -> Self {
        self.tenants.push(tenant.clone());
        self
    }

    pub(crate) fn shown_label<'a>(&'a self, name: &'a str) -> &'a str {
        self.label.as_deref().unwrap_or(name)
    }

    pub(crate) fn is_for(&self, tenant: &Tenant) -> bool {
        self.tenants.is_empty() || self.tenants.contains(tenant)
    }

    /// Returns the address that the provider vouches for, if the provider is trusted for its domain.
    pub(crate) fn trusted_email(&self, user: &ProviderUser) -> Option<EmailAddress> {
        let address = EmailAddress::parse(user.email().filter(|_| user.email_verified())?).ok()?;
        self.trusts(&address).then_some(address)
    }

    /// Returns whether the provider can vouch for a verified address of this account.
    pub(crate) fn trusts_contact_of(&self, account: &Account) -> bool {
        account.contacts().any(|(contact, is_verified)| match contact {
            Contact::Email(address) => is_verified && self.trusts(address),
            Contact::Phone(_) => false,
        })
    }

    fn trusts(&self, address: &EmailAddress) -> bool {
        let domain = address.as_str().rsplit_once('@').map(|(_, domain)| domain);
        self.domains.iter().any(|own| Some(own.as_str()) == domain)
    }

    /// Returns when a user who comes back now authenticated at the provider: at most `now`, or `None` if that is unknown.
    /// `asked_for` is the earliest time that the provider was asked for. A time that is earlier only by the skew counts as that
    /// one.
    pub(crate) fn auth_time(
        &self,
        user: &ProviderUser,
        asked_for: Option<UnixTime>,
        now: UnixTime,
    ) -> Option<UnixTime> {
        let named = user.auth_time().map(|time| match asked_for {
            Some(asked_for) if time + user.skew() >= asked_for => time.max(asked_for),
            _ => time,
        });
        named.or(self.assumes_fresh.then_some(now)).map(|time| time.min(now))
    }

    pub(crate) async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
        within(self.provider.authorization_url(request)).await
    }

    pub(crate) async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
        within(self.provider.user(callback)).await
    }

    /// Asks the hook for the account of a user. Returns `None` without a hook, and if the hook refuses.
    pub(crate) async fn account_from_hook(
        &self,
        tenant: &Tenant,
        user: &ProviderUser,
    ) -> Result<Option<UserId>, StoreError> {
        let Some(creator) = &self.creator else { return Ok(None) };
        let slow = || StoreError::of_hook(CREATE_ACCOUNT, "the call timed out");
        timeout(DEADLINE, creator(tenant, user)).await.unwrap_or_else(|_| Err(slow()))
    }
}

async fn within<T>(answer: impl Future<Output = Result<T, SsoError>>) -> Result<T, SsoError> {
    timeout(DEADLINE, answer).await.unwrap_or(Err(SsoError::Unavailable("the provider took too long")))
}

impl<P: SsoProvider> From<P> for SsoConnection {
    fn from(provider: P) -> Self {
        Self::new(provider)
    }
}

crate::util::fmt::debug_fields!(SsoConnection { label });

//! Sign-in through other identity providers.
//!
//! An [`SsoProvider`] sends users to another service and learns who they are when they come back. With the feature
//! `external-providers`, [`OidcProvider`] does this with OpenID Connect, and [`GitHub`] with plain OAuth 2; implement the trait
//! for others. The login service
//! offers each provider under a name, which is the `provider` of the method `sso`:
//!
#![cfg_attr(feature = "external-providers", doc = "```no_run")]
#![cfg_attr(not(feature = "external-providers"), doc = "```ignore")]
//! use tollgate::{
//!     AuthService, ClientIp, StoredUsers, Tenant,
//!     sso::{ClientSecret, OidcProvider, SsoConnection},
//!     store::{AnyStore, Memory},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = AnyStore::from(Memory::new());
//! // the ID tokens of Google name the e-mail address; add `.userinfo()` for providers whose ID tokens don't
//! let google = OidcProvider::new("https://accounts.google.com", "client-id")?
//!     .secret(ClientSecret::from_env("GOOGLE_CLIENT_SECRET")?)
//!     .parameter("hd", "example.com")?                // suggests the accounts of this organization
//!     .require_claim("hd", "example.com");            // admits no others
//! let google = SsoConnection::new(google).label("Google").trust_email_domain("example.com")?;
//!
//! let service = AuthService::builder("https://auth.example.com", store.clone())
//!     .users(StoredUsers::new(store))
//!     .first_party(Tenant::parse("acme")?)
//!     .client_ip(ClientIp::peer())
//!     .sso("google", google)
//!     .build()?;
//! # let _ = service;
//! # Ok(()) }
//! ```
//!
//! Register `https://auth.example.com/authentication/sso/google/callback` as the redirect URI at the provider. Each provider has
//! its own: two can't have the same name, even for different tenants.
//!
//! # Accounts
//!
//! A user of a provider is identified by the name of the provider here, its issuer and its `subject`, never by an e-mail
//! address. These three are linked to one account. Two providers of a tenant can have the same issuer, and neither can sign
//! in the users of the other. A new link is made in one of three ways, and otherwise the sign-in fails:
//!
//! - The user has already proved a step of the same login, the provider vouches for the user's e-mail address, the address
//!   is a verified contact of the account, and the operator trusts the provider for its domain
//!   ([`SsoConnection::trust_email_domain`]). That takes a login of two steps: set a policy, or link to `/sign-in?steps=2`. With
//!   one-step logins, use the hook.
//! - A hook of the application names the account, which it may create ([`SsoConnection::create_account`]). It can't
//!   restore a link that the user has removed.
//! - The signed-in user connects the provider on the account page, `/account/security`. Like any other change of how they sign
//!   in, this needs proofs from the last five minutes. The provider is asked to sign the user in again, because
//!   somebody else may have left their account signed in there.
//!
//! The first two ways usually need the user's e-mail address. Many providers put only `sub` into the ID token, and have the
//! address at their userinfo endpoint: call [`OidcProvider::userinfo`] for them. A sign-in that fails because the
//! address is missing logs a warning.
//!
//! A sign-in that fails shows the user what helps, and records `authn_login_fail` with a reason
//! ([`EventKind::LoginFailed`](crate::event::EventKind::LoginFailed)). Only somebody whose address the provider has
//! verified learns whether an account has this address.
//!
//! # Fresh sign-ins
//!
//! A provider that remembers its user signs them in without asking for anything. Where that is not enough, the provider must
//! ask again: for a login with `prompt=login` or `max_age`, and before a user changes how they sign in. `OidcProvider` sends
//! `prompt=login` and `max_age`. The `auth_time` of the ID token becomes the time of the proof, never a later time.
//!
//! If `auth_time` is missing or too old, the sign-in is not fresh. A login that must be fresh refuses it, and the user
//! sees why. There is one exception: a sign-in of unknown age counts after another step of the same login, because that
//! step is fresh. Plain OAuth 2 providers such as `GitHub` never send the time. A user who has only such a provider
//! can't change how they sign in, nor use clients that send `prompt=login` or `max_age`, unless the operator
//! [accepts the risk](SsoConnection::insecure_assume_fresh). Give these users another method: a contact, or a password.
//!
//! # Outages
//!
//! Nothing is fetched before the first user comes. A provider that is slow or down fails only its own sign-ins: the login
//! stays open, and the user can try another method. Each client address can cause at most 60 such failures a minute.
//! Beyond that, the provider is not called for it. Tokens of a provider are not stored.

mod connection;
mod connections;
#[cfg(feature = "external-providers")]
mod exchange;
#[cfg(feature = "external-providers")]
mod github;
#[cfg(feature = "external-providers")]
mod id_token;
#[cfg(feature = "external-providers")]
mod oidc;
mod provider;
#[cfg(feature = "external-providers")]
mod secret;
mod user;

pub(crate) use self::connections::SsoConnections;
pub use self::{
    connection::{CreateAccount, SsoConnection},
    provider::{SsoCallback, SsoError, SsoProvider, SsoRequest},
    user::ProviderUser,
};
#[cfg(feature = "external-providers")]
pub use self::{github::GitHub, oidc::OidcProvider, secret::ClientSecret};

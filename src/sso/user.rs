//! The user whom a provider has signed in.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::util::clock::UnixTime;

/// A user of an identity provider, identified by the issuer and the subject together.
#[derive(Clone, PartialEq)]
#[must_use]
pub struct ProviderUser {
    issuer: String,
    subject: String,
    email: Option<String>,
    email_verified: bool,
    name: Option<String>,
    acr: Option<String>,
    amr: Vec<String>,
    auth_time: Option<UnixTime>,
    skew: Duration,
    claims: Map<String, Value>,
}

impl ProviderUser {
    /// Creates a user. `subject` must never change and never be given to another user of this issuer. Names and e-mail
    /// addresses don't qualify; account numbers often do.
    pub fn new(issuer: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            subject: subject.into(),
            email: None,
            email_verified: false,
            name: None,
            acr: None,
            amr: Vec::new(),
            auth_time: None,
            skew: Duration::ZERO,
            claims: Map::new(),
        }
    }

    /// Sets the e-mail address. `verified` means that the provider has checked that it belongs to the user.
    pub fn with_email(mut self, email: impl Into<String>, verified: bool) -> Self {
        (self.email, self.email_verified) = (Some(email.into()), verified);
        self
    }

    /// Sets the name that people see.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the level and the methods of the authentication at the provider.
    pub fn with_authentication(mut self, acr: Option<String>, amr: Vec<String>) -> Self {
        (self.acr, self.amr) = (acr, amr);
        self
    }

    /// Sets when the provider last asked the user for their credentials. `skew` is how far its clock may differ.
    ///
    /// Without this time, the age of the sign-in is unknown, so it does not count as fresh.
    pub fn with_auth_time(mut self, time: UnixTime, skew: Duration) -> Self {
        (self.auth_time, self.skew) = (Some(time), skew);
        self
    }

    /// Sets another claim. One that can't be written as JSON is left out.
    pub fn with_claim(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.claims.insert(name.into(), value);
        }
        self
    }

    #[cfg(feature = "external-providers")]
    pub(super) fn with_claims(mut self, claims: Map<String, Value>) -> Self {
        self.claims.extend(claims);
        self
    }

    /// Returns the issuer that the user belongs to.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the id of the user at the issuer.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the e-mail address.
    pub fn email(&self) -> Option<&str> {
        self.email.as_deref()
    }

    /// Returns whether the provider vouches for the e-mail address.
    pub fn email_verified(&self) -> bool {
        self.email_verified
    }

    /// Returns the name that people see.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the level of the authentication at the provider.
    pub fn acr(&self) -> Option<&str> {
        self.acr.as_deref()
    }

    /// Returns the methods of the authentication at the provider.
    pub fn amr(&self) -> impl Iterator<Item = &str> {
        self.amr.iter().map(String::as_str)
    }

    /// Returns when the provider last asked the user for their credentials, by its own clock.
    pub fn auth_time(&self) -> Option<UnixTime> {
        self.auth_time
    }

    /// Returns how far the clock of the provider may differ.
    pub(crate) fn skew(&self) -> Duration {
        self.skew
    }

    /// Returns another claim, such as `hd` or `groups`. Returns `None` if it is missing or has another type.
    pub fn claim<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.claims.get(name)?).ok()
    }
}

// Shows neither the e-mail address nor the claims.
crate::util::fmt::debug_fields!(ProviderUser { issuer });

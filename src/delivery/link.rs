use zeroize::Zeroizing;

use crate::util::fmt::named_enum;

named_enum! {
    /// The purpose of the link in a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum LinkKind {
        /// Somebody tried to create an account with an address that already has one. The link leads to the sign-in.
        AccountExists = "account_exists",
        /// The application invites the owner of the address to create an account.
        Invitation = "invitation",
        /// The application lets a user set a new password.
        Reset = "reset",
    }

    /// Returns a stable name, such as `account_exists`.
    pub fn as_str;
    #[cfg(test)]
    pub(super) const ALL;
}

/// A link to a page of the login service, in a message. It can be a secret, so don't log it: `Debug` does not show it.
#[derive(Clone)]
pub struct Link {
    kind: LinkKind,
    url: Zeroizing<String>,
}

impl Link {
    /// Creates a link to this URL.
    pub fn new(kind: LinkKind, url: impl Into<String>) -> Self {
        Self { kind, url: Zeroizing::new(url.into()) }
    }

    /// Returns the purpose of the link.
    pub fn kind(&self) -> LinkKind {
        self.kind
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}

crate::util::fmt::debug_fields!(Link { kind });

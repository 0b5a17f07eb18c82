use zeroize::Zeroizing;

/// The purpose of the link in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkKind {
    /// Somebody tried to create an account with an address that already has one. The link leads to the sign-in.
    AccountExists,
    /// The application invites the owner of the address to create an account.
    Invitation,
    /// The application lets a user set a new password.
    Reset,
}

impl LinkKind {
    #[cfg(test)]
    pub(super) const ALL: [Self; 3] = [Self::AccountExists, Self::Invitation, Self::Reset];

    /// Returns a stable name, such as `account_exists`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AccountExists => "account_exists",
            Self::Invitation => "invitation",
            Self::Reset => "reset",
        }
    }
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

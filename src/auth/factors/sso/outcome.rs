//! How a user comes back from another identity provider, and why a user who is signed in there may be refused here.

use crate::util::fmt::named_enum;

/// How a user came back from a provider, as the login page learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SsoOutcome {
    Proved,
    Denied,
    Refused(SsoRefusal),
    /// The login has ended, for example because all logins of its user were.
    Ended,
    Unavailable,
    /// The user took too long.
    Expired,
}

named_enum! {
    /// The reason of a refusal. The login page explains it, and the log and the events name it.
    ///
    /// Before a proved step, it depends only on what the provider's user has proved to be theirs, never on a name that was
    /// typed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum SsoRefusal {
        /// The provider's answer proves nothing.
        WrongAnswer = "wrong_answer",
        /// The provider has not asked its user again, although the login must be fresh.
        NotFresh = "not_fresh",
        NoAddress = "no_address",
        AddressNotVerified = "address_not_verified",
        /// An account has the address that the provider has verified.
        AccountExists = "account_exists",
        NoAccount = "no_account",
        /// The account is closed, or all logins of its user were ended meanwhile.
        AccountClosed = "no_account",
        /// The user of the login is not linked to this user of the provider, and cannot be linked in this login.
        NotLinked = "not_linked",
        /// The provider's user is linked to another account than that of the login.
        OtherAccount = "other_account",
        /// The link counts only in logins of fewer steps.
        TooWeak = "too_weak",
    }

    /// Returns the name that the login page and events show.
    pub(crate) fn as_str;
}

impl SsoOutcome {
    /// Returns the fragment of the URL.
    pub(crate) fn fragment(self) -> String {
        match self {
            Self::Proved => "sso=ok".to_owned(),
            Self::Denied => "sso=denied".to_owned(),
            Self::Refused(SsoRefusal::NotFresh) => "sso=stale".to_owned(),
            Self::Refused(refusal) => format!("sso=failed&reason={}", refusal.as_str()),
            Self::Ended => "sso=failed".to_owned(),
            Self::Unavailable => "sso=unavailable".to_owned(),
            Self::Expired => "sso=expired".to_owned(),
        }
    }
}

impl SsoRefusal {
    /// Returns what the log says. It contains nothing about the user.
    pub(super) const fn explanation(self) -> &'static str {
        match self {
            Self::WrongAnswer => "the answer of the provider is wrong",
            Self::NotFresh => "the provider has not signed in its user anew, which this login needs",
            Self::NoAddress => {
                "the provider sent no e-mail address; if its ID token has only `sub`, set `OidcProvider::userinfo`, and ask for \
                 the scope `email`"
            }
            Self::AddressNotVerified => {
                "the provider has not verified the e-mail address, or may not vouch for addresses"
            }
            Self::AccountExists => {
                "an account has this e-mail address but is not linked; trust in a domain links it only after another step of \
                 the same login"
            }
            Self::NoAccount => "no account is linked, and neither a hook nor a trusted domain leads to one",
            Self::AccountClosed => "the account is closed, or all logins of its user were ended meanwhile",
            Self::NotLinked => {
                "the account of this login is not linked, and the proved steps, the e-mail address and its domain do not \
                 allow a new link"
            }
            Self::OtherAccount => "the user of the provider is linked to another account than that of this login",
            Self::TooWeak => "the link counts only in logins of fewer steps",
        }
    }
}

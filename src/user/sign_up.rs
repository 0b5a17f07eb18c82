//! The settings for sign-up.

use super::contact::EmailAddress;
use crate::util::error::ConfigError;

/// The ways in which users can create accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignUp {
    /// Only the application creates accounts.
    #[default]
    Closed,
    /// Only owners of addresses that the application has [invited](crate::AuthService::invite).
    InvitationOnly,
    /// Anyone who proves ownership of an address.
    Open,
}

/// The settings of sign-up.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignUpRules {
    pub(crate) kind: SignUp,
    /// The domains of addresses that can sign up without an invitation. Empty for all.
    pub(crate) domains: Vec<String>,
}

impl SignUpRules {
    /// Returns whether the owner of this address can sign up without an invitation.
    pub(crate) fn allows(&self, address: &EmailAddress) -> bool {
        let domain = address.as_str().rsplit_once('@').map_or("", |(_, domain)| domain);
        self.domains.is_empty() || self.domains.iter().any(|allowed| allowed == domain)
    }

    /// Checks that the accounts and the senders support the settings.
    pub(crate) fn check(&self, (can_create, can_mail): (bool, bool)) -> Result<(), ConfigError> {
        if self.kind == SignUp::Closed {
            return Ok(());
        }
        if let Some(bad) = self.domains.iter().find(|domain| EmailAddress::parse(format!("a@{domain}")).is_err()) {
            return Err(ConfigError::new("sign_up_domains", bad, "is not the domain of an e-mail address"));
        }
        match (can_create, can_mail) {
            (false, _) => Err(ConfigError::new("sign_up", "", "needs users that offer to create accounts")),
            (_, false) => Err(ConfigError::new("sign_up", "", "needs a sender of e-mails")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c127_only_whole_domains_are_allowed() {
        let rules = SignUpRules { kind: SignUp::Open, domains: vec!["example.com".to_owned()] };
        let allows = |text: &str| rules.allows(&EmailAddress::parse(text).unwrap());
        assert!(allows("ada@example.com") && allows("ADA@Example.COM"));
        assert!(!allows("ada@sub.example.com") && !allows("ada@badexample.com") && !allows("ada@example.com.evil.net"));
        assert!(SignUpRules::default().allows(&EmailAddress::parse("a@b.example").unwrap()));
        assert!(rules.check((true, true)).is_ok() && SignUpRules::default().check((false, false)).is_ok());
        assert!(rules.check((false, true)).is_err() && rules.check((true, false)).is_err());
        let bad = SignUpRules { domains: vec!["@example.com".to_owned()], ..rules };
        assert!(bad.check((true, true)).is_err());
    }
}

//! The parameters that a client sends with each call, and those that a login is bound to.

use serde::{Deserialize, Serialize};

use crate::{client::Scopes, pkce::CodeChallenge, words::Language};

/// The client parameters after validation. A login is bound to them from its start to its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binding {
    pub(crate) client_id: String,
    pub(crate) redirect_uri: String,
    pub(crate) scope: Scopes,
    #[serde(with = "crate::util::text")]
    pub(crate) code_challenge: CodeChallenge,
}

/// The detail about a parameter that a call has to repeat.
macro_rules! differs {
    ($name:literal) => {
        concat!($name, " is missing or differs from the start of the login")
    };
}

impl Binding {
    /// Returns the name of the first parameter that differs from the start of the login, if `sent` are those of the call.
    /// Scopes are compared as sets, all others byte by byte.
    pub(crate) fn mismatch<'v>(&self, sent: impl Fn(&str) -> Option<&'v str>) -> Option<&'static str> {
        let is = |name, own: &str| sent(name) == Some(own);
        let scope = sent("scope").and_then(|scope| Scopes::parse(scope).ok());
        [
            (differs!("client_id"), is("client_id", &self.client_id)),
            (differs!("redirect_uri"), is("redirect_uri", &self.redirect_uri)),
            (differs!("response_type"), is("response_type", "code")),
            (differs!("scope"), scope.is_some_and(|scope| scope == self.scope)),
            (differs!("code_challenge"), is("code_challenge", self.code_challenge.as_str())),
            (differs!("code_challenge_method"), is("code_challenge_method", "S256")),
        ]
        .into_iter()
        .find_map(|(difference, same)| (!same).then_some(difference))
    }
}

/// Optional parameters about the tokens, sent when the login starts or when the code is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) nonce: Option<String>,
    /// The thumbprint of the DPoP key that the code is bound to.
    pub(crate) dpop_jkt: Option<String>,
    /// Names of claims requested in the id_token and at `/userinfo`.
    pub(crate) id_token: Vec<String>,
    pub(crate) userinfo: Vec<String>,
    /// The resources that the tokens are for, sorted. Only requests of codes name them.
    pub(crate) resources: Vec<String>,
    /// The login was begun for a request that asks the user to confirm.
    pub(crate) is_confirmed: bool,
    /// The user chose to stay signed in.
    pub(crate) remember: bool,
    /// The path to return to after a sign-in to the site itself.
    pub(crate) return_to: Option<String>,
    /// The language of the page on which the login was begun.
    pub(crate) language: Option<Language>,
    /// The login sets a new password, and nothing else: it begins no session and gets no code.
    pub(crate) is_reset: bool,
}

impl Wanted {
    /// Returns whether each claim that `other` requests is requested here too.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        other.id_token.iter().all(|name| self.id_token.contains(name))
            && other.userinfo.iter().all(|name| self.userinfo.contains(name))
    }

    /// Fills in what is missing here from `other`.
    pub(crate) fn or(self, other: &Self) -> Self {
        let either = |own: Vec<String>, other: &Vec<String>| if own.is_empty() { other.clone() } else { own };
        Self {
            nonce: self.nonce.or_else(|| other.nonce.clone()),
            dpop_jkt: self.dpop_jkt.or_else(|| other.dpop_jkt.clone()),
            id_token: either(self.id_token, &other.id_token),
            userinfo: either(self.userinfo, &other.userinfo),
            resources: either(self.resources, &other.resources),
            is_confirmed: self.is_confirmed || other.is_confirmed,
            remember: self.remember || other.remember,
            return_to: self.return_to.or_else(|| other.return_to.clone()),
            language: self.language.or(other.language),
            is_reset: self.is_reset,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    fn wanted() -> impl Strategy<Value = Wanted> {
        let text = || option::of("[ab]");
        let names = || vec("[abc]", 0..3);
        (text(), text(), names(), names(), any::<(bool, bool)>(), text()).prop_map(
            |(nonce, dpop_jkt, id_token, userinfo, (is_confirmed, remember), return_to)| Wanted {
                nonce,
                dpop_jkt,
                id_token,
                userinfo,
                resources: Vec::new(),
                is_confirmed,
                remember,
                return_to,
                language: None,
                is_reset: false,
            },
        )
    }

    proptest! {
        #[test]
        fn claims_are_included_if_each_is_requested_at_the_same_place(one in wanted(), other in wanted()) {
            let pairs = |wanted: &Wanted| -> Vec<(bool, String)> {
                let id_token = wanted.id_token.iter().map(|name| (true, name.clone()));
                id_token.chain(wanted.userinfo.iter().map(|name| (false, name.clone()))).collect()
            };
            let own = pairs(&one);
            prop_assert_eq!(one.includes(&other), pairs(&other).iter().all(|claim| own.contains(claim)));
        }

        #[test]
        fn what_is_missing_is_filled_in_and_nothing_is_replaced(one in wanted(), other in wanted()) {
            prop_assert_eq!(one.clone().or(&Wanted::default()), one.clone());
            prop_assert_eq!(Wanted::default().or(&other), other.clone());
            let both = one.clone().or(&other);
            prop_assert_eq!(both.clone().or(&other), both.clone());
            prop_assert_eq!(both.is_confirmed, one.is_confirmed | other.is_confirmed);
            prop_assert_eq!(both.remember, one.remember | other.remember);
            prop_assert!(one.nonce.is_none() || both.nonce == one.nonce);
            prop_assert!(one.id_token.is_empty() || both.id_token == one.id_token);
        }
    }
}

//! [`Wishes`]: what a request says beyond the six parameters of a client: of OpenID Connect Core §3.1.2.1, and the key
//! of RFC 9449 §10.

use std::time::Duration;

use super::{claims::Claims, problem::Code, request::Wrong, visit::Visit};
use crate::{client::Client, login::Wanted, policy::LoginPlan, session::UserId, util::encoding::base64url_to_32};

/// The longest `nonce`.
const LONGEST_NONCE: usize = 512;
/// The longest `id_token_hint`.
const LONGEST_HINT: usize = 8192;

/// What a client wishes of a login, and of the tokens after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// `prompt=none`: nobody is to be asked anything.
    pub(super) silent: bool,
    /// `prompt=login`, or a `max_age` of 0: nothing counts that was proved before.
    pub(super) fresh: bool,
    /// `prompt=consent` or `select_account`: nothing goes on without a person.
    pub(super) asking: bool,
    /// How long ago what a session proved may be.
    pub(super) max_age: Option<Duration>,
    /// A token of ours that says who should be logged in.
    pub(super) hint: Option<String>,
    /// One of these it must be; anybody where there are none.
    pub(super) subjects: Vec<String>,
    pub(super) wanted: Wanted,
    /// Levels, with spaces between them, of which the first that is known applies.
    acr_values: Option<String>,
    /// One of them must be reached.
    is_acr_essential: bool,
}

impl Wishes {
    /// Reads them by their names.
    pub(super) fn read<'v>(value: impl Fn(&str) -> Option<&'v str>) -> Result<Self, Wrong> {
        let mut wishes = Self { acr_values: value("acr_values").map(str::to_owned), ..Self::default() };
        wishes.read_prompt(value("prompt").unwrap_or_default())?;
        if let Some(seconds) = value("max_age") {
            if !seconds.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong("max_age is no number of seconds"));
            }
            // more than fits is as good as none
            match seconds.parse() {
                Ok(0) => wishes.fresh = true,
                Ok(seconds) => wishes.max_age = Some(Duration::from_secs(seconds)),
                Err(_) => {}
            }
        }
        if let Some(hint) = value("id_token_hint") {
            if hint.len() > LONGEST_HINT {
                return Err(wrong("id_token_hint is too long"));
            }
            wishes.hint = Some(hint.to_owned());
        }
        wishes.wanted.nonce = value("nonce").map(nonce).transpose()?;
        wishes.wanted.dpop_jkt = value("dpop_jkt").map(thumbprint).transpose()?;
        if let Some(claims) = value("claims") {
            let Claims { id_token, userinfo, acr, subjects } = Claims::parse(claims)?;
            (wishes.wanted.id_token, wishes.wanted.userinfo, wishes.subjects) = (id_token, userinfo, subjects);
            if !acr.is_empty() {
                (wishes.acr_values, wishes.is_acr_essential) = (Some(acr.join(" ")), true);
            }
        }
        Ok(wishes)
    }

    /// Whether the request may be about this user, as far as it says without a token.
    pub(super) fn may_mean(&self, user: &UserId) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|subject| subject == user.as_str())
    }

    fn read_prompt(&mut self, prompt: &str) -> Result<(), Wrong> {
        let prompts: Vec<&str> = prompt.split(' ').filter(|one| !one.is_empty()).collect();
        for one in &prompts {
            match *one {
                "none" => self.silent = true,
                "login" => self.fresh = true,
                "consent" | "select_account" => self.asking = true,
                _ => return Err(wrong("prompt has a value that is not served here")),
            }
        }
        if self.silent && prompts.len() > 1 {
            return Err(wrong("prompt has none beside others"));
        }
        Ok(())
    }

    /// What the request demands; `None` if no method that is enabled meets it.
    pub(super) fn plan(&self, visit: &Visit<'_>, client: &Client) -> Result<Option<LoginPlan>, Wrong> {
        let (policies, enabled) = (&visit.inner.config.policies, visit.inner.enabled());
        let plan = policies.plan(client.tenant(), client.demands(), self.acr_values.as_deref(), enabled).ok();
        if self.is_acr_essential && plan.as_ref().and_then(LoginPlan::acr).is_none() {
            let detail = "no login here reaches a level that is demanded";
            return Err(Wrong { code: Code::UnmetAuthenticationRequirements, detail });
        }
        Ok(plan)
    }
}

fn nonce(nonce: &str) -> Result<String, Wrong> {
    let is_plain = nonce.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if nonce.len() > LONGEST_NONCE || !is_plain {
        return Err(wrong("nonce must be up to 512 printable ASCII characters"));
    }
    Ok(nonce.to_owned())
}

/// The SHA-256 of a key, as RFC 7638 writes it.
fn thumbprint(text: &str) -> Result<String, Wrong> {
    match base64url_to_32(text.as_bytes()) {
        Some(_) => Ok(text.to_owned()),
        None => Err(wrong("dpop_jkt is no thumbprint of a key")),
    }
}

const fn wrong(detail: &'static str) -> Wrong {
    Wrong { code: Code::InvalidRequest, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Wishes, Wrong> {
        Wishes::read(|asked| (asked == name).then_some(value))
    }

    #[test]
    fn c025_prompts_are_known_or_refused() {
        let prompt = |text: &str| read("prompt", text).map(|wishes| (wishes.silent, wishes.fresh, wishes.asking)).ok();
        for (text, meant) in [
            ("none", Some((true, false, false))),
            ("login", Some((false, true, false))),
            ("consent", Some((false, false, true))),
            ("select_account login", Some((false, true, true))),
            (" login  ", Some((false, true, false))),
            ("", Some((false, false, false))),
            ("none login", None),
            ("none none", None),
            ("create", None),
            ("Login", None),
            ("login,none", None),
        ] {
            assert_eq!(prompt(text), meant, "{text:?}");
        }
    }

    #[test]
    fn c025_max_age_is_seconds_and_0_is_a_login_anew() {
        let max_age = |text: &str| read("max_age", text).map(|wishes| (wishes.fresh, wishes.max_age)).ok();
        assert_eq!(max_age("0"), Some((true, None)));
        assert_eq!(max_age("60"), Some((false, Some(Duration::from_secs(60)))));
        assert_eq!(max_age(&"9".repeat(40)), Some((false, None)));
        for bad in ["-1", "1.5", "sixty", "+1", " 1", "٣"] {
            assert_eq!(max_age(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_nonce_is_bounded_and_plain_and_a_thumbprint_is_32_bytes() {
        let longest = "n".repeat(LONGEST_NONCE);
        for good in ["n", "a b~!", &longest] {
            assert_eq!(read("nonce", good).unwrap().wanted.nonce.as_deref(), Some(good));
        }
        for bad in ["a\nb", "é", "\u{7f}", &(longest.clone() + "n")] {
            assert!(read("nonce", bad).is_err(), "{bad:?}");
        }
        let thumbprint = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
        assert_eq!(read("dpop_jkt", thumbprint).unwrap().wanted.dpop_jkt.as_deref(), Some(thumbprint));
        for bad in ["x", &thumbprint[1..], &format!("{thumbprint}="), &thumbprint.replace('-', "+")] {
            assert!(read("dpop_jkt", bad).is_err(), "{bad:?}");
        }
        assert!(read("id_token_hint", &"x".repeat(LONGEST_HINT + 1)).is_err());
    }
}

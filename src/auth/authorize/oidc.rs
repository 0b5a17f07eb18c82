//! The OpenID Connect parameters of a request (OpenID Connect Core §3.1.2.1), and the DPoP key of RFC 9449 §10.

use std::time::Duration;

use crate::{
    auth::{
        authorize::claims_parameter::ClaimsParameter,
        context::RequestContext,
        http::problem::{Code, Problem},
    },
    client::Client,
    login::Wanted,
    policy::{LoginPlan, Policy},
    session::{MOST_STEPS, UserId},
    util::encoding::base64url_to_32,
};

const _: () = assert!(MOST_STEPS == Policy::MAX_STEPS, "routes, sign-ins and policies have the same maximum");

/// The maximum length of `nonce`.
const LONGEST_NONCE: usize = 512;
/// The maximum length of `id_token_hint`.
const LONGEST_HINT: usize = 8192;

/// The maximum number of levels in `acr_values` or the claim `acr`. Each of them is planned.
const MOST_LEVELS: usize = 16;

/// The optional OpenID Connect parameters of an authorization request.
#[derive(Clone, Debug, Default)]
pub(crate) struct OidcParameters {
    /// `prompt=none`: the user must not see a page.
    pub(crate) is_silent: bool,
    /// `prompt=login` or `max_age=0`: earlier proofs do not count.
    pub(crate) is_fresh: bool,
    /// `prompt=create`: the user wants a new account.
    pub(crate) creates_account: bool,
    /// `prompt=select_account`, or `prompt=consent` of a client of the operator: the user must confirm on the login page.
    pub(crate) asks_user: bool,
    /// `prompt=consent` of a third-party client: the user must decide again.
    pub(crate) asks_consent: bool,
    /// The maximum age of proofs that come from a session.
    pub(crate) max_age: Option<Duration>,
    /// The minimum number of steps of a sign-in to the site itself. Zero if the text is no number.
    least_steps: Option<usize>,
    /// An id_token that names the expected user.
    pub(crate) id_token_hint: Option<String>,
    /// The accepted users. Empty means any user.
    subjects: Vec<String>,
    pub(crate) wanted: Wanted,
    /// Requested levels, best first.
    acr_values: Vec<String>,
    /// Whether one of the levels must be reached.
    is_acr_essential: bool,
}

impl OidcParameters {
    /// Reads the parameters by name.
    pub(crate) fn read_oidc_parameters<'v>(
        client: &Client,
        value: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<Self, Problem> {
        let levels = |text: &str| text.split(' ').filter(|level| !level.is_empty()).map(str::to_owned).collect();
        let mut oidc = Self { acr_values: value("acr_values").map(levels).unwrap_or_default(), ..Self::default() };
        oidc.read_prompt(client.is_third_party(), value("prompt").unwrap_or_default())?;
        if let Some(seconds) = value("max_age") {
            if !seconds.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Problem::invalid("max_age is not a number of seconds"));
            }
            match seconds.parse() {
                Ok(0) => oidc.is_fresh = true,
                Ok(seconds) => oidc.max_age = Some(Duration::from_secs(seconds)),
                // too large to matter
                Err(_) => {}
            }
        }
        oidc.least_steps = value("steps").map(|steps| steps.parse().unwrap_or_default());
        if let Some(hint) = value("id_token_hint") {
            if hint.len() > LONGEST_HINT {
                return Err(Problem::invalid("id_token_hint is too long"));
            }
            oidc.id_token_hint = Some(hint.to_owned());
        }
        oidc.wanted.nonce = value("nonce").map(nonce).transpose()?;
        oidc.wanted.dpop_jkt = value("dpop_jkt").map(thumbprint).transpose()?;
        oidc.wanted.is_confirmed = oidc.asks_user;
        if let Some(claims) = value("claims") {
            let ClaimsParameter { id_token, userinfo, acr, is_acr_essential, subjects } =
                ClaimsParameter::parse(claims)?;
            (oidc.wanted.id_token, oidc.wanted.userinfo, oidc.subjects) = (id_token, userinfo, subjects);
            if !acr.is_empty() {
                (oidc.acr_values, oidc.is_acr_essential) = (acr, is_acr_essential);
            }
        }
        if oidc.acr_values.len() > MOST_LEVELS {
            return Err(Problem::invalid("at most 16 acr values can be requested"));
        }
        Ok(oidc)
    }

    /// The parameters of a request for proofs that are not older than this.
    pub(crate) fn of_max_age(max_age: Option<Duration>) -> Self {
        Self { max_age, ..Self::default() }
    }

    /// Returns the age that the request allows for the newest proof.
    pub(crate) fn age(&self) -> Option<Duration> {
        if self.is_fresh { Some(Duration::ZERO) } else { self.max_age }
    }

    /// Returns whether the claim `sub` of the request accepts this user.
    pub(crate) fn accepts_subject(&self, user: &UserId) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|subject| subject == user.as_str())
    }

    /// Returns whether the request names how many proofs it needs, or how young they must be.
    pub(crate) fn needs_proofs(&self) -> bool {
        self.is_fresh || self.max_age.is_some() || self.least_steps.is_some()
    }

    fn read_prompt(&mut self, is_third_party: bool, prompt: &str) -> Result<(), Problem> {
        let prompts: Vec<&str> = prompt.split(' ').filter(|one| !one.is_empty()).collect();
        for one in &prompts {
            match *one {
                "none" => self.is_silent = true,
                "login" => self.is_fresh = true,
                // earlier proofs do not count
                "create" => (self.creates_account, self.is_fresh) = (true, true),
                "consent" if is_third_party => self.asks_consent = true,
                "consent" | "select_account" => self.asks_user = true,
                _ => return Err(Problem::invalid("prompt has an unsupported value")),
            }
        }
        if self.is_silent && prompts.len() > 1 {
            return Err(Problem::invalid("prompt must not combine none with another value"));
        }
        Ok(())
    }

    /// Returns the steps that the request needs, or `None` if the enabled methods cannot provide them.
    ///
    /// The first requested level that can be reached counts. A level that is only requested never blocks a login; if one
    /// is essential and none can be reached, the request fails. A sign-in to the site itself can ask for more steps.
    pub(crate) fn plan(&self, cx: &RequestContext<'_>, client: &Client) -> Result<Option<LoginPlan>, Problem> {
        if self.creates_account && !cx.core.offers_sign_up() {
            return Err(Problem::invalid("prompt has an unsupported value"));
        }
        let (policies, enabled) = (&cx.core.policies, cx.core.enabled(client.tenant()));
        let least = match self.least_steps.filter(|_| client.is_first_party()) {
            None => 1,
            Some(steps) if (1..=MOST_STEPS).contains(&steps) => steps,
            Some(_) => return Err(Problem::invalid("steps is not a number from 1 to 6")),
        };
        let plan =
            |level: Option<&str>| policies.longer_plan(client.tenant(), client.demands(), level, (enabled, least)).ok();
        let reached =
            self.acr_values.iter().find_map(|level| plan(Some(level)).filter(|plan| plan.acr() == Some(level)));
        match reached {
            Some(plan) => Ok(Some(plan)),
            None if self.is_acr_essential => {
                Err(Problem::new(Code::UnmetAuthenticationRequirements, "no login can reach a required level"))
            }
            // before a change with one proof, the factor is asked for even where sign-ins leave it out
            None if client.is_first_party() && self.least_steps == Some(1) => {
                Ok(plan(None).map(LoginPlan::asking_enrolled))
            }
            None => Ok(plan(None)),
        }
    }
}

fn nonce(nonce: &str) -> Result<String, Problem> {
    let is_plain = nonce.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if nonce.len() > LONGEST_NONCE || !is_plain {
        return Err(Problem::invalid("nonce must be at most 512 printable ASCII characters"));
    }
    Ok(nonce.to_owned())
}

/// Checks the SHA-256 thumbprint of a key (RFC 7638).
fn thumbprint(text: &str) -> Result<String, Problem> {
    match base64url_to_32(text.as_bytes()) {
        Some(_) => Ok(text.to_owned()),
        None => Err(Problem::invalid("dpop_jkt is not the thumbprint of a key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Tenant;

    fn parse_one_parameter(name: &str, value: &str) -> Result<OidcParameters, Problem> {
        let client = Client::new("web", Tenant::parse("acme").unwrap()).unwrap();
        OidcParameters::read_oidc_parameters(&client, |asked| (asked == name).then_some(value))
    }

    #[test]
    fn c025_unknown_prompts_are_refused() {
        let prompt = |text: &str| {
            parse_one_parameter("prompt", text).map(|oidc| (oidc.is_silent, oidc.is_fresh, oidc.asks_user)).ok()
        };
        for (text, meant) in [
            ("none", Some((true, false, false))),
            ("login", Some((false, true, false))),
            ("consent", Some((false, false, true))),
            ("select_account login", Some((false, true, true))),
            (" login  ", Some((false, true, false))),
            ("", Some((false, false, false))),
            ("none login", None),
            ("none none", None),
            ("create", Some((false, true, false))),
            ("create none", None),
            ("Login", None),
            ("login,none", None),
        ] {
            assert_eq!(prompt(text), meant, "{text:?}");
        }
    }

    #[test]
    fn c025_max_age_is_in_seconds_and_0_requires_a_new_login() {
        let max_age = |text: &str| parse_one_parameter("max_age", text).map(|oidc| (oidc.is_fresh, oidc.max_age)).ok();
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
            assert_eq!(parse_one_parameter("nonce", good).unwrap().wanted.nonce.as_deref(), Some(good));
        }
        for bad in ["a\nb", "é", "\u{7f}", &(longest.clone() + "n")] {
            assert!(parse_one_parameter("nonce", bad).is_err(), "{bad:?}");
        }
        let thumbprint = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
        assert_eq!(parse_one_parameter("dpop_jkt", thumbprint).unwrap().wanted.dpop_jkt.as_deref(), Some(thumbprint));
        for bad in ["x", &thumbprint[1..], &format!("{thumbprint}="), &thumbprint.replace('-', "+")] {
            assert!(parse_one_parameter("dpop_jkt", bad).is_err(), "{bad:?}");
        }
        assert!(parse_one_parameter("id_token_hint", &"x".repeat(LONGEST_HINT + 1)).is_err());
    }
}

//! The requirements of a route for a live session: steps, their age, and claims.

use std::{error::Error, sync::Arc, time::Duration};

use http::{HeaderValue, header};
use serde_json::Value;

use super::super::session::Session;
use crate::{
    reject::{Rejection, RejectionKind},
    store::BoxFuture,
    util::{clock::UnixTime, error::ConfigError},
};

/// A shorter age could be over before the user has finished a sign-in of several steps.
const SHORTEST_AGE: Duration = Duration::from_secs(60);
/// The most steps that a route can ask for. No sign-in has more.
pub(crate) const MOST_STEPS: usize = 6;

/// How many steps must have been proved, and how old their proofs may be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NeededProofs {
    /// Zero if any number is enough.
    pub(crate) steps: usize,
    pub(crate) max_age: Option<Duration>,
}

/// Decides whether the proofs of a session suffice.
pub(crate) trait ProofCheck: Send + Sync + 'static {
    /// Notes that a route needs this many steps.
    fn note_steps(&self, steps: usize);

    fn suffices(
        &self,
        session: &Session,
        needed: NeededProofs,
    ) -> BoxFuture<'static, Result<bool, Box<dyn Error + Send + Sync>>>;
}

/// Why a live session is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortfall<'a> {
    /// Another sign-in helps.
    Proofs,
    /// No sign-in of this user helps.
    Claim(&'a str),
}

/// The requirements of a route.
#[derive(Clone, Default)]
pub(super) struct Requirements {
    proofs: NeededProofs,
    pub(super) claims: Vec<(String, Value)>,
    pub(super) check: Option<Arc<dyn ProofCheck>>,
}

impl Requirements {
    pub(super) fn is_empty(&self) -> bool {
        !self.needs_proofs() && self.claims.is_empty()
    }

    fn needs_proofs(&self) -> bool {
        self.proofs.steps > 1 || self.proofs.max_age.is_some()
    }

    pub(super) fn set_steps(&mut self, steps: usize) -> Result<(), ConfigError> {
        let reason = "must be 1 to 6, because no sign-in has more";
        ConfigError::check_range("session steps", steps, 1..=MOST_STEPS, reason)?;
        self.proofs.steps = steps;
        if let Some(check) = &self.check {
            check.note_steps(steps);
        }
        Ok(())
    }

    pub(super) fn set_max_age(&mut self, age: Duration) -> Result<(), ConfigError> {
        let is_refused = age < SHORTEST_AGE || age.subsec_nanos() != 0;
        let reason = "must be whole seconds, at least 60, because a sign-in takes time";
        ConfigError::refuse_if(is_refused, "session max_age", format_args!("{age:?}"), reason)?;
        self.proofs.max_age = Some(age);
        Ok(())
    }

    /// Returns the query parameters with which the login page learns what is needed.
    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        let age = self.proofs.max_age.map(|age| ("max_age", age.as_secs().to_string()));
        let steps = (self.proofs.steps > 1).then(|| ("steps", self.proofs.steps.to_string()));
        age.into_iter().chain(steps).collect()
    }

    /// Returns what a session lacks, if anything.
    pub(super) async fn shortfall(
        &self,
        session: &Session,
        now: UnixTime,
    ) -> Result<Option<Shortfall<'_>>, Box<dyn Error + Send + Sync>> {
        if let Some((name, _)) = self.claims.iter().find(|(name, value)| !has_claim(session, name, value)) {
            return Ok(Some(Shortfall::Claim(name)));
        }
        let suffices = match &self.check {
            _ if !self.needs_proofs() => true,
            Some(check) if !session.proofs().is_empty() => check.suffices(session, self.proofs).await?,
            _ => declares(session, self.proofs, now),
        };
        Ok((!suffices).then_some(Shortfall::Proofs))
    }

    /// Returns the refusal of a program whose session lacks this.
    pub(super) fn refusal(&self, shortfall: Shortfall<'_>, challenge: &HeaderValue) -> Rejection {
        let (kind, error, detail) = match shortfall {
            Shortfall::Proofs => {
                (RejectionKind::Unauthenticated, "insufficient_user_authentication", self.describe_proofs())
            }
            Shortfall::Claim(name) => {
                (RejectionKind::Forbidden, "access_denied", format!("the account lacks the required claim {name}"))
            }
        };
        let mut value = format!(r#"{}, error="{error}""#, challenge.to_str().unwrap_or("Session"));
        if shortfall == Shortfall::Proofs {
            for (name, number) in self.query() {
                value.push_str(&format!(r#", {name}="{number}""#));
            }
        }
        let rejection = Rejection::new(kind, detail);
        match HeaderValue::from_str(&value) {
            Ok(value) => rejection.header(header::WWW_AUTHENTICATE, value),
            Err(_) => rejection.header(header::WWW_AUTHENTICATE, challenge.clone()),
        }
    }

    fn describe_proofs(&self) -> String {
        let steps = match self.proofs.steps {
            0 | 1 => String::new(),
            steps => format!(" of {steps} steps"),
        };
        match self.proofs.max_age {
            Some(age) => {
                format!("please sign in again: this needs a sign-in{steps} of the last {} seconds", age.as_secs())
            }
            None => format!("please sign in again: this needs a sign-in{steps}"),
        }
    }
}

/// Returns whether the user has this claim, or a list with this value.
fn has_claim(session: &Session, name: &str, value: &Value) -> bool {
    session
        .claim::<Value>(name)
        .is_some_and(|own| own == *value || own.as_array().is_some_and(|all| all.contains(value)))
}

/// Returns the name under which a method is counted. Methods that prove the same factor share one name. A code is usually
/// declared as `otp`, together with its channel.
fn factor_of(name: &str) -> &str {
    match name {
        "otp" | "whatsapp" => "sms",
        "recovery_code" => "totp",
        "hwk" | "swk" => "pop",
        name => name,
    }
}

/// Returns whether a session suffices by what its sign-in has declared: the number of different factors in its `amr`, and its
/// `auth_time`.
fn declares(session: &Session, needed: NeededProofs, now: UnixTime) -> bool {
    let mut names: Vec<&str> = match session.proofs() {
        [] => session.amr().filter(|name| !matches!(*name, "mfa" | "mca")).collect(),
        proofs => proofs.iter().map(|proof| &*proof.method).collect(),
    };
    names.iter_mut().for_each(|name| *name = factor_of(name));
    names.sort_unstable();
    names.dedup();
    names.len().max(1) >= needed.steps && needed.max_age.is_none_or(|age| session.auth_time() + age >= now)
}

crate::util::fmt::debug_fields!(Requirements, |own| proofs: own.proofs, claims: own.claims.iter().map(|(name, _)| name).collect::<Vec<_>>());

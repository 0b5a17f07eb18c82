//! Policies: what a login must prove.

use std::fmt;

use super::method::MethodSet;
use crate::util::error::ConfigError;

/// The methods that a login must prove: one method for each slot.
///
/// Steps can be completed in any order, and no two of them may prove the same
/// [`FactorClass`](super::FactorClass). The default is one step with any method.
///
/// A policy whose steps accept any method only counts steps. Others *name methods*. For a policy that names methods,
/// passkeys, authenticator apps and links to other providers count only if they were enrolled with methods that met the
/// policy, or if the application [vouched](crate::AuthService::vouch_for) for them. Otherwise, a stolen password could
/// add a passkey where passkeys are demanded. [`without_self_enrolment`](Self::without_self_enrolment) is a similar
/// rule for policies that count steps.
///
/// A user who has an authenticator app or a passkey needs it: a login that begins with another method asks for it, in
/// one of its steps or in an additional one. See
/// [`without_enrolled_second_factor`](Self::without_enrolled_second_factor).
///
/// ```
/// use tollgate::policy::{Method, Policy};
///
/// let any_two = Policy::any(2)?;
/// let password_and_mail = Policy::slots([Method::Password, Method::Email])?;
/// // all slots have one type: if one accepts several methods, convert the others
/// let strict = Policy::slots([Method::Password.into(), Method::Sms | Method::Passkey])?;
/// assert!(password_and_mail.is_met_by(Method::Email | Method::Password));
/// assert!(strict.is_met_by(Method::Passkey | Method::Password));
/// assert!(!strict.is_met_by(Method::Passkey | Method::Sms));
/// // both prove the same phone
/// assert!(!any_two.is_met_by(Method::Sms | Method::Whatsapp));
/// assert!(Policy::slots([Method::Sms, Method::Whatsapp]).is_err());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Sorted, so that equal policies have equal values.
    pub(super) slots: Vec<MethodSet>,
    pub(super) without_self_enrolment: bool,
    /// Whether a login needs the second factor that its account has enrolled.
    pub(super) asks_enrolled: bool,
}

const SETTING: &str = "policy";

impl Policy {
    /// The maximum number of steps, which is the number of factor classes.
    pub const MAX_STEPS: usize = 6;

    /// Creates a policy with one step per slot. Each step accepts the methods of its slot.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no slots or more than six, if a slot is empty, or if the
    /// slots can't be filled with methods of different factor classes.
    pub fn slots(slots: impl IntoIterator<Item = impl Into<MethodSet>>) -> Result<Self, ConfigError> {
        // one more than allowed is enough to detect that there are too many
        let mut slots: Vec<MethodSet> = slots.into_iter().take(Self::MAX_STEPS + 1).map(Into::into).collect();
        check_steps(slots.len())?;
        slots.sort_unstable();
        let policy = Self { slots, without_self_enrolment: false, asks_enrolled: true };
        let error = |reason: &'static str| Err(ConfigError::new(SETTING, &policy, reason));
        if policy.slots.iter().any(|slot| slot.is_empty()) {
            return error("has a slot without a method");
        }
        if !MethodSet::ALL.distinct_subsets().any(|set| policy.is_filled_by(set)) {
            return error("can't be satisfied by methods of different factor classes");
        }
        Ok(policy)
    }

    /// Creates a policy with 1 to 6 steps, each with any method.
    pub fn any(steps: usize) -> Result<Self, ConfigError> {
        check_steps(steps)?;
        Ok(Self { slots: vec![MethodSet::ALL; steps], ..Self::default() })
    }

    /// Requires that someone else enrols the second factor of a user who has only one factor.
    ///
    /// By default, users who can prove only one factor enrol the second one themselves: within a login of two steps, or
    /// on their account page. A stolen password is then enough to do so. With this setting, such a credential does not
    /// count for this policy until the application [vouches](crate::AuthService::vouch_for) for it.
    ///
    /// A request must meet the policies of its tenant, its client and its `acr`. It is enough if one of them has this
    /// setting.
    pub fn without_self_enrolment(self) -> Self {
        Self { without_self_enrolment: true, ..self }
    }

    /// Lets users skip a second factor that they have enrolled, if the steps of the policy don't need it. By default,
    /// an account that has an authenticator app or a passkey needs a code from the app, a recovery code or a passkey at
    /// each login.
    ///
    /// A login asks for the factor unless every policy that applies to it has this setting: that of the tenant, of the
    /// client, and of the requested `acr`. Sessions that began without it stay signed in, and are shared with other
    /// clients as usual. They don't satisfy a request for an `acr` without this setting, if the user has a factor that
    /// was not proved in them.
    ///
    /// Use it where another identity provider has already asked for a second factor.
    ///
    /// # Security
    ///
    /// With this setting, users who have set up an authenticator app are not protected by it: the steps of the policy are
    /// enough, for example a stolen password.
    #[must_use]
    pub fn without_enrolled_second_factor(self) -> Self {
        Self { asks_enrolled: false, ..self }
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether some step does not accept every method.
    pub(super) fn names_methods(&self) -> bool {
        self.slots.iter().any(|slot| *slot != MethodSet::ALL)
    }

    /// Returns whether some of these methods, each of a different factor class, fill all slots.
    pub fn is_met_by(&self, proved: MethodSet) -> bool {
        proved.distinct_subsets().any(|set| self.is_filled_by(set))
    }

    /// Like [`is_met_by`](Self::is_met_by), for methods that are known to be of different factor
    /// classes.
    pub(super) fn is_filled_by(&self, distinct: MethodSet) -> bool {
        fills(distinct, &self.slots)
    }
}

fn check_steps(steps: usize) -> Result<(), ConfigError> {
    let is_refused = !(1..=Policy::MAX_STEPS).contains(&steps);
    ConfigError::refuse_if(is_refused, SETTING, format_args!("{steps} steps"), "must have 1 to 6 steps")
}

/// Returns whether each slot can be filled with a different method.
fn fills(methods: MethodSet, slots: &[MethodSet]) -> bool {
    let Some((slot, rest)) = slots.split_first() else { return true };
    slot.intersection(methods).iter().any(|method| fills(methods.without(method), rest))
}

/// One step with any method.
impl Default for Policy {
    fn default() -> Self {
        Self { slots: vec![MethodSet::ALL], without_self_enrolment: false, asks_enrolled: true }
    }
}

/// For example `2 steps: password; and sms or email`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_slots(f)?;
        if self.without_self_enrolment { f.write_str(", without self-enrolment") } else { Ok(()) }
    }
}

impl Policy {
    fn write_slots(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steps() {
            1 => f.write_str("1 step: ")?,
            steps => write!(f, "{steps} steps: ")?,
        }
        if self.steps() > 1 && self.slots.iter().all(|slot| *slot == MethodSet::ALL) {
            return f.write_str("each by any method");
        }
        for (place, slot) in self.slots.iter().enumerate() {
            if place > 0 {
                f.write_str("; and ")?;
            }
            match *slot {
                MethodSet::ALL => f.write_str("any method")?,
                slot if slot.is_empty() => f.write_str("none")?,
                slot => f.write_str(&slot.to_string().replace(", ", " or "))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Method, *};

    #[test]
    fn impossible_policies_are_rejected_with_a_reason() {
        let reason = |policy: Result<Policy, ConfigError>| policy.unwrap_err().to_string();
        let none: [MethodSet; 0] = [];
        assert_eq!(reason(Policy::slots(none)), "policy: 0 steps is not usable: must have 1 to 6 steps");
        assert_eq!(reason(Policy::any(0)), "policy: 0 steps is not usable: must have 1 to 6 steps");
        assert_eq!(reason(Policy::any(7)), "policy: 7 steps is not usable: must have 1 to 6 steps");
        assert!(Policy::slots([MethodSet::ALL; 7]).is_err());
        assert_eq!(
            reason(Policy::slots([Method::Sms.into(), MethodSet::EMPTY])),
            "policy: 2 steps: none; and sms is not usable: has a slot without a method"
        );
        assert_eq!(
            reason(Policy::slots([Method::Sms, Method::Whatsapp])),
            "policy: 2 steps: sms; and whatsapp is not usable: can't be satisfied by methods of different factor classes"
        );
        assert!(Policy::slots([Method::Sms | Method::Email, Method::Whatsapp | Method::Sms]).is_ok());
        assert!(Policy::slots([Method::Sms | Method::Email; 3]).is_err());
    }

    #[test]
    fn an_endless_list_is_rejected() {
        assert!(Policy::slots(std::iter::repeat(Method::Sms)).is_err());
    }

    #[test]
    fn policies_are_displayed_in_words() {
        assert_eq!(Policy::default().to_string(), "1 step: any method");
        assert_eq!(Policy::any(3).unwrap().to_string(), "3 steps: each by any method");
        let strict = Policy::any(2).unwrap().without_self_enrolment();
        assert_eq!(strict.to_string(), "2 steps: each by any method, without self-enrolment");
        let policy = Policy::slots([Method::Sms | Method::Email, Method::Password.into(), MethodSet::ALL]).unwrap();
        assert_eq!(policy.to_string(), "3 steps: password; and sms or email; and any method");
    }
}

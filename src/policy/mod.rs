//! Which steps a login needs.
//!
//! A [`Policy`] is a demand: so many slots, each of them "one of these
//! [`Method`]s". [`Policies`] hold those of the operator: a default, some for
//! tenants, some for names that a request can ask for (`acr_values`). A login
//! needs what all that apply to it demand together, the strictest of them, and
//! each step proves another [`FactorClass`]: a code by SMS and one by WhatsApp
//! prove the same phone, so they count once.
//!
//! What comes out is a [`LoginPlan`]. It is made from the tenant, the client and the
//! request alone and never from the account, so that it tells nobody who has one.
//!
//! ```
//! use tollgate::{Method, Policies, Policy, Tenant, policy::MethodSet};
//!
//! let acme = Tenant::parse("acme")?;
//! let policies = Policies::new(Policy::any(1)?)
//!     .tenant(acme.clone(), Policy::slots([Method::Password.into(), Method::Sms | Method::Email])?)
//!     .acr("urn:example:2fa", Policy::any(2)?)?;
//!
//! let enabled = MethodSet::from([Method::Password, Method::Email, Method::Passkey]);
//! let plan = policies.plan(&acme, None, Some("urn:example:2fa"), enabled)?;
//! assert_eq!(plan.steps(), 2);
//! assert_eq!(plan.methods(), Method::Password | Method::Email);
//! assert_eq!(plan.next(Method::Password.into()), Method::Email.into());
//! assert!(plan.is_met_by(Method::Email | Method::Password));
//!
//! let why = policies.explain(&acme, None, Some("urn:example:2fa"), enabled).to_string();
//! assert!(why.contains("Tenant acme demands 2 steps: password; and sms or email."));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod demand;
mod explain;
pub(crate) mod file;
mod method;
#[cfg(test)]
mod model;
mod plan;
mod policies;

pub use self::{
    demand::Policy,
    explain::Explanation,
    method::MethodSet,
    method::{FactorClass, Method},
    plan::{LoginPlan, Unsatisfiable},
    policies::Policies,
};

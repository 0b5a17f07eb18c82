//! Policies that decide which steps a login needs.
//!
//! A [`Policy`] has a number of slots, each of which accepts certain [`Method`]s. [`Policies`] holds all policies of
//! the operator: a default, policies of tenants, and policies for values of `acr_values`. A login must satisfy all
//! policies that apply to it. Each step must prove a different [`FactorClass`]: SMS and WhatsApp both prove access to a
//! phone, so they count once. Codes from an authenticator app and recovery codes count once too, and are never the
//! first step.
//!
//! The result is a [`LoginPlan`]. It depends only on the tenant, the client and the request, never
//! on the account, so it does not reveal whether an account exists. After the first proved step, a login also needs the
//! second factor that the account has enrolled ([`Policy::without_enrolled_second_factor`] switches this off).
//!
//! ```
//! use tollgate::{Policies, Tenant, policy::{Method, MethodSet, Policy}};
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
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod demand;
mod enrolled;
mod method;
#[cfg(test)]
mod model;
mod plan;
mod policies;
mod reset;

pub use self::{
    demand::Policy,
    method::MethodSet,
    method::{FactorClass, Method},
    plan::{LoginPlan, Unsatisfiable},
    policies::Policies,
};
#[cfg(feature = "login")]
pub(crate) use self::{enrolled::EnrolledFactors, reset::ResetDemand};

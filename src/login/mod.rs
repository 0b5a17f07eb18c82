//! The login state machine and its parts: pure, without I/O. The module `auth` stores logins, checks secrets and sends
//! codes.

mod keyed;
mod limits;
mod machine;
#[cfg(test)]
mod model;
mod one_time_code;
mod parameters;
mod rows;
mod sent_codes;
mod state;
mod subject;
mod throttle;

pub use self::limits::LoginLimits;
pub(crate) use self::limits::RESEND_INTERVAL;
pub(crate) use self::state::OpenRedirect;
pub(crate) use self::{
    keyed::Keyed,
    machine::{LoginCall, LoginError, Proved, Transition, refusal, transition},
    one_time_code::{DIGITS, OneTimeCode, OpenCode},
    parameters::{Binding, Wanted},
    sent_codes::{SendLimit, SendRefused, SentCodes},
    state::{CarriedProofs, Challenge, Login, LoginView, OpenChallenge},
    subject::{BoundUser, LoginId, Subject},
    throttle::Throttle,
};

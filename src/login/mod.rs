//! The login state machine and its parts: pure, without I/O. What is stored, asked and sent stands in `auth`.

mod code;
mod keyed;
mod machine;
#[cfg(test)]
mod model;
mod parameters;
mod sends;
mod state;
mod throttle;

pub(crate) use self::{
    code::{DIGITS, OneTimeCode},
    keyed::Keyed,
    machine::{Call, Denied, Proof, Step, step},
    parameters::{Binding, ClientParameters, Wanted},
    sends::{Allowance, COOL_DOWN, Sends, TooSoon},
    state::{CODE_LIVES, Carried, Challenge, Login, LoginId, OpenCode, View},
    throttle::Throttle,
};

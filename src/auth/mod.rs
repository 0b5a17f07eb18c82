//! [`AuthService`]: the endpoints of a login, as a tower service.

mod answer;
mod authorize;
mod complete;
mod cookies;
mod fields;
mod grant;
mod guard;
mod inner;
mod issuer;
mod journal;
mod key;
mod logins;
#[cfg(test)]
mod openapi;
mod otp;
mod page;
mod password;
mod problem;
mod request;
mod route;
mod service;
mod start;
mod status;
mod step;
mod visit;

pub use self::service::{AuthFuture, AuthService};

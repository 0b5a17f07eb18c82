//! Helpers of the modules below: for configuration, and for requests to other services.

#[cfg(feature = "login")]
pub(crate) mod fair_queue;
#[cfg_attr(not(feature = "login"), allow(dead_code, reason = "other features use only parts of it"))]
pub(crate) mod issuer;
#[cfg(any(feature = "webhook", feature = "external-providers"))]
#[cfg_attr(
    not(all(feature = "webhook", feature = "external-providers")),
    allow(dead_code, reason = "one feature reads only the head of a response, the other all of it")
)]
pub(crate) mod outgoing;
#[cfg(any(feature = "smtp", feature = "webhook", feature = "external-providers"))]
pub(crate) mod roots;
#[cfg(feature = "login")]
pub(crate) mod run_to_completion;
#[cfg(feature = "login")]
pub(crate) mod seal;
#[cfg(any(feature = "login", feature = "external-providers"))]
pub(crate) mod url;

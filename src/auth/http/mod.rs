//! The HTTP layer of the login service: paths, fields, responses, errors, CORS and cookies.

pub(crate) mod answer;
pub(crate) mod bodies;
pub(crate) mod cookies;
pub(crate) mod cors;
pub(crate) mod fields;
pub(crate) mod problem;
pub(crate) mod route;
pub(crate) mod user_agent;

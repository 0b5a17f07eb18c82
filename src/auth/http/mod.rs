//! HTTP as the login service speaks it: paths, fields, answers, errors, CORS, cookies.

pub(crate) mod answer;
pub(crate) mod bodies;
pub(crate) mod cookies;
pub(crate) mod cors;
pub(crate) mod credentials;
pub(crate) mod fields;
pub(crate) mod problem;
pub(crate) mod route;

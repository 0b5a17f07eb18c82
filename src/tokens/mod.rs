//! Tokens that a login service issues.

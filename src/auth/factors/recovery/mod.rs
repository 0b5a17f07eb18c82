//! The method `recovery_code`.

pub(crate) mod code;

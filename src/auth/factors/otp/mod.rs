//! One-time codes: the methods `sms`, `email` and `whatsapp`.

pub(crate) mod contacts;
pub(crate) mod login;
